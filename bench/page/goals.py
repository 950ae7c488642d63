"""Goals of corq, measured values and the floor. Reads tables, draws nothing."""

import re

from figures import Spread

# Server CPU microseconds per job, written and synced, by row of `scripts/bench.sh`.
GOALS = {
    "PUSH, 1 in flight": (9, 20),
    "PULL + ACK, 1 in flight": (18, 40),
    "PUSH, 50 in flight": (1.5, 2.0),
    "PULL + ACK, 25 in flight": (3.0, 4.0),
    "PUSHB 100": (0.6, 0.8),
    "PULLB + ACKB 100": (1.2, 1.6),
    "PUSHB 1000": (0.5, 0.6),
    "PULLB + ACKB 1000": (1.0, 1.2),
}


# Of every workload of `scripts/bench.sh`.
CONNECTIONS = 4


def floors(table):
    """The figures of `scripts/floors.sh`, by the name of their row, and the number of shards."""
    of = {row[0]: Spread.parse(row[1]).middle for row in table.rows if len(row) > 1}
    return of, int(re.search(r"(\d+) CPUs", table.text).group(1))


def floor(work, durability, of, shards):
    """The least CPU per job: its requests, answered by an empty server, and its bytes, written by nothing else."""
    requests = 1 if work.startswith("PUSH") else 2
    one_by_one = work.endswith("in flight")
    jobs = int(work.split()[-3 if one_by_one else -1])
    window = "50 in flight" if one_by_one and jobs > 1 else "1 in flight"
    if one_by_one and durability == "written":
        # Measured together, because a write between two sleeps is not what a write alone is.
        return requests * of[f"a request answered and appended, {window}, CPU us"]
    answered = of[f"a request answered, {window}, CPU us"] / (1 if one_by_one else jobs)
    until = "a job of 100 bytes in the log until it is pushed" if requests == 1 else "from there until it is acknowledged"
    kilobytes = of[f"{until}, bytes"] / 1024
    small, large = (of[f"{size} KB {durability}, CPU us"] for size in (4, 64))
    if durability == "written":
        return requests * answered + kilobytes / 64 * large
    # A sync has at best what all connections of a shard have in flight.
    together = jobs * CONNECTIONS / shards
    written = max(kilobytes / requests * together, 4)
    sync = small + (large - small) * (written - 4) / 60
    return requests * (answered + sync / together)


def table(bench, floor_table):
    """One row for each goal: what was reached, the floor, and how many times the floor that is."""
    of, shards = floors(floor_table)
    lines = ["| work | goal | reached | floor | reached / goal | reached / floor |", "|---|---|---|---|---|---|"]
    for row in bench.rows:
        if row[0] not in GOALS:
            continue
        for place, durability in enumerate(("written", "synced")):
            goal, reached = GOALS[row[0]][place], Spread.parse(row[1 + 2 * place])
            least = floor(row[0], durability, of, shards)
            lines.append(
                f"| {row[0]}, {durability} | {goal} | {reached.middle:.2f} ({reached.least:.2f}–{reached.most:.2f}) | {least:.2f} "
                f"| {reached.middle / goal:.2f} | {reached.middle / least:.1f} |"
            )
    return "\n".join(lines)
