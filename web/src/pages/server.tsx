// The server: its cores, its log and disk, who is connected, how long things take, and every metric.

import { useEffect, useMemo, useState } from "preact/hooks";
import { config, root } from "../lib/config";
import { brief, bytes, count, duration, many, short } from "../lib/format";
import { useQuery, useWatch } from "../lib/hooks";
import { may } from "../lib/rights";
import { filter, setFilters } from "../lib/router";
import { type ShardRow, ready, sample, who } from "../lib/server";
import { Button, Card, Copy, FilterField, Problem, Tile, Time } from "../parts/basics";
import { act } from "../parts/dialog";
import { Audit, Findings, Settings } from "../parts/operator";
import { type Column, Table } from "../parts/table";

interface Health {
    status: string;
    uptime: number;
    version: string;
    connections: { tcp: number; ws: number; sse: number };
    tls?: Record<string, unknown>;
    memory: { rss: number };
}

interface Quantiles {
    p50Ms?: number;
    p99Ms?: number;
    p999Ms?: number;
}

interface Metrics {
    metrics: {
        totalPushed: number;
        totalPulled: number;
        totalCompleted: number;
        totalFailed: number;
        memoryUsageMb: number;
        sqliteSizeMb: number;
        activeConnections: number;
        longestTurnMs: number;
        longestTurnCommand: string;
        durations: Record<string, Quantiles>;
    };
}

export default function Server() {
    useWatch("shards", "stats");
    const health = useHealth();
    const metrics = useQuery<Metrics>("Metrics", {}, 5000);
    const storage = useQuery<{ data: { diskFull: boolean; error: string | null; since: number | null } }>("StorageStatus", {}, 5000);
    const shards = sample.value?.shards ?? [];
    const own = metrics.data?.metrics;
    const disk = shards.reduce((sum, shard) => sum + shard.log.diskBytes, 0);
    const live = shards.reduce((sum, shard) => sum + shard.log.liveBytes, 0);
    const state = storage.data?.data;
    const connected = health ? health.connections.tcp + health.connections.ws + health.connections.sse : undefined;
    return (
        <>
            <div class="head">
                <h1>Server</h1>
                <span class="note">
                    corq {health?.version ?? config.version}
                    {health ? `, up for ${duration(health.uptime * 1000)}` : ""}
                </span>
                <span class="grow" />
                {may("change") && (
                    <Button
                        onClick={() =>
                            void act({
                                question: { title: "Release unused memory?", text: "Memory that the server does not use is returned to the operating system. No job is touched.", action: "Release memory" },
                                run: () => ["CompactMemory", {}],
                                said: () => "Unused memory is released",
                                after: metrics.again,
                            })
                        }
                    >
                        Release unused memory
                    </Button>
                )}
            </div>
            {state && (state.diskFull || state.error) && (
                <p class="alert bad" role="alert">
                    {state.error ?? "The disk is full"}
                    {state.since && (
                        <>
                            , <Time at={state.since} />
                        </>
                    )}
                </p>
            )}
            {metrics.error && <Problem error={metrics.error} />}
            <section class="tiles" aria-label="The server in figures">
                <Tile label="Connections" value={count(connected)} note={health ? `${count(health.connections.tcp)} TCP, ${count(health.connections.ws)} WS, ${count(health.connections.sse)} SSE` : ""} />
                <Tile label="Memory" value={own ? bytes(own.memoryUsageMb * 2 ** 20) : "–"} note="of the process" />
                <Tile label="Log on disk" tone={state?.diskFull ? "bad" : "good"} value={shards.length ? bytes(disk) : "–"} note={`${bytes(live)} of it in use`} />
                <Tile label="Pushed" tone="waiting" value={short(own?.totalPushed)} title={count(own?.totalPushed)} note="since the start" />
                <Tile label="Completed" tone="completed" value={short(own?.totalCompleted)} title={count(own?.totalCompleted)} note={`${short(own?.totalPulled)} pulled`} />
                <Tile label="Failed attempts" tone="failed" value={short(own?.totalFailed)} title={count(own?.totalFailed)} note="since the start" />
            </section>
            <Card class="flush" title="Shards" note={`${many(shards.length, "core")} at work, each with its own part of the jobs`}>
                <Table label="Shards" columns={SHARDS} rows={shards} keyOf={(shard) => String(shard.shard)} rowHeight={42} empty="Loading…" />
            </Card>
            <div class="columns">
                <Durations durations={own?.durations ?? {}} />
                <Card class="flush" title="Longest turns" note="since the start; other work of the shard waited this long">
                    <Table label="Longest turns" columns={TURNS} rows={turns(shards)} keyOf={(turn) => `${turn.shard} ${turn.command}`} empty="Loading…" />
                </Card>
            </div>
            {may("operate") && (
                <>
                    <Findings />
                    <Settings />
                    <Audit />
                </>
            )}
            <Surroundings health={health} />
            <AllMetrics />
        </>
    );
}

function useHealth(): Health | null {
    const [health, setHealth] = useState<Health | null>(null);
    const isReady = ready.value;
    useEffect(() => {
        if (!isReady) return;
        let live = true;
        const look = () =>
            fetch(new URL("health", root), { cache: "no-store" })
                .then((answer) => answer.json() as Promise<Health>)
                .then((own) => live && setHealth(own))
                .catch(() => undefined);
        void look();
        const timer = setInterval(() => void look(), 5000);
        return () => {
            live = false;
            clearInterval(timer);
        };
    }, [isReady]);
    return health;
}

const SHARDS: readonly Column<ShardRow>[] = [
    { key: "shard", label: "Shard", width: "70px", cell: (shard) => shard.shard },
    {
        key: "load",
        label: "Core",
        width: "140px",
        cell: (shard) => (
            <span class="meter-row">
                <span class={`meter ${shard.load > 0.9 ? "bad" : shard.load > 0.7 ? "warn" : ""}`}>
                    <i style={{ width: `${Math.round(100 * shard.load)}%` }} />
                </span>
                {Math.round(100 * shard.load)} %
            </span>
        ),
    },
    { key: "push", label: "Pushed", width: "84px", right: true, cell: (shard) => `${short(shard.pushPerSec)}/s` },
    { key: "pull", label: "Pulled", width: "84px", right: true, wide: true, cell: (shard) => `${short(shard.pullPerSec)}/s` },
    { key: "waiting", label: "Waiting", width: "84px", right: true, cell: (shard) => short(shard.waiting) },
    { key: "active", label: "Active", width: "76px", right: true, wide: true, cell: (shard) => short(shard.active) },
    { key: "queues", label: "Queues", width: "76px", right: true, wide: true, cell: (shard) => short(shard.queues) },
    { key: "connections", label: "Clients", width: "76px", right: true, wide: true, cell: (shard) => short(shard.connections) },
    { key: "longest", label: "Longest turn", wide: true, cell: (shard) => `${brief(shard.longestTurn.ms)} ${shard.longestTurn.command}` },
    {
        key: "log",
        label: "Log",
        width: "170px",
        wide: true,
        cell: (shard) => (
            <span title={`${many(shard.log.segments, "segment")}, ${bytes(shard.log.liveBytes)} in use, ${bytes(shard.log.unwrittenBytes)} not yet written`}>
                {bytes(shard.log.diskBytes)}, {many(shard.log.segments, "file")}{" "}
                {(shard.log.full || shard.log.stalled) && <span class="tag warn">{shard.log.full ? "full" : "waits"}</span>}
            </span>
        ),
    },
];

interface Turn {
    shard: number;
    command: string;
    ms: number;
    steps: number;
}

function turns(shards: readonly ShardRow[]): Turn[] {
    return shards.flatMap(({ shard, longestTurns }) => longestTurns.map((turn) => ({ ...turn, shard }))).sort((one, other) => other.ms - one.ms);
}

const TURNS: readonly Column<Turn>[] = [
    { key: "command", label: "Command", cell: (turn) => turn.command },
    { key: "shard", label: "Shard", width: "70px", right: true, cell: (turn) => turn.shard },
    { key: "steps", label: "Steps", width: "90px", right: true, cell: (turn) => count(turn.steps) },
    { key: "ms", label: "Took", width: "90px", right: true, cell: (turn) => duration(turn.ms) },
];

const NAMES: Record<string, string> = {
    push: "Push, until durable",
    pull: "Pull",
    ack: "Ack, until durable",
    jobWaiting: "Job, waiting",
    jobProcessing: "Job, running",
    turn: "Turn of a shard",
};

function Durations({ durations }: { durations: Record<string, Quantiles> }) {
    const rows = Object.entries(durations);
    const figure = (key: keyof Quantiles, label: string): Column<[string, Quantiles]> => ({
        key,
        label,
        width: "92px",
        right: true,
        cell: ([, own]) => (own.p999Ms ? brief(own[key]) : <span class="zero">–</span>),
    });
    return (
        <Card class="flush" title="Latency" note="since the start">
            <Table
                label="Latency"
                columns={[
                    { key: "what", label: "Operation", cell: ([name]: [string, Quantiles]) => NAMES[name] ?? name },
                    figure("p50Ms", "p50"),
                    figure("p99Ms", "p99"),
                    figure("p999Ms", "p99.9"),
                ]}
                rows={rows}
                keyOf={([name]) => name}
                empty="Loading…"
            />
        </Card>
    );
}

/** Where this page is, and by which token. */
function Surroundings({ health }: { health: Health | null }) {
    const own = who.value;
    return (
        <Card title="This page">
            <dl class="facts">
                <dt>Page</dt>
                <dd>{document.baseURI}</dd>
                <dt>HTTP and WebSocket</dt>
                <dd>{root.origin + root.pathname}</dd>
                <dt>TCP port of clients</dt>
                <dd>
                    {config.tcpPort}
                    {config.tls ? ", with TLS" : ", without TLS"}
                </dd>
                {health?.tls && (
                    <>
                        <dt>Certificate</dt>
                        <dd>
                            <code>{JSON.stringify(health.tls)}</code>
                        </dd>
                    </>
                )}
                <dt>This token</dt>
                <dd>
                    {own ? `${own.role}${own.readOnly ? ", read only" : ""}${own.by === "nothing" ? "; no tokens are set, so everyone who reaches the server may do everything" : ""}` : ""}
                    {own?.expiresAt && (
                        <>
                            , the session ends <Time at={own.expiresAt} />
                        </>
                    )}
                </dd>
                <dt>Redacted in payloads</dt>
                <dd>{config.redact.length > 0 ? <code>{config.redact.join(", ")}</code> : "nothing"}</dd>
            </dl>
        </Card>
    );
}

interface Metric {
    name: string;
    labels: string;
    value: string;
    help: string;
}

/** The lines of a text for Prometheus. */
function parsed(text: string): Metric[] {
    const help = new Map<string, string>();
    const metrics: Metric[] = [];
    for (const line of text.split("\n")) {
        const told = /^# HELP (\S+) (.*)$/.exec(line);
        if (told) help.set(told[1]!, told[2]!);
        const own = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
        if (!own || line.startsWith("#")) continue;
        const [, name, labels, value] = own;
        const family = name!.replace(/_(bucket|sum|count)$/, "");
        if (!name!.endsWith("_bucket")) metrics.push({ name: name!, labels: labels ?? "", value: value!, help: help.get(name!) ?? help.get(family) ?? "" });
    }
    return metrics;
}

const METRICS: readonly Column<Metric>[] = [
    {
        key: "name",
        label: "Metric",
        cell: (metric) => (
            <span class="mono" title={metric.help}>
                {metric.name}
                {metric.labels && <span class="dim">{`{${metric.labels}}`}</span>}
            </span>
        ),
    },
    { key: "help", label: "What it is", wide: true, cell: (metric) => <span class="note" title={metric.help}>{metric.help}</span> },
    { key: "value", label: "Value", width: "150px", right: true, cell: (metric) => <span class="mono">{metric.value}</span> },
];

function AllMetrics() {
    const wanted = filter("metric");
    const query = useQuery<{ data: { metrics: string } }>("Prometheus", { queues: "none" }, 5000);
    const text = query.data?.data.metrics ?? "";
    const all = useMemo(() => parsed(text), [text]);
    const low = wanted.toLowerCase();
    const rows = all.filter((metric) => `${metric.name} ${metric.labels} ${metric.help}`.toLowerCase().includes(low));
    return (
        <Card
            class="flush"
            title="Metrics"
            note={`${many(rows.length, "figure")} of /prometheus, without histogram buckets and queues`}
            actions={
                <>
                    <FilterField label="Metric has" value={wanted} onChange={(value) => setFilters({ metric: value || null })} />
                    <Copy text={() => text} label="Copy all metrics" />
                </>
            }
        >
            {query.error && <Problem error={query.error} />}
            <Table label="Metrics" columns={METRICS} rows={rows} keyOf={(metric) => `${metric.name} ${metric.labels}`} rowHeight={32} empty={query.data ? "No metric has that" : "Loading…"} />
        </Card>
    );
}
