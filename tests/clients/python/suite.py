"""The Python client of this protocol, unmodified, against the real server.

    suite.py PORT            everything but what follows
    suite.py PORT restart    asks, by the line "kill", for the server to be killed and started
                             again under running workers, and reads a line when that is done
    suite.py PORT wrong      shows a wrong token to a guarded server, then the right one: "secret"

With CORQ_TEST_CA, the file of an authority, all of it goes over TLS.
"""

import os
import socket
import ssl
import sys
import threading
import time
import unittest

from bunqueue import Connection, FlowProducer, Queue, UnrecoverableError, Worker
from bunqueue.errors import BunqueueError

PORT = int(sys.argv[1])
CA = os.environ.get("CORQ_TEST_CA")
WAY = {"host": "127.0.0.1", "port": PORT, "tls": {"ca_file": CA} if CA else None}
DEADLINE_S = 300


class Closed(ssl.SSLSocket):
    """A connection over TLS whose descriptor keeps its number when it is closed.

    The client closes in one thread what another is about to read, and OpenSSL reads by the number. If the next
    connection has it by then, its first bytes go to the old reader and its handshake fails.
    """

    kept = []

    def close(self):
        if self not in self.kept:
            self.kept.append(self)
            try:
                self.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


ssl.SSLContext.sslsocket_class = Closed


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
    return Worker(queue, process, **WAY, **options)


def queue(name):
    return Queue(name, **WAY)


class Promises(unittest.TestCase):
    def test_the_protocol_is_spoken(self):
        connection = Connection(**WAY)
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
        jobs.add("job", {"n": 3}, delay=5000, priority=100)
        jobs.add("job", {"n": 2})
        jobs.add("job", {"n": 1}, priority=5)
        self.assertEqual(jobs.get_delayed_count(), 1)
        order = []

        def process(job):
            order.append((job.data["n"], time.monotonic() - start))

        with worker("py-ordered", process, concurrency=1, batch_size=1):
            until("three jobs", lambda: len(order) == 3)
        self.assertEqual([n for n, _ in order], [1, 2, 3])
        self.assertGreaterEqual(order[2][1], 4.999)

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
        self.assertEqual([job.id for job in jobs.get_prioritized()], [later])
        jobs.remove("py-order-7")
        self.assertEqual(jobs.drain(), 1)
        self.assertIn("queued", jobs.get_stats())
        self.assertIsInstance(jobs.list_queues(), list)
        self.assertIsInstance(jobs.get_workers(), list)


    def test_jobs_are_handled_one_by_one(self):
        jobs = queue("py-handled")
        later = jobs.add("later", {"n": 1}, delay=3_600_000).id
        jobs.change_job_delay(later, 7_200_000)
        self.assertEqual(jobs.get_state(later), "delayed")
        jobs.move_job_to_wait(later)
        self.assertEqual(jobs.get_state(later), "waiting")
        for n in range(3):
            jobs.add_job_log(later, f"line {n}")
        self.assertEqual(len(jobs.get_job_logs(later, 1, 1)), 1)
        jobs.clear_job_logs(later, 1)
        self.assertEqual(len(jobs.get_job_logs(later)), 1)
        for n in range(4):
            jobs.add("later", {"n": n}, delay=3_600_000)
        self.assertEqual(jobs.promote_jobs(3), 3)
        first = jobs.add("once", {}, deduplication={"id": "k"}).id
        self.assertEqual(jobs.add("once", {}, deduplication={"id": "k"}).id, first)
        jobs.discard(first)
        self.assertEqual(jobs.get_state(first), "failed")
        self.assertEqual(jobs.clean(0, 10, "failed"), 1)
        with worker("py-handled", lambda job: job.data):
            until("four jobs", lambda: jobs.get_completed_count() == 4)
        self.assertEqual(jobs.retry_completed(later), 1)

    def test_schedules_bring_jobs_on_their_cadence(self):
        jobs = queue("py-clock")
        jobs.upsert_job_scheduler("py-tick", {"every": 50}, {"name": "tick", "data": {"n": 1}})
        names = []
        with worker("py-clock", lambda job: names.append(job.name)):
            until("three ticks", lambda: len(names) >= 3)
        self.assertEqual(set(names), {"tick"})
        self.assertEqual(jobs.get_job_scheduler("py-tick")["queue"], "py-clock")
        self.assertEqual(jobs.get_job_schedulers_count(), 1)
        jobs.remove_job_scheduler("py-tick")
        self.assertIsNone(jobs.get_job_scheduler("py-tick"))

    def test_schedules_take_their_options(self):
        jobs = queue("py-options")
        opts = {"attempts": 7, "remove_on_fail": True, "priority": 3}
        template = {"name": "tick", "data": {"n": 1}, "opts": opts}
        at_once = {"pattern": "0 0 1 1 *", "immediately": True, "skip_missed_on_restart": False}
        jobs.upsert_job_scheduler("py-at-once", at_once, template)
        until("the run at once", lambda: jobs.count() == 1)
        self.assertEqual(jobs.get_prioritized()[0].raw["maxAttempts"], 7)
        shown = jobs.get_job_scheduler("py-at-once")
        self.assertEqual(shown["jobOptions"], {"maxAttempts": 7, "removeOnFail": True})
        self.assertEqual((shown["immediately"], shown["skipMissedOnRestart"]), (True, False))
        jobs.remove_job_scheduler("py-at-once")
        jobs.drain()
        opts = {"deduplication": {"id": "py-key", "ttl": 60_000}}
        every = {"every": 20, "prevent_overlap": True, "skip_if_no_worker": True}
        jobs.upsert_job_scheduler("py-keyed", every, {"name": "tock", "opts": opts})
        time.sleep(0.2)
        self.assertEqual(jobs.count(), 0)
        shown = jobs.get_job_scheduler("py-keyed")
        self.assertEqual((shown["uniqueKey"], shown["dedup"]["ttl"]), ("py-key", 60_000))
        lock = threading.Lock()
        active, most, done = [0], [0], [0]

        def process(job):
            with lock:
                active[0] += 1
                most[0] = max(most[0], active[0])
            time.sleep(0.06)
            with lock:
                active[0] -= 1
                done[0] += 1

        with worker("py-options", process, concurrency=5):
            until("three runs", lambda: done[0] >= 3)
        self.assertEqual(most[0], 1)
        jobs.remove_job_scheduler("py-keyed")

    def test_settings_of_a_queue_are_merged_and_act(self):
        jobs = queue("py-settings")
        stall = {"enabled": True, "stallInterval": 30_000, "maxStalls": 3, "gracePeriod": 5_000}
        self.assertEqual(jobs.get_stall_config(), stall)
        jobs.set_stall_config({"maxStalls": 5})
        jobs.set_stall_config({"stallInterval": 60_000})
        expected = {**stall, "maxStalls": 5, "stallInterval": 60_000}
        self.assertEqual(jobs.get_stall_config(), expected)
        jobs.set_dlq_config({"autoRetry": True, "autoRetryInterval": 50, "maxAutoRetries": 1})
        jobs.set_dlq_config({"maxAge": 3_600_000, "maxEntries": 3})
        config = jobs.get_dlq_config()
        self.assertEqual((config["maxAge"], config["maxEntries"]), (3_600_000, 3))
        self.assertTrue(config["autoRetry"])
        runs = []

        def process(job):
            runs.append(job.id)
            raise RuntimeError("no")

        with worker("py-settings", process):
            jobs.add("dead", {}, attempts=1)
            until("two runs", lambda: len(runs) == 2)
            until("its end", lambda: jobs.get_failed_count() == 1)
        jobs.set_dlq_config({"maxAge": 100})
        until("it is gone", lambda: jobs.count() == 0)

    def test_the_rate_and_the_number_of_jobs_at_a_time_are_limited(self):
        jobs = queue("py-limited")
        jobs.set_global_concurrency(1)
        jobs.set_global_rate_limit(5)
        jobs.add_bulk([{"name": "slow", "data": {"n": n}} for n in range(8)])
        lock = threading.Lock()
        active, most, done = [0], [0], [0]
        start = time.monotonic()

        def process(job):
            with lock:
                active[0] += 1
                most[0] = max(most[0], active[0])
            time.sleep(0.005)
            with lock:
                active[0] -= 1
                done[0] += 1

        with worker("py-limited", process, concurrency=10):
            until("all of them", lambda: done[0] == 8)
        self.assertEqual(most[0], 1)
        self.assertGreaterEqual(time.monotonic() - start, 0.5)
        jobs.remove_global_concurrency()
        jobs.remove_global_rate_limit()

    def test_flows_run_from_their_leaves_to_their_root(self):
        flows = FlowProducer(**WAY)

        def leaf(n, **opts):
            return {"name": "leaf", "queueName": f"py-leaf-{n % 3}", "data": {"n": n}, "opts": opts}

        branch = {**leaf(2), "children": [leaf(3), leaf(4, remove_on_complete=True)]}
        children = [leaf(0, remove_on_complete=True), leaf(1), branch]
        root = {"name": "root", "queueName": "py-root", "data": {"of": 1}, "children": children}
        node = flows.add(root)
        roots = queue("py-root")
        self.assertEqual(roots.get_state(node.job.id), "waiting-children")
        found = flows.get_flow(node.job.id)
        self.assertEqual(len(found.children), 3)
        parents = {child.job.parent_id for child in found.children}
        self.assertEqual(parents, {node.job.id})
        chain = flows.add_chain(
            [{"name": "s", "queueName": f"py-leaf-{n % 3}", "data": {"n": 10 + n}} for n in range(4)]
        )
        fan = flows.add_bulk_then([leaf(20), leaf(21)], {**leaf(22), "queueName": "py-root"})
        self.assertEqual(len(flows.add_bulk([{**root, "data": {"of": 2}}])), 1)
        seen = []

        def work(job):
            seen.append(job.data["n"])
            return {"n": job.data["n"]}

        values = {}

        def end(job):
            values[job.id] = job.get_children_values()
            return "done"

        with worker("py-leaf-0", work), worker("py-leaf-1", work), worker("py-leaf-2", work):
            with worker("py-root", end):
                until("all roots", lambda: roots.get_job_counts()["completed"] == 3)
                chains = queue("py-leaf-0")
                until("the chain", lambda: chains.get_state(chain[-1]) == "completed")
        steps = [n for n in seen if 10 <= n < 20]
        self.assertEqual(steps, [10, 11, 12, 13])
        numbers = sorted(value["n"] for value in values[node.job.id].values())
        self.assertEqual(numbers, [0, 1, 2])
        numbers = sorted(value["n"] for value in values[fan["final_id"]].values())
        self.assertEqual(numbers, [20, 21])
        self.assertEqual(roots.get_children_values(node.job.id), values[node.job.id])
        self.assertEqual(roots.get_failed_children_values(node.job.id), {})
        self.assertEqual(roots.get_ignored_children_failures(node.job.id), {})
        flows.close()

    def test_what_a_failed_child_means_for_its_parent(self):
        flows = FlowProducer(**WAY)
        parents = queue("py-parents")
        policies = {
            "fail_parent_on_failure": "failed",
            "continue_parent_on_failure": "waiting",
            "ignore_dependency_on_failure": "waiting",
            "remove_dependency_on_failure": "waiting",
        }

        def breaks(_job):
            raise UnrecoverableError("broken")

        with worker("py-breaks", breaks):
            for policy, state in policies.items():
                child = {"name": "c", "queueName": "py-breaks", "data": {}, "opts": {policy: True}}
                node = flows.add({"name": "p", "queueName": "py-parents", "children": [child]})
                until(policy, lambda: parents.get_state(node.job.id) == state)
                key = f"py-breaks:{node.children[0].job.id}"
                failed = {key: "broken"} if policy.startswith("continue") else {}
                ignored = {key: "broken"} if policy.startswith("ignore") else {}
                self.assertEqual(parents.get_failed_children_values(node.job.id), failed)
                self.assertEqual(parents.get_ignored_children_failures(node.job.id), ignored)
        child = {"name": "c", "queueName": "py-unbegun", "data": {}}
        node = flows.add({"name": "p", "queueName": "py-parents", "children": [child, child]})
        parents.remove_child_dependency(node.children[0].job.id)
        parents.remove_unprocessed_children(node.job.id)
        until("the parent", lambda: parents.get_state(node.job.id) == "waiting")
        flows.close()

    def test_webhooks_are_kept(self):
        jobs = queue("py-hooked")
        hook = jobs.add_webhook("https://example.com/hook", ["job.completed"], queue="py-hooked")
        found = next(one for one in jobs.list_webhooks() if one["id"] == hook)
        self.assertTrue(found["enabled"])
        jobs.set_webhook_enabled(hook, False)
        found = next(one for one in jobs.list_webhooks() if one["id"] == hook)
        self.assertFalse(found["enabled"])
        jobs.remove_webhook(hook)
        self.assertFalse(any(one["id"] == hook for one in jobs.list_webhooks()))


def wrong_token():
    def add(token):
        with Queue("py-guarded", **WAY, token=token) as jobs:
            return jobs.add("job", {}).id

    for wrong in ("wrong", None):
        try:
            add(wrong)
        except BunqueueError:
            continue
        raise AssertionError(f"the token {wrong} opens the server")
    assert add("secret")


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

    workers = [worker("py-restart", process, lock_ttl_ms=5000) for _ in range(2)]
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
    elif sys.argv[2:] == ["wrong"]:
        wrong_token()
    else:
        unittest.main(argv=sys.argv[:1], verbosity=2)
