// All queues: found by how their names begin, sorted by the server, and read as they are scrolled.

import { useEffect, useRef, useState } from "preact/hooks";
import { now } from "../lib/clock";
import { brief, count, duration, short } from "../lib/format";
import { changeConcurrency, changeRate, limitsText, pause, resume } from "../lib/queue-actions";
import { may } from "../lib/rights";
import { filter, setFilters } from "../lib/router";
import { ask, ready } from "../lib/server";
import { Button, Card, Choice, FilterField, Problem, QueueLink } from "../parts/basics";
import { FirstJob } from "../parts/first";
import { useList } from "../parts/lists";
import { Menu } from "../parts/menu";
import { Spark } from "../parts/spark";
import { type Column, Table } from "../parts/table";

interface Row {
    name: string;
    waiting: number;
    delayed: number;
    active: number;
    completed: number;
    failed: number;
    total: number;
    paused: boolean;
    completedPerMinute: number;
    failedPerMinute: number;
    oldestWaiting: number | null;
    waitP99: number | null;
    rateLimit: { max: number; duration: number } | null;
    concurrencyLimit: number | null;
}

const PAGE = 200;

/** Sorted from the smallest unless it is a figure. */
const NAMES = "name";

export default function Queues() {
    const prefix = filter("prefix");
    const by = filter("sort") || NAMES;
    const order = filter("order");
    const down = order ? order === "desc" : by !== NAMES;
    const fields = { limit: PAGE, sort: by, order: down ? "desc" : "asc", ...(prefix ? { prefix } : {}) };
    const list = useList<Row>("ListQueues", fields, "queues", (row) => row.name, 4000);
    const [sparks, seen] = useSparks();
    const sort = (wanted: string) => {
        const first = wanted !== NAMES;
        const next = wanted === by ? !down : first;
        setFilters({ sort: wanted === NAMES ? null : wanted, order: next === first ? null : next ? "desc" : "asc" });
    };
    if (list.loaded && list.rows.length === 0 && !prefix && may("server")) {
        return (
            <>
                <h1>Queues</h1>
                <FirstJob />
            </>
        );
    }
    const figure = (key: keyof Row & string, label: string, width: string, wide = false): Column<Row> => ({
        key,
        label,
        width,
        wide,
        right: true,
        sort: key,
        cell: (row) => (
            <span class={row[key] === 0 ? "zero" : ""} title={count(row[key] as number)}>
                {short(row[key] as number)}
            </span>
        ),
    });
    const columns: readonly Column<Row>[] = [
        {
            key: "name",
            label: "Queue",
            sort: NAMES,
            cell: (row) => (
                <>
                    <QueueLink name={row.name} /> {row.paused && <span class="tag warn">paused</span>}
                </>
            ),
        },
        { key: "spark", label: "Half an hour", width: "112px", wide: true, cell: (row) => <Spark values={sparks.get(row.name) ?? []} tone="completed" height={22} /> },
        { key: "rate", label: "per min", width: "76px", right: true, wide: true, sort: "rate", cell: (row) => short(row.completedPerMinute) },
        figure("waiting", "Waiting", "82px"),
        figure("active", "Active", "76px"),
        figure("delayed", "Delayed", "80px", true),
        figure("failed", "Dead", "70px"),
        {
            key: "oldest",
            label: "Oldest",
            width: "88px",
            right: true,
            wide: true,
            sort: "oldest",
            cell: (row) => (row.oldestWaiting === null ? <span class="zero">–</span> : brief(Math.max(0, now.value - row.oldestWaiting))),
        },
        {
            key: "p99",
            label: "Wait p99",
            width: "92px",
            right: true,
            wide: true,
            spare: true,
            cell: (row) => <span title="99 of 100 jobs waited for no longer">{row.waitP99 === null ? "–" : `≤ ${duration(row.waitP99)}`}</span>,
        },
        { key: "limits", label: "Limits", width: "140px", wide: true, spare: true, cell: (row) => limitsText(row) || <span class="zero">none</span> },
        ...(may("change")
            ? [{ key: "actions", label: "Actions", width: "92px", right: true, wide: true, cell: (row: Row) => <Actions row={row} again={list.again} /> }]
            : []),
    ];
    return (
        <>
            <div class="head">
                <h1>Queues</h1>
                <span class="grow" />
                <div class="filters">
                    <FilterField label="Name begins with" value={prefix} onChange={(value) => setFilters({ prefix: value || null })} />
                    <Choice
                        label="Sort by"
                        value={by}
                        options={[
                            ["name", "Name"],
                            ["rate", "Busiest"],
                            ["waiting", "Backlog"],
                            ["oldest", "Oldest"],
                            ["failed", "Dead"],
                        ]}
                        onChange={(value) => setFilters({ sort: value === NAMES ? null : value, order: null })}
                    />
                </div>
            </div>
            {list.error && <Problem error={list.error} />}
            <Card class="flush">
                <Table
                    label="Queues"
                    tall
                    columns={columns}
                    rows={list.rows}
                    keyOf={(row) => row.name}
                    rowHeight={42}
                    sort={{ by, down }}
                    onSort={sort}
                    more={list.more}
                    onEnd={list.onEnd}
                    onSeen={(rows) => {
                        list.onSeen(rows);
                        seen(rows.map((row) => row.name));
                    }}
                    empty={list.loaded ? `No queue's name begins with ${prefix}` : "Loading…"}
                />
            </Card>
            <p class="note">
                {count(list.rows.length)} {list.more ? "queues so far; more come as you scroll" : list.rows.length === 1 ? "queue" : "queues"}
            </p>
        </>
    );
}

function Actions({ row, again }: { row: Row; again: () => void }) {
    const limits = { rateLimit: row.rateLimit, concurrencyLimit: row.concurrencyLimit };
    return (
        <span class="row-actions">
            {row.paused ? (
                <Button kind="quiet" icon="play" label={`Resume ${row.name}`} onClick={() => void resume(row.name, again)} />
            ) : (
                <Button kind="quiet" icon="pause" label={`Pause ${row.name}`} onClick={() => void pause(row.name, again)} />
            )}
            <Menu
                label={`Limits of ${row.name}`}
                items={[
                    { name: "Rate limit", run: () => void changeRate(row.name, limits, again) },
                    { name: "Concurrency", run: () => void changeConcurrency(row.name, limits, again) },
                ]}
            />
        </span>
    );
}

const SPARK = { series: ["completed"], step: 60_000, points: 31 };
const SPARK_MS = 30_000;

/** How the queues that are seen went. */
function useSparks(): [ReadonlyMap<string, (number | null)[]>, (names: string[]) => void] {
    const known = useRef(new Map<string, { values: (number | null)[]; at: number }>());
    const [shown, setShown] = useState<ReadonlyMap<string, (number | null)[]>>(new Map());
    const names = useRef<string[]>([]);
    const timer = useRef(0);
    const read = async () => {
        if (!ready.peek()) return;
        const old = performance.now() - SPARK_MS;
        const stale = names.current.filter((name) => (known.current.get(name)?.at ?? -Infinity) < old);
        for (const name of stale) known.current.set(name, { values: known.current.get(name)?.values ?? [], at: performance.now() });
        await Promise.all(
            stale.map(async (queue) => {
                try {
                    const { data } = await ask<{ data: { series: { completed: (number | null)[] } } }>("History", { queue, ...SPARK });
                    known.current.set(queue, { values: data.data.series.completed.slice(0, -1), at: performance.now() });
                } catch {
                    // It is shown without its line.
                }
            }),
        );
        if (known.current.size > 2000) known.current.clear();
        if (stale.length > 0) setShown(new Map([...known.current].map(([name, { values }]) => [name, values])));
    };
    const later = () => {
        clearTimeout(timer.current);
        timer.current = window.setTimeout(() => void read().then(again), 150);
    };
    const again = () => {
        clearTimeout(timer.current);
        timer.current = window.setTimeout(() => void read().then(again), 5000);
    };
    useEffect(() => () => clearTimeout(timer.current), []);
    return [
        shown,
        (now) => {
            names.current = now;
            later();
        },
    ];
}
