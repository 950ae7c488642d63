// A list that is read page by page as it is scrolled, of which what is seen is read anew every so often.

import { effect } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Refused, ask, ready } from "../lib/server";

interface Chunk<Row> {
    after: string | null;
    rows: Row[];
    next: string | null;
}

export interface List<Row> {
    rows: Row[];
    more: boolean;
    error: Refused | null;
    loaded: boolean;
    onEnd: () => void;
    onSeen: (rows: readonly Row[]) => void;
    again: () => void;
}

/** Pages that are read in vain, because filters leave everything out, before the reader is waited for. */
const EMPTY_MAX = 20;

export interface Options<Row> {
    /** What is left out although the server sends it. */
    keep?: (row: Row) => boolean;
    /** What `keep` depends on. */
    keptBy?: string;
    /** Of a list without `next`: what the next page begins after. */
    nextOf?: (rows: readonly Row[]) => string | null;
}

export function useList<Row>(
    cmd: string,
    fields: object | null,
    name: string,
    keyOf: (row: Row) => string,
    everyMs: number,
    options: Options<Row> = {},
): List<Row> {
    const key = cmd + JSON.stringify(fields) + (options.keptBy ?? "");
    const [shown, setShown] = useState<{ key: string; chunks: Chunk<Row>[]; error: Refused | null }>({
        key,
        chunks: [],
        error: null,
    });
    const own = useRef<{ key: string; chunks: Chunk<Row>[]; seen: ReadonlySet<string>; reading: boolean; empty: number }>({
        key: "",
        chunks: [],
        seen: new Set(),
        reading: false,
        empty: 0,
    });
    if (own.current.key !== key) own.current = { key, chunks: [], seen: new Set(), reading: false, empty: 0 };

    const read = async (after: string | null): Promise<Chunk<Row>> => {
        const { data } = await ask<Record<string, unknown>>(cmd, { ...fields, ...(after === null ? {} : { after }) });
        const rows = (data[name] ?? (data["data"] as Record<string, unknown>)[name]) as Row[];
        const next = (data["next"] ?? (data["data"] as Record<string, unknown> | undefined)?.["next"] ?? null) as string | null;
        return {
            after,
            rows: options.keep ? rows.filter(options.keep) : rows,
            next: options.nextOf ? options.nextOf(rows) : next,
        };
    };
    const show = () => {
        const { key, chunks } = own.current;
        setShown({ key, chunks: [...chunks], error: null });
    };
    /** Reads the next page, or the first. */
    const extend = async () => {
        const state = own.current;
        const last = state.chunks[state.chunks.length - 1];
        if (!fields || state.reading || !ready.peek() || (last && last.next === null)) return;
        state.reading = true;
        try {
            const chunk = await read(last?.next ?? null);
            if (own.current !== state) return;
            state.chunks.push(chunk);
            show();
            state.empty = chunk.rows.length > 0 ? 0 : state.empty + 1;
        } catch (error) {
            if (own.current === state && (error as Refused).code !== "away") {
                setShown({ key: state.key, chunks: [], error: error as Refused });
                return;
            }
        } finally {
            state.reading = false;
        }
        const { chunks, empty } = state;
        const rows = chunks.reduce((sum, chunk) => sum + chunk.rows.length, 0);
        if (rows < 30 && chunks[chunks.length - 1]?.next !== null && empty < EMPTY_MAX) void extend();
    };
    /** Reads anew what is seen. */
    const refresh = async () => {
        const state = own.current;
        if (state.chunks.length === 0) return extend();
        const isSeen = (chunk: Chunk<Row>) => chunk.rows.some((row) => state.seen.has(keyOf(row)));
        const stale = state.chunks.filter((chunk, at) => isSeen(chunk) || (at === 0 && state.seen.size === 0));
        for (const chunk of stale) {
            try {
                const now = await read(chunk.after);
                if (own.current !== state) return;
                // Pages behind begin where they did, so what is on two pages now is shown once.
                const at = state.chunks.indexOf(chunk);
                const isLast = at === state.chunks.length - 1;
                state.chunks[at] = isLast ? now : { ...now, next: chunk.next };
            } catch {
                return;
            }
        }
        if (own.current === state) show();
    };

    const current = useRef(refresh);
    current.current = refresh;
    useEffect(() => {
        if (!fields) return;
        let timer = 0;
        let live = true;
        const tick = () => {
            clearTimeout(timer);
            if (!ready.peek()) return;
            void current.current().then(() => {
                if (live) timer = window.setTimeout(tick, everyMs);
            });
        };
        const stop = effect(() => {
            if (ready.value) tick();
        });
        return () => {
            live = false;
            clearTimeout(timer);
            stop();
        };
    }, [key, everyMs]);

    const isOwn = shown.key === key;
    const rows = useMemo(() => {
        const rows: Row[] = [];
        const known = new Set<string>();
        for (const chunk of isOwn ? shown.chunks : []) {
            for (const row of chunk.rows) {
                const id = keyOf(row);
                if (!known.has(id)) rows.push(row);
                known.add(id);
            }
        }
        return rows;
    }, [isOwn, shown.chunks]);
    const last = shown.chunks[shown.chunks.length - 1];
    return {
        rows,
        more: isOwn && last !== undefined && last.next !== null,
        error: isOwn ? shown.error : null,
        loaded: isOwn && shown.chunks.length > 0,
        onEnd: () => void extend(),
        onSeen: (seen) => (own.current.seen = new Set(seen.map(keyOf))),
        again: () => void refresh(),
    };
}
