// The whole server at a glance.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { now } from "../lib/clock";
import { root } from "../lib/config";
import { brief, bytes, count, duration, many, perSecond, short } from "../lib/format";
import { useQuery, useWatch } from "../lib/hooks";
import { may } from "../lib/rights";
import { link } from "../lib/router";
import { type QueueSample, type ShardRow, type Stats, ready, sample, visible, who } from "../lib/server";
import { Card, Empty, QueueLink, Tile, Time } from "../parts/basics";
import { FirstJob } from "../parts/first";
import { History } from "../parts/history";
import { Icon } from "../parts/icons";
import { Meter, Spark } from "../parts/spark";
import { type Column, Table } from "../parts/table";

interface QueueRow {
    name: string;
    waiting: number;
    active: number;
    paused: boolean;
    completedPerMinute: number;
    failedPerMinute: number;
    oldestWaiting: number | null;
}

/** The samples of the last minutes, as long as the page is open. */
const KEPT = 120;
const trail: { at: number; stats: Stats }[] = [];
const trails = new Map<string, number[]>();
let remembered = 0;

function remember(): void {
    const own = sample.value;
    if (!own || remembered === own.at) return;
    remembered = own.at;
    if (own.stats) trail.push({ at: own.at, stats: own.stats });
    if (trail.length > 2 * KEPT) trail.splice(0, KEPT);
    for (const { name, completePerSec } of own.queues ?? []) {
        const values = trails.get(name) ?? [];
        values.push(completePerSec);
        trails.set(name, values.slice(-60));
    }
    if (trails.size > 500) trails.clear();
}

export default function Overview() {
    useWatch("stats", "queues", "shards");
    const queues = useQuery<{ queues: QueueRow[] }>(
        "ListQueues",
        {
            // What waits longest, however few these are.
            sort: "oldest",
            limit: 100,
            fields: ["waiting", "active", "paused", "completedPerMinute", "failedPerMinute", "oldestWaiting"],
        },
        10_000,
    );
    remember();
    if (!may("server")) return <Limited queues={queues.data?.queues ?? []} />;
    const stats = sample.value?.stats;
    const isEmpty = queues.data?.queues.length === 0 && stats !== undefined && stats.totalPushed === 0;
    if (isEmpty) {
        return (
            <>
                <h1>Overview</h1>
                <FirstJob />
            </>
        );
    }
    const oldest = (queues.data?.queues ?? [])
        .filter((row) => row.oldestWaiting !== null && row.waiting > 0)
        .sort((one, other) => one.oldestWaiting! - other.oldestWaiting!)[0];
    return (
        <>
            <h1 class="offscreen">Overview</h1>
            <Alerts queues={queues.data?.queues ?? []} shards={sample.value?.shards ?? []} />
            <Tiles stats={stats} oldest={oldest} shards={sample.value?.shards ?? []} />
            <History />
            <div class="main-side">
                <Busiest rows={sample.value?.queues ?? []} />
                <Shards rows={sample.value?.shards ?? []} />
            </div>
        </>
    );
}

/** For a token that is limited to queues. */
function Limited({ queues }: { queues: QueueRow[] }) {
    const left = unattended(queues);
    return (
        <>
            <h1>Overview</h1>
            {left.length > 0 && (
                <ul class="alerts" aria-label="What needs a look">
                    <li class="alert warn">
                        <Icon name="warning" />
                        <span>
                            <Unattended rows={left} />
                        </span>
                    </li>
                </ul>
            )}
            <Card>
                <p>
                    The token of this page is limited to the queues <code>{who.value?.queues?.join(", ")}</code>, so it does not see
                    the server as a whole.
                </p>
            </Card>
            <Busiest rows={sample.value?.queues ?? []} />
        </>
    );
}

/** Queues whose jobs wait while nothing takes them. */
function unattended(queues: readonly QueueRow[]): QueueRow[] {
    return queues.filter(
        (row) =>
            row.waiting > 0 &&
            !row.paused &&
            row.active === 0 &&
            row.completedPerMinute === 0 &&
            row.failedPerMinute === 0 &&
            now.value - (row.oldestWaiting ?? now.value) > 30_000,
    );
}

function Unattended({ rows }: { rows: readonly QueueRow[] }) {
    const most = rows.slice(0, 3);
    return (
        <>
            No worker takes jobs from{" "}
            {most.map((row, index) => (
                <span key={row.name}>
                    {index > 0 && ", "}
                    <QueueLink name={row.name} /> ({count(row.waiting)})
                </span>
            ))}
            {rows.length > most.length && ` and ${many(rows.length - most.length, "more queue")}`}
        </>
    );
}

function Tiles({ stats, oldest, shards }: { stats?: Stats | undefined; oldest?: QueueRow | undefined; shards: ShardRow[] }) {
    const rate = (of: (stats: Stats) => number) => {
        const values: number[] = [];
        for (let at = 1; at < trail.length; at++) {
            const [before, after] = [trail[at - 1]!, trail[at]!];
            values.push(Math.max(0, of(after.stats) - of(before.stats)) / Math.max(0.001, (after.at - before.at) / 1000));
        }
        return values.slice(-KEPT);
    };
    const level = (of: (stats: Stats) => number) => trail.map(({ stats }) => of(stats)).slice(-KEPT);
    // Over some samples, so that it does not flicker.
    const mean = (values: number[]) => {
        const last = values.slice(-5);
        return last.length > 0 ? last.reduce((sum, value) => sum + value, 0) / last.length : null;
    };
    const [completed, failed] = [rate((own) => own.totalCompleted), rate((own) => own.totalFailed)];
    const pushed = rate((own) => own.totalPushed);
    const disk = shards.reduce((sum, shard) => sum + shard.log.diskBytes, 0);
    const live = shards.reduce((sum, shard) => sum + shard.log.liveBytes, 0);
    return (
        <section class="tiles five" aria-label="Figures of the server">
            <Tile label="Waiting" tone="waiting" value={short(stats?.waiting)} title={count(stats?.waiting)} href={link(["queues"], { sort: "waiting" })}>
                <Spark values={level((own) => own.waiting)} tone="waiting" />
            </Tile>
            <Tile label="Active" tone="active" value={short(stats?.active)} title={count(stats?.active)} href={link(["queues"], { sort: "active" })}>
                <Spark values={level((own) => own.active)} tone="active" />
            </Tile>
            <Tile label="Delayed" tone="delayed" value={short(stats?.delayed)} title={count(stats?.delayed)} href={link(["queues"], { sort: "delayed" })}>
                <Spark values={level((own) => own.delayed)} tone="delayed" />
            </Tile>
            <Tile label="Dead letters" tone="failed" value={short(stats?.failed)} title={count(stats?.failed)} href="dead">
                <Spark values={level((own) => own.failed)} tone="failed" />
            </Tile>
            <Tile label="Pushed" value={perSecond(mean(pushed))}>
                <Spark values={pushed} />
            </Tile>
            <Tile label="Completed" value={perSecond(mean(completed))}>
                <Spark values={completed} tone="completed" />
            </Tile>
            <Tile label="Failed attempts" value={perSecond(mean(failed))}>
                <Spark values={failed} tone="failed" />
            </Tile>
            <Tile
                label="Oldest waiting job"
                value={oldest ? brief(Math.max(0, now.value - oldest.oldestWaiting!)) : "–"}
                note={oldest ? <QueueLink name={oldest.name} /> : "no job waits"}
            />
            <Tile label="Log on disk" value={bytes(disk)} note={`${bytes(live)} live`} />
            <Tile label="Up for" value={brief(stats?.uptime)} note={stats ? `${count(stats.totalPushed)} pushed` : ""} />
        </section>
    );
}

interface Health {
    clockAheadMs?: number;
    tls?: { certificateExpiresAt?: number; reloadFailed?: boolean };
}

const CERTIFICATE_DAYS = 14;

function Alerts({ queues, shards }: { queues: QueueRow[]; shards: ShardRow[] }) {
    const [health, setHealth] = useState<Health>({});
    const storage = useQuery<{ data: { diskFull: boolean; error: string | null; since: number | null } }>("StorageStatus", {}, 5000);
    useEffect(() => {
        if (!ready.value) return;
        const look = () =>
            fetch(new URL("health", root))
                .then((answer) => answer.json() as Promise<Health>)
                .then(setHealth, () => undefined);
        void look();
        const timer = setInterval(() => visible.peek() && void look(), 60_000);
        return () => clearInterval(timer);
    }, [ready.value]);
    const alerts: { tone: "bad" | "warn"; key: string; text: ComponentChildren }[] = [];
    const lack = storage.data?.data;
    if (lack?.error) {
        alerts.push({ tone: "bad", key: "disk", text: <>The log accepts no writes: {lack.error}, since <Time at={lack.since} /></> });
    } else if (shards.some((shard) => shard.log.stalled)) {
        alerts.push({ tone: "bad", key: "stall", text: "The disk is too slow: commands that write wait for it" });
    }
    const [first, last] = [trail[0], trail[trail.length - 1]];
    if (first && last && last.stats.failed > first.stats.failed) {
        const more = last.stats.failed - first.stats.failed;
        alerts.push({
            tone: "warn",
            key: "dlq",
            text: (
                <>
                    {many(more, "new dead letter")} in the last {duration(Math.ceil((last.at - first.at) / 1000) * 1000)}: <a href="dead">show them</a>
                </>
            ),
        });
    }
    const left = unattended(queues);
    if (left.length > 0) alerts.push({ tone: "warn", key: "pulls", text: <Unattended rows={left} /> });
    const expires = health.tls?.certificateExpiresAt;
    if (expires !== undefined && expires - now.value < CERTIFICATE_DAYS * 86_400_000) {
        alerts.push({ tone: expires < now.value ? "bad" : "warn", key: "tls", text: <>The certificate expires <Time at={expires} /></> });
    }
    if (health.tls?.reloadFailed) alerts.push({ tone: "warn", key: "reload", text: "The new certificate could not be read; the old one is in use" });
    if (health.clockAheadMs) {
        alerts.push({ tone: "warn", key: "clock", text: `The clock of the system was set back: the server is ${duration(health.clockAheadMs)} ahead of it` });
    }
    if (alerts.length === 0) return null;
    return (
        <ul class="alerts" aria-label="What needs a look">
            {alerts.map(({ tone, key, text }) => (
                <li class={`alert ${tone}`} key={key}>
                    <Icon name="warning" />
                    <span>{text}</span>
                </li>
            ))}
        </ul>
    );
}

const BUSIEST: readonly Column<QueueSample>[] = [
    {
        key: "name",
        label: "Queue",
        cell: (row) => (
            <>
                <QueueLink name={row.name} /> {row.paused && <span class="tag warn">paused</span>}
            </>
        ),
    },
    { key: "spark", label: "Last minute", width: "110px", wide: true, cell: (row) => <Spark values={trails.get(row.name) ?? []} tone="completed" height={22} /> },
    { key: "rate", label: "per s", width: "66px", right: true, cell: (row) => short(row.completePerSec) },
    { key: "fail", label: "failed/s", width: "76px", right: true, wide: true, cell: (row) => <Figure value={row.failPerSec} /> },
    { key: "waiting", label: "Waiting", width: "76px", right: true, cell: (row) => <Figure value={row.waiting} /> },
    { key: "active", label: "Active", width: "66px", right: true, cell: (row) => <Figure value={row.active} /> },
    { key: "wait", label: "Wait p99", width: "84px", right: true, wide: true, cell: (row) => brief(row.waitP99) },
    { key: "run", label: "Run p99", width: "84px", right: true, wide: true, cell: (row) => brief(row.runP99) },
];

function Figure({ value }: { value: number }) {
    return (
        <span class={value === 0 ? "zero" : ""} title={count(value)}>
            {short(value)}
        </span>
    );
}

function Busiest({ rows }: { rows: QueueSample[] }) {
    return (
        <Card class="flush" title="Busiest queues" actions={<a href="queues">All queues</a>}>
            <Table
                label="Busiest queues"
                columns={BUSIEST}
                rows={rows.slice(0, 12)}
                keyOf={(row) => row.name}
                empty={<Empty>No queue had a job in the last hours</Empty>}
            />
        </Card>
    );
}

function Shards({ rows }: { rows: ShardRow[] }) {
    const columns: readonly Column<ShardRow>[] = [
        { key: "shard", label: "Shard", width: "70px", cell: (row) => row.shard },
        { key: "load", label: "Load", cell: (row) => <Meter share={row.load} label={`Load of shard ${row.shard}`} /> },
        { key: "turn", label: "Longest turn", width: "160px", right: true, cell: (row) => <span title="in the last minute">{duration(row.longestTurn.ms)} <span class="dim">{row.longestTurn.command}</span></span> },
        { key: "connections", label: "Clients", width: "78px", right: true, wide: true, cell: (row) => count(row.connections) },
    ];
    return (
        <Card class="flush" title="Cores at work" note="one shard each">
            <Table label="Shards" columns={columns} rows={rows} keyOf={(row) => String(row.shard)} empty="Waiting for the first sample" />
        </Card>
    );
}
