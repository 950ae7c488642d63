// One job: why it does not run, what became of it so far, and what it carries.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { count, duration, many, perSecond, readable, shellWord } from "../lib/format";
import { useQuery } from "../lib/hooks";
import { resume } from "../lib/queue-actions";
import { rawAt } from "../lib/json";
import { covered } from "../lib/redact";
import { may } from "../lib/rights";
import { link, navigate } from "../lib/router";
import { root } from "../lib/config";
import { serverNow } from "../lib/clock";
import { Button, Card, Copy, Empty, JobLink, Problem, QueueLink, State, Time } from "../parts/basics";
import { act } from "../parts/dialog";
import { Icon } from "../parts/icons";
import { Menu, type Item } from "../parts/menu";
import { Payload } from "../parts/payload";
import { useOffers } from "../shell/palette";
import { type PageProps, exists } from ".";

interface Job {
    id: string;
    queue: string;
    state: string;
    name?: string;
    priority: number;
    createdAt: number;
    runAt: number;
    startedAt: number | null;
    completedAt: number | null;
    attempts: number;
    maxAttempts: number;
    backoff: number;
    stallCount: number;
    progress: number;
    progressMessage: string | null;
    tags: string[];
    dependsOn: string[];
    groupId: string | null;
    parentId: string | null;
    childrenIds: string[];
    ttl: number | null;
    timeout: number | null;
    durable: boolean;
    lifo: boolean;
    uniqueKey: string | null;
    customId: string | null;
    failedReason?: string | null;
    stacktrace?: string[] | null;
    timeline: { state: string; timestamp: number; attempt?: number }[];
}

interface Attempt {
    attempt: number;
    startedAt: number | null;
    endedAt: number | null;
    worker: string | null;
    error: string | null;
    stacktrace?: string[] | null;
}

interface Child {
    /** Nothing if it is in a queue that there is not for the token. */
    id?: string;
    state: string;
    queue?: string;
    name?: string;
    progress?: number;
}

interface Detail {
    job: Job;
    attempts: Attempt[];
    logs: { message: string; level: string; timestamp: number }[];
    children: { count: number; completed: number; truncated: boolean; jobs: Child[] };
}

/** A job is looked at this often; one with a large payload rarely, as that comes each time, and one with a huge payload when its state changes. */
const USUAL_MS = 1500;
const RARE_MS = 15_000;
const LARGE = 100_000;
const HUGE = 1_000_000;

export default function JobPage({ values }: PageProps) {
    const id = values["id"]!;
    const [every, setEvery] = useState(USUAL_MS);
    const whole = useQuery<{ data: Detail }>("GetJobDetail", { id }, every);
    const detail = whole.data?.data;
    const job = detail?.job;
    const result = useQuery<{ result?: unknown }>("GetResult", job?.state === "completed" ? { id } : null);
    const bytes = whole.text.length;
    useEffect(() => setEvery(bytes < LARGE ? USUAL_MS : bytes < HUGE ? RARE_MS : 0), [bytes < LARGE, bytes < HUGE]);
    // Of those the state is small, and says when the rest has to be read anew.
    const small = useQuery<{ state: string }>("GetState", bytes < LARGE ? null : { id }, USUAL_MS);
    useEffect(() => {
        if (small.data && small.data.state !== job?.state) whole.again();
    }, [small.data]);
    const again = () => {
        whole.again();
        result.again();
    };
    const actions = job && may("change") ? actionsOf(job, again) : [];
    useOffers(actions.map((action) => ({ ...action, note: "this job", icon: "job" })));
    const error = whole.error;
    if (error) {
        return (
            <>
                <h1>Job</h1>
                <Card>
                    <Problem error={error} />
                    {error.code === "not_found" && (
                        <p class="note">
                            There is no job <code>{id}</code>: it was never pushed, or it ended and was removed.
                        </p>
                    )}
                </Card>
            </>
        );
    }
    if (!job) return <Empty>Loading…</Empty>;
    const raw = rawAt(whole.text, ["data", "job", "data"]) ?? "null";
    const rawResult = result.data ? rawAt(result.text, ["result"]) : undefined;
    const primary = actions.filter((action) => action.first);
    const others = actions.filter((action) => !primary.includes(action));
    return (
        <>
            <div class="head">
                <span class="crumb">
                    <a href="queues">Queues</a> / <QueueLink name={job.queue} />
                </span>
                <h1 class="job-title">
                    {job.name ?? "Job"} <span class="mono job-id">{job.id}</span>
                </h1>
                <Copy text={job.id} label="Copy the id" />
                <span class="tag">
                    <State state={job.state} />
                </span>
                <span class="grow" />
                {primary.map((action) => (
                    <Button key={action.name} kind="primary" onClick={action.run}>
                        {action.name}
                    </Button>
                ))}
                {others.length > 0 && <Menu label="Actions on this job" text="Actions" items={others} />}
            </div>
            {bytes >= LARGE && (
                <p class="note">
                    {bytes < HUGE ? `This job is large, so it is read every ${RARE_MS / 1000} s` : "This job is very large, so it is read once"} and when its state changes.{" "}
                    <Button kind="quiet" icon="retry" onClick={again}>
                        Read again
                    </Button>
                </p>
            )}
            <div class="main-side">
                <div class="stack">
                    {job.state !== "completed" && <Explanation id={id} />}
                    {job.state === "active" && <Progress job={job} />}
                    <Attempts job={job} attempts={detail?.attempts ?? []} />
                    <Payload raw={raw} title="Payload" label="the payload" />
                    {rawResult !== undefined && rawResult !== "null" && (
                        <Payload raw={rawResult} title="Result" label="the result" />
                    )}
                    {detail && <Logs logs={detail.logs} />}
                    {detail && detail.children.count > 0 && <Children id={id} own={detail.children} />}
                </div>
                <div class="stack">
                    <Timeline job={job} attempts={detail?.attempts ?? []} />
                    <Facts job={job} />
                    <Again job={job} raw={raw} />
                </div>
            </div>
        </>
    );
}

interface Reason {
    code: string;
    text: string;
    until?: number | null;
    at?: number;
    since?: number;
    timeoutAt?: number | null;
    jobs?: ({ id?: string; state?: string; queue?: string } | string)[];
    groupId?: string;
    worker?: string | null;
    reason?: string;
    nextRetryAt?: number | null;
    wait?: number;
}

interface Explained {
    queue: string;
    state: string;
    reasons: Reason[];
    estimatedStart: number | null;
    jobsPerSecond: number | null;
}

/** What stands for a job that the token may not see. */
const HIDDEN = "a job of another queue";

/** What is no obstacle. */
const FREE = ["next", "leased", "completed", "ttl"];

/** What each reason is called, and what ends it. */
const REASONS: Record<string, readonly [string, string]> = {
    next: ["It is next", "The next pull gets it."],
    queue_paused: ["Its queue is paused", "It runs after the queue has been resumed."],
    group_paused: ["Its group is paused", "It runs after the group has been resumed."],
    group_held: ["Its group is held", "A worker asked for this pause; it ends by itself."],
    group_rate: ["The rate limit of its group is used up", "The jobs of the group are delivered as fast as the limit allows."],
    group_concurrency: ["The concurrency limit of its group is reached", "It runs when one of the active jobs ends."],
    queue_rate: ["The rate limit of its queue is used up", "The jobs of the queue are delivered as fast as the limit allows."],
    queue_concurrency: ["The concurrency limit of its queue is reached", "It runs when one of them ends."],
    delayed: ["It is delayed", "It waits for a worker once it is due."],
    dependencies: ["It waits for other jobs", "It runs when they are completed."],
    jobs_before: ["Other jobs go first", "Jobs with a higher priority and older jobs are delivered first."],
    no_worker: ["Nobody pulls from its queue", "No pull is waiting or came in the last 90 seconds, no job of it is active, and none ended in that time."],
    leased: ["A worker has it", "It is delivered again if the worker goes silent."],
    ttl: ["Its time to live ends", "It is removed then, unless it has started."],
    completed: ["It was completed", ""],
    failed: ["It is a dead letter", "It runs again when it is retried."],
    obliterated: ["Its queue was obliterated", "It is being removed."],
    disk_full: ["The disk is full", "No command runs until there is room."],
};

function Explanation({ id }: { id: string }) {
    const explained = useQuery<{ data: Explained }>("Explain", { id }, 1500);
    const data = explained.data?.data;
    if (explained.error) {
        return explained.error.code === "not_found" ? null : (
            <Card>
                <Problem error={explained.error} />
            </Card>
        );
    }
    if (!data) return null;
    const stops = data.reasons.filter((reason) => !FREE.includes(reason.code));
    return (
        <Card title={data.state === "active" ? "It runs" : stops.length === 0 ? "It is ready to run" : "Why it does not run"} class="explain">
            <ul class="reasons">
                {data.reasons.map((reason) => {
                    const [title, hint] = REASONS[reason.code] ?? [reason.code, ""];
                    const isFree = FREE.includes(reason.code);
                    return (
                        <li key={reason.code} class={isFree ? "" : "stop"} data-code={reason.code}>
                            <Icon name={isFree ? "info" : "warning"} />
                            <div>
                                <b>{title}</b>
                                <p>{said(reason)}</p>
                                {hint && <span class="note">{hint}</span>}
                                {reason.jobs && reason.jobs.length > 0 && (
                                    <span class="note">
                                        {reason.jobs.slice(0, 8).map((other, index) => {
                                            const own = typeof other === "string" ? { id: other, state: "" } : other;
                                            return (
                                                <span key={own.id ?? index}>
                                                    {index > 0 && ", "}
                                                    {own.id ? <JobLink id={own.id} /> : HIDDEN}
                                                    {own.id && own.state ? ` (${own.state})` : ""}
                                                </span>
                                            );
                                        })}
                                        {reason.jobs.length > 8 && ` and ${reason.jobs.length - 8} more`}
                                    </span>
                                )}
                            </div>
                            <Way reason={reason} queue={data.queue} again={explained.again} />
                        </li>
                    );
                })}
            </ul>
            {data.state !== "active" && data.state !== "failed" && (
                <p class="note explain-end">
                    {data.estimatedStart !== null ? (
                        <>
                            Estimated start, if nothing changes: <Time at={data.estimatedStart} />
                        </>
                    ) : stops.length === 0 ? (
                        "It starts with the next pull of a worker"
                    ) : (
                        "Its start cannot be estimated: it depends on one of the above"
                    )}
                    {data.jobsPerSecond !== null && `. The queue completes ${perSecond(data.jobsPerSecond)}`}.
                </p>
            )}
        </Card>
    );
}

/** Why a job is a dead letter. */
const DEAD: Record<string, string> = {
    explicit_fail: "Its worker failed it and asked for no further attempt",
    max_attempts_exceeded: "All of its attempts failed",
    timeout: "Its last attempt took too long",
    stalled: "It stalled too often",
    ttl_expired: "Its time to live ended",
    worker_lost: "Its worker was lost",
};

/** What the server says of a reason, as a sentence. */
function said(reason: Reason): ComponentChildren {
    const { code, text, nextRetryAt } = reason;
    if (code === "failed") {
        return (
            <>
                {DEAD[reason.reason ?? ""] ?? "It was moved there"}.{nextRetryAt ? <> It is retried <Time at={nextRetryAt} />.</> : null}
            </>
        );
    }
    return `${text.charAt(0).toUpperCase()}${readable(text.slice(1))}.`;
}

/** Where what a job waits for can be changed or seen. */
function Way({ reason, queue, again }: { reason: Reason; queue: string; again: () => void }) {
    const { code, groupId } = reason;
    if (code === "queue_paused") return may("change") ? <Button onClick={() => void resume(queue, again)}>Resume the queue</Button> : null;
    const [text, href] =
        groupId !== undefined
            ? ["Show the group", link(["groups"], { queue, find: groupId })]
            : code === "queue_rate" || code === "queue_concurrency"
              ? ["Show the limits", link(["queues", queue])]
              : code === "jobs_before"
                ? ["Show the waiting jobs", link(["queues", queue], { state: "waiting", order: "asc" })]
                : code === "no_worker"
                  ? ["Show the workers", link(["workers"], { queue })]
                  : code === "disk_full" && may("server")
                    ? ["Show the server", "server"]
                    : [];
    return href === undefined ? null : <a class="way" href={href}>{text}</a>;
}

function Progress({ job }: { job: Job }) {
    return (
        <Card title="Progress" note={`${Math.round(job.progress * 100) / 100} %`}>
            <div class="progress" role="progressbar" aria-label="Progress of the job" aria-valuemin={0} aria-valuemax={100} aria-valuenow={job.progress}>
                <i style={{ width: `${job.progress}%` }} />
            </div>
            {job.progressMessage && <p class="note">{job.progressMessage}</p>}
        </Card>
    );
}

/** What came of each attempt, the last first. */
function Attempts({ job, attempts }: { job: Job; attempts: readonly Attempt[] }) {
    const failed = attempts.filter((attempt) => attempt.error !== null).reverse();
    // A job may fail without an attempt: it was discarded, or what it waits for failed.
    const reason = failed[0]?.error === job.failedReason ? "" : (job.failedReason ?? "");
    if (failed.length === 0 && !reason) return null;
    const last = [job.failedReason, ...(failed[0]?.stacktrace ?? job.stacktrace ?? [])].filter(Boolean).join("\n");
    return (
        <Card
            title={failed.length > 0 ? "Failed attempts" : "Error"}
            note={failed.length > 0 ? `${count(job.attempts)} of ${count(job.maxAttempts)}` : ""}
            actions={<Copy text={last} label="Copy the last error" />}
        >
            {reason && <p class="error-text">{reason}</p>}
            <ol class="attempts">
                {failed.map((own, index) => (
                    <li key={own.attempt}>
                        <div class="attempt-head">
                            <b>Attempt {own.attempt}</b>
                            <span class="note">
                                {[own.worker && `by ${own.worker}`, own.startedAt !== null && own.endedAt !== null && `took ${duration(own.endedAt - own.startedAt)}`].filter(Boolean).join(", ")}
                            </span>
                            <span class="grow" />
                            <span class="note">
                                <Time at={own.endedAt} />
                            </span>
                        </div>
                        <p class="error-text">{own.error || "(no text)"}</p>
                        {own.stacktrace && own.stacktrace.length > 0 && (
                            <details open={index === 0}>
                                <summary>Stack trace</summary>
                                <pre class="code stack-trace" tabIndex={0}>
                                    {own.stacktrace.join("\n")}
                                </pre>
                            </details>
                        )}
                    </li>
                ))}
            </ol>
        </Card>
    );
}

const PUSHED: Record<string, string> = { waiting: "pushed", delayed: "pushed, delayed", "waiting-children": "pushed, waits for others" };
const LATER: Record<string, string> = { waiting: "waiting", "waiting-children": "waits for others", active: "started" };

function Timeline({ job, attempts }: { job: Job; attempts: readonly Attempt[] }) {
    const steps = job.timeline.map(({ state, timestamp, attempt }, index) => {
        const number = attempt ?? attempts.find((own) => state === "active" && own.startedAt === timestamp)?.attempt;
        const word = LATER[state] ?? state;
        return { at: timestamp, state, text: (index === 0 && PUSHED[state]) || (number === undefined ? word : `attempt ${number} ${word}`) };
    });
    if (job.state === "delayed" && job.runAt > serverNow()) steps.push({ at: job.runAt, state: "waiting", text: "due" });
    const own = attempts.at(-1);
    const worker = job.state === "active" && own?.worker;
    return (
        <Card title="Timeline" note={`${job.attempts} of ${many(job.maxAttempts, "attempt")} failed`}>
            <ol class="timeline">
                {steps.map(({ at, state, text }, index) => (
                    <li key={`${at}${state}${index}`}>
                        <i class={`dot ${state}`} />
                        <span>
                            {text}
                            {worker && index === steps.length - 1 ? ` by ${worker}` : ""}
                        </span>
                        <span class="note">
                            <Time at={at} />
                        </span>
                    </li>
                ))}
            </ol>
        </Card>
    );
}

function Facts({ job }: { job: Job }) {
    const facts: [string, ComponentChildren][] = [
        ["Queue", <QueueLink name={job.queue} />],
        ["Priority", count(job.priority)],
        ["Created", <Time at={job.createdAt} />],
        ["Due", <Time at={job.runAt} />],
        ["Started", <Time at={job.startedAt} />],
        ["Completed", job.completedAt === null ? null : <Time at={job.completedAt} />],
        ["Backoff", duration(job.backoff)],
        ["Stalls", job.stallCount || null],
        ["Timeout", job.timeout ? duration(job.timeout) : null],
        ["Time to live", job.ttl ? duration(job.ttl) : null],
        ["Group", job.groupId && <a href={link(["queues", job.queue], { group: job.groupId })}>{job.groupId}</a>],
        ["Unique key", job.uniqueKey && <code>{job.uniqueKey}</code>],
        ["Tags", job.tags.length > 0 ? job.tags.map((tag) => <a class="tag" key={tag} href={link(["queues", job.queue], { tag })}>{tag}</a>) : null],
        ["Parent", job.parentId && <JobLink id={job.parentId} />],
        ["Depends on", job.dependsOn.length > 0 ? job.dependsOn.slice(0, 20).map((id) => <div key={id}><JobLink id={id} /></div>) : null],
        ["Options", [job.lifo && "lifo", job.durable && "durable"].filter(Boolean).join(", ") || null],
    ];
    return (
        <Card title="Facts">
            <dl class="facts">
                {facts
                    .filter(([, value]) => value !== null && value !== undefined && value !== "")
                    .map(([name, value]) => [<dt key={name}>{name}</dt>, <dd key={`${name} value`}>{value}</dd>])}
            </dl>
            {exists("flows/:id") && (job.parentId || job.childrenIds.length > 0) && (
                <p>
                    <a href={link(["flows", job.id])}>Its flow</a>
                </p>
            )}
        </Card>
    );
}

function Logs({ logs }: { logs: Detail["logs"] }) {
    if (logs.length === 0) return null;
    return (
        <Card title="Log" note={many(logs.length, "line")} actions={<Copy text={logs.map((line) => line.message).join("\n")} label="Copy the log" />}>
            <ol class="logs" tabIndex={0} aria-label="Lines of the log">
                {logs.map((line, index) => (
                    <li key={index}>
                        <span class="dim">
                            <Time at={line.timestamp} />
                        </span>
                        <span class={line.level}>{line.level}</span>
                        <span>{line.message}</span>
                    </li>
                ))}
            </ol>
        </Card>
    );
}

function Children({ id, own }: { id: string; own: Detail["children"] }) {
    return (
        <Card
            title="Children"
            note={`${count(own.completed)} of ${count(own.count)} completed`}
            actions={exists("flows/:id") && <a href={link(["flows", id])}>As a graph</a>}
        >
            <dl class="facts">
                {own.jobs.map((child, index) => [
                    <dt key={`${index} state`}>
                        <State state={child.state} />
                    </dt>,
                    <dd key={`${index} link`}>
                        {child.id ? <JobLink id={child.id} /> : HIDDEN} {child.name} {child.queue && <span class="dim">in {child.queue}</span>}
                    </dd>,
                ])}
            </dl>
            {own.truncated && <p class="note">There are more.</p>}
        </Card>
    );
}

/** The same job once more, from a shell. */
function Again({ job, raw }: { job: Job; raw: string }) {
    const shown = covered(raw);
    const options = [
        job.name ? `"name":${JSON.stringify(job.name)}` : "",
        job.priority ? `"priority":${job.priority}` : "",
        job.groupId ? `"groupId":${JSON.stringify(job.groupId)}` : "",
        job.tags.length > 0 ? `"tags":${JSON.stringify(job.tags)}` : "",
    ].filter(Boolean);
    const body = `{"data":${shown}${options.map((option) => `,${option}`).join("")}}`;
    const url = new URL(`queues/${encodeURIComponent(job.queue)}/jobs`, root).href;
    const curl = `curl -X POST ${shellWord(url)} -H "Authorization: Bearer $CORQ_TOKEN" -d ${shellWord(body)}`;
    const cli = [
        "corq push",
        shellWord(job.queue),
        shellWord(shown),
        job.name ? `--name ${shellWord(job.name)}` : "",
        job.priority ? `--priority=${job.priority}` : "",
        job.groupId ? `--group-id ${shellWord(job.groupId)}` : "",
        ...job.tags.map((tag) => `--tag ${shellWord(tag)}`),
    ]
        .filter(Boolean)
        .join(" ");
    return (
        <Card title="From a shell">
            <div class="commands">
                <Copy text={curl} label="Copy a push of the same job as curl">
                    Push as curl
                </Copy>
                <Copy text={cli} label="Copy a push of the same job as a command of corq">
                    Push as corq
                </Copy>
                <Copy text={`corq job get ${shellWord(job.id)}`} label="Copy the command that shows this job">
                    Show as corq
                </Copy>
            </div>
            {shown !== raw && <p class="note">Redacted values are not copied.</p>}
        </Card>
    );
}

/** `first`: what is done most often in the state of the job. */
type Action = Item & { first?: boolean };

function actionsOf(job: Job, again: () => void): Action[] {
    const { id, queue, state } = job;
    const one = `Job ${id} of ${queue}`;
    const gone = () => navigate(link(["queues", queue]));
    const done = (what: string) => () => `${id} ${what}`;
    const actions: Action[] = [];
    if (state === "failed") {
        actions.push({ name: "Retry", first: true, run: () => void act({ run: () => ["RetryDlq", { queue, jobId: id }], said: done("waits again"), after: again }) });
        actions.push({
            name: "Remove",
            danger: true,
            run: () =>
                void act({
                    question: { title: "Remove this dead letter?", text: `${one} will be gone, with its payload and its error.`, action: "Remove 1 job", danger: true },
                    run: () => ["RemoveDlqJob", { queue, jobId: id }],
                    said: () => {
                        gone();
                        return `${id} is removed`;
                    },
                    after: again,
                }),
        });
    }
    if (state === "completed") {
        actions.push({
            name: "Run again",
            first: true,
            run: () =>
                void act({
                    question: { title: "Run this job again?", text: `${one} was completed. It will wait again with all of its attempts, and its result will be gone.`, action: "Run 1 job again" },
                    run: () => ["RetryCompleted", { queue, id }],
                    said: done("waits again"),
                    after: again,
                }),
        });
    }
    if (state === "delayed") {
        actions.push({ name: "Run now", first: true, run: () => void act({ run: () => ["Promote", { id }], said: done("is ready to run"), after: again }) });
    }
    if (state === "delayed" || state === "waiting") {
        actions.push({
            name: "Change priority",
            run: () =>
                void act({
                    question: {
                        title: "Priority of this job",
                        text: "Jobs with a higher priority are delivered first.",
                        action: "Set",
                        fields: [{ name: "priority", label: "Priority", type: "number", min: -1_000_000, max: 1_000_000, value: String(job.priority), required: true }],
                    },
                    run: ({ priority }) => ["ChangePriority", { id, priority: Number(priority) }],
                    said: done("has another priority"),
                    after: again,
                }),
        });
        actions.push({
            name: state === "waiting" ? "Delay" : "Change delay",
            run: () =>
                void act({
                    question: {
                        title: "Delay this job",
                        text: "It becomes available to workers after this time.",
                        action: "Delay 1 job",
                        fields: [{ name: "delay", label: "Seconds", type: "number", min: 0, max: 31_536_000, value: "60", required: true }],
                    },
                    run: ({ delay }) => [state === "waiting" ? "MoveToDelayed" : "ChangeDelay", { id, delay: Math.round(Number(delay) * 1000) }],
                    said: done("is delayed"),
                    after: again,
                }),
        });
    }
    if (["waiting", "delayed", "waiting-children"].includes(state)) {
        actions.push({
            name: "Cancel",
            danger: true,
            run: () =>
                void act({
                    question: { title: "Cancel this job?", text: `${one} will be removed and never run.`, action: "Remove 1 job", danger: true },
                    run: () => ["Cancel", { id }],
                    said: () => {
                        gone();
                        return `${id} is cancelled`;
                    },
                    after: again,
                }),
        });
    }
    if (state === "active" || state === "waiting" || state === "delayed") {
        actions.push({
            name: "Make it a dead letter",
            danger: true,
            run: () =>
                void act({
                    question: {
                        title: "Move this job to the dead letters?",
                        text: state === "active" ? `${one} is active: its worker goes on, and its outcome will not count.` : `${one} will not run until it is retried.`,
                        action: "Move 1 job",
                        danger: true,
                    },
                    run: () => ["Discard", { id }],
                    said: done("is a dead letter"),
                    after: again,
                }),
        });
    }
    return actions;
}
