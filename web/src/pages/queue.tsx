// One queue: its figures, limits and groups, how it went, and its jobs by filters.

import type { ComponentType } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { now } from "../lib/clock";
import { brief, count, duration, many, short } from "../lib/format";
import { useQuery } from "../lib/hooks";
import { knows } from "../lib/known";
import { type Counts, type Limits, changeConcurrency, changeRate, limitsText, obliterate, pause, resume } from "../lib/queue-actions";
import { covered } from "../lib/redact";
import { may } from "../lib/rights";
import { filter, link, setFilters } from "../lib/router";
import { Button, Card, Choice, FilterField, JobLink, Problem, State, Tile, Time } from "../parts/basics";
import { say } from "../parts/dialog";
import { History } from "../parts/history";
import { useList } from "../parts/lists";
import { Menu } from "../parts/menu";
import { type Column, Table } from "../parts/table";
import type { Action, Task } from "../parts/tasks";
import { useOffers } from "../shell/palette";
import type { PageProps } from ".";

interface Job {
    id: string;
    name?: string;
    state: string;
    priority: number;
    progress: number;
    createdAt: number;
    runAt: number;
    startedAt: number | null;
    finishedAt: number | null;
    attempts: number;
    maxAttempts: number;
    groupId?: string;
    failedReason?: string;
    dataPreview?: string;
    dataCut?: boolean;
    damaged?: boolean;
}

const STATES = [
    ["waiting", "Waiting"],
    ["active", "Active"],
    ["delayed", "Delayed"],
    ["waiting-children", "Waits for others"],
    ["completed", "Completed"],
    ["failed", "Dead letters"],
] as const;

/** What is done to all jobs of a state: the action, the state, and what these jobs are called. */
const BULK: readonly (readonly [Action, string, string])[] = [
    ["promote", "delayed", "delayed job"],
    ["retry", "failed", "dead letter"],
    ["remove", "completed", "completed job"],
    ["remove", "waiting", "waiting job"],
    ["remove", "failed", "dead letter"],
];

/** What runs tasks and shows them comes when it is needed. */
const loadTasks = () => import("../parts/tasks");

export default function Queue({ values }: PageProps) {
    const queue = values["queue"]!;
    const counts = useQuery<{ counts: Counts }>("GetJobCounts", { queue }, 2000);
    const paused = useQuery<{ paused: boolean }>("IsPaused", { queue }, 2000);
    const limits = useQuery<{ data: { limits: Limits } }>("GetQueueLimits", { queue }, 5000);
    const rows = useQuery<{ queues: { name: string; oldestWaiting: number | null; waitP99: number | null; completedPerMinute: number; groups: number }[] }>(
        "ListQueues",
        { prefix: queue, limit: 1, fields: ["oldestWaiting", "waitP99", "completedPerMinute", "groups"] },
        3000,
    );
    const row = rows.data?.queues.find((one) => one.name === queue);
    const own = counts.data?.counts ?? {};
    const isPaused = paused.data?.paused ?? false;
    const limit = limits.data?.data.limits;
    const again = () => {
        counts.again();
        paused.again();
        limits.again();
        rows.again();
    };
    const state = filter("state");
    const [Tasks, setTasks] = useState<ComponentType<{ queue: string; onEnd: () => void }> | null>(null);
    const needTasks = async () => {
        const own = await loadTasks();
        setTasks(() => own.Tasks);
        return own;
    };
    // One may be under way that was begun elsewhere, or before the page was loaded anew.
    const tasks = useQuery<{ tasks: Task[] }>("ListTasks", knows("Bulk") ? {} : null);
    const isBusy = tasks.data?.tasks.some((task) => task.queue === queue && task.state === "running") ?? false;
    useEffect(() => void (isBusy && needTasks().catch(() => undefined)), [isBusy]);
    const all = BULK.filter(([, state]) => knows("Bulk") && own[state]).map(([action, state, noun]) => {
        const named = many(own[state]!, noun);
        return {
            name: action === "promote" ? `Run ${named} now` : `${action === "retry" ? "Retry" : "Remove"} ${named}`,
            danger: action === "remove",
            run: () =>
                void needTasks().then(
                    ({ bulk }) => bulk({ action, queue, filter: { state }, noun: [noun, `${noun}s`], about: "" }),
                    (error: Error) => say(error.message, true),
                ),
        };
    });
    useOffers(
        may("change")
            ? [
                  isPaused
                      ? { name: `Resume ${queue}`, note: "this queue", icon: "play", words: "continue", run: () => void resume(queue, again) }
                      : { name: `Pause ${queue}`, note: "this queue", icon: "pause", words: "stop hold", run: () => void pause(queue, again) },
              ]
            : [],
    );
    return (
        <>
            <div class="head">
                <span class="crumb">
                    <a href="queues">Queues</a>
                </span>
                <h1>{queue}</h1>
                {isPaused && <span class="tag warn">paused</span>}
                <span class="grow" />
                {may("change") && (
                    <>
                        {isPaused ? (
                            <Button icon="play" kind="primary" onClick={() => void resume(queue, again)}>
                                Resume
                            </Button>
                        ) : (
                            <Button icon="pause" onClick={() => void pause(queue, again)}>
                                Pause
                            </Button>
                        )}
                        <Menu label={`Actions on ${queue}`} text="Actions" items={[...all, { name: "Obliterate the queue", danger: true, run: () => void obliterate(queue, own, again) }]} />
                    </>
                )}
            </div>
            {Tasks && <Tasks queue={queue} onEnd={again} />}
            {counts.error && <Problem error={counts.error} />}
            <section class="tiles eight" aria-label="Jobs by state">
                {STATES.map(([name, label]) => (
                    <Tile
                        key={name}
                        label={label}
                        tone={name}
                        value={short(own[name])}
                        title={count(own[name])}
                        active={state === name}
                        href={link(["queues", queue], { range: filter("range"), state: state === name ? null : name })}
                    />
                ))}
                {row && <Tile label="Completed/min" value={short(row.completedPerMinute)} />}
                {row && (
                    <Tile
                        label="Oldest waiting job"
                        value={row.oldestWaiting === null ? "–" : brief(Math.max(0, now.value - row.oldestWaiting))}
                        note={row.waitP99 === null ? "" : `p99 ≤ ${brief(row.waitP99)}`}
                    />
                )}
            </section>
            <Jobs queue={queue} />
            <History queue={queue} />
            <div class="columns">
                {limit && <LimitsCard queue={queue} limits={limit} again={again} />}
                <Rules queue={queue} />
                {(row?.groups ?? 0) > 0 && <Groups queue={queue} number={row!.groups} />}
            </div>
        </>
    );
}

function Jobs({ queue }: { queue: string }) {
    const [state, name, tag, group, order] = [filter("state"), filter("name"), filter("tag"), filter("group"), filter("order") || "desc"];
    const fields = {
        queue,
        limit: 100,
        order,
        data: "preview",
        ...(state ? { state } : {}),
        ...(name ? { name } : {}),
        ...(tag ? { tag } : {}),
        ...(group ? { group } : {}),
    };
    const list = useList<Job>("GetJobs", fields, "jobs", (job) => job.id, 3000);
    const isFailed = state === "failed";
    const columns = useMemo<readonly Column<Job>[]>(
        () => [
            { key: "id", label: "Job", width: "164px", cell: (job) => <JobLink id={job.id} /> },
            { key: "name", label: "Name", width: "120px", wide: true, cell: (job) => job.name ?? <span class="zero">–</span> },
            { key: "state", label: "State", width: "136px", cell: (job) => <State state={job.state} /> },
            { key: "when", label: "When", width: "150px", cell: (job) => <When job={job} /> },
            { key: "priority", label: "Priority", width: "72px", right: true, wide: true, cell: (job) => job.priority || <span class="zero">0</span> },
            {
                key: "attempts",
                label: "Attempts",
                width: "84px",
                right: true,
                wide: true,
                cell: (job) => (
                    <span class={job.attempts === 0 ? "zero" : ""}>
                        {job.attempts} of {job.maxAttempts}
                    </span>
                ),
            },
            {
                key: "data",
                label: isFailed ? "Error and payload" : "Payload",
                wide: true,
                cell: (job) =>
                    job.damaged ? (
                        <span class="error-text">its record cannot be read</span>
                    ) : (
                        <span class="preview">
                            {job.failedReason && <span class="error-text">{job.failedReason} · </span>}
                            {covered(job.dataPreview ?? "")}
                            {job.dataCut ? "…" : ""}
                        </span>
                    ),
            },
        ],
        [isFailed],
    );
    return (
        <Card
            class="flush"
            title="Jobs"
            actions={
                <div class="filters">
                    <FilterField label="Name of the job" placeholder="Name" value={name} onChange={(value) => setFilters({ name: value || null })} />
                    <FilterField label="Tag" value={tag} onChange={(value) => setFilters({ tag: value || null })} />
                    <FilterField label="Group" value={group} onChange={(value) => setFilters({ group: value || null })} />
                    <select
                        class="field"
                        aria-label="State"
                        value={state}
                        onChange={(event) => setFilters({ state: event.currentTarget.value || null })}
                    >
                        <option value="">All states</option>
                        {STATES.map(([value, label]) => (
                            <option key={value} value={value}>
                                {label}
                            </option>
                        ))}
                    </select>
                    <Choice
                        label="Order"
                        value={order}
                        options={[
                            ["desc", "Newest"],
                            ["asc", "Oldest"],
                        ]}
                        onChange={(value) => setFilters({ order: value === "desc" ? null : value })}
                    />
                </div>
            }
        >
            {list.error && <Problem error={list.error} />}
            <Table
                label={`Jobs of ${queue}`}
                columns={columns}
                rows={list.rows}
                keyOf={(job) => job.id}
                more={list.more}
                onEnd={list.onEnd}
                onSeen={list.onSeen}
                empty={
                    !list.loaded ? (
                        "Loading…"
                    ) : list.more ? (
                        <>
                            No job so far.{" "}
                            <button type="button" class="button quiet" onClick={list.onEnd}>
                                Look further
                            </button>
                        </>
                    ) : (
                        "No job"
                    )
                }
            />
        </Card>
    );
}

/** The time that matters most in the state of a job. */
function When({ job }: { job: Job }) {
    switch (job.state) {
        case "delayed":
            return <Time at={job.runAt} />;
        case "active":
            return <Time at={job.startedAt} />;
        case "completed":
        case "failed":
            return <Time at={job.finishedAt ?? job.createdAt} />;
        default:
            return <Time at={job.createdAt} />;
    }
}

function LimitsCard({ queue, limits, again }: { queue: string; limits: Limits & { rateLimitTtl?: number }; again: () => void }) {
    return (
        <Card title="Limits" note={limitsText(limits) || "none"}>
            <dl class="facts">
                <dt>Rate</dt>
                <dd>
                    {limitsText({ ...limits, concurrencyLimit: null }) || "none"}{" "}
                    {may("change") && <Button kind="quiet" onClick={() => void changeRate(queue, limits, again)}>Change rate</Button>}
                </dd>
                <dt>Concurrency</dt>
                <dd>
                    {limitsText({ ...limits, rateLimit: null }) || "none"}{" "}
                    {may("change") && <Button kind="quiet" onClick={() => void changeConcurrency(queue, limits, again)}>Change concurrency</Button>}
                </dd>
            </dl>
        </Card>
    );
}

interface DlqConfig {
    autoRetry: boolean;
    autoRetryInterval: number;
    maxAutoRetries: number;
    maxAge: number | null;
    maxEntries: number | null;
}

interface StallConfig {
    enabled: boolean;
    stallInterval: number;
    maxStalls: number;
    gracePeriod: number;
}

function Rules({ queue }: { queue: string }) {
    const dlq = useQuery<{ config: DlqConfig }>("GetDlqConfig", { queue }, 15_000).data?.config;
    const stall = useQuery<{ config: StallConfig }>("GetStallConfig", { queue }, 15_000).data?.config;
    return (
        <Card title="Rules">
            <dl class="facts">
                <dt>Dead letters</dt>
                <dd>
                    {dlq &&
                        [
                            dlq.autoRetry
                                ? `retried up to ${many(dlq.maxAutoRetries, "time")}, first after ${duration(dlq.autoRetryInterval)}`
                                : "stay until they are retried by hand",
                            dlq.maxAge === null ? "" : `removed after ${duration(dlq.maxAge)}`,
                            dlq.maxEntries === null ? "" : `${count(dlq.maxEntries)} at most`,
                        ]
                            .filter(Boolean)
                            .join(", ")}
                </dd>
                <dt>Silent workers</dt>
                <dd>
                    {stall &&
                        (stall.enabled
                            ? `a job stalls after ${duration(stall.stallInterval)} of silence${stall.maxStalls === 0 ? "" : `, and becomes a dead letter the ${ordinal(stall.maxStalls)} time`}`
                            : "a job stalls only when its lock expires")}
                </dd>
            </dl>
        </Card>
    );
}

function ordinal(number: number): string {
    const end = number % 100 > 10 && number % 100 < 14 ? "th" : (["th", "st", "nd", "rd"][number % 10] ?? "th");
    return `${number}${end}`;
}

interface Group {
    id: string;
    count: number;
    active: number;
    paused: boolean;
    weight: number;
    concurrency: number | null;
    limit: { max: number; duration: number } | null;
    heldFor: number | null;
}

const GROUPS: readonly Column<Group>[] = [
    { key: "id", label: "Group", cell: (group) => <>{group.id} {group.paused && <span class="tag warn">paused</span>}</> },
    { key: "count", label: "Waiting", width: "84px", right: true, cell: (group) => count(group.count) },
    { key: "active", label: "Active", width: "78px", right: true, cell: (group) => count(group.active) },
    { key: "limits", label: "Limits", width: "170px", wide: true, cell: (group) => limitsText({ rateLimit: group.limit, concurrencyLimit: group.concurrency }) || <span class="zero">none</span> },
];

function Groups({ queue, number }: { queue: string; number: number }) {
    const groups = useQuery<{ groups: Group[] }>("GetGroups", { queue, limit: 200 }, 5000).data?.groups ?? [];
    return (
        <Card class="flush" title="Groups" note={groups.length < number ? `the first ${count(groups.length)} of ${count(number)}` : many(number, "group")}>
            <Table label={`Groups of ${queue}`} columns={GROUPS} rows={groups} keyOf={(group) => group.id} />
        </Card>
    );
}
