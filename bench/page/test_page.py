"""The words of the page say what the figures say. `python3 -m unittest discover -s bench/page`; needs no plots."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "rivals"))

import goals  # noqa: E402
import words  # noqa: E402
from figures import TABLES, Figures, Spread, Table  # noqa: E402


def record(contestant, workload, cpu_us, rate=1000.0, p99=None, memory=None):
    return {
        "round": 1, "contestant": contestant, "workload": workload, "cpu_us": cpu_us, "client_us": 1.0, "jobs_per_second": rate,
        "memory_bytes": memory, "receipt_us": p99 and {"p50": p99 / 2, "p99": p99, "max": p99 * 2}, "problems": [],
    }


def figures(*records):
    table = Table("| a |\n|---|\n| 1 |", ["a"], [["1"]])
    return Figures({"records": list(records), "conditions": "Here.", "failures": {}}, *[table] * len(TABLES))


class Page(unittest.TestCase):
    def test_a_cell_of_the_scripts_is_read_with_its_spread(self):
        self.assertEqual(Spread.parse("0.74 (0.69–0.78)"), Spread(0.74, 0.69, 0.78))
        self.assertEqual(Spread.parse("1,234"), Spread(1234, 1234, 1234))
        self.assertIsNone(Spread.parse("–"))

    def test_only_what_is_better_within_the_class_is_named_as_better(self):
        found = words.worse(figures(
            record("corq-written", "push-1", 10.0, memory=200),
            record("beanstalkd-f50", "push-1", 9.0, memory=300),
            record("nats", "push-1", 11.0, memory=100),
            record("redis-always", "push-1", 1.0, memory=10),
        ))
        self.assertIn("push, 1 in flight, written: beanstalkd -f50 needs 9.00 us of CPU per job, corq 10.00", found)
        self.assertIn("NATS JetStream 100 bytes, corq 200", found)
        self.assertNotIn("NATS JetStream needs", found)
        self.assertNotIn("Redis", found)

    def test_every_table_of_the_scripts_stands_in_the_page(self):
        tables = [Table(f"2 CPUs\n\n| {name} |\n|---|\n| 1 |", [name], [["1"]]) for name in TABLES]
        page = words.page(Figures({"records": [], "conditions": "Here.", "failures": {}}, *tables))
        for name in TABLES:
            self.assertIn(f"| {name} |", page)

    def test_the_distance_is_from_the_goal_and_from_the_floor(self):
        names = [f"a request answered{how}, {n} in flight, CPU us" for how in ("", " and appended") for n in (1, 50)]
        names += [f"{size} KB {how}, CPU us" for how in ("written", "synced") for size in (4, 64)]
        names += ["a job of 100 bytes in the log until it is pushed, bytes", "from there until it is acknowledged, bytes"]
        values = (5.0, 0.2, 8.0, 0.3, 1.0, 6.4, 10.0, 64.0, 256, 64)
        floors = Table("Linux, 2 CPUs, 3 rounds", [], [[name, f"{value} (1–1)"] for name, value in zip(names, values)])
        row = ["PULL + ACK, 1 in flight", "24.00 (23.00–25.00)", "1", "60.00 (50.00–70.00)", "1", "1"]
        lines = goals.table(Table("", [], [row, ["memory per waiting job", "270", "", "1", "", ""]]), floors).splitlines()
        self.assertEqual(len(lines), 4)
        self.assertEqual(lines[2], "| PULL + ACK, 1 in flight, written | 18 | 24.00 (23.00–25.00) | 16.00 | 1.33 | 1.5 |")
        self.assertEqual(lines[3], "| PULL + ACK, 1 in flight, synced | 40 | 60.00 (50.00–70.00) | 20.00 | 1.50 | 3.0 |")

        def floor(work, durability):
            return goals.floor(work, durability, *goals.floors(floors))

        self.assertAlmostEqual(floor("PULL + ACK, 25 in flight", "written"), 0.6)
        self.assertAlmostEqual(floor("PULL + ACK, 25 in flight", "synced"), 2 * (0.2 + 10.0 / 50))
        self.assertAlmostEqual(floor("PUSHB 100", "written"), 0.05 + 0.25 * 0.1)
        self.assertAlmostEqual(floor("PUSHB 100", "synced"), 0.05 + (10 + 54 * (50 - 4) / 60) / 200)

    def test_a_rate_that_was_not_reached_has_no_latency(self):
        page = figures(
            record("corq-written", "open-1000", 1, rate=1000.0, p99=100.0),
            record("corq-written", "open-5000", 1, rate=4000.0, p99=9.0),
            record("nats", "open-5000", 1, rate=5000.0, p99=500.0),
        )
        corq, nats = page.servers
        self.assertEqual(page.latency(corq, 1000, "p99").middle, 100.0)
        self.assertIsNone(page.latency(corq, 5000, "p99"))
        self.assertEqual(page.latency(nats, 5000, "p99").middle, 500.0)
        self.assertIn("p99 at 5,000 jobs/s, written: NATS JetStream 500 us, corq not reached", words.worse(page))

    def test_how_many_times_is_of_the_same_class(self):
        text = words.glance(figures(record("corq-synced", "push-1", 10.0), record("redis-always", "push-1", 25.0), record("nats", "push-1", 5.0)))
        self.assertIn("| Redis lists alone, appendfsync always | 2.5 |", text)
        self.assertNotIn("NATS", text)


if __name__ == "__main__":
    unittest.main()
