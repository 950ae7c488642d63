//! The commands a client can give, a family per file. To add one: a file with a [`Call`] (the command,
//! and the model's check of it), a function that lets a client give it, and a row in [`TABLE`].

pub mod ack;
mod await_end;
pub mod change;
mod disconnect;
pub mod end_waits;
mod fail;
pub mod family;
pub mod flow;
pub mod group;
mod heartbeat;
mod hook;
mod key;
pub mod limit;
mod link;
mod note;
pub mod notice;
pub mod pause;
mod promote_all;
pub mod pull;
pub mod push;
pub mod remove;
mod report;
mod retry_completed;
mod retry_failed;
pub mod rule;
mod scan;
pub mod schedule;
mod update;

use super::job_rules::Moment;
use super::model::Model;
use super::world::World;
use corq_shards::command::{Command, Token};
use corq_shards::dead_letter::scan::FailedStats;
use corq_shards::effect::{Ending, KnownAs, Refusal};
use corq_shards::job::id::JobId;
use std::fmt::Debug;

/// A shard's answer, in values that stay.
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    Done,
    Refused {
        place: usize,
        refusal: Refusal,
    },
    /// Done, but for those at these places.
    Late(Vec<usize>),
    Pushed(Vec<JobId>),
    Pulled(Vec<(JobId, Option<Token>)>),
    Count(u64),
    Gone(u64, Vec<usize>),
    Ended(Ending),
    Unended,
    Cleaned(Vec<KnownAs>),
    /// Jobs of a dead-letter queue.
    Found(Vec<JobId>),
    /// Counts of a dead-letter queue.
    Stats(Box<FailedStats>),
    /// Next run, runs so far and version of a schedule.
    Schedule(Option<(u64, u64, u64)>),
    Dropped,
}

/// An answer that has reached its client.
pub struct Learned<'a> {
    pub client: u64,
    pub shard: usize,
    pub answer: &'a Answer,
}

/// A command on its way to a shard.
pub trait Call: Debug {
    /// Gives the command to the shard.
    fn give(&self, to: &mut dyn FnMut(&Command<'_>));

    /// Applies the command to the model, and checks `answer` against it. Jobs delivered because of it are checked
    /// afterwards: a pull only joins the line of those who wait.
    fn check(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>);

    /// Whether jobs are delivered before the whole command is carried out.
    fn is_stepwise(&self) -> bool {
        false
    }

    /// Whether it is a request, to which an answer comes.
    fn is_answered(&self) -> bool {
        true
    }

    /// Custom ids that were claimed for it, with the places of their jobs.
    fn names(&self) -> Vec<(usize, &str)> {
        Vec::new()
    }

    /// Lets the client use the answer, once it has it.
    fn learn(&self, _world: &mut World, _learned: &Learned<'_>) {}
}

/// Lets a client do something; `usize` is its place in [`World::clients`].
type Act = fn(&mut World, usize);

/// Acts of clients, and how often each in comparison.
pub const TABLE: &[(u64, Act)] = &[
    (20, push::act),
    (18, pull::act),
    (2, pull::rush),
    (10, ack::act),
    (4, ack::act_on_many),
    (6, fail::act),
    (4, heartbeat::act),
    (2, heartbeat::act_on_many),
    (2, pause::act),
    (2, limit::act),
    (2, group::act),
    (3, await_end::act),
    (2, retry_failed::act),
    (2, disconnect::act),
    (2, change::cancel),
    (1, change::remove),
    (2, change::promote),
    (2, change::prioritize),
    (2, change::put_off),
    (2, change::discard),
    (2, change::to_wait),
    (2, change::delay),
    (1, change::bin),
    (2, hook::act),
    (1, key::free),
    (1, key::free_of_job),
    (2, promote_all::act),
    (3, scan::act),
    (1, remove::drain),
    (1, remove::purge),
    (1, remove::obliterate),
    (1, remove::clean),
    (2, retry_completed::act),
    (2, update::act),
    (3, note::progress),
    (4, note::log),
    (1, note::cut),
    (2, schedule::set),
    (1, schedule::end),
    (2, schedule::enable),
    (2, rule::act),
    (4, flow::act),
    (4, family::act),
    (1, link::act),
];
