"""Medians and spread of many rounds as Markdown. Pure: records in, text out.

A record is a dict: contestant, workload, and the figures of one round.
"""

from statistics import median

from . import workloads


def cell(values, digits):
    """Median (least–most), or a dash where nothing was measured."""
    values = [value for value in values if value is not None]
    if not values:
        return "–"
    middle = f"{median(values):,.{digits}f}"
    if len(values) == 1:
        return middle
    return f"{middle} ({min(values):,.{digits}f}–{max(values):,.{digits}f})"


def render(contestants, records, failures, conditions):
    """The whole page. `contestants`: those that ran, in order; `failures`: name -> reasons."""
    parts = [conditions]
    columns = [(workload.title, workload.key) for workload in workloads.ALL]

    def table(title, note, columns, pick, digits):
        head = "| server | the reply to a push means | " + " | ".join(name for name, _ in columns) + " |"
        lines = [f"### {title}", "", note, "", head, "|---" * (len(columns) + 2) + "|"]
        for contestant in contestants:
            found = [record for record in records if record["contestant"] == contestant.name]
            if not found:
                continue
            cells = [
                cell([pick(record, key) for record in found], digits)
                for _, key in columns
            ]
            lines.append(f"| {contestant.title} | {contestant.durability} | " + " | ".join(cells) + " |")
        parts.append("\n".join(lines))

    table(
        "Server CPU per job, microseconds",
        "User and system time of the server's whole process tree over the jobs done.",
        columns,
        _of("cpu_us"),
        2,
    )
    table(
        "Jobs per second",
        "Throughput of server and client together, on the cores that they share.",
        columns,
        _of("jobs_per_second"),
        0,
    )
    table(
        "Client CPU per job, microseconds",
        "CPU of the load client. BullMQ does part of a queue's work in its client library, so there it is part of the cost.",
        columns,
        _of("client_us"),
        2,
    )
    rates = sorted({workloads.open_rate(record["workload"]) for record in records} - {None})
    for rate in rates:
        table(
            f"Latency at {rate:,} jobs/s, microseconds",
            "From the time a push was due until a waiting worker had the job (open loop, single jobs). A server that does not reach "
            "the rate has no latency at it, only a growing backlog.",
            [("p50", "p50"), ("p99", "p99"), ("longest", "max"), ("jobs/s reached", "rate")],
            _late(workloads.open_key(rate)),
            0,
        )
    table(
        "Memory per waiting job, bytes",
        "Memory that a waiting job of 100 bytes adds to the process tree.",
        [("bytes", "memory")],
        lambda record, _: record.get("memory_bytes"),
        0,
    )
    if failures:
        lines = ["### Not measured, or unreliable", ""]
        lines += [f"- {name}: {reason}" for name, reasons in failures.items() for reason in reasons]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _of(figure):
    return lambda record, workload: record[figure] if record["workload"] == workload else None


def _late(workload):
    def pick(record, key):
        if record["workload"] != workload:
            return None
        if key == "rate":
            return record["jobs_per_second"]
        return (record.get("receipt_us") or {}).get(key)

    return pick
