//! `log dump`: the records, each as a line of JSON.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args;
use corq_io::log::{Seen, segment_file};
use corq_shards::job::id::{JobId, Slot};
use corq_shards::log_record::{KINDS, Record, kind_name};

use super::manifest;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::tools::describe::{Whereabouts, describe, jobs_of, queue_of};

/// Arguments of `log dump`.
#[derive(Args, Debug)]
pub struct Dump {
    /// The data directory; a server may be using it
    pub(super) data: PathBuf,
    /// Only this shard
    #[arg(long)]
    shard: Option<u16>,
    /// Only records at this position or behind it (0x... for hexadecimal)
    #[arg(long, value_parser = position, default_value = "0")]
    from: u64,
    /// Only records of these kinds, separated by commas
    #[arg(long, value_delimiter = ',', value_parser = kind)]
    kind: Vec<&'static str>,
    /// Only records about this queue or its jobs
    #[arg(long)]
    queue: Option<String>,
}

fn position(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| format!("'{text}' is no position"))
}

fn kind(text: &str) -> Result<&'static str, String> {
    let found = KINDS.iter().find(|(_, name)| *name == text).map(|(_, name)| *name);
    found.ok_or_else(|| {
        let names: Vec<&str> = KINDS.iter().map(|(_, name)| *name).collect();
        format!("there is no kind '{text}': {}", names.join(", "))
    })
}

/// Which records are wanted.
struct Filter<'a> {
    dump: &'a Dump,
    /// Jobs of the queue that is wanted.
    jobs: HashSet<JobId>,
}

impl Filter<'_> {
    fn wants(&mut self, position: u64, body: &[u8]) -> bool {
        let of_queue = match self.dump.queue.as_deref() {
            Some(queue) => self.is_about(queue, body),
            None => true,
        };
        let kinds = &self.dump.kind;
        let of_kind = kinds.is_empty() || kind_name(body).is_some_and(|it| kinds.contains(&it));
        of_queue && of_kind && position >= self.dump.from
    }

    /// Jobs are known by the records that brought them, so all have to be looked at.
    fn is_about(&mut self, queue: &str, body: &[u8]) -> bool {
        let Ok(record) = Record::decode(body) else { return false };
        let slot = Slot::of_name(queue);
        let ids = jobs_of(&record);
        match queue_of(&record) {
            Some(named) if named == queue => {
                self.jobs.extend(ids);
                true
            }
            Some(_) => false,
            None => ids.iter().any(|id| id.slot() == slot && self.jobs.contains(id)),
        }
    }
}

/// Carries it out.
pub fn run(context: &mut Context, dump: &Dump) -> Result<(), Failure> {
    let place = manifest::found(&dump.data)?;
    if let Some(shard) = dump.shard.filter(|shard| *shard >= place.shards) {
        let last = place.shards - 1;
        return Err(Failure::Usage(format!("there is no shard {shard}: the last one is {last}")));
    }
    let mut damaged = 0;
    let mut line = Vec::new();
    for shard in dump.shard.map_or(0..place.shards, |shard| shard..shard + 1) {
        let mut filter = Filter { dump, jobs: HashSet::new() };
        let mut failure = None;
        let looked = place.look_once(shard, None, |seen| {
            let Seen::Record { position, segment, offset, body } = seen else {
                return ControlFlow::Continue(());
            };
            if !filter.wants(position.0, body) {
                return ControlFlow::Continue(());
            }
            line.clear();
            let file = segment_file(segment);
            let place = Whereabouts { shard, position: position.0, file: &file, offset };
            describe(place, body, &mut line);
            match context.out.record(&line) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failure = Some(error);
                    ControlFlow::Break(())
                }
            }
        });
        if let Some(failure) = failure {
            return Err(failure);
        }
        let inspection = looked.map_err(|error| {
            Failure::Failed(format!("{error}: look at a backup, or try again when it is quiet"))
        })?;
        damaged += inspection.damages.len();
    }
    match damaged {
        0 => Ok(()),
        _ => Err(Failure::Failed(
            "the log is damaged, so records are missing: see 'corq log verify'".into(),
        )),
    }
}
