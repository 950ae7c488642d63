//! Reports of a child's end to the shard of its parent.

use super::{Answer, Call};
use crate::check::Check;
use crate::family::result_of;
use crate::job_rules::Moment;
use crate::model::Model;
use crate::world::World;
use corq_shards::command::Command;
use corq_shards::family::{End, Policy, Report, Reported};

/// A report that reaches the shard of a parent.
#[derive(Clone, Debug)]
pub struct EventStep {
    report: Report,
    value: Vec<u8>,
}

impl Call for EventStep {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        let Report { parent, child, end, is_last, .. } = self.report;
        let known_as = &*self.report.known_as.to_string();
        let (queue, value) = (&*self.report.queue, &self.value[..]);
        let reported = Reported { parent, child, known_as, queue, end, value, is_last };
        to(&Command::Report(&reported));
    }

    fn check(&self, model: &mut Model, at: &Moment<'_>, _answer: Option<&Answer>) {
        model.hear_of(at, self.report.parent);
        model.take_report(at, &self.report, &self.value);
    }

    fn is_answered(&self) -> bool {
        false
    }
}

impl World {
    /// A shard gets a report about the end of a child.
    pub fn report(&mut self, to: usize, report: Report, value: Vec<u8>) {
        let owner = &self.nodes[self.shard_of_job(report.child)].model;
        let child = owner.jobs.get(&report.child);
        let is_true = match report.end {
            End::Completed => {
                owner.ever_completed.contains(&report.child) && value == result_of(report.child)
            }
            End::Failed(policy) => {
                let failed = owner.ever_failed.contains(&report.child);
                child.is_some_and(|child| {
                    let abandoned = child.family.abandoned && policy == Policy::Remove;
                    abandoned || failed && child.family.policy == Some(policy)
                })
            }
        };
        self.checks.must(Check::Family, is_true, || format!("{report:?} of {child:?}"));
        self.nodes[to].run(self.now_ms, 0, 0, &EventStep { report, value });
    }
}
