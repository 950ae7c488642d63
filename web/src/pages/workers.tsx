// Workers by their hosts: what they have in hand, and which are silent.

import { count, many, short } from "../lib/format";
import { may } from "../lib/rights";
import { filter, link, setFilters } from "../lib/router";
import { Button, Card, Choice, Empty, FilterField, JobLink, Problem, QueueLink, Tile, Time } from "../parts/basics";
import { act } from "../parts/dialog";
import { useList } from "../parts/lists";
import { QueueField } from "../parts/queue-field";
import { type Column, Table } from "../parts/table";

interface Worker {
    id: string;
    name: string;
    queues: string[];
    concurrency: number;
    hostname?: string;
    pid?: number;
    status: "active" | "stale";
    registeredAt: number;
    lastSeen: number;
    /** Nothing of one that works for queues as well that there are not for the token. */
    activeJobs?: number;
    processedJobs?: number;
    failedJobs?: number;
    partial?: boolean;
    jobs?: { id: string; queue: string }[];
}

interface Host {
    host: string;
    workers: Worker[];
}

type Row = Worker | Host;

const isHost = (row: Row): row is Host => "workers" in row;

const UNKNOWN = "host not known";

const sum = (workers: readonly Worker[], of: (worker: Worker) => number | undefined) => workers.reduce((all, worker) => all + (of(worker) ?? 0), 0);

/** Jobs that it has, as far as the token sees. Its heartbeats may be older than its jobs. */
const inHand = (worker: Worker) => Math.max(worker.activeJobs ?? 0, worker.jobs?.length ?? 0);

export default function Workers() {
    const [queue, wanted, which] = [filter("queue"), filter("find"), filter("which")];
    const list = useList<Worker>("ListWorkers", { limit: 500, ...(queue ? { queue } : {}) }, "workers", (worker) => worker.id, 2000);
    const workers = list.rows.filter(
        (worker) =>
            (which !== "silent" || worker.status === "stale") &&
            (which !== "busy" || inHand(worker) > 0) &&
            [worker.name, worker.hostname ?? "", worker.id].some((text) => text.toLowerCase().includes(wanted.toLowerCase())),
    );
    const hosts = new Map<string, Worker[]>();
    for (const worker of workers) {
        const host = worker.hostname || UNKNOWN;
        hosts.set(host, [...(hosts.get(host) ?? []), worker]);
    }
    const rows: Row[] = [...hosts]
        .sort(([one], [other]) => (one < other ? -1 : 1))
        .flatMap(([host, own]) => [{ host, workers: own }, ...own.sort((one, other) => (one.name + one.id < other.name + other.id ? -1 : 1))]);
    const live = list.rows.filter((worker) => worker.status === "active");
    const silent = list.rows.length - live.length;
    const [active, slots] = [sum(list.rows, inHand), sum(live, (worker) => worker.concurrency)];
    return (
        <>
            <div class="head">
                <h1>Workers</h1>
                <span class="grow" />
                <div class="filters">
                    <FilterField label="Name, host or id" value={wanted} onChange={(value) => setFilters({ find: value || null })} />
                    <QueueField label="Queue of the workers" placeholder="All queues" value={queue} onChange={(value) => setFilters({ queue: value || null })} />
                    <Choice
                        label="Which workers"
                        value={which || "all"}
                        options={[
                            ["all", "All"],
                            ["busy", "Busy"],
                            ["silent", "Silent"],
                        ]}
                        onChange={(value) => setFilters({ which: value === "all" ? null : value })}
                    />
                </div>
            </div>
            {list.error && <Problem error={list.error} />}
            {list.loaded && list.rows.length > 0 && (
                <section class="tiles" aria-label="Workers in figures">
                    <Tile label="Workers" value={count(list.rows.length)} note={many(new Set(list.rows.map((worker) => worker.hostname)).size, "host")} />
                    <Tile label="Active jobs" tone="active" value={short(active)} note={`of ${many(slots, "slot")}`} />
                    <Tile label="Silent" tone={silent > 0 ? "warn" : "good"} value={count(silent)} note="for 30 s or longer" href={link(["workers"], { queue, which: "silent" })} />
                    <Tile label="Processed" tone="completed" value={short(sum(list.rows, (worker) => worker.processedJobs))} />
                    <Tile label="Failed" tone="failed" value={short(sum(list.rows, (worker) => worker.failedJobs))} />
                </section>
            )}
            {list.loaded && list.rows.length === 0 && !queue ? (
                <Empty>No worker is registered. Clients may pull without that; they are seen in the figures of their queues.</Empty>
            ) : (
                <Card class="flush">
                    <Table
                        label="Workers by host"
                        tall
                        columns={columns(list.again)}
                        rows={rows}
                        keyOf={(row) => (isHost(row) ? `host ${row.host}` : row.id)}
                        more={list.more}
                        onEnd={list.onEnd}
                        onSeen={(seen) => list.onSeen(seen.flatMap((row) => (isHost(row) ? row.workers : [row])))}
                        empty={list.loaded ? "No worker matches" : "Loading…"}
                    />
                </Card>
            )}
        </>
    );
}

function columns(again: () => void): readonly Column<Row>[] {
    return [
        {
            key: "name",
            label: "Host and worker",
            cell: (row) =>
                isHost(row) ? (
                    <b class="host">{row.host}</b>
                ) : (
                    <span class="state indent" title={row.id}>
                        <i class={`dot ${row.status === "stale" ? "warn" : inHand(row) > 0 ? "active" : "good"}`} />
                        {row.name}
                        {row.pid !== undefined && <span class="note roomy">pid {row.pid}</span>}
                        {row.status === "stale" && <span class="tag warn">silent</span>}
                        {row.partial && (
                            <span class="tag" title="Its numbers count jobs of other queues too, so they are not shown">
                                more queues
                            </span>
                        )}
                    </span>
                ),
        },
        {
            key: "load",
            label: "Active",
            width: "150px",
            cell: (row) => {
                const own = isHost(row) ? row.workers : [row];
                const [active, slots] = [sum(own, inHand), sum(own, (worker) => worker.concurrency)];
                return (
                    <span class="meter-row">
                        <span class="meter">
                            <i style={{ width: `${Math.min(100, (100 * active) / Math.max(1, slots))}%` }} />
                        </span>
                        {count(active)} of {count(slots)}
                    </span>
                );
            },
        },
        {
            key: "jobs",
            label: "Jobs",
            width: "176px",
            wide: true,
            cell: (row) =>
                isHost(row) ? (
                    <span class="note">{many(row.workers.length, "worker")}</span>
                ) : (
                    row.jobs?.[0] && (
                        <>
                            <JobLink id={row.jobs[0].id} /> {row.jobs.length > 1 && <span class="note">+{row.jobs.length - 1}</span>}
                        </>
                    )
                ),
        },
        {
            key: "queues",
            label: "Queues",
            width: "140px",
            wide: true,
            cell: (row) =>
                isHost(row)
                    ? null
                    : row.queues.slice(0, 4).map((queue) => (
                          <>
                              <QueueLink name={queue} />{" "}
                          </>
                      )),
        },
        { key: "done", label: "Processed", width: "92px", right: true, wide: true, cell: (row) => (isHost(row) ? short(sum(row.workers, (one) => one.processedJobs)) : short(row.processedJobs)) },
        { key: "failed", label: "Failed", width: "78px", right: true, wide: true, cell: (row) => (isHost(row) ? short(sum(row.workers, (one) => one.failedJobs)) : short(row.failedJobs)) },
        { key: "seen", label: "Last seen", width: "112px", cell: (row) => (isHost(row) ? null : <Time at={row.lastSeen} />) },
        ...(may("change")
            ? [
                  {
                      key: "actions",
                      label: "Actions",
                      width: "84px",
                      right: true,
                      wide: true,
                      cell: (row: Row) =>
                          !isHost(row) &&
                          row.status === "stale" && (
                              <Button
                                  kind="quiet"
                                  icon="trash"
                                  label={`Remove ${row.name}`}
                                  onClick={() =>
                                      void act({
                                          question: {
                                              title: `Remove ${row.name}?`,
                                              text: `1 silent worker is removed from the list. Its ${many(inHand(row), "active job")} are delivered again when their locks expire.`,
                                              action: "Remove 1 worker",
                                              danger: true,
                                          },
                                          run: () => ["UnregisterWorker", { workerId: row.id }],
                                          said: () => `${row.name} is removed`,
                                          after: again,
                                      })
                                  }
                              />
                          ),
                  },
              ]
            : []),
    ];
}
