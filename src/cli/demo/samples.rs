//! The jobs of `demo`: what they are called, what they carry, and how they are pushed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::super::client::Client;
use super::super::failure::Failure;
use super::super::request::{Fields, Request};
use super::orders::value;
use crate::api::commands::Op;

/// The queues that jobs go to. What `--remove` removes.
pub const QUEUES: &[&str] = &[
    "demo.emails",
    "demo.images",
    "demo.imports",
    "demo.legacy",
    "demo.payments",
    "demo.reminders",
    "demo.reports",
    "demo.sync",
    "demo.tenants",
];

/// The queue that is paused.
pub const PAUSED: &str = "demo.imports";

/// The queue and the custom id of the job by which a server is known as one that was filled.
pub const MARK_QUEUE: &str = "demo.about";
pub const MARK: &str = "corq-demo-mark";

/// That job is never delivered: a year.
pub const MARK_DELAY_MS: i64 = 365 * 86_400_000;

/// Payload of the mark.
pub const ABOUT: &str = r#"{"about":"The queues that begin with demo. hold sample work of corq demo","remove":"corq demo --remove"}"#;

/// A schedule.
#[derive(Debug)]
pub struct Schedule {
    pub queue: &'static str,
    pub data: &'static str,
    pub cron: Option<&'static str>,
    pub every_ms: Option<i64>,
}

/// The schedules, by their names.
pub const SCHEDULES: [(&str, Schedule); 2] = [
    (
        "demo.nightly",
        Schedule {
            queue: "demo.reports",
            data: r#"{"report":"revenue","range":"yesterday"}"#,
            cron: Some("0 3 * * *"),
            every_ms: None,
        },
    ),
    (
        "demo.poll",
        Schedule {
            queue: "demo.sync",
            data: r#"{"source":"crm","full":false}"#,
            cron: None,
            every_ms: Some(5000),
        },
    ),
];

/// How often a flow comes.
const FLOW_EVERY: Duration = Duration::from_secs(4);

/// Numbers that look random, and need not be.
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    /// Other ones each time.
    pub fn new() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self(since.map_or(1, |since| since.as_nanos() as u64) | 1)
    }

    /// A number below `end`, which is above 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // Marsaglia's xorshift with a multiplier.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    }

    /// Picks an element at random.
    pub fn one_of<T: Copy>(&mut self, some: &[T]) -> T {
        some[self.below(some.len() as u64) as usize]
    }

    /// True in so many of a hundred cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

const NAMES: &[&str] = &["ada", "grace", "linus", "barbara", "edsger", "frances", "alan", "radia"];
const TEMPLATES: &[&str] = &["welcome", "receipt", "password-reset", "weekly-digest"];
const TENANTS: &[&str] = &["acme", "globex", "initech", "umbrella", "hooli"];
const REGIONS: &[&str] = &["eu", "us", "asia"];

/// Jobs that were pushed so far, as far as the next jobs depend on them.
#[derive(Debug)]
pub struct Samples {
    dice: Dice,
    /// Tells the ids of flows of several runs apart.
    run: u64,
    flows: u64,
    jobs: u64,
}

impl Samples {
    pub fn new(mut dice: Dice) -> Self {
        let run = dice.below(1 << 30);
        Self { dice, run, flows: 0, jobs: 0 }
    }

    /// Pushes so many jobs, by batches of their queues.
    pub fn push(&mut self, client: &mut Client, count: u64) -> Result<u64, Failure> {
        let mut batches: Vec<(usize, Vec<u8>)> = vec![(0, Vec::new()); QUEUES.len()];
        for _ in 0..count {
            let (queue, job) = self.job();
            if let Some(place) = QUEUES.iter().position(|one| *one == queue) {
                batches[place].0 += 1;
                batches[place].1.extend(job);
            }
        }
        for (queue, (jobs, bytes)) in QUEUES.iter().zip(batches).filter(|(_, batch)| batch.0 > 0) {
            let batch = Request::on_queue(Op::PushBatch, queue)
                .with(|fields| fields.raw_list("jobs", jobs, &bytes));
            client.call(batch)?.granted()?;
        }
        Ok(count)
    }

    /// A job, and the queue that it is for.
    fn job(&mut self) -> (&'static str, Vec<u8>) {
        self.jobs += 1;
        let (number, dice) = (self.jobs, &mut self.dice);
        let mut job = Fields::of_job();
        let who = dice.one_of(NAMES);
        let queue = match dice.below(100) {
            0..42 => {
                let template = dice.one_of(TEMPLATES);
                job.text("name", template);
                job.raw(
                    "data",
                    &value(&format!(
                        r#"{{"to":"{who}@example.com","template":"{template}","n":{number}}}"#
                    )),
                );
                job.texts("tags", &[dice.one_of(REGIONS).to_owned()]);
                "demo.emails"
            }
            42..62 => {
                let tenant = dice.one_of(TENANTS);
                job.text("name", "recalculate");
                job.text("groupId", tenant);
                job.raw(
                    "data",
                    &value(&format!(r#"{{"tenant":"{tenant}","items":{}}}"#, 1 + dice.below(500))),
                );
                job.integer("priority", dice.below(4) as i64);
                "demo.tenants"
            }
            62..78 => {
                let cents = 99 + dice.below(50_000);
                job.text("name", "charge");
                job.raw(
                    "data",
                    &value(&format!(r#"{{"customer":"{who}","amount":{cents},"currency":"EUR"}}"#)),
                );
                job.integer("maxAttempts", 2);
                job.integer("backoff", 500);
                "demo.payments"
            }
            78..86 => {
                job.text("name", "resize");
                job.raw(
                    "data",
                    &value(&format!(
                        r#"{{"image":"photos/{number}.jpg","widths":[320,800,1600]}}"#
                    )),
                );
                "demo.images"
            }
            86..92 => {
                job.text("name", "contacts");
                job.raw("data", &value(&format!(r#"{{"source":"crm","page":{number}}}"#)));
                "demo.sync"
            }
            92..96 => {
                job.text("name", "remind");
                job.raw("data", &value(&format!(r#"{{"to":"{who}@example.com","about":"cart"}}"#)));
                job.integer("delay", 2000 + dice.below(600_000) as i64);
                "demo.reminders"
            }
            96..98 => {
                job.text("name", "import");
                job.raw("data", &value(&format!(r#"{{"file":"uploads/{number}.csv"}}"#)));
                PAUSED
            }
            _ => {
                job.text("name", "convert");
                job.raw("data", &value(&format!(r#"{{"record":{number}}}"#)));
                "demo.legacy"
            }
        };
        (queue, job.finish())
    }

    /// Whether it is time for the next flow.
    pub fn wants_flow(&self, passed: Duration) -> bool {
        passed >= FLOW_EVERY * u32::try_from(self.flows).unwrap_or(u32::MAX)
    }

    /// Pushes a report that waits for its charts. Says how many jobs that is.
    pub fn push_flow(&mut self, client: &mut Client) -> Result<u64, Failure> {
        self.flows += 1;
        let top = format!("demo-report-{}-{}", self.run, self.flows);
        let charts = 2 + self.dice.below(4);
        let ids: Vec<String> = (0..charts).map(|chart| format!("{top}-chart-{chart}")).collect();
        let names = ids.iter().map(|id| format!("{id:?}")).collect::<Vec<_>>().join(",");
        // More images come than are done, so charts go first, or no report would ever be complete.
        let child = |id: &String| {
            format!(
                r#"{{"id":"{id}","queue":"demo.images","input":{{"name":"chart","data":{{"of":"{top}"}},"priority":5,"parentId":"{top}"}}}}"#
            )
        };
        let mut jobs: Vec<String> = ids.iter().map(child).collect();
        jobs.push(format!(
            r#"{{"id":"{top}","queue":"demo.reports","input":{{"name":"report","data":{{"pages":{charts}}},"childrenIds":[{names}],"dependsOn":[{names}]}}}}"#
        ));
        let jobs = value(&format!("[{}]", jobs.join(",")));
        let flow = Request::new(Op::PushFlow).with(|fields| fields.raw("jobs", &jobs));
        client.call(flow)?.granted()?;
        Ok(charts + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_is_for_a_queue_that_is_removed_again() {
        let mut samples = Samples::new(Dice::new());
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..10_000 {
            let (queue, job) = samples.job();
            assert!(QUEUES.contains(&queue) && !job.is_empty());
            seen.insert(queue);
        }
        // Reports come as flows and by a schedule.
        assert_eq!(seen.len(), QUEUES.len() - 1, "{seen:?}");
        assert!(SCHEDULES.iter().all(|(_, schedule)| QUEUES.contains(&schedule.queue)));
        assert!(QUEUES.contains(&PAUSED) && !QUEUES.contains(&MARK_QUEUE));
    }
}
