//! `log stat`: what a log takes, what is needed of it, and the jobs and queues that it leads to.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use corq_shards::job::State;

use super::{Looked, look, manifest};
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::output::{Cell, Output, Table};
use crate::cli::words;
use crate::config::Environment;
use crate::protocol::msgpack::writer::MapWriter;
use crate::tools::replay::Tally;

/// Arguments of `log stat`.
#[derive(Args, Debug)]
pub struct Stat {
    /// The data directory; a server may be using it
    pub(super) data: PathBuf,
    /// Completed jobs kept per queue, as in the settings of the server [default: 50000]
    #[arg(long, env = "COMPLETED_MAX", value_name = "N")]
    completed_max: Option<u32>,
}

impl Stat {
    /// The option, else the variable as a server reads it, else the default of a server.
    fn completed_max(&self) -> Result<u32, Failure> {
        let variable = || Environment::of_process().setting("completed_max");
        let Some(text) = self.completed_max.is_none().then(variable).flatten() else {
            return Ok(self.completed_max.unwrap_or(50_000));
        };
        text.to_str().and_then(|text| text.parse().ok()).ok_or_else(|| {
            let text = text.display();
            Failure::Usage(format!("COMPLETED_MAX={text}: it must be a whole number from 0 on"))
        })
    }
}

/// Room that one shard's log takes.
struct Sizes {
    shard: u16,
    segments: u64,
    spares: u64,
    blocks: u64,
    records: u64,
    bytes: u64,
    live_bytes: u64,
    disk_bytes: u64,
}

fn sizes(looked: &Looked) -> Sizes {
    let Looked { shard, inspection, replay } = looked;
    let file_bytes: u64 = inspection.segments.iter().map(|it| it.file_bytes).sum();
    Sizes {
        shard: *shard,
        segments: inspection.segments.len() as u64,
        spares: inspection.spares,
        blocks: inspection.blocks(),
        records: inspection.records(),
        bytes: inspection.segments.iter().map(|it| it.block_bytes).sum(),
        live_bytes: replay.shard.needed_bytes(),
        disk_bytes: file_bytes + inspection.spare_bytes,
    }
}

/// Carries it out.
pub fn run(context: &mut Context, stat: &Stat) -> Result<(), Failure> {
    let place = manifest::found(&stat.data)?;
    let looked = look(&place, stat.completed_max()?)?;
    let damaged: usize = looked.iter().map(|it| it.troubles().len()).sum();
    let shards: Vec<Sizes> = looked.iter().map(sizes).collect();
    let mut kinds: BTreeMap<&str, Tally> = BTreeMap::new();
    let mut states: Vec<(&str, u64)> = Vec::new();
    for Looked { replay, .. } in &looked {
        for (kind, tally) in &replay.kinds {
            let sum = kinds.entry(kind).or_default();
            sum.records += tally.records;
            sum.bytes += tally.bytes;
        }
        for (state, jobs) in replay.states() {
            match states.iter_mut().find(|(known, _)| *known == state) {
                Some((_, sum)) => *sum += jobs,
                None => states.push((state, jobs)),
            }
        }
    }
    if context.target.json {
        let json = stat_value(&looked, &shards, &kinds, &states, damaged as u64);
        context.out.json(&json)?;
    } else {
        show_stat(&mut context.out, &looked, &shards, &kinds, &states)?;
    }
    match damaged {
        0 => Ok(()),
        _ => Err(Failure::Failed(
            "the log is damaged, so these figures leave things out: see 'corq log verify'".into(),
        )),
    }
}

fn show_stat(
    out: &mut Output,
    looked: &[Looked],
    shards: &[Sizes],
    kinds: &BTreeMap<&str, Tally>,
    states: &[(&str, u64)],
) -> Result<(), Failure> {
    let heads = [
        ">SHARD",
        ">SEGMENTS",
        ">SPARE",
        ">BLOCKS",
        ">RECORDS",
        ">WRITTEN",
        ">LIVE",
        ">DEAD",
        ">ON DISK",
    ];
    let mut table = Table::new(&heads);
    let size = |bytes: u64| Cell::from(words::bytes(bytes as f64));
    for it in shards {
        table.row(vec![
            it.shard.to_string().into(),
            it.segments.to_string().into(),
            it.spares.to_string().into(),
            it.blocks.to_string().into(),
            it.records.to_string().into(),
            size(it.bytes),
            size(it.live_bytes),
            size(it.bytes.saturating_sub(it.live_bytes)),
            size(it.disk_bytes),
        ]);
    }
    out.table(&table)?;
    out.line("")?;
    let mut table = Table::new(&["RECORD", ">COUNT", ">BYTES"]);
    for (kind, tally) in kinds {
        table.row(vec![(*kind).into(), tally.records.to_string().into(), size(tally.bytes)]);
    }
    out.table(&table)?;
    out.line("")?;
    let pairs: Vec<(&str, Cell)> =
        states.iter().map(|(state, jobs)| (*state, jobs.to_string().into())).collect();
    out.pairs(&pairs)?;
    let mut heads = vec!["QUEUE", "PAUSED"];
    heads.extend(State::ALL.map(head));
    let mut table = Table::new(&heads);
    for Looked { replay, .. } in looked {
        for queue in replay.shard.queues() {
            let paused = if queue.is_paused() { "yes" } else { "" };
            let mut row: Vec<Cell> = vec![queue.name.to_string().into(), paused.into()];
            let counts = State::ALL.iter().map(|&state| queue.count(state));
            row.extend(counts.map(|jobs| Cell::from(jobs.to_string())));
            table.row(row);
        }
    }
    if !table.is_empty() {
        out.line("")?;
        out.table(&table)?;
    }
    Ok(())
}

fn stat_value(
    looked: &[Looked],
    shards: &[Sizes],
    kinds: &BTreeMap<&str, Tally>,
    states: &[(&str, u64)],
    damaged: u64,
) -> Vec<u8> {
    let mut out = Vec::new();
    let mut map = MapWriter::begin(&mut out);
    let mut list = map.key("shards");
    list.array(shards.len());
    for it in shards {
        let mut row = list.begin_map();
        for (name, figure) in [
            ("shard", u64::from(it.shard)),
            ("segments", it.segments),
            ("spares", it.spares),
            ("blocks", it.blocks),
            ("records", it.records),
            ("bytes", it.bytes),
            ("liveBytes", it.live_bytes),
            ("deadBytes", it.bytes.saturating_sub(it.live_bytes)),
            ("diskBytes", it.disk_bytes),
        ] {
            row.key(name).uint(figure);
        }
    }
    let mut records = map.map("records");
    for (kind, tally) in kinds {
        let mut row = records.map(kind);
        row.key("count").uint(tally.records);
        row.key("bytes").uint(tally.bytes);
    }
    drop(records);
    let mut jobs = map.map("jobs");
    for (state, count) in states {
        jobs.key(state).uint(*count);
    }
    drop(jobs);
    let queues: Vec<_> = looked.iter().flat_map(|it| it.replay.shard.queues()).collect();
    let mut list = map.key("queues");
    list.array(queues.len());
    for queue in queues {
        let mut row = list.begin_map();
        row.key("name").str(&queue.name);
        row.key("paused").bool(queue.is_paused());
        for state in State::ALL {
            row.key(state.name()).uint(queue.count(state));
        }
    }
    map.key("damages").uint(damaged);
    drop(map);
    out
}

/// The head of a state's column.
fn head(state: State) -> &'static str {
    match state {
        State::Waiting => ">WAITING",
        State::Delayed => ">DELAYED",
        State::Active => ">ACTIVE",
        State::Completed => ">COMPLETED",
        State::Failed => ">FAILED",
        State::WaitingChildren => ">WAITING-CHILDREN",
        State::Vacant => "",
    }
}
