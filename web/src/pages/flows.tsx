// Flows: those of a queue that wait for others, and the way to one by its id.

import { count } from "../lib/format";
import { filter, link, navigate, setFilters } from "../lib/router";
import { Button, Card, Empty, Problem, Time } from "../parts/basics";
import { useList } from "../parts/lists";
import { QueueField } from "../parts/queue-field";
import { type Column, Table } from "../parts/table";

interface Job {
    id: string;
    name?: string;
    state: string;
    createdAt: number;
    parentId?: string;
    children?: number;
    childrenCompleted?: number;
}

const COLUMNS: readonly Column<Job>[] = [
    {
        key: "id",
        label: "Job",
        cell: (job) => (
            <a class="mono" href={link(["flows", job.id])} title={job.id}>
                {job.id}
            </a>
        ),
    },
    { key: "name", label: "Name", width: "140px", wide: true, cell: (job) => job.name ?? <span class="zero">–</span> },
    {
        key: "children",
        label: "Children done",
        width: "170px",
        cell: (job) => (
            <span class="meter-row">
                <span class="meter">
                    <i style={{ width: `${(100 * (job.childrenCompleted ?? 0)) / Math.max(1, job.children ?? 0)}%` }} />
                </span>
                {count(job.childrenCompleted ?? 0)} of {count(job.children ?? 0)}
            </span>
        ),
    },
    { key: "when", label: "Pushed", width: "130px", wide: true, cell: (job) => <Time at={job.createdAt} /> },
];

export default function Flows() {
    const queue = filter("queue");
    const list = useList<Job>(
        "GetJobs",
        queue ? { queue, state: "waiting-children", limit: 200, order: "desc" } : null,
        "jobs",
        (job) => job.id,
        4000,
        { keep: (job) => (job.children ?? 0) > 0 },
    );
    const open = (event: Event) => {
        event.preventDefault();
        const id = String(new FormData(event.currentTarget as HTMLFormElement).get("id") ?? "").trim();
        if (id) navigate(link(["flows", id]));
    };
    return (
        <>
            <div class="head">
                <h1>Flows</h1>
                <span class="grow" />
                <form class="filters" onSubmit={open}>
                    <input class="field" name="id" aria-label="Id of a job" placeholder="Id of a job" autocomplete="off" spellcheck={false} />
                    <Button type="submit">Show its flow</Button>
                </form>
                <QueueField value={queue} onChange={(value) => setFilters({ queue: value || null })} />
            </div>
            {list.error && <Problem error={list.error} />}
            {queue ? (
                <Card class="flush" title={`Jobs of ${queue} that wait for their children`}>
                    <Table
                        label="Flows"
                        tall
                        columns={COLUMNS}
                        rows={list.rows}
                        keyOf={(job) => job.id}
                        more={list.more}
                        onEnd={list.onEnd}
                        onSeen={list.onSeen}
                        empty={list.loaded ? "No job of this queue waits for children" : "Loading…"}
                    />
                </Card>
            ) : (
                <Empty>A flow is a job with the jobs that it waits for. Choose a queue to see its flows that are under way, or give the id of any job of one.</Empty>
            )}
        </>
    );
}
