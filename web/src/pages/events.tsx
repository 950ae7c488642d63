// Live events: what happens to jobs, as it happens. Of a busy server a sample is shown, and the page says which.

import { useEffect, useRef, useState } from "preact/hooks";
import { clock, count, many, short } from "../lib/format";
import { knows } from "../lib/known";
import { may } from "../lib/rights";
import { filter, setFilters } from "../lib/router";
import { type Refused, ask, listen, ready } from "../lib/server";
import { Button, Card, Empty, FilterField, JobLink, Problem, QueueLink } from "../parts/basics";
import { QueueField } from "../parts/queue-field";
import { type Column, Table } from "../parts/table";

interface JobEvent {
    /** The place in what came. */
    at: number;
    eventType: string;
    queue: string;
    jobId: string;
    name?: string;
    timestamp: number;
    error?: string;
    progress?: number;
    prev?: string;
    terminal?: boolean;
}

/** The types, with the state whose colour they have. */
const TYPES: readonly (readonly [string, string])[] = [
    ["pushed", "waiting"],
    ["delayed", "delayed"],
    ["waiting-children", "waiting-children"],
    ["pulled", "active"],
    ["progress", "active"],
    ["completed", "completed"],
    ["failed", "failed"],
    ["retried", "delayed"],
    ["stalled", "warn"],
    ["removed", ""],
    ["duplicated", ""],
    ["drained", ""],
    ["paused", "paused"],
    ["resumed", "good"],
];

const TONES = new Map(TYPES);

/** Events that are kept. */
const KEPT = 1000;

/** How often what has come is shown. */
const SHOW_MS = 250;

/** Events per second that a reader can follow. */
const READABLE = 100;

interface Come {
    events: readonly JobEvent[];
    seen: number;
    passedOver: number;
    missed: number;
}

const NOTHING: Come = { events: [], seen: 0, passedOver: 0, missed: 0 };

/** The events of a choice while there is a connection. */
function useEvents(choice: object | null, isPaused: boolean): { come: Come; error: Refused | null; clear: () => void } {
    const key = JSON.stringify(choice);
    const own = useRef<Come & { paused: boolean; changed: boolean }>({ ...NOTHING, paused: false, changed: false });
    const [shown, setShown] = useState<Come>(NOTHING);
    const [error, setError] = useState<Refused | null>(null);
    own.current.paused = isPaused;
    useEffect(() => {
        if (!choice || !ready.value) return;
        const state = own.current;
        const buffer: JobEvent[] = [];
        const stop = listen((message) => {
            const event = message as unknown as JobEvent & { passedOver?: number; count?: number };
            if (typeof event.eventType !== "string") return;
            state.passedOver += event.passedOver ?? 0;
            if (event.eventType === "missed") state.missed += event.count ?? 0;
            else if (event.eventType === "passed-over") state.passedOver += event.count ?? 0;
            else {
                state.seen++;
                if (!state.paused) buffer.push({ ...event, at: state.seen });
                if (buffer.length > 2 * KEPT) buffer.splice(0, buffer.length - KEPT);
            }
            state.changed = true;
        });
        const timer = setInterval(() => {
            if (!state.changed) return;
            state.changed = false;
            const fresh = buffer.splice(0).reverse();
            state.events = [...fresh, ...state.events].slice(0, KEPT);
            const { events, seen, passedOver, missed } = state;
            setShown({ events, seen, passedOver, missed });
        }, SHOW_MS);
        ask("Subscribe", { ...choice, data: false }).then(
            () => setError(null),
            (refused: Refused) => refused.code !== "away" && setError(refused),
        );
        return () => {
            stop();
            clearInterval(timer);
            // Also of a page that is no longer seen: without it events go on to come.
            ask("Unsubscribe").catch(() => undefined);
        };
    }, [key, ready.value]);
    const clear = () => {
        Object.assign(own.current, NOTHING);
        setShown(NOTHING);
    };
    useEffect(clear, [key]);
    return { come: shown, error, clear };
}

/** One in so many jobs, so that a reader can follow; null until it is known. */
function useSampling(wanted: string): number | null {
    const [fit, setFit] = useState<number | null>(null);
    const isAuto = wanted === "";
    useEffect(() => {
        if (!isAuto || !ready.value) return;
        if (!may("server")) {
            setFit(1);
            return;
        }
        ask<{ stats: { pushPerSec: number } }>("Stats").then(
            // A job has at least three events: pushed, pulled, completed.
            ({ data }) => setFit(Math.max(1, Math.ceil((3 * data.stats.pushPerSec) / READABLE))),
            () => setFit(1),
        );
    }, [isAuto, ready.value]);
    return isAuto ? fit : Number(wanted);
}

const COLUMNS: readonly Column<JobEvent>[] = [
    { key: "time", label: "Time", width: "104px", cell: (event) => <span class="mono">{clock(event.timestamp, true)}</span> },
    {
        key: "type",
        label: "Event",
        width: "150px",
        cell: (event) => (
            <span class="state">
                <i class={`dot ${TONES.get(event.eventType) ?? ""}`} />
                {event.eventType}
            </span>
        ),
    },
    { key: "queue", label: "Queue", width: "160px", wide: true, cell: (event) => <QueueLink name={event.queue} /> },
    { key: "job", label: "Job", width: "170px", cell: (event) => event.jobId && <JobLink id={event.jobId} /> },
    { key: "name", label: "Name", width: "130px", wide: true, cell: (event) => event.name ?? "" },
    {
        key: "more",
        label: "Details",
        wide: true,
        cell: (event) => (
            <>
                {event.error && <span class="error-text">{event.error} </span>}
                {event.terminal && <span class="tag">final</span>}
                {event.progress !== undefined && `${event.progress} %`}
                {event.prev && <span class="note">was {event.prev}</span>}
            </>
        ),
    },
];

export default function Events() {
    if (!knows("Subscribe")) return <Empty>This server sends no events by choice</Empty>;
    return <Live />;
}

function Live() {
    const [queue, job, types, sampled] = [filter("queue"), filter("job"), filter("type"), filter("sample")];
    const chosen = types ? types.split(",") : [];
    const sample = useSampling(sampled);
    const [isPaused, setPaused] = useState(false);
    const [from, setFrom] = useState(0);
    const choice =
        sample === null
            ? null
            : {
                  ...(queue ? { queues: [queue] } : {}),
                  ...(job ? { jobs: [job] } : {}),
                  ...(chosen.length > 0 ? { types: chosen } : {}),
                  ...(sample > 1 && !job ? { sample } : {}),
              };
    const { come, error, clear } = useEvents(choice, isPaused);
    const toggle = (type: string) => {
        const next = chosen.includes(type) ? chosen.filter((one) => one !== type) : [...chosen, type];
        setFilters({ type: next.join(",") || null });
    };
    return (
        <>
            <div class="head">
                <h1>Live events</h1>
                <span class="grow" />
                <div class="filters">
                    <QueueField label="Queue, * for any letters" placeholder="All queues" value={queue} onChange={(value) => setFilters({ queue: value || null })} />
                    <FilterField label="Id of a job" placeholder="Id of a job" value={job} onChange={(value) => setFilters({ job: value || null })} />
                    <select class="field" aria-label="Which jobs" value={sampled} onChange={(event) => setFilters({ sample: event.currentTarget.value || null })}>
                        <option value="">Readable sample</option>
                        <option value="1">All jobs</option>
                        <option value="10">1 in 10 jobs</option>
                        <option value="100">1 in 100 jobs</option>
                        <option value="1000">1 in 1,000 jobs</option>
                    </select>
                    <Button
                        icon={isPaused ? "play" : "pause"}
                        pressed={isPaused}
                        onClick={() => {
                            setPaused(!isPaused);
                            setFrom(come.seen);
                        }}
                    >
                        {isPaused ? "Resume" : "Pause"}
                    </Button>
                    <Button kind="quiet" onClick={clear}>
                        Clear
                    </Button>
                </div>
            </div>
            <div class="chips" role="group" aria-label="Types of events">
                {TYPES.map(([type, tone]) => (
                    <button type="button" key={type} class="chip" aria-pressed={chosen.includes(type)} onClick={() => toggle(type)}>
                        <i class={`dot ${tone}`} />
                        {type}
                    </button>
                ))}
            </div>
            {error && <Problem error={error} />}
            <Card class="flush">
                <p class="said" data-sample={sample ?? ""}>
                    <b>{sample === null ? "" : sample > 1 && !job ? `1 in ${count(sample)} jobs` : "All jobs"}</b>
                    <span>{many(come.seen, "event")}</span>
                    {come.passedOver > 0 && <span>{short(come.passedOver)} left out by sampling</span>}
                    {come.missed > 0 && <span class="error-text">{short(come.missed)} lost, because this page was too slow</span>}
                    {isPaused && <span class="tag warn">{many(Math.max(0, come.seen - from), "event")} while paused</span>}
                    {come.events.length === KEPT && <span class="note">the last {count(KEPT)} are shown</span>}
                </p>
                <Table label="Events" tall columns={COLUMNS} rows={come.events} keyOf={(event) => String(event.at)} rowHeight={32} empty="No event since this page was opened" />
            </Card>
        </>
    );
}
