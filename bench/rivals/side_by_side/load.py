"""Load on a server and the account of it: CPU of the server's process tree and of the client around
the work, jobs per second, and whether every job came back exactly once.

`Lines` drives clients that take commands as lines (`client/`, `bullmq.mjs`); `CorqBench` runs the load
generator of corq, which the servers of its protocol share.
"""

import json
import subprocess
import threading
import time
from dataclasses import dataclass, field
from typing import Optional

from . import process, workloads
from .process import CpuTime, Failed

CLIENT_SECONDS_MAX = 240
SETTLE_SECONDS_MAX = 10


@dataclass
class Figures:
    """What one workload cost one server. Times in microseconds per job."""

    cpu_us: Optional[float] = None
    jobs_per_second: Optional[float] = None
    client_us: Optional[float] = None
    memory_bytes: Optional[float] = None
    receipt_us: Optional[dict] = None
    problems: list = field(default_factory=list)


class Lines:
    """A client driven by lines of JSON, for as long as its server runs."""

    def __init__(self, words, work, server, env=None):
        self.server = server
        self.errors = open(work / "client.log", "wb")
        self.popen = subprocess.Popen(
            [str(word) for word in words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=env,
            text=True,
        )
        try:
            self._answer()
        except Failed:
            self.close()
            raise

    def run(self, command):
        """Does what `command` says; figures of it."""
        jobs = command["jobs"]
        self._say(command)
        self._answer()
        server, client = CpuTime(self.server.pids), CpuTime([self.popen.pid])
        self._write("go")
        outcome = self._answer()
        server_us = CpuTime(self.server.pids).since(server)
        client_us = CpuTime([self.popen.pid]).since(client)
        return Figures(
            cpu_us=server_us / jobs,
            client_us=client_us / jobs,
            jobs_per_second=jobs / max(outcome["seconds"], 1e-9),
            receipt_us=outcome.get("receipt_us"),
            problems=outcome["problems"],
        )

    def push(self, jobs, workload):
        memory = process.memory_bytes(self.server.pids)
        figures = self.run({"do": "push", "jobs": jobs, "window": workload.window, "batch": workload.batch})
        figures.memory_bytes = (process.memory_bytes(self.server.pids) - memory) / jobs
        figures.problems += self._expect(jobs, jobs)
        return figures

    def take(self, jobs, workload):
        figures = self.run({"do": "take", "jobs": jobs, "window": workload.window, "batch": workload.batch})
        figures.problems += self._expect(0, 0)
        return figures

    def open(self, rate, seconds):
        return self.run({"do": "open", "jobs": round(rate * seconds), "rate": rate})

    def _expect(self, left, missing):
        """Compares what the server holds with what it should; it may take a moment to settle."""
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while True:
            self._say({"do": "left"})
            answer = self._answer()
            if (answer["left"], answer["missing"]) == (left, missing):
                return []
            if time.monotonic() > deadline:
                return [f"{answer['left']} jobs are left and {answer['missing']} never came, not {left} and {missing}"]
            time.sleep(0.1)

    def _say(self, command):
        self._write(json.dumps(command))

    def _write(self, line):
        try:
            self.popen.stdin.write(line + "\n")
            self.popen.stdin.flush()
        except OSError as error:
            raise Failed(f"the client is gone: {error}") from error

    def _answer(self):
        # A client that hangs must not hang the whole run.
        watch = threading.Timer(CLIENT_SECONDS_MAX, self.popen.kill)
        watch.start()
        try:
            line = self.popen.stdout.readline()
        finally:
            watch.cancel()
        if not line:
            raise Failed(f"the client ended: {self._last_words()}")
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def _last_words(self):
        with open(self.errors.name, errors="replace") as log:
            return " / ".join(log.read().strip().splitlines()[-6:])[-600:] or "without a word"

    def close(self):
        self.popen.kill()
        self.popen.wait()
        self.popen.stdin.close()
        self.popen.stdout.close()
        self.errors.close()


class CorqBench:
    """The load generator of corq, run once per workload: it brings its own jobs and takes them away."""

    def __init__(self, program, server, durable=False):
        self.program, self.server, self.durable = program, server, durable

    def push(self, jobs, workload):
        return self._run("push-batch" if workload.batch > 1 else "push", jobs, workload)

    def take(self, jobs, workload):
        return self._run("drain" if workload.batch > 1 else "worker", jobs, workload)

    def open(self, rate, seconds):
        return self._bench("open", ["--jobs", round(rate * seconds), "--rate", rate, "--queues", 2])

    def _run(self, kind, jobs, workload):
        words = ["--jobs", jobs, "--window", workload.window, "--queues", workloads.CONNECTIONS]
        if workload.batch > 1:
            words += ["--batch", workload.batch]
        return self._bench(kind, words)

    def _bench(self, kind, words):
        # The generator reads the time of one process: a second one would go uncounted.
        if len(self.server.pids) != 1 or process.tree(self.server.pids[0]) != self.server.pids:
            raise Failed("the server has more than one process")
        options = ["--connections", workloads.CONNECTIONS, "--payload-bytes", workloads.PAYLOAD_BYTES]
        options += ["--port", self.server.port, "--pid", self.server.pids[0], "--json"]
        options += ["--durable"] if self.durable else []
        done = subprocess.run(
            [str(word) for word in [self.program, kind, *words, *options]],
            capture_output=True,
            text=True,
            timeout=CLIENT_SECONDS_MAX,
            stdin=subprocess.DEVNULL,
        )
        if not done.stdout:
            raise Failed(done.stderr.strip()[-600:])
        report = json.loads(done.stdout)
        times = report["times"].get("push_to_receipt_us")
        return Figures(
            cpu_us=report["server_process"]["cpu_us_per_job"],
            jobs_per_second=report["jobs_per_second"],
            client_us=report["generator_cpu_us_per_job"],
            memory_bytes=report["server_process"]["rss_bytes_per_job"],
            receipt_us=times and {key: times[key] for key in ("p50", "p99", "max")},
            # The ladder of rates ends at a rate that is missed: no fault of the figures.
            problems=[problem for problem in report["problems"] if problem != report["rate_missed"]],
        )

    def close(self):
        """There is nothing to close: every run ends by itself."""
