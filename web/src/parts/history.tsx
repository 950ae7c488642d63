// What happened in the last day: rates, times and the heat map, of the whole server or of one queue.

import { useMemo } from "preact/hooks";
import { brief, clock, perSecond } from "../lib/format";
import { useQuery } from "../lib/hooks";
import { filter, setFilters } from "../lib/router";
import { Card, Choice, Problem } from "./basics";
import { Chart, type Line } from "./chart";
import { Heat, type HeatData } from "./heat";

interface HistoryData {
    from: number;
    step: number;
    points: number;
    tracked: boolean;
    series: Record<"pushed" | "completed" | "failed" | "waiting" | "waitP50" | "waitP99" | "runP50" | "runP99", (number | null)[]>;
}

/** The name of a range, the length of a point, the number of points, how often they are asked for: a point under way is not shown. */
const RANGES = {
    "15m": [10_000, 91, 10_000],
    "1h": [10_000, 361, 10_000],
    "6h": [60_000, 361, 30_000],
    "24h": [240_000, 361, 60_000],
} as const;

const RANGE_NAMES = { "15m": "The last 15 minutes", "1h": "The last hour", "6h": "The last 6 hours", "24h": "The last day" };

type Range = keyof typeof RANGES;

/** Made once for each answer: a chart is drawn anew when its lines are others, and the page is each second. */
function linesOf({ series, step }: HistoryData): [Line[], Line[]] {
    // The last point is under way: its numbers would always be too small.
    const whole = (values: (number | null)[]) => values.slice(0, -1);
    const rate = (values: (number | null)[]) => whole(values).map((value) => (value === null ? null : value / (step / 1000)));
    return [
        [
            { label: "pushed", tone: "waiting", values: rate(series.pushed) },
            { label: "completed", tone: "completed", values: rate(series.completed), fill: true },
            { label: "failed", tone: "failed", values: rate(series.failed) },
        ],
        [
            { label: "wait p50", tone: "waiting", values: whole(series.waitP50) },
            { label: "wait p99", tone: "delayed", values: whole(series.waitP99) },
            { label: "run p50", tone: "active", values: whole(series.runP50) },
            { label: "run p99", tone: "children", values: whole(series.runP99) },
        ],
    ];
}

export function History({ queue }: { queue?: string }) {
    const wanted = filter("range") as Range;
    const range: Range = wanted in RANGES ? wanted : "15m";
    const [step, points, every] = RANGES[range];
    const about = queue === undefined ? {} : { queue };
    const history = useQuery<{ data: HistoryData }>("History", { ...about, step, points }, every);
    const heat = useQuery<{ data: HeatData }>("Heatmap", { ...about, step, points }, every);
    const data = history.data?.data;
    const [rates, times] = useMemo(() => (data ? linesOf(data) : []), [data]);
    const choice = (
        <Choice
            label="Time"
            value={range}
            options={[
                ["15m", "15 min"],
                ["1h", "1 h"],
                ["6h", "6 h"],
                ["24h", "24 h"],
            ]}
            onChange={(value) => setFilters({ range: value === "15m" ? null : value })}
        />
    );
    if (history.error) return <Problem error={history.error} />;
    return (
        <section class="stack" aria-label="The last day">
            <div class="head">
                <h2>{RANGE_NAMES[range]}</h2>
                <span class="grow" />
                {choice}
            </div>
            <div class="columns">
                <Card>
                    {data ? (
                        <Chart
                            label="Jobs per second"
                            from={data.from}
                            step={data.step}
                            show={perSecond}
                            lines={rates!}
                        />
                    ) : (
                        <div class="chart-wait" />
                    )}
                    {data && !data.tracked && (
                        <p class="note">This queue is not among the 1,000 busiest of its shard, so no history is kept for it.</p>
                    )}
                </Card>
                <Card>
                    {data ? (
                        <Chart
                            label="Wait and run time"
                            log
                            from={data.from}
                            step={data.step}
                            show={brief}
                            lines={times!}
                        />
                    ) : (
                        <div class="chart-wait" />
                    )}
                </Card>
            </div>
            <Card
                title="Waiting time"
                note={heat.data ? `until ${clock(heat.data.data.from + heat.data.data.step * heat.data.data.points)}` : ""}
            >
                {heat.data && <Heat data={heat.data.data} label="Waiting time of delivered jobs" />}
            </Card>
        </section>
    );
}
