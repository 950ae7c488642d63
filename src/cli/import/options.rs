//! Options that every import has.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::model::State;

/// Ways to treat schedules.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Schedules {
    /// They are set, and run from now on
    On,
    /// They are set and do not run until 'corq cron enable'
    Disabled,
    /// They are left out
    None,
}

/// Options of all sources.
#[derive(Args, Debug)]
#[group(id = "Import", multiple = true)]
pub struct Options {
    /// Read and check everything, push nothing, and show what would become of it
    #[arg(long)]
    pub dry_run: bool,
    /// Queue of the source; may be given several times [default: all]
    #[arg(long = "queue", value_name = "QUEUE")]
    pub queues: Vec<String>,
    /// Queue to push to, instead of the one of the same name
    #[arg(long, value_name = "QUEUE")]
    pub into: Option<String>,
    /// States to move [default: waiting, delayed, retrying, dead and parents, of ndjson active as well]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "STATE")]
    pub states: Vec<State>,
    /// How schedules are moved
    #[arg(long, value_enum, default_value = "on", value_name = "WHAT")]
    pub schedules: Schedules,
    /// Prefix of the custom ids [default: the source's name and a colon; nothing for bunqueue and ndjson]
    #[arg(long, value_name = "PREFIX")]
    pub id_prefix: Option<String>,
    /// Most jobs per second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rate: Option<u32>,
    /// Remove each job from the source once the server has it
    #[arg(long, conflicts_with = "dry_run")]
    pub remove: bool,
    /// Certificate authorities for a source over TLS, as PEM, instead of those of the system
    #[arg(long, value_name = "FILE")]
    pub source_ca: Option<PathBuf>,
}

impl Options {
    /// Whether jobs in this state are moved; of those that a worker has, whether they are if nothing is said.
    pub fn takes(&self, state: State, takes_active: bool) -> bool {
        if self.states.is_empty() {
            state != State::Completed && (takes_active || state != State::Active)
        } else {
            self.states.contains(&state)
        }
    }

    /// Whether this queue of the source is.
    pub fn takes_queue(&self, name: &str) -> bool {
        self.queues.is_empty() || self.queues.iter().any(|queue| queue == name)
    }
}
