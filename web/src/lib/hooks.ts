// Questions that a page asks the server again and again, as long as it is seen.

import { effect } from "@preact/signals";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { type Part, Refused, ask, ready, watch } from "./server";

export interface Query<T> {
    data: T | null;
    /** The reply as it came. */
    text: string;
    error: Refused | null;
    /** Asks at once. */
    again: () => void;
}

/** Asks a command while there is a connection, every so many ms, or once. No fields: it asks nothing. */
export function useQuery<T>(cmd: string, fields: object | null, everyMs = 0): Query<T> {
    const key = fields && cmd + JSON.stringify(fields);
    const [state, setState] = useState<{ key: string | null; data: T | null; text: string; error: Refused | null }>({
        key,
        data: null,
        text: "",
        error: null,
    });
    const run = useRef<() => void>(() => undefined);
    useEffect(() => {
        if (!fields) return;
        let live = true;
        let timer = 0;
        let under = false;
        const once = async () => {
            clearTimeout(timer);
            if (under || !ready.peek()) return;
            under = true;
            try {
                const { data, text } = await ask<T>(cmd, fields);
                if (live) setState({ key, data, text, error: null });
            } catch (error) {
                // What was shown stays while the connection is away.
                if (live && (error as Refused).code !== "away") {
                    setState({ key, data: null, text: "", error: error as Refused });
                }
            }
            under = false;
            if (live && everyMs > 0) timer = window.setTimeout(() => void once(), everyMs);
        };
        run.current = () => void once();
        const stop = effect(() => {
            if (ready.value) void once();
        });
        return () => {
            live = false;
            clearTimeout(timer);
            stop();
        };
    }, [key, everyMs]);
    const again = useCallback(() => run.current(), []);
    const own = state.key === key;
    return { data: own ? state.data : null, text: own ? state.text : "", error: own ? state.error : null, again };
}

/** Wants parts of the samples while the component is there. */
export function useWatch(...parts: Part[]): void {
    useEffect(() => watch(parts), [parts.join()]);
}

/** The width of an element, as it changes. */
export function useWidth(): [(element: HTMLElement | null) => void, number] {
    const [width, setWidth] = useState(0);
    const observer = useRef<ResizeObserver | null>(null);
    const ref = useCallback((element: HTMLElement | null) => {
        observer.current?.disconnect();
        if (!element) return;
        observer.current = new ResizeObserver(([entry]) => setWidth(Math.floor(entry!.contentRect.width)));
        observer.current.observe(element);
    }, []);
    return [ref, width];
}
