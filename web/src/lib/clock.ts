// The time of the server, as far as this browser knows it, and how times are shown.

import { signal } from "@preact/signals";
import { kept } from "./store";

/** How far the server's clock is ahead of this one, in ms. */
export const ahead = signal(0);

/** The server's time, once a second while the page is seen. */
export const now = signal(Date.now());

export function serverNow(): number {
    return Date.now() + ahead.value;
}

setInterval(() => {
    if (!document.hidden) now.value = serverNow();
}, 1000);

/** Whether times are shown as they are or by how long ago they were. */
export const timeForm = kept("times", "relative", ["relative", "absolute"] as const);

/** The zone of times. */
export const zone = kept("zone", "local", ["local", "utc"] as const);
