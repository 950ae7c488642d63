"""The comparison itself must be able to fail: these tests break what it measures and expect it to say so.

    python3 -m unittest discover -s bench/rivals
"""

import os
import socketserver
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from unittest import mock

from side_by_side import contestants, install, load, main, process, table, workloads
from side_by_side.process import Failed, Process

BURN = "t=__import__('time'); end=t.process_time()+{seconds}\nwhile t.process_time()<end: pass"


class LyingServer(socketserver.ThreadingTCPServer):
    """Speaks beanstalkd's protocol, and lies about one job: it loses it, or delivers it twice."""

    daemon_threads = allow_reuse_address = True

    def __init__(self, lie):
        super().__init__(("127.0.0.1", 0), Handler)
        self.lie, self.jobs, self.lock = lie, {}, threading.Lock()
        self.port = self.server_address[1]
        self.pids = [os.getpid()]
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        tube, number = None, 0
        while line := self.rfile.readline():
            words = line.decode().split()
            if words[0] == "use":
                tube = words[1]
                self.answer(f"USING {tube}")
            elif words[0] in ("watch", "ignore"):
                self.answer("WATCHING 1")
            elif words[0] == "put":
                body = self.rfile.read(int(words[4]) + 2)[:-2]
                with self.server.lock:
                    waiting = self.server.jobs.setdefault(tube, [])
                    number += 1
                    lie = self.server.lie if tube == "q1" and number == 3 else "once"
                    waiting += {"once": [body], "twice": [body, body], "lost": []}[lie]
                self.answer(f"INSERTED {number}")
            elif words[0] == "reserve":
                with self.server.lock:
                    body = self.server.jobs[tube].pop(0)
                self.wfile.write(b"RESERVED 1 %d\r\n%s\r\n" % (len(body), body))
            elif words[0] == "delete":
                self.answer("DELETED")
            elif words[0] == "stats-tube":
                with self.server.lock:
                    text = f"---\ncurrent-jobs-ready: {len(self.server.jobs.get(tube, []))}\n"
                self.wfile.write(f"OK {len(text)}\r\n{text}\r\n".encode())

    def answer(self, text):
        self.wfile.write(text.encode() + b"\r\n")


class Canary(unittest.TestCase):
    """A server that does not deliver exactly once is found out."""

    @classmethod
    def setUpClass(cls):
        cls.client = install.client()

    def setUp(self):
        # A lie is waited for in case it settles; the tests need not wait as long as a measurement.
        settle = mock.patch.object(load, "SETTLE_SECONDS_MAX", 0.2)
        settle.start()
        self.addCleanup(settle.stop)

    def problems(self, lie):
        """What is found wrong after the pushes, and after the takes."""
        one = workloads.Workload("one", "one", 1, 1)
        with tempfile.TemporaryDirectory() as work, LyingServer(lie) as server:
            client = load.Lines([self.client, "beanstalkd", server.port, 100], Path(work), server)
            try:
                pushed = client.push(40, one).problems
                return pushed, [] if lie == "lost" else client.take(40, one).problems
            finally:
                client.close()
                server.shutdown()

    def test_an_honest_server_has_no_problems(self):
        self.assertEqual(self.problems("once"), ([], []))

    def test_a_job_lost_is_reported(self):
        self.assertIn("39 jobs are left", " ".join(self.problems("lost")[0]))

    def test_a_job_delivered_twice_is_reported(self):
        self.assertIn("received twice", " ".join(self.problems("twice")[1]))


class Processes(unittest.TestCase):
    def test_time_of_children_counts_also_when_they_have_ended(self):
        child = BURN.format(seconds=0.2)
        parent = f"import subprocess,sys,time\nsubprocess.run([sys.executable,'-c',{child!r}])\nprint('done',flush=True)\ntime.sleep(60)"
        with tempfile.TemporaryDirectory() as work:
            started = Process("parent", [sys.executable, "-c", parent], work)
            before = process.CpuTime([])
            try:
                started.wait_for_text("done")
                self.assertGreaterEqual(process.CpuTime([started.pid]).since(before), 180_000)
                self.assertGreater(process.memory_bytes([started.pid]), 1 << 20)
            finally:
                started.stop()

    def test_a_stopped_process_leaves_no_children(self):
        parent = "import subprocess,time\nprint(subprocess.Popen(['sleep','60']).pid,flush=True)\ntime.sleep(60)"
        with tempfile.TemporaryDirectory() as work:
            started = Process("parent", [sys.executable, "-c", parent], work)
            started.wait_for_text("\n")
            child = int(started.log.read_text())
            started.stop()
            done = subprocess.run(["kill", "-0", str(child)], capture_output=True)
            self.assertTrue(done.returncode != 0 or "Z" in Path(f"/proc/{child}/stat").read_text())

    def test_a_server_that_ends_at_its_start_says_why(self):
        with tempfile.TemporaryDirectory() as work:
            started = Process("server", [sys.executable, "-c", "raise SystemExit('no memory')"], work)
            with self.assertRaisesRegex(Failed, "no memory"):
                started.wait_for_port(process.free_port())


class Installing(unittest.TestCase):
    def test_a_rival_that_cannot_be_had_is_named_with_its_reason(self):
        class Missing(contestants.Contestant):
            name = "missing"

            def install(self):
                install.call(["sh", "-c", "echo no such package >&2; exit 1"], ".")

        failures = {}
        with mock.patch.multiple(install, cargo=mock.DEFAULT, client=mock.DEFAULT), mock.patch.object(main, "say"):
            self.assertEqual(main.prepare([Missing()], failures), [])
        self.assertRegex(failures["missing"][0], "could not be installed: .*no such package")


class Tables(unittest.TestCase):
    def test_a_cell_is_the_median_and_the_spread(self):
        self.assertEqual(table.cell([3.0, 1.0, 2.0], 2), "2.00 (1.00–3.00)")
        self.assertEqual(table.cell([1234.0], 0), "1,234")
        self.assertEqual(table.cell([None], 0), "–")

    def test_figures_stand_in_the_column_of_their_workload(self):
        one = contestants.Beanstalkd(0)
        record = dict(contestant=one.name, workload="push-1", cpu_us=7.0, jobs_per_second=9.0, client_us=1.0)
        page = table.render([one], [record], {"nats": ["could not be installed: no network"]}, "")
        self.assertIn(f"| {one.title} | synced | 7.00 | – | – | – | – | – |", page)
        self.assertIn("- nats: could not be installed: no network", page)

    def test_jobs_come_in_whole_batches_on_every_connection(self):
        amounts = workloads.Amounts(1000, 1000, 1000)
        for scale in (1, 5, 100):
            self.assertEqual(amounts.of(workloads.PUSH_BATCH, scale) % 400, 0)


if __name__ == "__main__":
    unittest.main()
