// Search: jobs by their payload. A search works in steps, says what it has covered, and goes on from where it was.

import { effect } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { count, many } from "../lib/format";
import { knows } from "../lib/known";
import { covered } from "../lib/redact";
import { may } from "../lib/rights";
import { filter, setFilters } from "../lib/router";
import { seen } from "../lib/seen";
import { Refused, ask, ready } from "../lib/server";
import { Button, Card, Empty, JobLink, Problem, QueueLink, State, Time } from "../parts/basics";
import { Menu } from "../parts/menu";
import { QueueField } from "../parts/queue-field";
import { type Column, Table } from "../parts/table";
import { type Action, Tasks, bulk } from "../parts/tasks";

interface Job {
    id: string;
    queue: string;
    name?: string;
    state: string;
    createdAt: number;
    dataPreview?: string;
    dataCut?: boolean;
}

interface Covered {
    jobs: number;
    records: number;
    partly: number;
    damaged: number;
    shard: number;
    shards: number;
    done: boolean;
}

const STATES = [
    ["waiting", "Waiting"],
    ["active", "Active"],
    ["delayed", "Delayed"],
    ["waiting-children", "Waits for others"],
    ["completed", "Completed"],
    ["failed", "Dead letters"],
] as const;

/** Rows that a search finds before the reader is asked whether it shall go on. */
const AT_ONCE = 200;

interface Progress {
    key: string;
    rows: Job[];
    covered: Covered | null;
    next: string | null;
    running: boolean;
    error: Refused | null;
}

function none(key: string): Progress {
    return { key, rows: [], covered: null, next: null, running: false, error: null };
}

/** Sums over the steps of a search. */
function added(before: Covered | null, step: Covered): Covered {
    if (!before) return step;
    const sum = (name: "jobs" | "records" | "partly" | "damaged") => before[name] + step[name];
    return { ...step, jobs: sum("jobs"), records: sum("records"), partly: sum("partly"), damaged: sum("damaged") };
}

function useSearch(fields: object | null): { progress: Progress; go: () => void; stop: () => void } {
    const key = JSON.stringify(fields);
    const [shown, setShown] = useState<Progress>(none(key));
    const own = useRef(none(key));
    const go = async () => {
        const state = own.current;
        if (!fields || state.running) return;
        state.running = true;
        state.error = null;
        const most = state.rows.length + AT_ONCE;
        const show = () => own.current === state && setShown({ ...state, rows: [...state.rows] });
        show();
        try {
            while (state.running && own.current === state && state.rows.length < most) {
                const after = state.next === null ? {} : { after: state.next };
                const { data } = await ask<{ jobs: Job[]; next: string | null; covered: Covered }>("Search", {
                    ...fields,
                    limit: 100,
                    budgetMs: 1000,
                    data: "preview",
                    ...after,
                });
                state.rows.push(...data.jobs);
                state.covered = added(state.covered, data.covered);
                state.next = data.next;
                if (data.next === null) break;
                show();
                await seen();
            }
        } catch (error) {
            state.error = error as Refused;
        }
        state.running = false;
        show();
    };
    const current = useRef(go);
    current.current = go;
    useEffect(() => {
        const state = none(key);
        own.current = state;
        setShown(state);
        // Once there is a connection; what broke off later is gone on with by hand.
        const stop = effect(() => {
            if (ready.value && state.covered === null) void current.current();
        });
        return () => {
            stop();
            state.running = false;
        };
    }, [key]);
    return {
        progress: shown.key === key ? shown : none(key),
        go: () => void go(),
        stop: () => {
            own.current.running = false;
        },
    };
}

export default function Search() {
    const [queue, text, path, value, state] = ["queue", "text", "path", "value", "state"].map(filter) as [string, string, string, string, string];
    const wanted = {
        ...(text ? { text } : {}),
        ...(path ? { path } : {}),
        ...(path && value ? { value } : {}),
        ...(state ? { state } : {}),
    };
    const isSearch = Boolean(text || path) && (may("server") || queue !== "");
    const { progress, go, stop } = useSearch(isSearch ? { ...wanted, ...(queue ? { queue } : {}) } : null);
    const submit = (event: Event) => {
        event.preventDefault();
        const form = new FormData(event.currentTarget as HTMLFormElement);
        const field = (name: string) => String(form.get(name) ?? "") || null;
        setFilters({ text: field("text"), path: field("path"), value: field("path") ? field("value") : null, state: field("state") });
    };
    return (
        <>
            <div class="head">
                <h1>Search</h1>
                <span class="grow" />
                {isSearch && queue && may("change") && knows("Bulk") && <Actions queue={queue} filter={wanted} />}
            </div>
            <Card>
                <form class="search-form" onSubmit={submit} key={[text, path, value, state].join("\n")}>
                    <label>
                        <span>Text in the payload</span>
                        <input class="field" type="search" name="text" defaultValue={text} placeholder="ada@example.org" autocomplete="off" spellcheck={false} />
                    </label>
                    <label>
                        <span>Path in the payload</span>
                        <input class="field mono" name="path" defaultValue={path} placeholder="order.lines.0.sku" autocomplete="off" spellcheck={false} />
                    </label>
                    <label>
                        <span>Value at that path</span>
                        <input class="field mono" name="value" defaultValue={value} placeholder="any" autocomplete="off" spellcheck={false} />
                    </label>
                    <label>
                        <span>State</span>
                        <select class="field" name="state" defaultValue={state}>
                            <option value="">All states</option>
                            {STATES.map(([name, label]) => (
                                <option key={name} value={name} selected={name === state}>
                                    {label}
                                </option>
                            ))}
                        </select>
                    </label>
                    <label>
                        <span>Queue</span>
                        <QueueField value={queue} placeholder={may("server") ? "All queues" : "Name of a queue"} onChange={(value) => setFilters({ queue: value || null })} />
                    </label>
                    <Button type="submit" kind="primary" icon="search">
                        Search
                    </Button>
                </form>
            </Card>
            <Tasks />
            {!isSearch ? (
                <Empty>
                    {text || path
                        ? "Choose one of the queues of this token"
                        : "Find jobs by any text in their payload, by a path such as order.lines.0.sku, or by the value at that path. Upper and lower case differ."}
                </Empty>
            ) : (
                <Found progress={progress} go={go} stop={stop} />
            )}
        </>
    );
}

const COLUMNS: readonly Column<Job>[] = [
    { key: "id", label: "Job", width: "164px", cell: (job) => <JobLink id={job.id} /> },
    { key: "queue", label: "Queue", width: "140px", wide: true, cell: (job) => <QueueLink name={job.queue} /> },
    { key: "name", label: "Name", width: "110px", wide: true, cell: (job) => job.name ?? <span class="zero">–</span> },
    { key: "state", label: "State", width: "136px", cell: (job) => <State state={job.state} /> },
    { key: "when", label: "Pushed", width: "148px", wide: true, cell: (job) => <Time at={job.createdAt} /> },
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
];

function Found({ progress, go, stop }: { progress: Progress; go: () => void; stop: () => void }) {
    const { rows, running, error, next } = progress;
    const isOver = !running && progress.covered !== null && next === null;
    return (
        <Card
            class="flush"
            title={`${many(rows.length, "job")} found${isOver ? "" : " so far"}`}
            note={<CoveredText progress={progress} />}
            actions={
                running ? (
                    <Button icon="pause" onClick={stop}>
                        Stop
                    </Button>
                ) : (
                    !isOver && (
                        <Button icon="search" onClick={go}>
                            Search further
                        </Button>
                    )
                )
            }
        >
            {error && <Problem error={error} />}
            <Table
                label="Jobs found"
                tall
                columns={COLUMNS}
                rows={rows}
                keyOf={(job) => job.id}
                empty={running ? "Searching…" : isOver ? "No job matches" : "No match so far"}
            />
        </Card>
    );
}

/** What the search has looked at. */
function CoveredText({ progress }: { progress: Progress }) {
    const own = progress.covered;
    if (!own) return null;
    const isOver = progress.next === null;
    return (
        <span data-covered={isOver ? "all" : "part"}>
            {many(own.jobs, "job")} checked, {many(own.records, "payload")} read
            {!isOver && own.shards > 1 ? `, shard ${own.shard + 1} of ${own.shards}` : ""}
            {own.partly > 0 ? `; only the first 256 KB of ${count(own.partly)}` : ""}
            {own.damaged > 0 ? `; ${count(own.damaged)} could not be read` : ""}
            {isOver ? "; complete" : "; not complete yet"}
        </span>
    );
}

function Actions({ queue, filter }: { queue: string; filter: object }) {
    const run = (action: Action) => () => void bulk({ action, queue, filter, noun: ["job", "jobs"], about: " that match this search" });
    return (
        <Menu
            label="Actions on what the search finds"
            text="Actions"
            items={[
                { name: "Retry dead letters", run: run("retry") },
                { name: "Run delayed jobs now", run: run("promote") },
                { name: "Cancel jobs that have not started", danger: true, run: run("cancel") },
                { name: "Remove all but active jobs", danger: true, run: run("remove") },
            ]}
        />
    );
}
