// What can be done with a schedule, each with the question before it.

import { count, duration } from "../lib/format";
import { act } from "./dialog";

export interface Cron {
    name: string;
    queue: string;
    schedule: string | null;
    repeatEvery: number | null;
    nextRun: number | null;
    executions: number;
    enabled?: boolean;
    maxLimit?: number;
    timezone?: string;
    jobName?: string;
    priority?: number;
}

/** When it runs, in a few words. */
export function cadence(cron: Cron): string {
    return cron.schedule ?? `every ${duration(cron.repeatEvery)}`;
}

export function trigger(cron: Cron, after: () => void): Promise<void> {
    return act({
        question: {
            title: `Run ${cron.name} now?`,
            text: `1 job is pushed to ${cron.queue} at once. The time of the next run stays as it is.`,
            action: "Push 1 job",
        },
        run: () => ["CronTrigger", { name: cron.name }],
        said: (reply) => `${cron.name} has pushed the job ${String(reply["id"])}`,
        after,
    });
}

export function enable(cron: Cron, enabled: boolean, after: () => void): Promise<void> {
    return act({
        ...(enabled
            ? {}
            : {
                  question: {
                      title: `Disable ${cron.name}?`,
                      text: `It pushes no jobs to ${cron.queue} until it is enabled again. Runs that fall due meanwhile are skipped.`,
                      action: `Disable ${cron.name}`,
                  },
              }),
        run: () => ["SetCronEnabled", { name: cron.name, enabled }],
        said: () => `${cron.name} is ${enabled ? "enabled" : "disabled"}`,
        after,
    });
}

export function remove(cron: Cron, after: () => void): Promise<void> {
    return act({
        question: {
            title: `Remove ${cron.name}?`,
            text: `The schedule, its payload and the count of its ${count(cron.executions)} runs will be gone. Jobs that it has pushed stay. This cannot be undone.`,
            action: "Remove 1 schedule",
            danger: true,
        },
        run: () => ["CronDelete", { name: cron.name }],
        said: () => `${cron.name} is removed`,
        after,
    });
}
