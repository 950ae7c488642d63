//! The server stops: a client that waits for a job gets an empty answer.

use super::{Answer, Call};
use crate::job_rules::Moment;
use crate::model::Model;
use corq_shards::command::Command;

/// The server ends all waits.
#[derive(Clone, Debug)]
pub struct EndWaits;

impl Call for EndWaits {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        to(&Command::EndWaits);
    }

    fn check(&self, model: &mut Model, at: &Moment<'_>, _answer: Option<&Answer>) {
        for wait in &mut model.awaits {
            wait.until_ms = wait.until_ms.min(at.now_ms);
        }
        for waiter in &mut model.waiters {
            waiter.until_ms = waiter.until_ms.min(at.now_ms);
        }
    }
}
