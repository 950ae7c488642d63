"""What was measured, as plots and words want it. Knows the files, draws nothing."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from side_by_side import contestants, workloads


# The scripts whose tables stand in the page, in the order in which `Figures` takes them.
TABLES = ("bench", "flat", "shards", "recovery", "reclaim", "fair", "many", "floors")


@dataclass
class Spread:
    middle: float
    least: float
    most: float

    @staticmethod
    def of(values):
        values = [value for value in values if value is not None]
        return Spread(median(values), min(values), max(values)) if values else None

    @staticmethod
    def parse(text):
        """`0.74 (0.69–0.78)`, as the scripts print it."""
        numbers = [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", text.replace(",", ""))]
        if not numbers:
            return None
        return Spread(numbers[0], numbers[1] if len(numbers) > 1 else numbers[0], numbers[-1])


@dataclass
class Table:
    """A Markdown table of the scripts, with the text above it."""

    text: str
    head: list
    rows: list

    @staticmethod
    def read(path):
        text = Path(path).read_text().strip()
        lines = [line for line in text.splitlines() if line.startswith("|")]
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        return Table(text, cells[0], cells[2:])


@dataclass
class Server:
    """A contestant and its class: what the reply to a push means."""

    name: str
    title: str
    durability: str

    @property
    def kind(self):
        return self.durability.split()[0].rstrip(",")

    @property
    def ours(self):
        return self.name.startswith("corq")


class Figures:
    def __init__(self, rivals, bench, flat, shards, recovery, reclaim, fair, many, floors):
        self.rivals, self.bench, self.flat, self.shards = rivals, bench, flat, shards
        self.recovery, self.reclaim, self.fair, self.many, self.floors = recovery, reclaim, fair, many, floors
        known = {record["contestant"] for record in rivals["records"]}
        self.servers = [
            Server(one.name, one.title, one.durability) for one in contestants.everyone() if one.name in known
        ]
        rates = {workloads.open_rate(record["workload"]) for record in rivals["records"]}
        self.rates = sorted(rates - {None})

    @staticmethod
    def read(source):
        tables = (Table.read(source / f"{name}.md") for name in TABLES)
        return Figures(json.loads((source / "rivals.json").read_text()), *tables)

    def _of(self, server, workload):
        records = self.rivals["records"]
        return [record for record in records if (record["contestant"], record["workload"]) == (server.name, workload)]

    def cpu(self, server, workload):
        return Spread.of([record["cpu_us"] for record in self._of(server, workload)])

    def speed(self, server, workload):
        return Spread.of([record["jobs_per_second"] for record in self._of(server, workload)])

    def memory(self, server):
        return Spread.of([record.get("memory_bytes") for record in self.rivals["records"] if record["contestant"] == server.name])

    def latency(self, server, rate, percentile):
        """None where the rate was not reached in every round."""
        records = self._of(server, workloads.open_key(rate))
        if not records or not all(workloads.reached(record["jobs_per_second"], rate) for record in records):
            return None
        return Spread.of([(record.get("receipt_us") or {}).get(percentile) for record in records])
