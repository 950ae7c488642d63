"""Processes: starting one, what its whole tree uses, and ending it. Knows nothing of queues.

Every process is ended by its id, and only those that were started here.
"""

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

TICK_US = 1e6 / os.sysconf("SC_CLK_TCK")
START_SECONDS_MAX = 90
STOP_SECONDS_MAX = 20


class Failed(Exception):
    """A server or client did not do what it should; the text says what."""


def free_port():
    """A TCP port on loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def tree(root):
    """The ids of a process and all of its descendants."""
    children = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields:
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo.extend(children.get(pid, []))
    return found


class CpuTime:
    """User and system time of process trees at one moment."""

    def __init__(self, roots):
        self.ticks_us = self.threads_us = 0
        for root in roots:
            for pid in tree(root):
                fields = _stat(pid)
                if fields:
                    # utime, stime, cutime, cstime: of the children that have ended, too, so that a tree
                    # whose processes come and go (PostgreSQL) is counted in full.
                    self.ticks_us += sum(int(field) for field in fields[11:15]) * TICK_US
                    self.threads_us += _threads_us(pid)

    def since(self, before):
        """Microseconds from `before` to this.

        Ticks are coarse, and threads that end take their time with them; so the threads are believed
        unless they fall short of the ticks. corq's load generator reads its server the same way.
        """
        ticks, threads = self.ticks_us - before.ticks_us, self.threads_us - before.threads_us
        return ticks if threads + 2 * TICK_US < ticks else threads


def memory_bytes(roots):
    """Memory of the process trees; what several processes share is counted once (PSS)."""
    total = 0
    for root in roots:
        for pid in tree(root):
            total += _pss_bytes(pid)
    return total


def _stat(pid):
    """The fields of /proc/<pid>/stat from the state on, or None if the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name in brackets may hold anything.
    return text.rpartition(")")[2].split()


def _threads_us(pid):
    """Time of all threads of a process, to the nanosecond, where the kernel keeps it."""
    total = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total += int(path.read_text().split()[0])
        except (OSError, ValueError, IndexError):
            continue
    return total / 1e3


def _pss_bytes(pid):
    for name, key in (("smaps_rollup", "Pss:"), ("status", "VmRSS:")):
        try:
            for line in Path(f"/proc/{pid}/{name}").read_text().splitlines():
                if line.startswith(key):
                    return int(line.split()[1]) << 10
        except OSError:
            continue
    return 0


class Process:
    """A process in a directory of its own, its output in a file there."""

    def __init__(self, name, words, work, env=None):
        self.name = name
        self.log = Path(work) / f"{name}.log"
        # Only what a server needs: the settings of the calling user must not reach it.
        clean = {"PATH": os.environ["PATH"], "HOME": str(work), "LANG": "C.UTF-8", "TMPDIR": str(work)}
        with open(self.log, "wb") as log:
            self.popen = subprocess.Popen(
                [str(word) for word in words],
                cwd=work,
                env={**clean, **{key: str(value) for key, value in (env or {}).items()}},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self):
        return self.popen.pid

    def wait_until(self, ready):
        """Waits until `ready()` is true; fails when the process ends before or takes too long."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while not ready():
            if self.popen.poll() is not None:
                raise Failed(f"{self.name} ended at its start: {self.last_words()}")
            if time.monotonic() > deadline:
                raise Failed(f"{self.name} was not ready after {START_SECONDS_MAX} s: {self.last_words()}")
            time.sleep(0.05)

    def wait_for_port(self, port):
        self.wait_until(lambda: listens(port))

    def wait_for_text(self, text):
        self.wait_until(lambda: text in self.log.read_text(errors="replace"))

    def last_words(self):
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return " / ".join(lines[-5:])[-600:] or "it said nothing"

    def stop(self, how=signal.SIGTERM):
        """Ends the process and what it started; what does not end in time is killed."""
        pids = tree(self.pid)
        if self.popen.poll() is None:
            self.popen.send_signal(how)
            try:
                self.popen.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                pids = tree(self.pid)
                self.popen.kill()
                self.popen.wait()
        # Descendants that outlived the root: still ours if they are in the session that it began.
        for pid in pids:
            fields = _stat(pid)
            if fields and int(fields[3]) == self.pid and fields[0] != "Z":
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue


def listens(port):
    """Whether something listens on a loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
