// One schedule: what it is, its next runs, and the jobs that it has pushed.

import { count } from "../lib/format";
import { useQuery } from "../lib/hooks";
import { rawAt } from "../lib/json";
import { knows } from "../lib/known";
import { may } from "../lib/rights";
import { link, navigate } from "../lib/router";
import { Button, Card, JobLink, Problem, QueueLink, State, Time } from "../parts/basics";
import { Menu } from "../parts/menu";
import { Payload } from "../parts/payload";
import { type Cron, cadence, enable, remove, trigger } from "../parts/schedule-actions";
import { Table } from "../parts/table";
import { Runs } from "./schedules";
import type { PageProps } from ".";

/** Those that have a line of their own, and the payload, which is shown as it came. */
const SHOWN = new Set(["name", "queue", "schedule", "repeatEvery", "nextRun", "executions", "enabled", "maxLimit", "timezone", "jobName", "priority", "data"]);

export default function Schedule({ values }: PageProps) {
    const name = values["name"]!;
    const query = useQuery<{ cron: Cron }>("CronGet", { name }, 3000);
    const isHere = knows("CronTrigger");
    const cron = query.data?.cron;
    const preview = useQuery<{ data: { runs: { at: number; local: string }[] } }>("CronPreview", isHere && cron ? { name, count: 10 } : null, 15_000);
    if (query.error) return <Problem error={query.error} />;
    if (!cron) return <p class="empty">Loading…</p>;
    const isOff = cron.enabled === false;
    const again = () => {
        query.again();
        preview.again();
    };
    const raw = rawAt(query.text, ["cron", "data"]);
    const others = Object.entries(cron).filter(([key]) => !SHOWN.has(key));
    return (
        <>
            <div class="head">
                <span class="crumb">
                    <a href="schedules">Schedules</a>
                </span>
                <h1>{name}</h1>
                {isOff && <span class="tag warn">disabled</span>}
                <span class="grow" />
                {may("change") && (
                    <>
                        {isHere && (
                            <Button icon="play" kind="primary" onClick={() => void trigger(cron, again)}>
                                Run now
                            </Button>
                        )}
                        {isHere && (
                            <Button icon={isOff ? "check" : "pause"} onClick={() => void enable(cron, isOff, again)}>
                                {isOff ? "Enable" : "Disable"}
                            </Button>
                        )}
                        <Menu
                            label={`Actions on ${name}`}
                            text="Actions"
                            items={[
                                { name: "Edit", run: () => navigate(link(["schedules"], { edit: name })) },
                                { name: "Remove", danger: true, run: () => void remove(cron, () => navigate("schedules")) },
                            ]}
                        />
                    </>
                )}
            </div>
            <div class="columns">
                <Card title="The schedule">
                    <dl class="facts">
                        <dt>Queue</dt>
                        <dd>
                            <QueueLink name={cron.queue} />
                        </dd>
                        <dt>When</dt>
                        <dd>
                            {cron.schedule ? <code>{cron.schedule}</code> : cadence(cron)}
                            {cron.schedule ? `, ${cron.timezone ?? "UTC"}` : ""}
                        </dd>
                        <dt>Next run</dt>
                        <dd>{cron.nextRun ? <Time at={cron.nextRun} /> : "none"}</dd>
                        <dt>Runs</dt>
                        <dd>
                            {count(cron.executions)}
                            {cron.maxLimit ? ` of ${count(cron.maxLimit)}, then it is removed` : ""}
                        </dd>
                        {cron.jobName && (
                            <>
                                <dt>Name of its jobs</dt>
                                <dd>{cron.jobName}</dd>
                            </>
                        )}
                        {cron.priority !== undefined && (
                            <>
                                <dt>Priority</dt>
                                <dd>{count(cron.priority)}</dd>
                            </>
                        )}
                        {others.map(([key, value]) => (
                            <>
                                <dt>{key}</dt>
                                <dd>
                                    <code>{JSON.stringify(value)}</code>
                                </dd>
                            </>
                        ))}
                    </dl>
                </Card>
                {isHere && (
                    <Card title="Next runs" note={isOff ? "if it is enabled now" : "in the zone of the schedule"}>
                        {preview.error ? <Problem error={preview.error} /> : <Runs runs={preview.data?.data.runs ?? []} />}
                    </Card>
                )}
            </div>
            {raw !== undefined && <Payload raw={raw} title="Payload" label="the payload" />}
            {cron.jobName ? (
                <Pushed queue={cron.queue} name={cron.jobName} />
            ) : (
                <p class="note">The jobs of a schedule are listed here if the schedule gives them a name.</p>
            )}
        </>
    );
}

interface Job {
    id: string;
    state: string;
    runAt: number;
    attempts: number;
}

function Pushed({ queue, name }: { queue: string; name: string }) {
    const query = useQuery<{ jobs: Job[] }>("GetJobs", { queue, name, limit: 50, order: "desc" }, 4000);
    return (
        <Card class="flush" title={`Jobs of the name ${name}`} note="the newest first">
            <Table
                label={`Jobs of the name ${name}`}
                columns={[
                    { key: "id", label: "Job", cell: (job: Job) => <JobLink id={job.id} /> },
                    { key: "state", label: "State", width: "150px", cell: (job: Job) => <State state={job.state} /> },
                    { key: "when", label: "Due", width: "160px", cell: (job: Job) => <Time at={job.runAt} /> },
                    { key: "attempts", label: "Attempts", width: "100px", right: true, wide: true, cell: (job: Job) => count(job.attempts) },
                ]}
                rows={query.data?.jobs ?? []}
                keyOf={(job) => job.id}
                empty={query.data ? "No job" : "Loading…"}
            />
        </Card>
    );
}
