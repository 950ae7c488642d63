// A payload as a tree, with the digits and texts that it came with. What is covered stays covered, also in what is copied.

import { useMemo, useState } from "preact/hooks";
import { many } from "../lib/format";
import { type Entry, entries, indented, kindOf, pastSpace, pastValue, unquoted } from "../lib/json";
import { covered } from "../lib/redact";
import { Card, Copy, FilterField } from "./basics";
import { Icon } from "./icons";

/** Members of one container that are shown at once. */
const AT_ONCE = 100;

/** Characters of a text that are shown at once. */
const TEXT_AT_ONCE = 400;

const FOUND_MAX = 200;

export function Payload({ raw, title, label }: { raw: string; title: string; label: string }) {
    const text = useMemo(() => covered(raw), [raw]);
    const [wanted, setWanted] = useState("");
    const [plain, setPlain] = useState(false);
    const found = useMemo(() => (wanted ? find(text, wanted) : null), [text, wanted]);
    const isLarge = text.length > 120;
    return (
        <Card
            title={title}
            class="payload"
            actions={
                <>
                    {isLarge && <FilterField label={`Find in ${label}`} value={wanted} onChange={setWanted} />}
                    {isLarge && (
                        <button type="button" class="button quiet" aria-pressed={plain} onClick={() => setPlain(!plain)}>
                            Text
                        </button>
                    )}
                    <Copy text={text} label={`Copy ${label}`} />
                </>
            }
        >
            {found ? (
                <div class="found">
                    <p class="note">
                        {found.length >= FOUND_MAX ? `The first ${FOUND_MAX} places` : many(found.length, "place")}
                    </p>
                    {found.map(({ path, shown }) => (
                        <div class="leaf" key={path}>
                            <span class="path">{path || "(all)"}</span> {shown}
                        </div>
                    ))}
                </div>
            ) : plain ? (
                <pre class="code" tabIndex={0}>
                    {indented(text.length > 2_000_000 ? text.slice(0, 2_000_000) : text)}
                </pre>
            ) : (
                <div class="tree">
                    <Value text={text} at={0} depth={0} />
                </div>
            )}
        </Card>
    );
}

function Value({ text, at, depth, name }: { text: string; at: number; depth: number; name?: string }) {
    const kind = kindOf(text, at);
    const start = pastSpace(text, at);
    const isContainer = kind === "object" || kind === "list";
    const [open, setOpen] = useState(depth < 2);
    const [most, setMost] = useState(AT_ONCE);
    const own: Entry[] = useMemo(
        () => (isContainer && open ? entries(text, start, most + 1) : []),
        [text, start, open, most, isContainer],
    );
    const key = name === undefined ? null : <span class="key-name">{name}</span>;
    if (!isContainer) {
        return (
            <div class="leaf">
                {key}
                <Scalar raw={text.slice(start, pastValue(text, start))} />
            </div>
        );
    }
    const brackets = kind === "object" ? "{}" : "[]";
    const isEmpty = text[pastSpace(text, start + 1)] === brackets[1];
    if (isEmpty) {
        return (
            <div class="leaf">
                {key}
                <span class="punct">{brackets}</span>
            </div>
        );
    }
    return (
        <div class="branch">
            <button type="button" class="branch-head" aria-expanded={open} onClick={() => setOpen(!open)}>
                <Icon name={open ? "down" : "right"} size={12} />
                {key}
                <span class="punct">{open ? brackets[0] : `${brackets[0]} … ${brackets[1]}`}</span>
            </button>
            {open && (
                <>
                    <div class="inner">
                        {own.slice(0, most).map((entry) => (
                            <Value key={entry.start} text={text} at={entry.start} depth={depth + 1} name={entry.key} />
                        ))}
                        {own.length > most && (
                            <button type="button" class="button quiet" onClick={() => setMost(most * 4)}>
                                More
                            </button>
                        )}
                    </div>
                    <span class="punct tail">{brackets[1]}</span>
                </>
            )}
        </div>
    );
}

function Scalar({ raw }: { raw: string }) {
    const [all, setAll] = useState(false);
    const isLong = raw.length > TEXT_AT_ONCE;
    return (
        <span class={`scalar ${kindOf(raw)}`}>
            {isLong && !all ? `${raw.slice(0, TEXT_AT_ONCE)}…` : raw}
            {isLong && (
                <button type="button" class="button quiet" onClick={() => setAll(!all)}>
                    {all ? "Less" : `All ${raw.length} characters`}
                </button>
            )}
        </span>
    );
}

/** The places whose key or value has a text in it. */
function find(text: string, wanted: string): { path: string; shown: string }[] {
    const low = wanted.toLowerCase();
    const found: { path: string; shown: string }[] = [];
    const open: { at: number; path: string }[] = [{ at: 0, path: "" }];
    while (open.length > 0 && found.length < FOUND_MAX) {
        const { at, path } = open.pop()!;
        const kind = kindOf(text, at);
        if (kind === "object" || kind === "list") {
            const inner = entries(text, at).map((entry) => ({
                at: entry.start,
                path: path ? `${path}.${entry.key}` : entry.key,
            }));
            open.push(...inner.reverse());
            continue;
        }
        const raw = text.slice(pastSpace(text, at), pastValue(text, at));
        const key = path.slice(path.lastIndexOf(".") + 1);
        const value = kind === "string" ? unquoted(raw) : raw;
        if (key.toLowerCase().includes(low) || value.toLowerCase().includes(low)) {
            found.push({ path, shown: raw.length > TEXT_AT_ONCE ? `${raw.slice(0, TEXT_AT_ONCE)}…` : raw });
        }
    }
    return found;
}
