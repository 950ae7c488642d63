// JSON that is looked at without being parsed: payloads are shown with the digits that they came with. Nothing here
// recurses, as a payload may nest as deep as it likes.

const QUOTE = 34;
const BACKSLASH = 92;

function isSpace(code: number): boolean {
    return code === 32 || code === 10 || code === 13 || code === 9;
}

/** Where the next character is that is no space. */
export function pastSpace(text: string, at: number): number {
    while (isSpace(text.charCodeAt(at))) at++;
    return at;
}

/** Behind the string that begins at a quote. */
function pastString(text: string, at: number): number {
    for (at++; at < text.length; at++) {
        const code = text.charCodeAt(at);
        if (code === BACKSLASH) at++;
        else if (code === QUOTE) return at + 1;
    }
    return at;
}

/** Behind the value that begins here. */
export function pastValue(text: string, at: number): number {
    at = pastSpace(text, at);
    let depth = 0;
    while (at < text.length) {
        const character = text[at];
        if (character === '"') at = pastString(text, at);
        else if (character === "{" || character === "[") {
            depth++;
            at++;
        } else if (character === "}" || character === "]") {
            depth--;
            at++;
        } else if (character === "," || character === ":" || isSpace(text.charCodeAt(at))) {
            at++;
        } else {
            while (at < text.length && !',:]}" \n\r\t'.includes(text[at]!)) at++;
        }
        if (depth <= 0) return at;
    }
    return at;
}

export type Kind = "object" | "list" | "string" | "number" | "boolean" | "null";

export function kindOf(text: string, at = 0): Kind {
    switch (text[pastSpace(text, at)]) {
        case "{":
            return "object";
        case "[":
            return "list";
        case '"':
            return "string";
        case "t":
        case "f":
            return "boolean";
        case "n":
            return "null";
        default:
            return "number";
    }
}

/** A member of an object or an element of a list: where its value is in the text. */
export interface Entry {
    /** The key as text, or the index. */
    key: string;
    start: number;
    end: number;
}

/** The members of the container that begins here: at most so many of them. */
export function entries(text: string, at: number, most = Infinity): Entry[] {
    const found: Entry[] = [];
    at = pastSpace(text, at);
    const isObject = text[at] === "{";
    const end = isObject ? "}" : "]";
    at = pastSpace(text, at + 1);
    while (at < text.length && text[at] !== end && found.length < most) {
        let key = String(found.length);
        if (isObject) {
            const behind = pastString(text, at);
            key = unquoted(text.slice(at, behind));
            at = pastSpace(text, pastSpace(text, behind) + 1);
        }
        const behind = pastValue(text, at);
        found.push({ key, start: at, end: behind });
        at = pastSpace(text, behind);
        if (text[at] === ",") at = pastSpace(text, at + 1);
    }
    return found;
}

/** The text of the value at a path of keys, as it stands there. */
export function rawAt(text: string, path: readonly string[]): string | undefined {
    let at = 0;
    for (const key of path) {
        const kind = kindOf(text, at);
        if (kind !== "object" && kind !== "list") return undefined;
        const entry = entries(text, at).find((one) => one.key === key);
        if (!entry) return undefined;
        at = entry.start;
    }
    return text.slice(pastSpace(text, at), pastValue(text, at));
}

/** A string with its escapes undone. */
export function unquoted(raw: string): string {
    try {
        return JSON.parse(raw) as string;
    } catch {
        return raw;
    }
}

/** The same value over several lines. Only spaces differ. */
export function indented(raw: string): string {
    let out = "";
    let depth = 0;
    let at = pastSpace(raw, 0);
    const line = () => "\n" + "  ".repeat(depth);
    while (at < raw.length) {
        const character = raw[at]!;
        if (character === '"') {
            const behind = pastString(raw, at);
            out += raw.slice(at, behind);
            at = behind;
        } else {
            if (character === "{" || character === "[") {
                const next = pastSpace(raw, at + 1);
                if (raw[next] === "}" || raw[next] === "]") {
                    out += character + raw[next];
                    at = next;
                } else {
                    depth++;
                    out += character + line();
                }
            } else if (character === "}" || character === "]") {
                depth--;
                out += line() + character;
            } else if (character === ",") out += "," + line();
            else if (character === ":") out += ": ";
            else out += character;
            at++;
        }
        at = pastSpace(raw, at);
    }
    return out;
}
