// A heat map of waiting time: each column is a span of time, each row how long jobs had waited, the colour how many.

import { effect } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { brief, clock, count, duration } from "../lib/format";
import { useWidth } from "../lib/hooks";
import { zone } from "../lib/clock";
import { theme } from "../shell/theme";

export interface HeatData {
    from: number;
    step: number;
    points: number;
    tracked: boolean;
    buckets: number[];
    columns: (number[] | null)[];
}

const ROW = 9;
const LEFT = 56;

export function Heat({ data, label }: { data: HeatData; label: string }) {
    const [ref, width] = useWidth();
    const canvas = useRef<HTMLCanvasElement>(null);
    const [cell, setCell] = useState<{ column: number; row: number } | null>(null);
    const used = data.columns.reduce((most, column) => Math.max(most, column?.length ?? 0), 0);
    const rows = Math.min(data.buckets.length, Math.max(used, 14));
    const height = rows * ROW;
    const inner = Math.max(0, width - LEFT);
    const most = data.columns.reduce((top, column) => Math.max(top, ...(column ?? [0])), 0);
    const marks = MARKS.map((mark) => ({ mark, at: placeOf(data.buckets, mark) * ROW })).filter(({ at }) => at < height);
    useEffect(() => {
        const element = canvas.current;
        if (!element || inner <= 0) return;
        return effect(() => {
            void theme.value;
            const scale = window.devicePixelRatio || 1;
            element.width = inner * scale;
            element.height = height * scale;
            const style = getComputedStyle(document.documentElement);
            const heat = style.getPropertyValue("--heat").split(",").map((color) => color.trim());
            const draw = element.getContext("2d")!;
            draw.scale(scale, scale);
            draw.clearRect(0, 0, inner, height);
            draw.fillStyle = style.getPropertyValue("--c-grid");
            for (const { at } of marks) draw.fillRect(0, height - Math.round(at), inner, 1);
            const each = inner / data.points;
            data.columns.forEach((column, x) => {
                column?.forEach((jobs, y) => {
                    if (jobs === 0) return;
                    const strength = Math.log1p(jobs) / Math.log1p(most);
                    draw.fillStyle = heat[Math.min(heat.length - 1, Math.floor(strength * heat.length))]!;
                    const left = Math.floor(x * each);
                    draw.fillRect(left, height - (y + 1) * ROW, Math.max(1, Math.floor((x + 1) * each) - left), ROW - 1);
                });
            });
        });
    }, [data, inner, height, most]);
    const point = (event: PointerEvent) => {
        const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
        const column = Math.floor(((event.clientX - box.left) / box.width) * data.points);
        const row = rows - 1 - Math.floor((event.clientY - box.top) / ROW);
        setCell({ column, row });
    };
    const jobs = cell ? (data.columns[cell.column]?.[cell.row] ?? 0) : 0;
    const times = [0, 0.25, 0.5, 0.75, 1].map((share) => data.from + share * data.points * data.step);
    void zone.value;
    return (
        <figure class="heat" ref={ref}>
            <div class="heat-body" style={{ height: `${height}px` }}>
                {marks.map(({ mark, at }) => (
                    <span class="heat-mark" key={mark} style={{ bottom: `${at - 6}px` }}>
                        {brief(mark)}
                    </span>
                ))}
                <canvas
                    ref={canvas}
                    role="img"
                    aria-label={`${label}: ${describe(data)}`}
                    style={{ left: `${LEFT}px`, width: `${inner}px`, height: `${height}px` }}
                    onPointerMove={point}
                    onPointerLeave={() => setCell(null)}
                />
                {used === 0 && <span class="heat-none">No job was delivered in this time</span>}
            </div>
            <div class="heat-times" style={{ marginLeft: `${LEFT}px` }} aria-hidden="true">
                {times.map((time) => (
                    <span key={time}>{clock(time)}</span>
                ))}
            </div>
            <figcaption class="note heat-note" aria-hidden="true">
                <span>
                {cell && data.buckets[cell.row] !== undefined
                    ? `${clock(data.from + cell.column * data.step, true)}: ${count(jobs)} ${jobs === 1 ? "job" : "jobs"} had waited ${span(data.buckets, cell.row)}`
                    : "Columns: time of delivery. Rows: how long jobs had waited. Colours: how many jobs."}
                </span>
                {most > 0 && (
                    <span class="heat-scale">
                        1 <i /> {count(most)}
                    </span>
                )}
            </figcaption>
        </figure>
    );
}

const MARKS = [1, 10, 100, 1000, 10_000, 60_000, 600_000, 3_600_000, 36_000_000];

/** Where a waiting time lies, in rows from below: within its row by the logarithm, as the rows double. */
function placeOf(buckets: readonly number[], ms: number): number {
    const row = buckets.findLastIndex((least) => least <= ms);
    const [from, to] = [Math.max(1, buckets[row] ?? 1), buckets[row + 1]];
    if (to === undefined) return ms === from ? row : Infinity;
    return row + Math.log(ms / from) / Math.log(to / from);
}

function span(buckets: readonly number[], row: number): string {
    const [from, to] = [buckets[row]!, buckets[row + 1]];
    if (from === 0) return "less than 1 ms";
    return to === undefined ? `${duration(from)} or longer` : `${duration(from)} to ${duration(to)}`;
}

function describe(data: HeatData): string {
    const sums = data.buckets.map((_, row) => data.columns.reduce((sum, column) => sum + (column?.[row] ?? 0), 0));
    const all = sums.reduce((sum, jobs) => sum + jobs, 0);
    if (all === 0) return "no job was delivered";
    let below = 0;
    const median = sums.findIndex((jobs) => (below += jobs) * 2 >= all);
    const worst = sums.findLastIndex((jobs) => jobs > 0);
    return `${count(all)} jobs, half of them had waited less than ${duration(data.buckets[median + 1] ?? data.buckets[median]!)}, the longest ${span(data.buckets, worst)}`;
}
