// A line that shows how a figure went, without axes.

export function Spark({ values, tone = "accent", height = 26 }: { values: readonly (number | null)[]; tone?: string; height?: number }) {
    const known = values.map((value) => value ?? 0);
    const top = Math.max(...known, 0);
    if (values.length < 2 || top === 0) return <span class="spark-none" style={{ height: `${height}px` }} />;
    const [width, pad] = [100, 2];
    const x = (index: number) => (index / (known.length - 1)) * width;
    const y = (value: number) => height - pad - (value / top) * (height - 2 * pad);
    const line = known.map((value, index) => `${index ? "L" : "M"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`).join("");
    return (
        <svg class={`spark ${tone}`} viewBox={`0 0 ${width} ${height}`} height={height} preserveAspectRatio="none" aria-hidden="true">
            <path class="area" d={`${line}L${width} ${height}L0 ${height}Z`} />
            <path class="line" d={line} />
        </svg>
    );
}

/** How much of a whole. */
export function Meter({ share, label, tone }: { share: number; label: string; tone?: string }) {
    const percent = Math.round(Math.min(1, Math.max(0, share)) * 100);
    const own = tone ?? (percent >= 90 ? "bad" : percent >= 70 ? "warn" : "");
    return (
        <span class="meter-row">
            <span class={`meter ${own}`} role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={100} aria-valuenow={percent}>
                <i style={{ width: `${percent}%` }} />
            </span>
            <span class="figure">{percent} %</span>
        </span>
    );
}
