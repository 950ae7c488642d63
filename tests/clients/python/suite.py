"""The Python client of this protocol, unmodified, against the real server.

    suite.py PORT            everything but the restart
    suite.py PORT restart    asks, by the line "kill", for the server to be killed and started
                             again under running workers, and reads a line when that is done
"""

import sys
import threading
import time
import unittest

from bunqueue import Connection, Queue, UnrecoverableError, Worker

PORT = int(sys.argv[1])
DEADLINE_S = 30


def until(what, probe):
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        found = probe()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"waited {DEADLINE_S} s in vain: {what}")


def worker(queue, process, **options):
    options = {"poll_timeout_ms": 200, "heartbeat_interval_s": 0.5, **options}
    return Worker(queue, process, host="127.0.0.1", port=PORT, **options)


def queue(name):
    return Queue(name, host="127.0.0.1", port=PORT)


class Promises(unittest.TestCase):
    def test_the_protocol_is_spoken(self):
        connection = Connection(host="127.0.0.1", port=PORT)
        self.assertTrue(connection.ping())
        self.assertEqual(connection.hello()["protocolVersion"], 2)
        connection.close()

    def test_jobs_are_added_worked_on_and_their_results_read(self):
        jobs = queue("py-invoices")
        ids = [jobs.add("single", {"n": 0}).id]
        ids += jobs.add_bulk([{"name": "bulk", "data": {"n": n}} for n in range(1, 40)])
        self.assertEqual(len(set(ids)), 40)
        names = set()

        def process(job):
            names.add(job.name)
            job.update_progress(50, "half")
            job.log("working")
            return {"n": job.data["n"] * 2}

        for batching in (None, {"max_size": 10, "max_delay_ms": 5}):
            with worker("py-invoices", process, ack_batch=batching):
                until("all jobs", lambda: jobs.get_job_counts()["completed"] == len(ids))
            ids.append(jobs.add("late", {"n": len(ids)}).id)
        with worker("py-invoices", process):
            self.assertEqual(jobs.wait_for_job(ids[-1], 20_000), {"n": 82})
        for n, job in enumerate(ids[:40]):
            self.assertEqual(jobs.get_result(job), {"n": n * 2})
            self.assertEqual(jobs.get_state(job), "completed")
        self.assertTrue({"single", "bulk"} <= names)
        self.assertEqual(len(jobs.get_job_logs(ids[0])), 1)
        jobs.obliterate()
        self.assertEqual(jobs.count(), 0)

    def test_failing_jobs_are_retried_and_then_lie_in_the_dead_letter_queue(self):
        jobs = queue("py-fragile")
        hopeless = jobs.add("hopeless", {"n": 0}, attempts=3, backoff=1).id
        second = jobs.add("second", {"n": 1}, attempts=3, backoff=1).id
        fatal = jobs.add("fatal", {"n": 2}, attempts=3, backoff=1).id
        runs = [0, 0, 0]

        def process(job):
            n = job.data["n"]
            runs[n] += 1
            if n == 2:
                raise UnrecoverableError("never again")
            if n == 0 or runs[n] == 1:
                raise RuntimeError(f"run {runs[n]} failed")
            return "at last"

        with worker("py-fragile", process):
            until("the second", lambda: jobs.get_state(second) == "completed")
            until("the hopeless", lambda: jobs.get_state(hopeless) == "failed")
            until("the fatal", lambda: jobs.get_state(fatal) == "failed")
        self.assertEqual(runs, [3, 2, 1])
        self.assertEqual(len(jobs.get_dlq()), 2)
        self.assertEqual(jobs.retry_dlq(hopeless), 1)
        self.assertEqual(jobs.get_state(hopeless), "waiting")
        with worker("py-fragile", lambda job: None):
            until("the healed", lambda: jobs.get_state(hopeless) == "completed")
        self.assertEqual(jobs.purge_dlq(), 1)

    def test_delayed_jobs_come_late_and_urgent_ones_early(self):
        jobs = queue("py-ordered")
        start = time.monotonic()
        jobs.add("job", {"n": 3}, delay=400, priority=100)
        jobs.add("job", {"n": 2})
        jobs.add("job", {"n": 1}, priority=5)
        self.assertEqual(jobs.get_delayed_count(), 1)
        order = []

        def process(job):
            order.append((job.data["n"], time.monotonic() - start))

        with worker("py-ordered", process, concurrency=1, batch_size=1):
            until("three jobs", lambda: len(order) == 3)
        self.assertEqual([n for n, _ in order], [1, 2, 3])
        self.assertGreaterEqual(order[2][1], 0.399)

    def test_a_queue_is_controlled_and_queried(self):
        jobs = queue("py-control")
        self.assertEqual(jobs.add("one", {"n": 1}, job_id="py-order-7").id, "py-order-7")
        self.assertEqual(jobs.add("one", {"n": 2}, job_id="py-order-7").id, "py-order-7")
        self.assertEqual(jobs.count(), 1)
        self.assertEqual(jobs.get_job_by_custom_id("py-order-7").data["n"], 1)
        self.assertIsNone(jobs.get_job("nobody"))
        jobs.pause()
        self.assertTrue(jobs.is_paused())
        jobs.resume()
        self.assertFalse(jobs.is_paused())
        later = jobs.add("later", {"n": 3}, delay=3_600_000).id
        jobs.promote_job(later)
        jobs.change_job_priority(later, 9)
        self.assertEqual(jobs.get_counts_per_priority().get("9"), 1)
        self.assertEqual(len(jobs.get_waiting()), 2)
        jobs.remove("py-order-7")
        self.assertEqual(jobs.drain(), 1)
        self.assertIn("queued", jobs.get_stats())
        self.assertIsInstance(jobs.list_queues(), list)
        self.assertIsInstance(jobs.get_workers(), list)


def restart():
    """Workers live through kills of the server, and nothing acknowledged is missing."""
    jobs = queue("py-restart")
    entries = [{"name": "job", "data": {"n": n}, "attempts": 10} for n in range(300)]
    ids = jobs.add_bulk(entries)
    done = []
    lock = threading.Lock()

    def process(job):
        time.sleep(0.002)
        with lock:
            done.append(job.data["n"])
        return {"n": job.data["n"]}

    workers = [worker("py-restart", process, lock_ttl_ms=1500) for _ in range(2)]
    for part in (1, 2):
        until("some jobs", lambda part=part: len(done) > part * len(ids) / 4)
        print("kill", flush=True)
        sys.stdin.readline()

    def counts():
        try:
            return jobs.get_job_counts()["completed"]
        except Exception:  # The connection of this queue has been killed as well.
            return -1

    until("all jobs", lambda: counts() == len(ids))
    for n, job in enumerate(ids):
        assert jobs.get_result(job) == {"n": n}, (n, job)
    for each in workers:
        each.close(timeout=5)
    print("done", flush=True)


if __name__ == "__main__":
    if sys.argv[2:] == ["restart"]:
        restart()
    else:
        unittest.main(argv=sys.argv[:1], verbosity=2)
