//! The end of every run: nothing new comes, and everything that is there can be brought to its end.

use super::check::Check;
use super::groups::{GROUPS, OfGroups};
use super::model::{Job, State};
use super::node::{Node, finish_one};
use super::ops::ack::{Ack, One};
use super::ops::change::Change;
use super::ops::group::LimitGroup;
use super::ops::limit::Limit;
use super::ops::pause::Pause;
use super::ops::pull::Pull;
use super::ops::remove::Remove;
use super::ops::rule::SetRule;
use super::ops::schedule::EndSchedule;
use super::settings::Flaw;
use super::world::{QUEUES, World};
use corq_io::log::Faults;
use corq_shards::Out;
use corq_shards::command::{self, Command, GroupLimit};
use corq_shards::job::id::JobId;

/// Turns that mail and disk may take to come to rest.
const TURNS_MAX: u32 = 5000;
/// Rounds of pulling everything and completing it.
const ROUNDS_MAX: u32 = 3000;

impl World {
    pub fn drain(&mut self) {
        if self.armed {
            self.crash();
        }
        for node in &mut self.nodes {
            let disk = node.book.log.disk_mut();
            disk.faults = Faults { late: disk.faults.late, ..Faults::default() };
        }
        // A pause that is still on its way must not come after the resume.
        self.settle();
        self.end_schedules();
        for queue in QUEUES {
            let shard = self.shard_of_queue(queue);
            self.send(0, shard, Pause { queue: (*queue).into(), paused: false });
            for group in GROUPS {
                for limit in [
                    GroupLimit::Paused(false),
                    GroupLimit::Active(None),
                    GroupLimit::Rate(None),
                    GroupLimit::Weight(1),
                ] {
                    let (queue, group) = ((*queue).into(), (*group).into());
                    self.send(0, shard, LimitGroup { queue, group, limit });
                }
            }
            for limit in [command::Limit::Rate(None), command::Limit::Active(None)] {
                self.send(0, shard, Limit { queue: (*queue).into(), limit });
            }
            for rule in SetRule::calm(queue) {
                self.send(0, shard, rule);
            }
        }
        self.settle();
        if self.settings.has(Flaw::SecretPause) {
            self.pause_secretly();
        }
        for _ in 0..ROUNDS_MAX {
            self.end_endless();
            let goes_on = self.has_live_jobs()
                && (self.pull_and_ack_all() || self.wait_for_next() || self.purge_all());
            if !goes_on {
                break;
            }
        }
        self.settle();
        self.check_rest();
    }

    /// Turns until all mail is read, all writes are done, all answers are out.
    fn settle(&mut self) {
        for _ in 0..TURNS_MAX {
            for node in 0..self.nodes.len() {
                self.turn(node, u64::MAX);
                while matches!(finish_one(&mut self.nodes[node].book.log), Ok(true)) {}
                self.turn(node, 0);
            }
            let rests = |node: &Node| {
                let Node { model, held, .. } = node;
                held.is_empty()
                    && model.bulk_operations.is_empty()
                    && model.staged.sliced.is_empty()
            };
            if self.mail.is_empty() && self.nodes.iter().all(rests) {
                return;
            }
        }
        self.checks.fail(Check::Quiet, || format!("it does not settle: {:?}", self.mail));
    }

    fn has_live_jobs(&self) -> bool {
        self.nodes.iter().any(|node| node.model.jobs.values().any(super::model::Job::is_live))
    }

    /// True if there was something to complete.
    fn pull_and_ack_all(&mut self) -> bool {
        let earlier: Vec<_> = self.clients[0].held.drain(..).collect();
        self.stale.extend(earlier);
        for queue in QUEUES {
            let shard = self.shard_of_queue(queue);
            let pull = Pull {
                queue: (*queue).into(),
                count: 1000,
                timeout_ms: 0,
                locked: true,
                lock_ttl_ms: 30_000,
                detach: false,
                // Limits that pulls have said before end with it.
                of_groups: OfGroups { active_max: Some(1_000_000), ..OfGroups::default() },
            };
            self.send(0, shard, pull);
        }
        self.settle();
        let held = std::mem::take(&mut self.clients[0].held);
        for held in &held {
            let one = One { job: held.job, token: held.token, shard: held.shard, remove: false };
            self.send(0, held.shard, Ack { acks: vec![one], check_for: None });
        }
        self.settle();
        !held.is_empty()
    }

    /// Goes on to when something falls due. False if nothing does.
    fn wait_for_next(&mut self) -> bool {
        let live = self.nodes.iter().flat_map(|node| {
            let model = &node.model;
            model.jobs.values().map(move |job| (model, job))
        });
        let due = live.filter_map(|(model, job)| match &job.state {
            State::Delayed => Some(job.run_at_ms.min(job.expires_at_ms.unwrap_or(u64::MAX))),
            State::WaitingChildren => job.expires_at_ms,
            State::Active(lease) => {
                let hold_ends_ms = model.hold_ends_ms(job, lease);
                Some(hold_ends_ms.min(lease.timeout_at_ms.unwrap_or(u64::MAX)))
            }
            _ => None,
        });
        let holds = self.nodes.iter().filter_map(|node| node.model.next_end_of_hold());
        let Some(due_ms) = due.chain(holds).min() else { return false };
        self.pass(due_ms.saturating_sub(self.now_ms).max(1));
        self.settle();
        true
    }

    fn end_schedules(&mut self) {
        for shard in 0..self.nodes.len() {
            let names: Vec<String> = self.nodes[shard].model.schedules.keys().cloned().collect();
            for name in names {
                self.send(0, shard, EndSchedule { name });
            }
        }
        self.settle();
    }

    /// Ends the series that would never end.
    fn end_endless(&mut self) {
        let endless =
            |job: &&Job| job.is_live() && job.series.is_some_and(|series| series.limit.is_none());
        let jobs = self.nodes.iter().flat_map(|node| node.model.jobs.values());
        let endless: Vec<JobId> = jobs.filter(endless).map(|job| job.id).collect();
        for id in endless {
            self.send(0, self.shard_of_job(id), Change::discard_one(id));
        }
        self.settle();
    }

    /// Removes what failed, so that nobody waits for it any more. False if nobody does.
    fn purge_all(&mut self) -> bool {
        let jobs = || self.nodes.iter().flat_map(|node| node.model.jobs.values());
        let waits = jobs().any(|job| job.state == State::WaitingChildren)
            && jobs().any(|job| matches!(job.state, State::Failed { .. }));
        for queue in QUEUES {
            self.send(0, self.shard_of_queue(queue), Remove::purge_of(queue));
        }
        self.settle();
        waits
    }

    fn check_rest(&mut self) {
        self.pass(20_000);
        self.settle();
        self.checks.must(Check::Quiet, !self.has_live_jobs(), || {
            let jobs = self.nodes.iter().flat_map(|node| node.model.jobs.values());
            let left: Vec<_> = jobs.filter(|job| job.is_live()).collect();
            format!("these cannot be brought to an end: {left:#?}")
        });
        self.check_directory();
        self.check_dependencies();
        self.check_flows();
        for node in &mut self.nodes {
            let Node { model, shard, .. } = node;
            model.compare(self.now_ms, shard);
            let held = shard.holdings();
            // Watches are those of parents that have ended, as was compared.
            let rest = (held.leases, held.waiters, held.timers, held.unique_keys);
            self.checks.must(Check::Quiet, rest == (0, 0, 0, 0), || {
                format!("leases, waiters, timers and keys are left: {rest:?}")
            });
            node.check_replay(&self.settings);
            node.check_values();
        }
        for (id, promise) in &self.ledger.pushed {
            let known = self.nodes[promise.shard].model.jobs.contains_key(id);
            self.checks.must(Check::Lost, known, || format!("{id:?} never ended"));
        }
        let open = self.open.len() + self.tasks.len();
        self.checks.must(Check::Quiet, open == 0, || {
            format!("never answered: {:?} {:?}", self.open, self.tasks)
        });
    }

    /// For a canary.
    fn pause_secretly(&mut self) {
        let caller = corq_shards::Caller::default();
        let mut effects = corq_shards::effect::Effects::default();
        for queue in QUEUES {
            let shard = self.shard_of_queue(queue);
            let Node { shard, book, .. } = &mut self.nodes[shard];
            let mut out = Out { journal: book, effects: &mut effects };
            shard.apply(self.now_ms, caller, &Command::Pause { queue, paused: true }, &mut out);
        }
    }
}
