// What the page remembers in the browser: how it looks, and nothing of any job.

import { type Signal, effect, signal } from "@preact/signals";

/** A signal that outlives the page. */
export function kept<T extends string>(name: string, initial: T, choices: readonly T[]): Signal<T> {
    let value = initial;
    try {
        const stored = localStorage.getItem(`corq.${name}`) as T | null;
        if (stored !== null && choices.includes(stored)) value = stored;
    } catch {
        // A browser that keeps nothing shows the page as at first.
    }
    const own = signal(value);
    effect(() => {
        const now = own.value;
        try {
            if (now === initial) localStorage.removeItem(`corq.${name}`);
            else localStorage.setItem(`corq.${name}`, now);
        } catch {
            // As above.
        }
    });
    return own;
}
