// Dead letters: by their errors and queues, those of a queue by filters, and what can be done with one or with many.

import { useMemo } from "preact/hooks";
import { count, many, short } from "../lib/format";
import { useQuery } from "../lib/hooks";
import { knows } from "../lib/known";
import { covered } from "../lib/redact";
import { may } from "../lib/rights";
import { filter, link, setFilters } from "../lib/router";
import { Button, Card, Empty, FilterField, JobLink, Problem, QueueLink, Time } from "../parts/basics";
import { act } from "../parts/dialog";
import { useList } from "../parts/lists";
import { QueueField } from "../parts/queue-field";
import { type Column, Table } from "../parts/table";
import { type Action, Tasks, bulk } from "../parts/tasks";

interface ErrorGroup {
    error: string;
    count: number;
    oldest: number;
    newest: number;
    sample: string;
    queue: string;
}

interface Job {
    id: string;
    name?: string;
    attempts: number;
    createdAt: number;
    finishedAt: number | null;
    failedReason?: string;
    dataPreview?: string;
    dataCut?: boolean;
    damaged?: boolean;
}

/** Letters of the text of a group: the server has the same bound. */
const GROUP_CHARS = 200;

/** The group of an error, as the server has it: its first line, in which each word with a digit is one sign. */
function groupOf(error: string): string {
    const line = error.trimStart().split(/\r?\n/, 1)[0]!.trimEnd();
    const signs = [...line.replace(/[A-Za-z0-9_-]*[0-9][A-Za-z0-9_-]*/g, "#")];
    return signs.slice(0, GROUP_CHARS).join("").trimEnd();
}

const NOUN = ["dead letter", "dead letters"] as const;

export default function Dead() {
    const queue = filter("queue");
    const groups = useQuery<{ groups: ErrorGroup[]; total: number; others: number; damaged: number }>(
        "DlqGroups",
        knows("DlqGroups") && (queue || may("server")) ? { limit: 100, ...(queue ? { queue } : {}) } : null,
        5000,
    );
    const total = groups.data?.total;
    return (
        <>
            <div class="head">
                <h1>Dead letters</h1>
                {total !== undefined && <span class="note">{many(total, NOUN[0])}{queue ? ` of ${queue}` : " of all queues"}</span>}
                <span class="grow" />
                <QueueField value={queue} placeholder="All queues" onChange={(value) => setFilters({ queue: value || null, group: null })} />
            </div>
            <Tasks onEnd={groups.again} />
            {groups.error && <Problem error={groups.error} />}
            {groups.data && <ByError data={groups.data} queue={queue} />}
            {queue ? <Letters queue={queue} /> : <ByQueue />}
        </>
    );
}

function ByError({ data, queue }: { data: { groups: ErrorGroup[]; others: number; damaged: number }; queue: string }) {
    const chosen = filter("group");
    const most = data.groups[0]?.count ?? 1;
    const columns: readonly Column<ErrorGroup>[] = [
        {
            key: "error",
            label: "Error",
            cell: (group) => (
                <a
                    class={`mono ${group.error === chosen ? "is-chosen" : ""}`}
                    title={group.error}
                    aria-current={group.error === chosen ? "true" : undefined}
                    href={link(["dead"], { queue: group.queue, group: group.error === chosen ? null : group.error })}
                >
                    {group.error || "(no text)"}
                </a>
            ),
        },
        {
            key: "count",
            label: "Dead letters",
            width: "120px",
            right: true,
            cell: (group) => (
                <span class="meter-row">
                    <span class="meter bad">
                        <i style={{ width: `${Math.max(1, (100 * group.count) / most)}%` }} />
                    </span>
                    {short(group.count)}
                </span>
            ),
        },
        { key: "newest", label: "Newest", width: "148px", wide: true, cell: (group) => <Time at={group.newest} /> },
        { key: "oldest", label: "Oldest", width: "148px", wide: true, cell: (group) => <Time at={group.oldest} /> },
        ...(queue ? [] : [{ key: "queue", label: "Last in", width: "140px", wide: true, cell: (group: ErrorGroup) => <QueueLink name={group.queue} /> }]),
        { key: "sample", label: "Example", width: "170px", wide: true, cell: (group) => <JobLink id={group.sample} /> },
    ];
    const beside = [
        data.others > 0 ? `${count(data.others)} with other errors` : "",
        data.damaged > 0 ? `${count(data.damaged)} cannot be read` : "",
    ].filter(Boolean);
    if (data.groups.length === 0) return <Empty>No dead letter{queue ? ` in ${queue}` : ""}. All is well.</Empty>;
    return (
        <Card class="flush" title="By error" note={beside.join(", ") || "numbers and ids are shown as #"}>
            <Table label="Dead letters by error" columns={columns} rows={data.groups} keyOf={(group) => group.error} />
        </Card>
    );
}

interface QueueRow {
    name: string;
    failed: number;
    failedPerMinute: number;
}

const QUEUES: readonly Column<QueueRow>[] = [
    {
        key: "name",
        label: "Queue",
        cell: (row) => (
            <a class="name" href={link(["dead"], { queue: row.name })}>
                {row.name}
            </a>
        ),
    },
    { key: "failed", label: "Dead letters", width: "110px", right: true, cell: (row) => count(row.failed) },
    { key: "rate", label: "Failures per min", width: "140px", right: true, cell: (row) => short(row.failedPerMinute) },
];

function ByQueue() {
    const fields = { sort: "failed", limit: 100, fields: ["failed", "failedPerMinute"] };
    const list = useList<QueueRow>("ListQueues", fields, "queues", (row) => row.name, 5000, {
        keep: (row) => row.failed > 0,
    });
    if (list.error) return <Problem error={list.error} />;
    if (list.rows.length === 0) return null;
    return (
        <Card class="flush" title="By queue" note="choose one to retry or remove its dead letters">
            <Table label="Queues with dead letters" columns={QUEUES} rows={list.rows} keyOf={(row) => row.name} onSeen={list.onSeen} />
        </Card>
    );
}

function Letters({ queue }: { queue: string }) {
    const [group, error, name, tag] = [filter("group"), filter("error"), filter("name"), filter("tag")];
    const selected = { ...(name ? { name } : {}), ...(tag ? { tag } : {}) };
    const list = useList<Job>(
        "GetJobs",
        { queue, state: "failed", limit: 100, order: "desc", data: "preview", ...selected },
        "jobs",
        (job) => job.id,
        4000,
        {
            keep: (job) => {
                const reason = job.failedReason ?? "";
                return (!group || groupOf(reason) === group) && (!error || reason.includes(error));
            },
            keptBy: JSON.stringify([group, error]),
        },
    );
    const about = [
        group ? `with the error “${group}”` : "",
        error ? `whose error has “${error}”` : "",
        name ? `of the name ${name}` : "",
        tag ? `with the tag ${tag}` : "",
    ].filter(Boolean);
    const all = (action: Action) =>
        void bulk({
            action,
            queue,
            filter: { state: "failed", ...selected, ...(group ? { errorGroup: group } : {}), ...(error ? { error } : {}) },
            noun: NOUN,
            about: about.length > 0 ? ` ${about.join(", ")}` : "",
        });
    const isBulk = may("change") && knows("Bulk");
    const which = about.length > 0 ? "all that match" : "all";
    const columns = useMemo<readonly Column<Job>[]>(
        () => [
            { key: "id", label: "Job", width: "164px", cell: (job) => <JobLink id={job.id} /> },
            { key: "name", label: "Name", width: "110px", wide: true, cell: (job) => job.name ?? <span class="zero">–</span> },
            { key: "when", label: "Failed", width: "148px", wide: true, cell: (job) => <Time at={job.finishedAt ?? job.createdAt} /> },
            { key: "attempts", label: "Attempts", width: "84px", right: true, wide: true, cell: (job) => count(job.attempts) },
            {
                key: "error",
                label: "Error",
                cell: (job) => (
                    <span class="error-text" title={job.failedReason}>
                        {job.damaged ? "its record cannot be read" : job.failedReason || "(no text)"}
                    </span>
                ),
            },
            {
                key: "data",
                label: "Payload",
                wide: true,
                cell: (job) => (
                    <span class="preview">
                        {covered(job.dataPreview ?? "")}
                        {job.dataCut ? "…" : ""}
                    </span>
                ),
            },
            ...(may("change")
                ? [{ key: "actions", label: "Actions", width: "98px", right: true, wide: true, cell: (job: Job) => <Actions queue={queue} job={job} again={list.again} /> }]
                : []),
        ],
        [queue, may("change")],
    );
    return (
        <Card
            class="flush"
            title={`Dead letters of ${queue}`}
            actions={
                <div class="filters">
                    <FilterField label="Error has" value={error} onChange={(value) => setFilters({ error: value || null })} />
                    <FilterField label="Name of the job" placeholder="Name" value={name} onChange={(value) => setFilters({ name: value || null })} />
                    <FilterField label="Tag" value={tag} onChange={(value) => setFilters({ tag: value || null })} />
                    {isBulk && (
                        <>
                            <Button icon="retry" kind="primary" onClick={() => all("retry")}>
                                Retry {which}
                            </Button>
                            <Button icon="trash" kind="danger" onClick={() => all("remove")}>
                                Remove {which}
                            </Button>
                        </>
                    )}
                </div>
            }
        >
            {group && (
                <p class="chosen">
                    <span class="tag">
                        error <b>{group}</b>
                    </span>
                    <Button kind="quiet" icon="close" label="All errors" onClick={() => setFilters({ group: null })} />
                </p>
            )}
            {list.error && <Problem error={list.error} />}
            <Table
                label={`Dead letters of ${queue}`}
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
                            No dead letter so far.{" "}
                            <button type="button" class="button quiet" onClick={list.onEnd}>
                                Look further
                            </button>
                        </>
                    ) : (
                        "No dead letter"
                    )
                }
            />
        </Card>
    );
}

function Actions({ queue, job, again }: { queue: string; job: Job; again: () => void }) {
    return (
        <span class="row-actions">
            <Button
                kind="quiet"
                icon="retry"
                label={`Retry ${job.id}`}
                onClick={() =>
                    void act({
                        run: () => ["RetryDlq", { queue, jobId: job.id }],
                        said: (reply) => (reply["count"] === 1 ? "1 dead letter retried" : "It is no longer a dead letter"),
                        after: again,
                    })
                }
            />
            <Button
                kind="quiet"
                icon="trash"
                label={`Remove ${job.id}`}
                onClick={() =>
                    void act({
                        question: {
                            title: "Remove 1 dead letter?",
                            text: `The job ${job.id} of ${queue} and its payload will be gone. This cannot be undone.`,
                            action: "Remove 1 job",
                            danger: true,
                        },
                        run: () => ["RemoveDlqJob", { queue, jobId: job.id }],
                        said: () => "1 dead letter removed",
                        after: again,
                    })
                }
            />
        </span>
    );
}
