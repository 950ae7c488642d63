"""The text of the page around tables and plots. What the numbers say is computed, never typed."""

import goals
from side_by_side import contestants, table, workloads

HEAD = """\
# Benchmarks

This page is written by `make page` on the machine that it names; do not edit it. `make page ROUNDS=3` repeats all of it: it installs the
rivals by name from their registries, measures everything in turns, and takes about an hour of a machine that does nothing else.

Every figure is a median with the least and the most of its rounds. **CPU per job is the figure that holds**: on a machine that the
server shares with its load generator, jobs per second say as much about the generator and the neighbours. Compare rows of one
durability class: a server that answers before it has written anything does less. How each rival is configured, and why that is its best, stands
in [bench/rivals](../bench/rivals/README.md); [performance](performance.md) says what corq's time goes to.
"""

GOALS = """\
### Goals, floors and the distance

The floor of a job is what its requests cost an empty server on the same kind of ring and with as many shards, and what its bytes in the log
cost somebody who does nothing but write them into a file that was written before; with `written` and requests in flight both together, by an
empty server that writes what it is sent before it answers and syncs every 10 ms. One thread drives it, as the load generator does. With
`synced` one sync is counted for all that the connections of a shard have in flight, where each shard has as many: with a log of its own it
cannot be shared more.
"""


def page(figures):
    names = {server.name for server in figures.servers}
    ran = [one for one in contestants.everyone() if one.name in names]
    rivals = figures.rivals
    tables = table.render(ran, rivals["records"], rivals["failures"], rivals["conditions"])
    conditions, _, tables = tables.partition("\n### ")
    parts = [
        HEAD,
        "## At a glance",
        "![Server CPU per job by workload](benchmarks/cpu.svg)",
        glance(figures),
        "![Latency against rate](benchmarks/latency.svg)",
        "![Memory per waiting job](benchmarks/memory.svg)",
        "## Where corq is not the best",
        worse(figures),
        "## corq alone",
        figures.bench.text,
        GOALS,
        figures.floors.text,
        goals.table(figures.bench, figures.floors),
        "### However many others wait\n\n![CPU per job over the backlog](benchmarks/flat.svg)",
        figures.flat.text,
        "### By number of shards\n\n![Jobs per second and CPU per job by shards](benchmarks/shards.svg)",
        figures.shards.text,
        "### A start over a backlog",
        figures.recovery.text,
        "### While the log is reclaimed",
        figures.reclaim.text,
        "### Beside a client that takes all it can get",
        figures.fair.text,
        "### Ten thousand connections",
        figures.many.text,
        "## Side by side",
        conditions.strip(),
        "### " + tables.strip(),
        "Every single figure: [rivals.json](benchmarks/rivals.json).",
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def same_class(figures, ours):
    return [one for one in figures.servers if not one.ours and one.kind == ours.kind]


def glance(figures):
    """Of each class: how many times corq's CPU the others need."""
    lines = ["How many times the CPU per job of corq in the same class the others need:", ""]
    for ours in (server for server in figures.servers if server.ours):
        columns = [workload for workload in workloads.ALL if figures.cpu(ours, workload.key)]
        lines += [
            f"| {ours.kind} | " + " | ".join(workload.title for workload in columns) + " |",
            "|---" * (len(columns) + 1) + "|",
        ]
        for other in same_class(figures, ours):
            cells = []
            for workload in columns:
                theirs = figures.cpu(other, workload.key)
                cells.append(f"{theirs.middle / figures.cpu(ours, workload.key).middle:.1f}" if theirs else "–")
            lines.append(f"| {other.title} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def worse(figures):
    """Everything in which a server of the same or a stronger class beats corq."""
    lines = []
    for ours in (server for server in figures.servers if server.ours):
        for other in same_class(figures, ours):
            for workload in workloads.ALL:
                mine, theirs = figures.cpu(ours, workload.key), figures.cpu(other, workload.key)
                if mine and theirs and theirs.middle < mine.middle:
                    lines.append(
                        f"- {workload.title}, {ours.kind}: {other.title} needs {theirs.middle:.2f} us of CPU per job, corq {mine.middle:.2f}."
                    )
            mine, theirs = figures.memory(ours), figures.memory(other)
            if mine and theirs and theirs.middle < mine.middle:
                lines.append(
                    f"- Memory per waiting job, {ours.kind}: {other.title} {theirs.middle:,.0f} bytes, corq {mine.middle:,.0f} "
                    "(its payload cached; about 90 once that has left the cache)."
                )
            for rate in figures.rates:
                for percentile in ("p50", "p99"):
                    mine, theirs = figures.latency(ours, rate, percentile), figures.latency(other, rate, percentile)
                    if theirs and (mine is None or theirs.middle < mine.middle):
                        own = f"{mine.middle:,.0f}" if mine else "not reached"
                        lines.append(
                            f"- Latency {percentile} at {rate:,} jobs/s, {ours.kind}: {other.title} {theirs.middle:,.0f} us, corq {own}."
                        )
    lines.append(
        "- What the others have and corq has not: replication over several machines (NATS, RabbitMQ, PostgreSQL), transactions with "
        "the application's own data (PostgreSQL), clients in every language (all of them)."
    )
    return "\n".join(lines)
