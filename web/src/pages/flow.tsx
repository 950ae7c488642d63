// A flow as a graph: from the job on the left to those that it waits for. Only what is seen is drawn, so that thousands of
// jobs stay usable.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { count, many } from "../lib/format";
import { useQuery } from "../lib/hooks";
import { filter, link, navigate, setFilters } from "../lib/router";
import { Refused, ask } from "../lib/server";
import { Button, Card, Choice, Problem, Tile, shortId } from "../parts/basics";
import { say } from "../parts/dialog";
import { type Node, type Placed, place } from "../parts/tree";
import type { PageProps } from ".";

/** Jobs of one reply. */
const LIMIT = 1000;

/** How often what has not ended is asked for. */
const EVERY_MS = 3000;

const SIZES = {
    names: { width: 224, height: 38, gap: 60, row: 48 },
    dots: { width: 12, height: 12, gap: 96, row: 16 },
} as const;

const STATES = [
    ["waiting", "Waiting"],
    ["active", "Active"],
    ["delayed", "Delayed"],
    ["waiting-children", "Waits for others"],
    ["completed", "Completed"],
    ["failed", "Dead"],
    ["unknown", "Gone"],
    ["hidden", "Hidden"],
] as const;

interface FlowData {
    /** Those of queues that there are not for the token come without ids. */
    data: { truncated: boolean; jobs: (Omit<Node, "id"> & { id?: string })[] };
}

/** Gives those that are hidden an id each, so that they are drawn. */
function named(data: FlowData["data"]): Node[] {
    return data.jobs.map((job, index) => ({ ...job, id: job.id ?? `hidden ${index} below ${job.parentId}` }));
}

export default function Flow({ values }: PageProps) {
    const id = values["id"]!;
    const query = useQuery<FlowData>("GetFlow", { id, depth: 100, limit: LIMIT }, EVERY_MS);
    const [further, setFurther] = useState<ReadonlyMap<string, Node[]>>(new Map());
    useEffect(() => setFurther(new Map()), [id]);
    const flow = query.data?.data;
    const nodes = useMemo(() => merged(flow ? named(flow) : [], further), [flow, further]);
    const tree = useMemo(() => place(nodes), [nodes]);
    const counts = useMemo(() => {
        const sums: Record<string, number> = {};
        for (const { node } of tree.placed) sums[node.state] = (sums[node.state] ?? 0) + 1;
        return sums;
    }, [tree]);
    const hidden = tree.placed.reduce((sum, one) => sum + missing(one), 0);
    const state = filter("state");
    const size = filter("size") === "dots" ? "dots" : "names";
    const more = async (of: string) => {
        try {
            const { data } = await ask<FlowData>("GetFlow", { id: of, depth: 100, limit: LIMIT });
            setFurther((before) => new Map(before).set(of, named(data.data)));
        } catch (error) {
            say((error as Refused).message, true);
        }
    };
    const root = nodes[0];
    return (
        <>
            <div class="head">
                <span class="crumb">
                    <a href="flows">Flows</a>
                </span>
                <h1>{root?.name ?? shortId(id)}</h1>
                {nodes.length > 0 && (
                    <span class="note">
                        {many(nodes.length, "job")}
                        {hidden > 0 ? ` of at least ${count(nodes.length + hidden)}` : ""}
                    </span>
                )}
                <span class="grow" />
                {root?.parentId && <Button onClick={() => navigate(link(["flows", root.parentId!]))}>To its parent</Button>}
                <Choice
                    label="Size"
                    value={size}
                    options={[
                        ["names", "Names"],
                        ["dots", "Dots"],
                    ]}
                    onChange={(value) => setFilters({ size: value === "names" ? null : value })}
                />
            </div>
            {query.error && <Problem error={query.error} />}
            {root && (
                <section class="tiles fit" aria-label="Jobs of the flow by state">
                    {STATES.filter(([name]) => (counts[name] ?? 0) > 0 || name === "completed").map(([name, label]) => (
                        <Tile
                            key={name}
                            label={label}
                            tone={name}
                            value={count(counts[name] ?? 0)}
                            active={state === name}
                            href={link(["flows", id], { size: filter("size"), state: state === name ? null : name })}
                        />
                    ))}
                </section>
            )}
            {root && (
                <Card class="flush">
                    <Graph placed={tree.placed} rows={tree.rows} columns={tree.columns} size={size} state={state} root={id} more={(of) => void more(of)} />
                </Card>
            )}
        </>
    );
}

/** The jobs of a flow with those that were asked for further down. */
function merged(jobs: readonly Node[], further: ReadonlyMap<string, readonly Node[]>): Node[] {
    if (further.size === 0) return [...jobs];
    const all = new Map(jobs.map((job) => [job.id, job]));
    for (const [of, own] of further) {
        const top = all.get(of);
        for (const job of own) {
            if (job.id === of ? top === undefined : !all.has(job.id)) all.set(job.id, { ...job, depth: job.depth + (top?.depth ?? 0) });
        }
    }
    return [...all.values()];
}

/** Children that are not shown. */
function missing(placed: Placed): number {
    return Math.max(0, (placed.node.children ?? 0) - placed.own.length);
}

function Graph(props: {
    placed: readonly Placed[];
    rows: number;
    columns: number;
    size: keyof typeof SIZES;
    state: string;
    root: string;
    more: (of: string) => void;
}) {
    const { placed, size, state } = props;
    const { width, height, gap, row } = SIZES[size];
    const box = useRef<HTMLDivElement>(null);
    const [view, setView] = useState({ left: 0, top: 0, width: 1200, height: 700 });
    useEffect(() => {
        const own = box.current!;
        const look = () => setView({ left: own.scrollLeft, top: own.scrollTop, width: own.clientWidth, height: own.clientHeight });
        const observer = new ResizeObserver(look);
        observer.observe(own);
        own.addEventListener("scroll", look, { passive: true });
        return () => {
            observer.disconnect();
            own.removeEventListener("scroll", look);
        };
    }, []);
    const x = (one: Placed) => 20 + one.column * (width + gap);
    const y = (one: Placed) => 16 + one.row * row;
    const all = { width: 40 + props.columns * (width + gap), height: 32 + props.rows * row + height };
    // Begins where the job is from which the flow is looked at.
    const began = useRef("");
    useEffect(() => {
        const root = placed[0];
        if (!root || began.current === props.root + size) return;
        began.current = props.root + size;
        box.current!.scrollTo({ left: 0, top: Math.max(0, y(root) - box.current!.clientHeight / 2) });
    }, [placed.length > 0, props.root, size]);
    const [top, bottom] = [view.top - 200, view.top + view.height + 200];
    const [left, right] = [view.left - 300, view.left + view.width + 300];
    const seen = placed.filter((one) => y(one) + height > top && y(one) < bottom && x(one) + width > left && x(one) < right);
    const edges = placed.filter((one) => {
        if (!one.parent || x(one) < left || x(one.parent) > right) return false;
        const [low, high] = [Math.min(y(one), y(one.parent)), Math.max(y(one), y(one.parent))];
        return high > top && low < bottom;
    });
    // Of a parent with thousands of children far away, lines that end on the same pixels need not all be drawn.
    const drawn = edges.filter((one) => (y(one) > top && y(one) < bottom) || one.own.length > 0 || one === one.parent!.own[0] || one === one.parent!.own.at(-1));
    const [wanted, setWanted] = useState<string | null>(null);
    useEffect(() => {
        if (wanted === null) return;
        const own = box.current!.querySelector<SVGAElement>(`[data-job="${CSS.escape(wanted)}"] a`);
        own?.focus({ preventScroll: true });
        if (own) setWanted(null);
    });
    const go = (one: Placed | null | undefined) => {
        if (!one) return;
        const own = box.current!;
        const [atX, atY] = [x(one), y(one)];
        if (atY < own.scrollTop + 20 || atY + height > own.scrollTop + own.clientHeight - 20) own.scrollTop = atY - own.clientHeight / 2;
        if (atX < own.scrollLeft || atX + width > own.scrollLeft + own.clientWidth) own.scrollLeft = atX - 80;
        setWanted(one.node.id);
    };
    const keys = (event: KeyboardEvent) => {
        const id = (event.target as Element).closest("[data-job]")?.getAttribute("data-job");
        const one = placed.find((other) => other.node.id === id);
        if (!one) return;
        const column = () => placed.filter((other) => other.column === one.column).sort((a, b) => a.row - b.row);
        const beside = (step: number) => {
            const own = column();
            return own[own.indexOf(one) + step];
        };
        const next = {
            ArrowLeft: () => one.parent,
            ArrowRight: () => one.own[0],
            ArrowUp: () => beside(-1),
            ArrowDown: () => beside(1),
            k: () => beside(-1),
            j: () => beside(1),
        }[event.key];
        if (!next) return;
        event.preventDefault();
        go(next());
    };
    return (
        <div class="graph" ref={box} tabIndex={0} role="region" aria-label="The jobs of the flow" onKeyDown={keys}>
            <svg width={all.width} height={all.height} role="group" aria-label={many(placed.length, "job")}>
                {drawn.map((one) => {
                    const [fromX, fromY] = [x(one.parent!) + width, y(one.parent!) + height / 2];
                    const [toX, toY] = [x(one), y(one) + height / 2];
                    const middle = (fromX + toX) / 2;
                    return <path key={one.node.id} class="edge" d={`M${fromX} ${fromY}C${middle} ${fromY} ${middle} ${toY} ${toX} ${toY}`} />;
                })}
                {seen.map((one) => (
                    <Job key={one.node.id} one={one} x={x(one)} y={y(one)} size={size} dim={state !== "" && one.node.state !== state} more={props.more} />
                ))}
            </svg>
        </div>
    );
}

function Job({ one, x, y, size, dim, more }: { one: Placed; x: number; y: number; size: keyof typeof SIZES; dim: boolean; more: (of: string) => void }) {
    const { node } = one;
    const { width, height } = SIZES[size];
    const left = missing(one);
    const cut = (text: string, most: number) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
    const isHidden = node.state === "hidden";
    const name = isHidden ? "Job of another queue" : cut(node.name ?? shortId(node.id), 26);
    const done = node.children ? `${count(node.childrenCompleted ?? 0)} of ${count(node.children)}` : "";
    const sub = cut([node.state === "waiting-children" ? "waits" : node.state, done, node.queue].filter(Boolean).join(" · "), 34);
    return (
        <g class={`job ${node.state} ${dim ? "is-dim" : ""}`} data-job={node.id} transform={`translate(${x} ${y})`}>
            <title>{isHidden ? name : `${node.name ?? ""}\n${node.state}${node.queue ? ` in ${node.queue}` : ""}\n${node.id}`}</title>
            <a href={isHidden ? undefined : link(["jobs", node.id])} aria-label={size === "dots" ? `${name} ${node.state}` : undefined}>
                {size === "names" ? (
                    <>
                        <rect width={width} height={height} rx="9" />
                        <circle cx="15" cy={height / 2} r="4.5" />
                        <text x="28" y="16">
                            {name}
                        </text>
                        <text class="sub" x="28" y="29">
                            {sub}
                        </text>
                    </>
                ) : (
                    <circle cx={height / 2} cy={height / 2} r="5" />
                )}
            </a>
            {left > 0 && (
                <g
                    class="more"
                    role="button"
                    tabIndex={0}
                    aria-label={`Show ${count(left)} more of ${node.name ?? node.id}`}
                    transform={`translate(${width + 6} ${height / 2 - 10})`}
                    onClick={() => more(node.id)}
                    onKeyDown={(event) => ["Enter", " "].includes(event.key) && (event.preventDefault(), more(node.id))}
                >
                    <rect width="52" height="20" rx="10" />
                    <text x="26" y="14">
                        +{count(left)}
                    </text>
                </g>
            )}
        </g>
    );
}
