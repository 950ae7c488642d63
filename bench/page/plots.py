"""The plots of the page, one function each. corq is drawn in one colour everywhere, the others in grey shades of their class."""

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({
    "svg.hashsalt": "corq",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    # A reader's page may be dark.
    "savefig.facecolor": "white",
})

import matplotlib.pyplot as pyplot  # noqa: E402
from figures import Spread  # noqa: E402
from side_by_side import workloads  # noqa: E402

CORQ = {"written": "#d9480f", "synced": "#862e9c"}
OTHERS = {"memory": "#ced4da", "written": "#adb5bd", "synced": "#868e96"}
CLASSES = {
    "memory": "memory: a killed server loses it",
    "written": "written: a power loss may lose the last moments",
    "synced": "synced: the disk has it",
}


def colour(server):
    return (CORQ if server.ours else OTHERS)[server.kind]


def bars(axes, title, values, digits):
    """Horizontal bars, the cheapest at the top, on a logarithmic axis. values: (server, spread)."""
    values = sorted(((server, spread) for server, spread in values if spread), key=lambda pair: -pair[1].middle)
    middles = [spread.middle for _, spread in values]
    low = [spread.middle - spread.least for _, spread in values]
    high = [spread.most - spread.middle for _, spread in values]
    names = [label(server) for server, _ in values]
    axes.barh(names, middles, color=[colour(server) for server, _ in values], xerr=(low, high), error_kw={"lw": 0.8})
    axes.set_xscale("log")
    axes.set_xlim(min(middles) / 3, max(middles) * 4)
    axes.set_title(title, loc="left", fontweight="bold", fontsize=9)
    for row, spread in enumerate(spread for _, spread in values):
        axes.text(spread.most * 1.15, row, f"{spread.middle:,.{digits if spread.middle >= 10 else 2}f}", va="center", fontsize=8)
    for tick, (server, _) in zip(axes.get_yticklabels(), values):
        if server.ours:
            tick.set_fontweight("bold")


def label(server):
    short = {"PostgreSQL SKIP LOCKED": "PostgreSQL", "Redis lists alone": "Redis lists", "NATS JetStream": "JetStream"}
    title = server.title
    for long, abbreviation in short.items():
        title = title.replace(long, abbreviation)
    for long, abbreviation in {", synchronous_commit off": ", async", ", synchronous_commit on": "", "quorum queues": "quorum",
                               ", Redis appendfsync": ",", ", appendfsync": ",", ", jobs `durable`": ", durable"}.items():
        title = title.replace(long, abbreviation)
    return f"{title}, {server.kind}" if server.ours else title


def legend(figure):
    marks = [pyplot.Rectangle((0, 0), 1, 1, color=CORQ[kind]) for kind in CORQ]
    names = [f"corq, {kind}" for kind in CORQ]
    marks += [pyplot.Rectangle((0, 0), 1, 1, color=OTHERS[kind]) for kind in OTHERS]
    names += list(CLASSES.values())
    figure.legend(marks, names, loc="lower center", ncols=3, frameon=False, bbox_to_anchor=(0.5, -0.06))


def cpu(figures):
    figure, grid = pyplot.subplots(3, 2, figsize=(11, 12), layout="constrained")
    for axes, workload in zip(grid.flat, workloads.ALL):
        bars(axes, workload.title, [(server, figures.cpu(server, workload.key)) for server in figures.servers], 1)
    figure.supxlabel("server CPU per job, microseconds (logarithmic; shorter is better)")
    legend(figure)
    return figure


def latency(figures):
    figure, grid = pyplot.subplots(1, 2, figsize=(11, 4.5), sharey=True, layout="constrained")
    for axes, percentile in zip(grid, ("p50", "p99")):
        for server in figures.servers:
            points = [(rate, figures.latency(server, rate, percentile)) for rate in figures.rates]
            points = [(rate, spread) for rate, spread in points if spread]
            if not points:
                continue
            rates, spreads = zip(*points)
            style = {"lw": 2.5, "zorder": 3} if server.ours else {"lw": 1}
            middles = [spread.middle for spread in spreads]
            axes.plot(rates, middles, color=colour(server), marker="o", markersize=3, **style)
            axes.annotate(label(server), (rates[-1], middles[-1]), xytext=(4, 0), textcoords="offset points", va="center", fontsize=7)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(percentile, loc="left", fontweight="bold")
        axes.set_xlabel("jobs/s (a line ends with the last rate that the server reached)")
        axes.margins(x=0.25)
    grid[0].set_ylabel("from due time to receipt, microseconds")
    return figure


def flat(figures):
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for row in figures.flat.rows:
        spreads = [Spread.parse(cell) for cell in row[1:]]
        axes.errorbar(
            range(len(spreads)),
            [spread.middle for spread in spreads],
            yerr=([s.middle - s.least for s in spreads], [s.most - s.middle for s in spreads]),
            marker="o", markersize=3, capsize=2, label=row[0],
        )
    axes.set_xticks(range(len(figures.flat.head) - 1), figures.flat.head[1:])
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    axes.set_ylim(0)
    axes.set_xlabel("jobs that wait in other queues")
    axes.set_ylabel("server CPU per job, microseconds")
    return figure


def memory(figures):
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    bars(axes, "memory per waiting job of 100 bytes (logarithmic)", [(server, figures.memory(server)) for server in figures.servers], 0)
    axes.set_xlabel("bytes")
    return figure


def shards(figures):
    half = (len(figures.shards.head) - 1) // 2
    counts = [int("".join(filter(str.isdigit, head))) for head in figures.shards.head[1 : half + 1]]
    figure, grid = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for axes, first, title in ((grid[0], 1, "jobs/s"), (grid[1], 1 + half, "server CPU per job, microseconds")):
        for row in figures.shards.rows:
            spreads = [Spread.parse(cell) for cell in row[first : first + half]]
            axes.errorbar(
                counts,
                [spread.middle for spread in spreads],
                yerr=([s.middle - s.least for s in spreads], [s.most - s.middle for s in spreads]),
                marker="o", markersize=3, capsize=2, label=row[0],
            )
        axes.set_xticks(counts)
        axes.set_ylim(0)
        axes.set_xlabel("shards (server and generator share the CPUs)")
        axes.set_title(title, loc="left", fontweight="bold")
    grid[1].legend(frameon=False, fontsize=8)
    return figure


ALL = {"cpu": cpu, "latency": latency, "flat": flat, "memory": memory, "shards": shards}
