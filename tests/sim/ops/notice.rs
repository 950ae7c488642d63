//! What shards tell each other of jobs that depend on each other.

use super::{Answer, Call};
use crate::judge::Moment;
use crate::model::{Model, State};
use corq_shards::command::Command;
use corq_shards::dependency::{News, Notice};

/// See the module.
#[derive(Clone, Debug)]
pub struct Told(pub Notice);

impl Call for Told {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        to(&Command::Notice(self.0));
    }

    fn judge(&self, model: &mut Model, at: &Moment<'_>, _answer: Option<&Answer>) {
        let Notice { news, dependent, dependency } = self.0;
        let waits = model.jobs.get(&dependent).is_some_and(|job| {
            job.state == State::WaitingChildren && job.unmet.contains(&dependency)
        });
        if !waits {
            return;
        }
        match news {
            News::Watch | News::WatchChild | News::Unwatch | News::Dropped => {}
            News::Removed => model.discard(at.now_ms, dependent),
            News::Completed => {
                let job = model.change(dependent);
                job.unmet.remove(&dependency);
                if job.unmet.is_empty() {
                    let later = job.run_at_ms > at.now_ms;
                    job.state = if later { State::Delayed } else { State::Waiting };
                }
            }
        }
    }

    fn is_answered(&self) -> bool {
        false
    }
}
