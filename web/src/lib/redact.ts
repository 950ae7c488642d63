// Values that the page covers: those at the paths of UI_REDACT. A pattern covers a path that ends with it, so that
// `password` is covered wherever it is; `*` stands for one key or place.

import { config } from "./config";
import { entries, kindOf, pastSpace, pastValue } from "./json";

const patterns = config.redact.map((path) => path.split(".").reverse());

/** Whether what is at this path is covered. */
export function isCovered(path: readonly string[], own = patterns): boolean {
    return own.some(
        (pattern) =>
            pattern.length <= path.length &&
            pattern.every((part, back) => part === "*" || part === path[path.length - 1 - back]),
    );
}

export const COVER = '"[redacted]"';

/** The same text with the values covered. */
export function covered(raw: string, own = patterns): string {
    if (own.length === 0) return raw;
    const cuts: { start: number; end: number }[] = [];
    const open: { at: number; path: string[] }[] = [{ at: pastSpace(raw, 0), path: [] }];
    while (open.length > 0) {
        const { at, path } = open.pop()!;
        if (!["object", "list"].includes(kindOf(raw, at))) continue;
        for (const { key, start, end } of entries(raw, at)) {
            const inner = [...path, key];
            if (isCovered(inner, own)) cuts.push({ start, end });
            else open.push({ at: start, path: inner });
        }
    }
    cuts.sort((one, other) => one.start - other.start);
    let out = "";
    let from = 0;
    for (const { start, end } of cuts) {
        out += raw.slice(from, start) + COVER;
        from = end;
    }
    return out + raw.slice(from, Math.max(from, pastValue(raw, 0)));
}

/** Whether a piece of a payload must not be shown, because where its values are cannot be told. */
export const hasPatterns = patterns.length > 0;
