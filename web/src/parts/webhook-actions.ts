// What can be done with a webhook, each with the question before it.

import { duration } from "../lib/format";
import { knows } from "../lib/known";
import { may } from "../lib/rights";
import { type Refused, ask } from "../lib/server";
import { act, question, say } from "./dialog";

export interface Webhook {
    id: string;
    url: string;
    events: string[];
    queue?: string;
    createdAt: number;
    lastTriggered: number | null;
    successCount: number;
    failureCount: number;
    enabled: boolean;
}

export interface Delivery {
    timestamp: number;
    event: string;
    jobId: string;
    attempt: number;
    delivered: boolean;
    status: number | null;
    error: string | null;
    duration: number;
    test: boolean;
}

export function canTest(): boolean {
    return knows("TestWebhook") && may("change");
}

/** Posts a sample, and says what came of it. */
export async function test(hook: Webhook, after: () => void): Promise<void> {
    const answers = await question({
        title: "Post a sample?",
        text: `1 event webhook.test is posted to ${hook.url} at once${hook.enabled ? "" : ", although the webhook is disabled"}.`,
        action: "Post 1 sample",
    });
    if (!answers) return;
    try {
        const { data } = await ask<{ data: Delivery }>("TestWebhook", { id: hook.id });
        const { delivered, status, error, duration: took } = data.data;
        say(delivered ? `Delivered: status ${status} after ${duration(took)}` : `Not delivered: ${error ?? `status ${status}`}`, !delivered);
    } catch (refused) {
        say((refused as Refused).message, true);
    }
    after();
}

export function setEnabled(hook: Webhook, enabled: boolean, after: () => void): Promise<void> {
    return act({
        ...(enabled
            ? {}
            : {
                  question: {
                      title: "Disable this webhook?",
                      text: `Nothing is posted to ${hook.url} until it is enabled again. Pending events are dropped, and events that happen meanwhile are not sent later.`,
                      action: "Disable 1 webhook",
                  },
              }),
        run: () => ["SetWebhookEnabled", { id: hook.id, enabled }],
        said: () => `The webhook is ${enabled ? "enabled" : "disabled"}`,
        after,
    });
}

export function remove(hook: Webhook, after: () => void): Promise<void> {
    return act({
        question: {
            title: "Remove this webhook?",
            text: `Nothing is posted to ${hook.url} any more, and its secret is gone. This cannot be undone.`,
            action: "Remove 1 webhook",
            danger: true,
        },
        run: () => ["RemoveWebhook", { webhookId: hook.id }],
        said: () => "The webhook is removed",
        after,
    });
}
