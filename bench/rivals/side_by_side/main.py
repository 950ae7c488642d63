"""The command: which contestants, how many rounds, and what comes out."""

import argparse
import dataclasses
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from . import contestants, install, table, workloads
from .install import HOME, Unavailable
from .load import Figures
from .process import Failed


def main():
    options = arguments()
    # A signal that ends this program ends the servers with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    everyone = contestants.everyone()
    if options.list:
        for contestant in everyone:
            print(f"{contestant.name:<18} {contestant.title}; the reply to a push means: {contestant.durability}")
        return 0
    chosen = choose(everyone, options.names)
    failures = {}
    HOME.mkdir(parents=True, exist_ok=True)
    ready = prepare(chosen, failures)
    if options.install_only:
        for name, reasons in failures.items():
            print(f"{name}: {reasons[0]}")
        return 0
    records, sound = [], True
    for number in range(options.rounds):
        # Another one begins each round, so that nobody always runs first.
        turn = number % max(len(ready), 1)
        for contestant in ready[turn:] + ready[:turn]:
            say(f"round {number + 1} of {options.rounds}: {contestant.name}")
            start = time.monotonic()
            try:
                found = one_round(contestant, options)
                say(f"  {time.monotonic() - start:.0f} s")
            except (Failed, Unavailable, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
                sound = False
                failures.setdefault(contestant.name, []).append(f"round {number + 1}: {error}")
                say(f"  {error}")
                continue
            for record in found:
                sound = sound and not record["problems"]
                for problem in record["problems"]:
                    reason = f"round {number + 1}, {record['workload']}: {problem}"
                    failures.setdefault(contestant.name, []).append(reason)
                records.append({"round": number + 1, "contestant": contestant.name, **record})
    conditions = describe(ready, options)
    page = table.render(ready, records, failures, conditions)
    print(page)
    if options.json:
        everything = {"conditions": conditions, "records": records, "failures": failures}
        Path(options.json).write_text(json.dumps(everything, indent=1))
    return 0 if sound else 1


def arguments():
    parser = argparse.ArgumentParser(
        prog="bench/rivals/run",
        description="corq and its rivals side by side: CPU per job, jobs per second, latency, memory.",
    )
    parser.add_argument("names", nargs="*", help="contestants, or the beginning of their names (default: all)")
    parser.add_argument("--rounds", type=at_least(1), default=3, help="how often each is measured (default 3)")
    parser.add_argument("--scale", type=at_least(1), default=100, help="per cent of the usual jobs (default 100)")
    parser.add_argument(
        "--rates",
        type=rising(at_least(1)),
        default=[1000],
        metavar="RATE,..",
        help="jobs/s of the latency runs, rising (default 1000); one that is not reached is a contestant's last",
    )
    parser.add_argument("--json", metavar="FILE", help="also write every single figure to a file")
    parser.add_argument("--list", action="store_true", help="print the contestants")
    parser.add_argument("--install-only", action="store_true", help="install and build, measure nothing")
    return parser.parse_args()


def at_least(least):
    def convert(text):
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}")
        return value

    return convert


def rising(convert_one):
    def convert(text):
        values = [convert_one(part) for part in text.split(",")]
        if values != sorted(set(values)):
            raise argparse.ArgumentTypeError("must rise")
        return values

    return convert


def choose(everyone, names):
    chosen = [one for one in everyone if not names or any(one.name.startswith(name) for name in names)]
    for name in names:
        if not any(one.name.startswith(name) for one in everyone):
            sys.exit(f"no contestant is called {name}; there are: {', '.join(one.name for one in everyone)}")
    return chosen


def prepare(chosen, failures):
    """Builds and installs; those that can run."""
    say("building corq, its load generator and the client for the others")
    profile = os.environ.get("BENCH_PROFILE", "release")
    install.cargo("--profile", profile, "-p", "corq", "-p", "corq-bench")
    install.client()
    ready = []
    for contestant in chosen:
        say(f"installing {contestant.name}")
        try:
            contestant.install()
            contestant.said_version = contestant.version()
            ready.append(contestant)
        except (Unavailable, OSError) as error:
            failures[contestant.name] = [f"could not be installed: {error}"]
            say(f"  {error}")
    return ready


def one_round(contestant, options):
    """A fresh server through all workloads; the records of it."""
    work = Path(tempfile.mkdtemp(prefix="corq-rivals.", dir=os.environ.get("BENCH_DIR")))
    work.chmod(0o755)
    client = None
    try:
        contestant.start(work)
        client = contestant.load(work)
        return [
            {"workload": key, **dataclasses.asdict(figures)}
            for key, figures in measure(contestant, client, options)
        ]
    finally:
        if client:
            client.close()
        contestant.stop()
        shutil.rmtree(work, ignore_errors=True)


def measure(contestant, client, options):
    """Runs the workloads that the contestant has a form of; yields their figures."""
    lacking = contestant.without
    pairs = [pair for pair in workloads.PAIRS if pair[0] not in lacking]
    # Where one of a pair is lacking, another that does the same takes its place, unreported.
    stand_in = workloads.TAKE_BATCH if workloads.TAKE_25 in lacking else workloads.TAKE_25
    warm, whole = workloads.WARM_UP, workloads.CONNECTIONS * workloads.BATCH
    warm = max(whole, warm * options.scale // 100 // whole * whole)
    client.push(warm, pairs[0][0])
    client.take(warm, stand_in)
    for number, (push, take) in enumerate(pairs):
        jobs = contestant.amounts.of(push, options.scale)
        figures = client.push(jobs, push)
        # A later push finds memory that an earlier one has left.
        figures.memory_bytes = figures.memory_bytes if number == 0 else None
        yield push.key, figures
        figures = client.take(jobs, stand_in if take in lacking else take)
        figures.memory_bytes = None
        if take not in lacking:
            yield take.key, figures
        elif figures.problems:
            yield take.key, Figures(problems=figures.problems)
    for rate in options.rates:
        figures = client.open(rate, workloads.OPEN_SECONDS)
        figures.memory_bytes = None
        yield workloads.open_key(rate), figures
        if not workloads.reached(figures.jobs_per_second, rate):
            break


def describe(ready, options):
    """What has to be known to read the tables."""
    versions = dict.fromkeys(f"{one.title.split(',')[0].split(' -f')[0]} {one.said_version}" for one in ready)
    work = Path(os.environ.get("BENCH_DIR") or tempfile.gettempdir())
    lines = [
        f"{platform.system()} {platform.release()}, {processor()}, {os.cpu_count()} CPUs, data on {file_system(work)}; "
        f"{time.strftime('%Y-%m-%d')}; {options.rounds} rounds, interleaved, a fresh server for each.",
        "",
        f"{workloads.CONNECTIONS} connections with a queue each, {workloads.PAYLOAD_BYTES}-byte payloads; batches 1 in "
        f"flight; latency at {', '.join(map(str, options.rates))} jobs/s. Median (least–most). The client counted every job that it received.",
        "",
        "Versions: " + "; ".join(versions) + ".",
    ]
    if options.scale != 100:
        lines += ["", f"**{options.scale} % of the usual jobs: a trial, not a measurement.**"]
    profile = os.environ.get("BENCH_PROFILE", "release")
    if profile != "release" and any(one.name.startswith(("corq", "bunqueue")) for one in ready):
        lines += ["", f"**corq and its load generator were built with the profile {profile}: a trial, not a measurement.**"]
    return "\n".join(lines)


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def file_system(path):
    """The type of the file system that a directory is on."""
    path, best = path.resolve(), ("", "unknown")
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, kind, *_ = line.split()
        if (path == Path(point) or Path(point) in path.parents) and len(point) > len(best[0]):
            best = (point, kind)
    return best[1]


def say(text):
    print(text, file=sys.stderr, flush=True)
