"""What corq is to reach, what it reaches, and what nothing could go below here. Knows tables, draws nothing."""

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


def floors(table):
    """The figures of `scripts/floors.sh`, by the name of their row."""
    return {row[0]: Spread.parse(row[1]).middle for row in table.rows if len(row) > 1}


def floor(work, durability, of):
    """The least CPU per job: its requests, answered by an empty server, and its bytes, written by nothing else."""
    requests = 1 if work.startswith("PUSH") else 2
    if work.endswith("1 in flight"):
        return requests * (of["a request answered, 1 in flight, CPU us"] + of[f"4 KB {durability}, CPU us"])
    until = "a job of 100 bytes in the log until it is pushed" if requests == 1 else "from there until it is acknowledged"
    appended = of[f"{until}, bytes"] / (64 << 10) * of[f"64 KB {durability}, CPU us"]
    if work.endswith("in flight"):
        return requests * of["a request answered, 50 in flight, CPU us"] + appended
    return requests * of["a request answered, 1 in flight, CPU us"] / int(work.split()[-1]) + appended


def table(bench, floor_table):
    """One row for each goal: what was reached, the floor, and how many times the floor that is."""
    of = floors(floor_table)
    lines = ["| work | goal | reached | floor | reached / goal | reached / floor |", "|---|---|---|---|---|---|"]
    for row in bench.rows:
        if row[0] not in GOALS:
            continue
        for place, durability in enumerate(("written", "synced")):
            goal, reached = GOALS[row[0]][place], Spread.parse(row[1 + 2 * place])
            least = floor(row[0], durability, of)
            lines.append(
                f"| {row[0]}, {durability} | {goal} | {reached.middle:.2f} ({reached.least:.2f}–{reached.most:.2f}) | {least:.2f} "
                f"| {reached.middle / goal:.2f} | {reached.middle / least:.1f} |"
            )
    return "\n".join(lines)
