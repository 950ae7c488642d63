"""The work that every server is given, and how much of it.

Four connections with a queue each, 100-byte payloads. Pushes and takes come in pairs: what one put
in, the other takes out, so that every job is accounted for.
"""

from dataclasses import dataclass

CONNECTIONS = 4
PAYLOAD_BYTES = 100
BATCH = 100
#: Jobs of the pair that warms a server up, at full scale.
WARM_UP = 4000
OPEN_SECONDS = 4


@dataclass(frozen=True)
class Workload:
    key: str
    title: str
    window: int
    batch: int


PUSH_1 = Workload("push-1", "push, 1 in flight", 1, 1)
TAKE_1 = Workload("take-1", "pull + ack, 1 in flight", 1, 1)
PUSH_50 = Workload("push-50", "push, 50 in flight", 50, 1)
TAKE_25 = Workload("take-25", "pull + ack, 25 in flight", 25, 1)
PUSH_BATCH = Workload("push-batch", f"push {BATCH} at once", 1, BATCH)
TAKE_BATCH = Workload("take-batch", f"pull + ack {BATCH} at once", 1, BATCH)

#: In the order of work. The first push of a server also tells what a waiting job costs in memory.
PAIRS = [(PUSH_BATCH, TAKE_BATCH), (PUSH_50, TAKE_25), (PUSH_1, TAKE_1)]
ALL = [PUSH_1, TAKE_1, PUSH_50, TAKE_25, PUSH_BATCH, TAKE_BATCH]



def open_key(rate):
    """The key of the latency run at so many jobs/s."""
    return f"open-{rate}"


def open_rate(key):
    """The jobs/s of a latency run by its key; None for other work."""
    name, _, rate = key.partition("-")
    return int(rate) if name == "open" else None


def reached(jobs_per_second, rate):
    """Whether a server kept up. One that does not has no latency at that rate, only a growing backlog."""
    return jobs_per_second >= 0.97 * rate


@dataclass(frozen=True)
class Amounts:
    """Jobs of each pair: enough for a second or more of server CPU, few enough for a short round."""

    batch: int
    pipelined: int
    single: int

    def of(self, workload, scale):
        jobs = {1: self.single, 50: self.pipelined, 25: self.pipelined}[workload.window]
        if workload.batch > 1:
            jobs = self.batch
        # Whole batches on every connection.
        whole = CONNECTIONS * BATCH
        return max(whole, round(jobs * scale / 100 / whole) * whole)
