//! Parents, children and flows of that life.

use corq_shards::command::{Command, Stack};
use corq_shards::dependency::{News, Notice, Unmet};
use corq_shards::family::{End, NewFamily, Policy, Reported};
use corq_shards::flow::{Fate, Staged};
use corq_shards::job::change::Change;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::NewJob;
use corq_shards::log_record::{Pushed, Record};

use super::{Life, YEAR_MS};

/// Jobs of a flow that comes in slices.
pub(super) const FLOW_JOBS: u64 = 12;

/// The list of one child, as a client gives it.
fn children(child: JobId) -> Vec<u8> {
    [b"\x91\xd9\x24", child.to_string().as_bytes()].concat()
}

impl Life {
    pub(super) fn families(&mut self, round: &str) {
        let families = [("heard", None), ("failed", Some(Policy::Ignore)), ("unheard", None)];
        for (name, policy) in families {
            let queue = self.queue(&format!("{round}.{name}"));
            self.family(&queue, policy, name == "heard");
        }
        let queue = self.queue(&format!("{round}.adopted"));
        self.adoption(&queue);
        let queue = self.queue(&format!("{round}.flow"));
        let open = self.stage(&queue);
        let over = self.stage(&queue);
        self.stage(&queue);
        self.run(0, &Command::Decide { flow: open, fate: Fate::Committed, durable: false });
        for fate in [Fate::Committed, Fate::Released, Fate::Done] {
            self.run(0, &Command::Decide { flow: over, fate, durable: false });
        }
        let long = self.stage_siblings(&queue);
        self.run(0, &Command::Decide { flow: long, fate: Fate::Committed, durable: false });
        // Let a single slice of the flow come.
        self.pass(1);
    }

    /// A flow of jobs that come together and know nothing of each other, too many for one slice.
    fn stage_siblings(&mut self, queue: &str) -> JobId {
        let ids = [(); FLOW_JOBS as usize].map(|()| self.shard.reserve_id(self.now_ms, queue));
        let flow = ids[0];
        let records = ids.map(|id| {
            let job = NewJob { data: b"\xa7sibling", delay_ms: YEAR_MS, ..NewJob::default() };
            let pushed = Pushed { id, queue, run_at_ms: self.now_ms + YEAR_MS, job: job.into() };
            let record = Record::Staged(Staged { flow, pushed });
            let mut bytes = vec![0; record.encoded_len()];
            record.encode(&mut bytes);
            bytes
        });
        let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        self.run(0, &Command::Stage { records: &records, group_max: &[], durable: false });
        flow
    }

    /// A parent whose child ends and goes, and either has told what became of it or has not yet.
    fn family(&mut self, queue: &str, policy: Option<Policy>, heard: bool) {
        let family = NewFamily { parent: Some("parent"), policy, ..NewFamily::default() };
        let child = NewJob {
            data: b"\xa5child",
            family: Some(Box::new(family)),
            max_attempts: 1,
            remove_on_complete: true,
            remove_on_fail: true,
            ..NewJob::default()
        };
        let child = self.push(queue, child);
        let mut open = Vec::new();
        Unmet::push(&mut open, child, "");
        let (list, open) = (children(child), Unmet::new(&open));
        let family = NewFamily { children: &list, open, ..NewFamily::default() };
        let parent =
            NewJob { data: b"\xa6parent", family: Some(Box::new(family)), ..NewJob::default() };
        let dependent = self.push(queue, parent);
        self.run(
            0,
            &Command::Notice(Notice {
                news: News::WatchChild { since_ms: 0 },
                dependent,
                dependency: child,
            }),
        );
        let held = self.pull(1, queue, 60_000);
        assert_eq!(held.0, child);
        let fails = policy.is_some();
        if fails {
            self.fail(held, "the child broke", Stack::default());
        } else {
            self.ack(held, b"\xa5value");
        }
        if !heard {
            return;
        }
        let reported = Reported {
            parent: dependent,
            child,
            known_as: "",
            queue,
            end: End::Completed,
            value: b"\xa5value",
            is_last: true,
        };
        self.run(0, &Command::Report(&reported));
        self.run(
            0,
            &Command::Notice(Notice { news: News::UnwatchChild, dependent, dependency: child }),
        );
    }

    /// A job that finds at work that it has a child.
    fn adoption(&mut self, queue: &str) {
        let later = NewJob { data: b"\xa4late", delay_ms: YEAR_MS, ..NewJob::default() };
        let child = self.push(queue, later);
        // The parent has a priority that brings it before the parents that wait there.
        let first = NewJob { data: b"\xa6adopts", priority: 9, ..NewJob::default() };
        let parent = self.push(queue, first);
        let (held, token) = self.pull(1, queue, 60_000);
        assert_eq!(held, parent);
        self.change(parent, Change::Adopt { child, name: "late" });
        self.change(parent, Change::Block { token: Some(token) });
    }

    /// The whole of a flow, which is this shard's.
    fn stage(&mut self, queue: &str) -> JobId {
        let ids = [(); 2].map(|()| self.shard.reserve_id(self.now_ms, queue));
        let [flow, child] = ids;
        let mut open = Vec::new();
        Unmet::push(&mut open, child, "");
        let list = children(child);
        let whole = NewFamily { children: &list, open: Unmet::new(&open), ..NewFamily::default() };
        let part = NewFamily { parent: Some("whole"), ..NewFamily::default() };
        let jobs = [(flow, b"\xa5whole".as_slice(), whole), (child, b"\xa4part", part)];
        let records = jobs.map(|(id, data, family)| {
            let job = NewJob { data, family: Some(Box::new(family)), ..NewJob::default() };
            let pushed = Pushed { id, queue, run_at_ms: self.now_ms, job: job.into() };
            let record = Record::Staged(Staged { flow, pushed });
            let mut bytes = vec![0; record.encoded_len()];
            record.encode(&mut bytes);
            bytes
        });
        let records = [&records[0][..], &records[1]];
        self.run(0, &Command::Stage { records: &records, group_max: &[], durable: false });
        flow
    }
}
