//! A server with one shard, and the large things that commands are about.

use serde_json::{Value, json};

use crate::support::{Client, Server, Start, encode, frame, until};

/// Jobs of one batch that a fixture is made with: few enough to be no finding themselves.
const BATCH: usize = 1000;

/// How large the things are that commands are about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Jobs of a queue.
    pub(crate) jobs: usize,
    /// Entries of one batch.
    pub(crate) batch: usize,
    /// Jobs that wait for one, or that one waits for.
    pub(crate) family: usize,
    /// Groups of a queue.
    pub(crate) groups: usize,
    /// Queues, schedules, workers.
    pub(crate) names: usize,
    /// Bytes of a payload.
    pub(crate) payload: usize,
}

impl Sizes {
    /// More than a turn may do, and not much more: for slow machines.
    pub(crate) const SMALL: Self = Self {
        jobs: 6000,
        batch: 6000,
        family: 6000,
        groups: 6000,
        names: 5500,
        payload: 3_000_000,
    };

    /// The bounds, or what one client can have where there is none.
    pub(crate) const FULL: Self = Self {
        jobs: 1_000_000,
        batch: 10_000,
        family: 9_999,
        groups: 400_000,
        names: 10_000,
        payload: 10_000_000,
    };
}

/// A server with one connection, and the sizes of what its queues hold.
pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) client: Client,
    pub(crate) sizes: Sizes,
}

impl World {
    pub(crate) fn new(sizes: Sizes) -> Self {
        let start = Start::new().env("SHARDS", 1).env("COMPLETED_MAX", 2 * sizes.jobs);
        let server = start.env("CRON_MIN_INTERVAL_MS", 10).start();
        let client = server.client();
        Self { server, client, sizes }
    }

    pub(crate) fn ok(&mut self, command: &str, fields: Value) -> Value {
        self.client.ok(command, fields)
    }

    pub(crate) fn metrics(&mut self) -> String {
        self.ok("Prometheus", json!({}))["data"]["metrics"].as_str().unwrap().to_owned()
    }

    /// Pushes the same job again and again.
    pub(crate) fn fill(&mut self, queue: &str, count: usize, job: &Value) {
        let batch = |count: usize| {
            let jobs = vec![job.clone(); count];
            frame(&encode(&json!({"cmd": "PUSHB", "reqId": "", "queue": queue, "jobs": jobs})))
        };
        let full = batch(BATCH.min(count));
        for _ in 0..count / BATCH {
            self.send(&full);
        }
        if !count.is_multiple_of(BATCH) {
            self.send(&batch(count % BATCH));
        }
    }

    fn send(&mut self, frame: &[u8]) {
        self.client.send_bytes(frame).unwrap();
        let reply = self.client.recv().unwrap();
        assert_eq!(reply["ok"], json!(true), "{reply}");
    }

    /// Pushes jobs that differ.
    pub(crate) fn fill_with(&mut self, queue: &str, count: usize, job: impl Fn(usize) -> Value) {
        for first in (0..count).step_by(BATCH) {
            let jobs: Vec<Value> = (first..count.min(first + BATCH)).map(&job).collect();
            self.ok("PUSHB", json!({"queue": queue, "jobs": jobs}));
        }
    }

    /// Waits until so many jobs of a queue are in a state.
    pub(crate) fn await_count(&mut self, queue: &str, state: &str, count: usize) {
        until(&format!("{count} jobs of {queue} to be {state}"), || {
            (self.client.counted(queue, state) == count as u64).then_some(())
        });
    }

    /// Pulls jobs, and says which, with their tokens.
    pub(crate) fn pull_many(
        &mut self,
        queue: &str,
        count: usize,
        locked: bool,
    ) -> (Vec<Value>, Vec<Value>) {
        let (mut ids, mut tokens) = (Vec::new(), Vec::new());
        while ids.len() < count {
            let wanted = BATCH.min(count - ids.len());
            let mut pull = json!({"queue": queue, "count": wanted, "lockTtl": 86_400_000});
            if locked {
                pull["owner"] = json!("w");
            }
            let mut pulled = self.ok("PULLB", pull);
            let jobs = pulled["jobs"].as_array().unwrap();
            assert!(!jobs.is_empty(), "{queue} has {} jobs, not {count}", ids.len());
            ids.extend(jobs.iter().map(|job| job["id"].clone()));
            if let Some(some) = pulled["tokens"].as_array_mut() {
                tokens.append(some);
            }
        }
        (ids, tokens)
    }

    pub(crate) fn complete(&mut self, queue: &str, count: usize) {
        for first in (0..count).step_by(BATCH) {
            let (ids, _) = self.pull_many(queue, BATCH.min(count - first), false);
            self.ok("ACKB", json!({"ids": ids}));
        }
    }

    /// A queue with nothing but completed jobs.
    pub(crate) fn fill_completed(&mut self, queue: &str, count: usize) {
        self.fill(queue, count, &json!({"data": 1}));
        self.complete(queue, count);
    }

    /// A queue with nothing but jobs in its dead-letter queue.
    pub(crate) fn fill_failed(&mut self, queue: &str, count: usize) {
        self.fill(queue, count, &json!({"data": 1, "maxAttempts": 1, "timeout": 1}));
        self.pull_many(queue, count, false);
        self.await_count(queue, "failed", count);
    }

    /// A queue with nothing but delayed jobs.
    pub(crate) fn fill_delayed(&mut self, queue: &str, count: usize) {
        self.fill(queue, count, &json!({"data": 1, "delay": 86_400_000}));
    }

    /// A queue with one job in each of many groups.
    pub(crate) fn fill_groups(&mut self, queue: &str) {
        let groups = self.sizes.groups;
        self.fill_with(queue, groups, |n| json!({"data": 1, "groupId": format!("g{n}")}));
    }

    /// A job for which many others wait.
    pub(crate) fn awaited(&mut self, queue: &str, options: Value) -> String {
        let id = self.client.push_with(queue, 1, options);
        let dependents = self.sizes.family;
        self.fill(&format!("{queue}-after"), dependents, &json!({"data": 1, "dependsOn": [id]}));
        id
    }

    /// A job that waits for many children, in a queue of their own, which say `more`.
    pub(crate) fn parent(&mut self, name: &str, more: &Value) -> String {
        let ids: Vec<String> = (0..self.sizes.family).map(|n| format!("{name}-{n}")).collect();
        let whole = json!({"data": 1, "dependsOn": ids, "childrenIds": ids});
        let mut jobs = vec![json!({"id": name, "queue": name, "input": whole})];
        let mut part = json!({"data": 1, "parentId": name});
        part.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let queue = format!("{name}-parts");
        jobs.extend(ids.iter().map(|id| json!({"id": id, "queue": queue, "input": part})));
        self.ok("PUSHF", json!({"jobs": jobs}));
        name.to_owned()
    }

    /// A job that a worker has, with its token.
    pub(crate) fn active(&mut self, queue: &str) -> (String, String) {
        self.client.push(queue, 1);
        let (job, token) = self.client.pull_owned(queue, 86_400_000);
        (job["id"].as_str().unwrap().to_owned(), token)
    }

    /// The largest payload.
    pub(crate) fn payload(&self) -> Value {
        Value::from("x".repeat(self.sizes.payload))
    }
}
