//! Notices between shards about jobs that depend on each other.

use super::{Answer, Call};
use crate::job_rules::Moment;
use crate::model::Model;
use corq_shards::command::Command;
use corq_shards::dependency::Notice;

/// A notice that reaches a shard.
#[derive(Clone, Debug)]
pub struct TakeNotice(pub Notice);

impl Call for TakeNotice {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        to(&Command::Notice(self.0));
    }

    fn check(&self, model: &mut Model, at: &Moment<'_>, _answer: Option<&Answer>) {
        let Notice { news, dependent, dependency } = self.0;
        model.hear_of(at, self.0.addressee());
        model.note_watch(at, self.0);
        model.take_news(at, news, dependent, dependency);
        model.check_settling(at, news);
    }

    fn is_answered(&self) -> bool {
        false
    }
}
