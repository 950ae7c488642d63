// What the token of this page may do. The server decides; what it would refuse is not offered.

import { computed } from "@preact/signals";
import { who } from "./server";

/** read: look at jobs; server: look at the server as a whole; change: change what others have made; operate: see what only its operators see. */
export type Right = "read" | "server" | "change" | "operate";

const own = computed<ReadonlySet<Right>>(() => {
    const now = who.value;
    const rights = new Set<Right>();
    if (!now) return rights;
    if (now.role === "admin" || now.role === "read") {
        rights.add("read");
        if (!now.queues) rights.add("server");
    }
    if (now.role === "admin" && !now.readOnly) {
        rights.add("change");
        if (!now.queues) rights.add("operate");
    }
    return rights;
});

export function may(right: Right): boolean {
    return own.value.has(right);
}
