// Lines over time, drawn by uPlot. Times are in ms of the server.

import { effect } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { zone } from "../lib/clock";
import { clock } from "../lib/format";
import { useWidth } from "../lib/hooks";
import { theme } from "../shell/theme";

export interface Line {
    label: string;
    /** The name of a colour of the style: `--c-<tone>`. */
    tone: string;
    values: readonly (number | null)[];
    fill?: boolean;
}

export function Chart(props: {
    label: string;
    from: number;
    step: number;
    lines: readonly Line[];
    show: (value: number | null | undefined) => string;
    height?: number;
    /** By powers of ten, for figures of which some are far larger than others. Least is 1. */
    log?: boolean;
}) {
    const { lines, from, step, height = 180, log = false } = props;
    const [ref, width] = useWidth();
    const place = useRef<HTMLDivElement>(null);
    const plot = useRef<uPlot | null>(null);
    const [at, setAt] = useState<number | null>(null);
    const points = lines[0]?.values.length ?? 0;
    const data = useMemo(() => {
        const times = Array.from({ length: points }, (_, index) => from + index * step);
        return [times, ...lines.map((line) => (log ? line.values.map((value) => value && Math.max(1, value)) : line.values.slice()))] as uPlot.AlignedData;
    }, [from, step, points, ...lines.map((line) => line.values)]);
    const latest = useRef({ data, show: props.show });
    latest.current = { data, show: props.show };
    const tones = lines.map((line) => line.tone).join();
    useEffect(() => {
        if (width === 0) return;
        // The colours and the zone are those of now.
        const draw = () => {
            void theme.value;
            void zone.value;
            const style = getComputedStyle(document.documentElement);
            const color = (name: string) => style.getPropertyValue(`--c-${name}`).trim();
            const axis = {
                stroke: color("dim"),
                grid: { stroke: color("grid"), width: 1 },
                ticks: { show: false },
                font: "11px system-ui, sans-serif",
            };
            plot.current?.destroy();
            plot.current = new uPlot(
                {
                    width,
                    height,
                    ms: 1,
                    padding: [8, 8, 0, 0],
                    legend: { show: false },
                    cursor: { y: false, points: { size: 6 }, sync: { key: "time" }, drag: { x: false, y: false } },
                    scales: {
                        y: log
                            ? { distr: 3, range: (_, __, top) => [1, 10 ** Math.ceil(Math.log10(Math.max(top, 10)))] }
                            : { range: (_, __, top) => [0, top > 0 ? top * 1.08 : 1] },
                    },
                    series: [
                        {},
                        ...lines.map((line) => ({
                            label: line.label,
                            stroke: color(line.tone),
                            width: 1.6,
                            points: { show: false },
                            ...(line.fill ? { fill: `${color(line.tone)}22` } : {}),
                        })),
                    ],
                    axes: [
                        { ...axis, values: (_, splits) => splits.map((split) => clock(split)), space: 64, size: 26 },
                        { ...axis, values: (_, splits) => splits.map((split) => (split === null ? "" : latest.current.show(split))), size: 56, space: 34, ...(log ? LOG_AXIS : {}) },
                    ],
                    hooks: { setCursor: [(own) => setAt(own.cursor.idx ?? null)] },
                },
                latest.current.data,
                place.current!,
            );
        };
        // Each chart in a task of its own, as those of a page begin together.
        let stop = () => {};
        const timer = setTimeout(() => (stop = effect(draw)));
        return () => {
            clearTimeout(timer);
            stop();
        };
    }, [width, height, tones]);
    useEffect(() => plot.current?.setData(data), [data]);
    useEffect(() => () => plot.current?.destroy(), []);
    const index = at ?? points - 2;
    const time = from + index * step;
    return (
        <figure class="chart">
            <figcaption>
                <span class="chart-title">{props.label}</span>
                <span class="note">{points > 1 ? clock(time, step < 60_000) : ""}</span>
                <span class="keys-row">
                    {lines.map((line) => (
                        <span class="key" key={line.label}>
                            <i class={`swatch c-${line.tone}`} />
                            {line.label} <b>{props.show(line.values[index])}</b>
                        </span>
                    ))}
                </span>
            </figcaption>
            <div ref={ref} style={{ height: `${height}px` }}>
                <div ref={place} role="img" aria-label={`${props.label}: ${summary(lines, props.show)}`} />
            </div>
        </figure>
    );
}

/** Marks of a scale of times, each some times longer than the one before. */
const MARKS = [1, 10, 100, 1000, 10_000, 60_000, 600_000, 3_600_000, 36_000_000];
const LOG_AXIS: uPlot.Axis = {
    splits: (_, __, least, most) => MARKS.filter((mark) => mark >= least && mark <= most),
    filter: (_, splits) => splits,
};

/** For those who do not see the lines. */
function summary(lines: readonly Line[], show: (value: number | null | undefined) => string): string {
    return lines
        .map(({ label, values }) => {
            const known = values.filter((value): value is number => value !== null && value !== undefined);
            return known.length > 0 ? `${label} between ${show(Math.min(...known))} and ${show(Math.max(...known))}` : `${label} not known`;
        })
        .join(", ");
}
