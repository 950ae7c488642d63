// Actions on many jobs: first what would be done is counted, then it is asked, then a task does it, which is followed here
// and can be cancelled. A task goes on without the page.

import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { count, many } from "../lib/format";
import { useQuery } from "../lib/hooks";
import { knows } from "../lib/known";
import { may } from "../lib/rights";
import { seen } from "../lib/seen";
import { ask } from "../lib/server";
import { Button, Card, QueueLink, Time } from "./basics";
import { act, question, say } from "./dialog";

export interface Task {
    id: string;
    action: string;
    queue: string | null;
    dryRun: boolean;
    state: "running" | "done" | "cancelled" | "failed";
    paused: boolean;
    error?: string;
    total: number;
    counted: number;
    matched: number;
    changed: number;
    skipped: { notFound: number; active: number; state: number; damaged: number };
    partly: number;
    startedAt: number;
    endedAt: number | null;
    startedBy: string;
}

export type Action = "retry" | "remove" | "cancel" | "promote" | "discard";

/** What an action is called before and after. */
const WORDS: Record<string, readonly [string, string]> = {
    retry: ["Retry", "retried"],
    remove: ["Remove", "removed"],
    cancel: ["Cancel", "cancelled"],
    promote: ["Run now", "made ready"],
    discard: ["Discard", "made dead letters"],
    delay: ["Delay", "delayed"],
    priority: ["Change priority", "given another priority"],
};

const words = (action: string) => WORDS[action] ?? ([action, "changed"] as const);

/** What is counted now, before it is asked. */
const counting = signal<{ text: string; task: Task | null } | null>(null);

/** Raised when a task has begun, so that it is seen at once. */
const begun = signal(0);

async function end(id: string): Promise<Task> {
    for (;;) {
        const { data } = await ask<{ task: Task }>("GetTask", { task: id });
        if (data.task.state !== "running") return data.task;
        if (counting.value) counting.value = { ...counting.value, task: data.task };
        await new Promise((resolve) => setTimeout(resolve, 250));
        await seen();
    }
}

/** Does something with the jobs of a queue that a filter lets through: `noun` are these, `about` the filter in words. */
export async function bulk(own: {
    action: Action;
    queue: string;
    filter: object;
    noun: readonly [string, string];
    about: string;
}): Promise<void> {
    const { action, queue, filter } = own;
    const [verb, done] = words(action);
    const named = (number: number) => many(number, own.noun[0], own.noun[1]);
    const fields = { action, queue, filter };
    if (counting.value) return;
    try {
        counting.value = { text: `Counting the ${own.noun[1]} of ${queue}${own.about} that would be ${done}`, task: null };
        const { data } = await ask<{ taskId: string }>("Bulk", { ...fields, dryRun: true });
        const dry = await end(data.taskId);
        counting.value = null;
        if (dry.state === "cancelled") return say("Nothing was changed");
        if (dry.state === "failed") return say(dry.error ?? "The count has failed", true);
        if (dry.changed === 0) return say(`No ${own.noun[0]} of ${queue}${own.about} can be ${done}`);
        const left = skippedText(dry);
        const doing = action === "promote" ? `Run ${named(dry.changed)} now` : `${verb} ${named(dry.changed)}`;
        const answers = await question({
            title: `${doing}?`,
            text:
                `A dry run checked ${many(dry.counted, "job")}: ${named(dry.changed)} of ${queue}${own.about} will be ${done}.` +
                `${left ? ` Left out: ${left}.` : ""}${action === "remove" || action === "cancel" ? " This cannot be undone." : ""}`,
            action: doing,
            danger: action === "remove" || action === "cancel" || action === "discard",
            ...(action === "remove" ? { word: queue } : {}),
        });
        if (!answers) return;
        await ask("Bulk", fields);
        begun.value++;
        say(`${doing}: the task has started`);
    } catch (error) {
        say((error as Error).message, true);
    } finally {
        counting.value = null;
    }
}

function skippedText(task: Task): string {
    const { notFound, active, state, damaged } = task.skipped;
    return [
        notFound ? `${count(notFound)} not found` : "",
        active ? `${count(active)} active` : "",
        state ? `${count(state)} in another state` : "",
        damaged ? `${count(damaged)} unreadable` : "",
        task.partly ? `${count(task.partly)} searched only in part` : "",
    ]
        .filter(Boolean)
        .join(", ");
}

/** What is counted, and the tasks that run or have ended, of a queue or of all. */
export function Tasks({ queue, onEnd }: { queue?: string; onEnd?: () => void }) {
    const known = knows("Bulk");
    const list = useQuery<{ tasks: Task[] }>("ListTasks", known ? {} : null, 1000);
    const tasks = (list.data?.tasks ?? []).filter((task) => !task.dryRun && (!queue || task.queue === queue)).sort((one, other) => other.startedAt - one.startedAt);
    const running = tasks.filter((task) => task.state === "running").length;
    const before = useRef("");
    const ended = tasks.filter((task) => task.state !== "running").map((task) => task.id).join();
    useEffect(() => {
        if (before.current !== "" && before.current !== `:${ended}`) onEnd?.();
        if (list.data) before.current = `:${ended}`;
    }, [ended, list.data]);
    useEffect(() => list.again(), [begun.value]);
    const now = counting.value;
    if (!now && tasks.length === 0) return null;
    return (
        <Card title="Tasks" note={running > 0 ? `${count(running)} running; they go on when this page is closed` : "none is running"}>
            <ul class="tasks">
                {now && (
                    <li>
                        <span class="task-name">{now.text}</span>
                        <span class="note">{now.task ? `${count(now.task.counted)} of ${count(now.task.total)}` : ""}</span>
                        {now.task && (
                            <Button kind="quiet" onClick={() => void ask("CancelTask", { task: now.task!.id }).catch(() => undefined)}>
                                Stop
                            </Button>
                        )}
                        <Bar part={now.task ? now.task.counted : 0} of={now.task ? now.task.total : 1} label="Counted" />
                    </li>
                )}
                {tasks.slice(0, 8).map((task) => (
                    <TaskRow key={task.id} task={task} again={list.again} />
                ))}
            </ul>
        </Card>
    );
}

function TaskRow({ task, again }: { task: Task; again: () => void }) {
    const [verb, done] = words(task.action);
    const isRunning = task.state === "running";
    const left = skippedText(task);
    return (
        <li data-task={task.state}>
            <span class="task-name">
                <b>{verb}</b> {task.queue ? <>in <QueueLink name={task.queue} /></> : "jobs by id"}{" "}
                {task.paused && isRunning && <span class="tag warn">waits</span>}
                {task.state === "cancelled" && <span class="tag">cancelled</span>}
                {task.state === "failed" && <span class="tag warn">failed</span>}
            </span>
            <span class="note">
                {count(task.changed)} {done}
                {isRunning ? `, ${count(task.counted)} of ${count(task.total)} checked` : ""}
                {left ? `; left out: ${left}` : ""}
                {task.error ? `; ${task.error}` : ""}
                {" · "}
                {task.startedBy}, <Time at={task.endedAt ?? task.startedAt} />
            </span>
            {isRunning && may("change") && (
                <Button
                    kind="quiet"
                    onClick={() =>
                        void act({
                            question: {
                                title: "Cancel the task?",
                                text: `${many(task.changed, "job")} ${task.changed === 1 ? "is" : "are"} ${done} already and will stay so. No further jobs will be changed.`,
                                action: "Cancel the task",
                                danger: true,
                            },
                            run: () => ["CancelTask", { task: task.id }],
                            said: () => "The task is cancelled",
                            after: again,
                        })
                    }
                >
                    Cancel
                </Button>
            )}
            {isRunning && <Bar part={task.counted} of={task.total} label={`${verb}: jobs checked`} />}
        </li>
    );
}

function Bar({ part, of, label }: { part: number; of: number; label: string }) {
    const percent = of > 0 ? Math.min(100, Math.round((100 * part) / of)) : 100;
    return (
        <div class="progress" role="progressbar" aria-label={label} aria-valuenow={percent} aria-valuemin={0} aria-valuemax={100}>
            <i style={{ width: `${percent}%` }} />
        </div>
    );
}
