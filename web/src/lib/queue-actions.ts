// What can be done with a queue, each with the question before it that says what and how many.

import { act } from "../parts/dialog";
import { count, duration, many } from "./format";

const MAX = 4_294_967_295;

export function pause(queue: string, after: () => void): Promise<void> {
    return act({
        question: {
            title: `Pause ${queue}?`,
            text: "Jobs can still be pushed, but none is given to workers until the queue is resumed. Active jobs go on.",
            action: `Pause ${queue}`,
        },
        run: () => ["Pause", { queue }],
        said: () => `${queue} is paused`,
        after,
    });
}

export function resume(queue: string, after: () => void): Promise<void> {
    return act({ run: () => ["Resume", { queue }], said: () => `${queue} is resumed`, after });
}

export interface Limits {
    rateLimit: { max: number; duration: number } | null;
    concurrencyLimit: number | null;
}

/** The limits of a queue in a few words. */
export function limitsText({ rateLimit, concurrencyLimit }: Limits): string {
    const parts: string[] = [];
    if (rateLimit) {
        const { max, duration: span } = rateLimit;
        parts.push(span === 1000 ? `${count(max)}/s` : `${count(max)} per ${duration(span)}`);
    }
    if (concurrencyLimit !== null) parts.push(`${count(concurrencyLimit)} at once`);
    return parts.join(", ");
}

export async function changeRate(queue: string, limits: Limits, after: () => void): Promise<void> {
    await act({
        question: {
            title: `Rate limit of ${queue}`,
            text: "At most this many jobs are delivered to workers in each interval. Leave the number empty to remove the limit.",
            action: "Set",
            fields: [
                { name: "max", label: "Jobs", type: "number", min: 1, max: MAX, value: limits.rateLimit ? String(limits.rateLimit.max) : "" },
                { name: "duration", label: "Interval in ms", type: "number", min: 1, max: 86_400_000, value: String(limits.rateLimit?.duration ?? 1000) },
            ],
        },
        run: ({ max, duration: span }) =>
            max ? ["RateLimit", { queue, limit: Number(max), duration: Number(span) || 1000 }] : ["RateLimitClear", { queue }],
        said: () => `The rate limit of ${queue} is changed`,
        after,
    });
}

export async function changeConcurrency(queue: string, limits: Limits, after: () => void): Promise<void> {
    await act({
        question: {
            title: `Concurrency of ${queue}`,
            text: "At most this many jobs are active at a time. Leave the number empty to remove the limit. Jobs that are active already go on.",
            action: "Set",
            fields: [
                {
                    name: "limit",
                    label: "Active jobs",
                    type: "number",
                    min: 1,
                    max: MAX,
                    value: limits.concurrencyLimit === null ? "" : String(limits.concurrencyLimit),
                },
            ],
        },
        run: ({ limit }) => (limit ? ["SetConcurrency", { queue, limit: Number(limit) }] : ["ClearConcurrency", { queue }]),
        said: () => `The concurrency of ${queue} is changed`,
        after,
    });
}

export type Counts = Record<string, number>;

export function obliterate(queue: string, counts: Counts, after: () => void): Promise<void> {
    const all = ["waiting", "delayed", "active", "completed", "failed", "waiting-children"].reduce((sum, state) => sum + (counts[state] ?? 0), 0);
    return act({
        question: { title: `Obliterate ${queue}?`, text: `All ${many(all, "job")}, active ones too, and the limits and settings of the queue will be gone. This cannot be undone.`, action: `Obliterate ${queue}`, danger: true, word: queue },
        run: () => ["Obliterate", { queue }],
        said: () => `${queue} is obliterated`,
        after,
    });
}
