// Loops of questions wait while the page is not seen.

import { visible } from "./server";

/** Waits until the page is seen. */
export async function seen(): Promise<void> {
    while (!visible.peek()) await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
}
