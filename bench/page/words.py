"""The text of the page around tables and plots. Statements about numbers are computed, never typed."""

import goals
from side_by_side import contestants, table, workloads

HEAD = """\
# Benchmarks

`make page` generates this page on the machine that it names; do not edit it. `make page ROUNDS=3` repeats everything: it installs the
other job queues from their registries, interleaves all measurements, and takes about an hour on an otherwise idle machine.

Every figure is a median with the minimum and the maximum of its rounds. **CPU per job is the most reliable figure**: on a machine that the
server shares with its load generator, jobs per second depend as much on the generator and on other load. Compare rows of one
durability class: a server that replies before it has written anything does less. [bench/rivals](../bench/rivals/README.md) says how each
contestant is configured and why; [performance](performance.md) says where corq's time goes.
"""

GOALS = """\
### Goals, floors and the distance

The floor is the least that a job can cost here. It is the sum of two parts: the job's requests, answered by an empty server with the same
kind of io_uring and as many shards; and the job's bytes in the log, written by a program that only writes them into a previously written file.
With `written` and single requests in flight both parts are measured together, by an empty server that writes what it receives before it answers
and syncs every 10 ms. One thread drives the empty server, like the load generator. With `synced` the floor has one sync for all jobs that the
connections of a shard have in flight, with the connections spread evenly over the shards: shards have separate logs, so they cannot share a sync.
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
        "### Cost by backlog\n\n![CPU per job over the backlog](benchmarks/flat.svg)",
        figures.flat.text,
        "### By number of shards\n\n![Jobs per second and CPU per job by shards](benchmarks/shards.svg)",
        figures.shards.text,
        "### Recovery of a backlog",
        figures.recovery.text,
        "### During compaction",
        figures.reclaim.text,
        "### Beside a flooding client",
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
    """For each class: the CPU of the others as a multiple of corq's."""
    lines = ["CPU per job of the others, as a multiple of corq in the same durability class:", ""]
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
    """Everything in which a server of the same class beats corq."""
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
                    "(with its payload in the cache; about 90 without)."
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
        "- Features of others that corq lacks: replication over several machines (NATS, RabbitMQ, PostgreSQL), transactions with "
        "the application's own data (PostgreSQL), clients in every language (all of them)."
    )
    return "\n".join(lines)
