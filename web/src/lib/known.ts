// Which commands the server knows: what needs another is not offered. A page may be older or newer than its server, as a tab
// stays open while the server is updated.

import { effect, signal } from "@preact/signals";
import { ask, connection } from "./server";

/** Each with fields that the command refuses, so that asking changes nothing. */
const PROBES = {
    Bulk: {},
    CronTrigger: {},
    DlqGroups: { limit: 0 },
    Subscribe: { sample: 0 },
    TestWebhook: {},
};

export type Command = keyof typeof PROBES;

const known = signal<ReadonlySet<string>>(new Set());

effect(() => {
    if (connection.value !== "open") return;
    for (const [cmd, fields] of Object.entries(PROBES)) {
        const learn = (knows: boolean) => {
            if (known.peek().has(cmd) === knows) return;
            const next = new Set(known.peek());
            if (knows) next.add(cmd);
            else next.delete(cmd);
            known.value = next;
        };
        ask(cmd, fields).then(
            () => learn(true),
            (error: Error & { code?: string }) => {
                if (error.code !== "away") learn(!error.message.startsWith("Unknown command"));
            },
        );
    }
});

export function knows(cmd: Command): boolean {
    return known.value.has(cmd);
}
