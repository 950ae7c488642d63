//! Parents and children in the model: what a job is pushed with of both, what a parent learns of the ends
//! of its children, and what becomes of it then.

use super::check::Check;
use super::job_rules::Moment;
use super::model::{Job, Model, State};
use super::node::Node;
use super::world::World;
use corq_shards::dependency::{News, Notice, Unmet};
use corq_shards::family::{ChildEnd, End, Family, How, NewFamily, Policy, Report};
use corq_shards::job::id::JobId;
use corq_shards::log_record::Record;
use corq_shards::query::JobView;
use std::collections::{BTreeMap, BTreeSet};

/// The result of a job, different for each.
pub fn result_of(id: JobId) -> [u8; 18] {
    let mut result = [0xc4; 18];
    result[1] = 16;
    result[2..].copy_from_slice(&id.0.to_be_bytes());
    result
}

/// Family and dependencies that a job is pushed with.
#[derive(Clone, Debug, Default)]
pub struct Ties {
    pub parent: Option<String>,
    pub policy: Option<Policy>,
    /// Children that the job waits for.
    pub open: Vec<JobId>,
    /// The `open` children in the form of the engine.
    unmet: Vec<u8>,
    /// Names of all its children.
    names: Vec<String>,
    /// All children, and all that the job depends on: MessagePack arrays, or empty.
    children: Vec<u8>,
    pub depends_on: Vec<u8>,
}

fn array(names: &[String]) -> Vec<u8> {
    let mut bytes = Vec::new();
    if !names.is_empty() {
        bytes.push(0x90 | u8::try_from(names.len()).expect("a handful"));
    }
    for name in names {
        bytes.extend_from_slice(&[0xd9, u8::try_from(name.len()).expect("a short name")]);
        bytes.extend_from_slice(name.as_bytes());
    }
    bytes
}

impl Ties {
    /// A job has these children, and depends on these others.
    pub fn bind(&mut self, children: &[String], others: &[String]) {
        self.names = children.to_vec();
        self.children = array(children);
        self.depends_on = array(&[children, others].concat());
    }

    /// Lets the job wait for these children.
    pub fn wait_for(&mut self, open: Vec<JobId>) {
        self.unmet.clear();
        for &id in &open {
            Unmet::push(&mut self.unmet, id, "");
        }
        self.open = open;
    }

    pub fn lend(&self) -> Option<Box<NewFamily<'_>>> {
        let none = self.parent.is_none() && self.policy.is_none() && self.children.is_empty();
        (!none).then(|| {
            Box::new(NewFamily {
                parent: self.parent.as_deref(),
                policy: self.policy,
                children: &self.children,
                open: Unmet::new(&self.unmet),
            })
        })
    }

    pub fn family(&self) -> FamilyModel {
        FamilyModel {
            parent: self.parent.clone(),
            policy: self.policy,
            children: self.open.iter().copied().collect(),
            declared: self.names.iter().cloned().collect(),
            ..FamilyModel::default()
        }
    }
}

/// Parent and children of a job in the model.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct FamilyModel {
    pub parent: Option<String>,
    pub policy: Option<Policy>,
    /// Jobs of [`Job::unmet`] that are its children.
    pub children: BTreeSet<JobId>,
    /// A child's failure has let it go on, or it has ended.
    pub freed: bool,
    /// Since when it runs again and waits for its children anew, or 0.
    pub retried_at_ms: u64,
    /// How children ended, and with what.
    pub ends: BTreeMap<JobId, (How, Vec<u8>)>,
    /// The job's parent had no use for it, and let it go.
    pub abandoned: bool,
    /// The job was forgotten when it failed, or when it was completed.
    pub failed_and_gone: bool,
    pub completed_and_gone: bool,
    /// Children that the job was pushed with or was given, and that were not taken from it.
    pub declared: BTreeSet<String>,
    /// The job came with a flow: others that came before it may be younger.
    pub of_flow: bool,
}

impl Job {
    /// The job, if it was pushed with these ties.
    #[must_use]
    pub fn tied(mut self, ties: &Ties) -> Self {
        self.family = ties.family();
        self.unmet.extend(ties.open.iter().copied());
        if !self.unmet.is_empty() {
            self.state = State::WaitingChildren;
        }
        self
    }

    /// Whether nothing is left of it, but what its parent is to be told of its failure.
    pub fn may_leave_unreported(&self) -> bool {
        let FamilyModel { parent, policy, failed_and_gone, abandoned, .. } = &self.family;
        let failed = parent.is_some() && policy.is_some() && *failed_and_gone;
        self.state == State::Gone && (failed || *abandoned)
    }

    /// Gives the job one more child, which it waits for unless a worker has it.
    pub fn adopt(&mut self, child: JobId) {
        self.family.declared.insert(child.to_string());
        self.unmet.insert(child);
        self.family.children.insert(child);
        self.family.freed = matches!(self.state, State::Active(_));
        if matches!(self.state, State::Waiting | State::Delayed) {
            self.state = State::WaitingChildren;
        }
    }

    /// Lets the job wait for its children, as its worker asks.
    pub fn block(&mut self) {
        self.family.freed = false;
        self.state = State::WaitingChildren;
    }

    /// Whether the end of another one is of use to it.
    pub fn cares_for(&self, other: JobId) -> bool {
        self.state != State::Gone && self.unmet.contains(&other)
    }

    /// Ends what it waits for, but for children that it waits for again if it is to run again.
    pub fn keep_children(&mut self) {
        self.unmet.clone_from(&self.family.children);
        self.family.freed |= !self.unmet.is_empty();
    }

    /// Has it run again, after its children. Says whether there are any.
    pub fn wait_again(&mut self, now_ms: u64) -> bool {
        let waits = !self.unmet.is_empty();
        self.family.freed = false;
        self.family.retried_at_ms = if waits { now_ms } else { 0 };
        self.state = if waits { State::WaitingChildren } else { State::Waiting };
        waits
    }

    /// Whether it has failed, and a parent that waits since then hears of that.
    pub fn tells_failure(&self, since_ms: u64) -> bool {
        match (&self.state, self.family.policy) {
            (State::Failed { at_ms, .. }, Some(Policy::Fail)) => *at_ms > since_ms,
            (State::Failed { .. }, policy) => policy.is_some(),
            _ => false,
        }
    }

    /// Takes away a job that this one waits for.
    pub fn meet(&mut self, dependency: JobId, now_ms: u64) {
        self.unmet.remove(&dependency);
        self.family.children.remove(&dependency);
        if self.state == State::WaitingChildren && (self.unmet.is_empty() || self.family.freed) {
            let later = self.run_at_ms > now_ms;
            self.state = if later { State::Delayed } else { State::Waiting };
        }
    }
}

impl Model {
    /// A notice about another shard's job arrives.
    pub fn take_news(&mut self, at: &Moment<'_>, news: News, dependent: JobId, dependency: JobId) {
        let job = self.jobs.get(&dependent);
        let Some(job) = job.filter(|job| job.cares_for(dependency)) else { return };
        let (state, is_retried) = (job.state.clone(), job.family.retried_at_ms > 0);
        let met = |record: &Record<'_>| match record {
            Record::Met { id, dependency: one, .. } => (*id, *one) == (dependent, dependency),
            Record::ChildEnded(end) => (end.parent, end.child) == (dependent, dependency),
            _ => false,
        };
        match news {
            News::Watch | News::WatchChild { .. } | News::Unwatch | News::UnwatchChild => {}
            News::Removed if state == State::WaitingChildren && !is_retried => {
                self.fail_parent(at, dependent, "Dependency removed: ");
            }
            News::Removed | News::Completed => {
                self.record = at.place_of(met);
                self.change(dependent).meet(dependency, at.now_ms);
                if state == State::WaitingChildren {
                    self.tell_delay(at.now_ms, dependent);
                }
            }
        }
        self.record = None;
    }

    /// A parent learns how a child ended.
    pub fn take_report(&mut self, at: &Moment<'_>, report: &Report, value: &[u8]) {
        let &Report { parent, child, end, .. } = report;
        let job = self.jobs.get(&parent).filter(|job| job.cares_for(child));
        let Some((state, is_live)) = job.map(|job| (job.state.clone(), job.is_live())) else {
            return;
        };
        let how = match end {
            End::Completed => How::Completed,
            End::Failed(Policy::Fail) if !is_live => return,
            End::Failed(Policy::Fail) if !matches!(state, State::Active(_)) => {
                self.fail_parent(at, parent, "Child job ");
                return;
            }
            End::Failed(Policy::Fail | Policy::Continue) => How::Failed,
            End::Failed(Policy::Ignore) => How::Ignored,
            End::Failed(Policy::Remove) => How::Dropped,
        };
        let its_end = |record: &Record<'_>| match record {
            Record::ChildEnded(end) => (end.parent, end.child) == (parent, child),
            _ => false,
        };
        self.record = at.place_of(its_end);
        self.must(Check::Family, self.record.is_some(), || format!("{report:?} is not noted"));
        let job = self.change(parent);
        if how != How::Dropped {
            let value = if how == How::Completed { value.to_vec() } else { error_of(value) };
            job.family.ends.insert(child, (how, value));
        }
        if how == How::Failed && state == State::WaitingChildren {
            job.run_at_ms = job.run_at_ms.min(at.now_ms);
            job.family.freed = true;
            job.unmet.clone_from(&job.family.children);
        }
        job.meet(child, at.now_ms);
        if state == State::WaitingChildren {
            self.tell_delay(at.now_ms, parent);
        }
        self.record = None;
    }

    /// Fails a parent that waits for a job which will never be completed.
    fn fail_parent(&mut self, at: &Moment<'_>, parent: JobId, error: &str) {
        self.record = at.place_of(|record| match record {
            Record::Buried(buried) => buried.id == parent,
            Record::Removed { id } => *id == parent,
            _ => false,
        });
        self.discard(at.now_ms, parent, error);
        self.record = None;
    }

    /// Checks that the remembered end of a child goes when its parent says so, and not for the sake of others.
    pub fn check_settling(&mut self, at: &Moment<'_>, news: News) {
        for (_, record) in at.records() {
            if let Record::Settled { child } = record {
                self.must(Check::Family, news == News::UnwatchChild, || {
                    format!("{child:?} is settled")
                });
                self.ever_settled.insert(child);
            }
        }
    }

    /// A job, its parent and its children are what they should be.
    pub fn compare_family(&self, job: &Job, view: &JobView<'_>) {
        let none = Family::default();
        let family = view.options.and_then(|has| has.family.as_deref()).unwrap_or(&none);
        let ends: BTreeMap<JobId, How> =
            family.ends.values().map(|end| (end.child, end.how)).collect();
        let known = job.family.ends.iter().map(|(&child, &(how, _))| (child, how));
        let same = family.parent.as_deref() == job.family.parent.as_deref()
            && family.policy == job.family.policy
            && family.retried_at_ms == job.family.retried_at_ms
            // A crash may have come before the last of the records that say how it left its end.
            && (family.freed == job.family.freed || view.job.state.is_end())
            && ends == known.collect();
        self.must(Check::Family, same, || format!("{job:?}\n  has {family:?}"));
    }
}

/// An error as clients see it.
fn error_of(text: &[u8]) -> Vec<u8> {
    if text.is_empty() { b"unknown error".to_vec() } else { text.to_vec() }
}

impl World {
    /// A parent may learn only that a child is gone or completed if nothing else is left of that child.
    pub fn check_farewell(&self, to: usize, notice: Notice) {
        if !matches!(notice.news, News::Completed | News::Removed) {
            return;
        }
        let parent = self.nodes[to].model.jobs.get(&notice.dependent);
        let own = parent.is_some_and(|job| job.family.children.contains(&notice.dependency));
        let owner = &self.nodes[self.shard_of_job(notice.dependency)].model;
        let child = owner.jobs.get(&notice.dependency);
        let left = child.is_some_and(|child| {
            let gone = child.state == State::Gone && child.family.parent.is_some();
            gone && child.family.completed_and_gone || child.may_leave_unreported()
        });
        let settled = owner.ever_settled.contains(&notice.dependency);
        self.checks.must(Check::Family, !own || !left || settled, || {
            format!("{parent:?} gets {:?} of {child:?}", notice.news)
        });
    }
}

impl Node {
    /// The payload of a record.
    pub fn payload_at(&self, position: u64, payload_bytes: u32) -> Vec<u8> {
        let bytes = self.book.record_at(position).expect("it was written");
        bytes[bytes.len() - payload_bytes as usize..].to_vec()
    }

    /// Checks that parents point to the results and errors of their children in the log.
    pub fn check_values(&self) {
        for job in self.model.jobs.values() {
            let Some(index) = self.shard.find(job.id) else { continue };
            let family = self.shard.view(index).options.and_then(|has| has.family.as_deref());
            for end in family.iter().flat_map(|family| family.ends.values()) {
                let known = job.family.ends.get(&end.child).map(|(how, value)| (*how, &value[..]));
                let found = self.end_of(job.id, end);
                let same = found.as_ref().map(|(how, value)| (*how, &value[..])) == known;
                self.model.must(Check::Family, same, || format!("{job:?}\n  finds {found:?}"));
            }
        }
    }

    fn end_of(&self, parent: JobId, end: &ChildEnd) -> Option<(How, Vec<u8>)> {
        match Record::decode_original(self.book.record_at(end.stored.position)?).ok()? {
            Record::ChildEnded(record) => {
                let own = (record.parent, record.child) == (parent, end.child);
                own.then(|| (record.how, record.value.to_vec()))
            }
            _ => None,
        }
    }
}
