//! `fleet`: the nodes that keep their logs in a database. Speaks to the database, and to no server.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::{Args, Subcommand};
use corq_io::chronicle::{
    Calls, Copier, Database, DatabaseError, Fence, Fleet as Founded, Restored, Rows, Scribe, mark,
};
use corq_io::log::{About, DataDir, Segment, Subject, inspect, make_directory, shard_path};

use super::context::Context;
use super::failure::Failure;
use super::log::count;
use super::output::{Cell, Table};
use super::words;
use crate::api::limits::SHARDS_MAX;
use crate::config::Environment;
use crate::protocol::msgpack::writer::Writer;

/// How long `status` watches, to see who is heard of.
const WATCH: Duration = Duration::from_secs(3);

/// Commands of `fleet`.
#[derive(Subcommand, Debug)]
pub enum Fleet {
    /// Make a fleet of a database, of a new server or of one that has a data directory
    Found(Found),
    /// Show the nodes of a fleet and which one owns its logs
    Status(Where),
    /// Say that the process of a node is gone: its logs are free at once, without waiting for the lease
    Bury(Bury),
    /// Copy the logs of a fleet into a data directory, for a single server
    Export(Export),
}

/// Which database.
#[derive(Args, Debug)]
pub struct Where {
    /// Database of the fleet, as a URL
    #[arg(long, env = "FLEET_DATABASE", value_name = "URL", hide_env_values = true)]
    database: Option<String>,
}

impl Where {
    fn database(&self) -> Result<Database, Failure> {
        let url = self.database.clone().or_else(|| Environment::of_process().fleet_database());
        let missing = || Failure::Usage("--database <URL> is required, or FLEET_DATABASE".into());
        Ok(Database::parse(&url.ok_or_else(missing)?)?)
    }
}

/// Arguments of `fleet found`.
#[derive(Args, Debug)]
pub struct Found {
    #[command(flatten)]
    place: Where,
    /// Data directory of a stopped server, whose jobs the fleet will have
    #[arg(long)]
    data_path: Option<PathBuf>,
    /// Number of shards of a new server; each node must have as many
    #[arg(long, default_value_t = 2, conflicts_with = "data_path", value_parser = clap::value_parser!(u16).range(1..=i64::from(SHARDS_MAX)))]
    shards: u16,
    /// Size of a log file, in MB: the setting of all nodes
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(16..=1024))]
    segment_mb: u64,
}

/// Arguments of `fleet bury`.
#[derive(Args, Debug)]
pub struct Bury {
    /// Name of the node
    node: String,
    #[command(flatten)]
    place: Where,
}

/// Arguments of `fleet export`.
#[derive(Args, Debug)]
pub struct Export {
    /// The data directory to be: one that does not exist, or is empty
    to: PathBuf,
    #[command(flatten)]
    place: Where,
}

impl From<DatabaseError> for Failure {
    fn from(error: DatabaseError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Carries one out.
pub fn run(context: &mut Context, command: &Fleet) -> Result<(), Failure> {
    match command {
        Fleet::Found(args) => found(context, args),
        Fleet::Status(place) => status(context, place),
        Fleet::Bury(args) => bury(context, args),
        Fleet::Export(args) => export(context, args),
    }
}

fn done(context: &mut Context, line: &str) -> Result<(), Failure> {
    if context.target.json {
        return context.out.json(&[0x81, 0xa2, b'o', b'k', 0xc3]);
    }
    Ok(context.out.line(line)?)
}

/// Writes the log of a shard to the database, which has nothing of it.
fn upload(
    database: &Database,
    fleet: Founded,
    claim: Fence,
    (path, shard, is_begun): (&Path, u16, bool),
) -> Result<(), DatabaseError> {
    let directory = shard_path(path, shard);
    let subject =
        Subject { directory: &directory, shard, log_id: fleet.log_id, is_begun, until: None };
    let wrong = |text: String| DatabaseError(format!("{}: {text}", directory.display()));
    let looked =
        inspect(subject, |_| ControlFlow::Continue(())).map_err(|e| wrong(e.to_string()))?;
    if let Some(damage) = looked.damages.first() {
        return Err(wrong(format!("the log is damaged: {damage}")));
    }
    if looked.segment_bytes != fleet.segment_bytes && !looked.segments.is_empty() {
        return Err(wrong(format!(
            "its files have {} MB: use --segment-mb",
            looked.segment_bytes >> 20
        )));
    }
    let tell = |reached: Result<(), &DatabaseError>| {
        if let Err(error) = reached {
            eprintln!("the database is not to be reached, tried again: {error}");
        }
    };
    let place = (shard, fleet.segment_bytes);
    let rows = Rows::new(database.clone(), place, claim, Box::new(tell));
    let restored = Restored::default();
    let mut scribe = Scribe::new(Box::new(rows), directory.clone(), fleet.segment_bytes, &restored);
    let calls = Calls {
        wake: Box::new(|| ()),
        stored: Box::new(|_| ()),
        put_back: Box::new(|_| ()),
        end: Box::new(|_| ()),
    };
    let end = |it: &Segment| (it.number, it.end.0 - it.number * fleet.segment_bytes);
    scribe.write_all(looked.segments.iter().map(end), &calls).map_err(wrong)
}

fn found(context: &mut Context, args: &Found) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(error.to_string());
    // A server that runs would write on beside the fleet.
    let kept_out = args.data_path.as_deref().map(DataDir::keep_out).transpose();
    let _kept_out = kept_out.map_err(|error| failed(&error))?;
    let (log_id, shards, is_begun) = match &args.data_path {
        Some(path) => {
            let about = DataDir::about(path).map_err(|error| failed(&error))?;
            (about.id, about.shards, about.is_begun)
        }
        None => (DataDir::fresh_id().map_err(|error| failed(&error))?, args.shards, false),
    };
    let fleet = Founded { log_id, shards, segment_bytes: args.segment_mb << 20 };
    let database = args.place.database()?;
    let claim = Fence { epoch: 0, nonce: uuid::Uuid::new_v4().as_u64_pair().1 as i64 };
    fleet.found(&database, claim, || {
        let Some(path) = &args.data_path else { return Ok(()) };
        for shard in 0..shards {
            upload(&database, fleet, claim, (path, shard, is_begun))?;
        }
        // From now on no single server may go on with it.
        mark(path, &database.shown()).map_err(|error| DatabaseError(error.to_string()))
    })?;
    done(
        context,
        &format!(
            "founded a fleet of {} in {}: start its nodes with DURABILITY=replicated, FLEET_DATABASE and SHARDS={shards}{}",
            count(u64::from(shards), "log"),
            database.shown(),
            args.data_path.as_ref().map_or(String::new(), |path| format!(
                ", and the first with DATA_PATH={}",
                path.display()
            )),
        ),
    )
}

fn status(context: &mut Context, place: &Where) -> Result<(), Failure> {
    let database = place.database()?;
    Founded::of(&database)?;
    let before = Founded::members(&database)?;
    thread::sleep(WATCH);
    let members = Founded::members(&database)?;
    let is_heard = |name: &str, life: (i64, i64)| {
        before.iter().any(|it| it.name == name && (it.incarnation, it.beat) != life)
    };
    if context.target.json {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        writer.map(1);
        writer.str("nodes");
        writer.array(members.len());
        for it in &members {
            writer.map(4);
            writer.str("name");
            writer.str(&it.name);
            writer.str("address");
            writer.str(&it.address);
            writer.str("logs");
            writer.uint(it.logs as u64);
            writer.str("heard");
            writer.bool(is_heard(&it.name, (it.incarnation, it.beat)));
        }
        return context.out.json(&out);
    }
    let mut table = Table::new(&["NODE", "ADDRESS", ">LOGS", "STATE"]);
    for it in &members {
        let heard = is_heard(&it.name, (it.incarnation, it.beat));
        let state = match (it.logs > 0, heard) {
            (true, true) => "active",
            (true, false) => "active, not heard of for 3 s",
            (false, true) => "stands by",
            (false, false) => "gone",
        };
        table.row(vec![
            Cell::from(it.name.clone()),
            Cell::from(it.address.clone()),
            Cell::from(it.logs.to_string()),
            Cell::from(state.to_owned()),
        ]);
    }
    if table.is_empty() {
        return Ok(context.out.line("the fleet has no nodes yet")?);
    }
    Ok(context.out.table(&table)?)
}

fn bury(context: &mut Context, args: &Bury) -> Result<(), Failure> {
    let database = args.place.database()?;
    if !Founded::bury(&database, &args.node)? {
        return Err(Failure::Failed(format!("the fleet has no node {}", args.node)));
    }
    done(context, &format!("buried {}: what it owned is free", args.node))
}

fn export(context: &mut Context, args: &Export) -> Result<(), Failure> {
    let database = args.place.database()?;
    let fleet = Founded::of(&database)?;
    if std::fs::read_dir(&args.to).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Failure::Failed(format!("{} is not empty", args.to.display())));
    }
    if let Some(owner) = Founded::members(&database)?.iter().find(|member| member.logs > 0) {
        return Err(Failure::Failed(format!(
            "node {} owns the logs and goes on: stop it, or bury it if it is gone",
            owner.name
        )));
    }
    make_directory(&args.to).map_err(|error| Failure::failed(args.to.display(), &error))?;
    let about = About { shards: fleet.shards, id: fleet.log_id, is_begun: false };
    DataDir::describe_copy(&args.to, about).map_err(|error| Failure::Failed(error.to_string()))?;
    let mut bytes = 0;
    for shard in 0..fleet.shards {
        let mut copier = Copier::new(database.clone(), &args.to, shard, fleet.segment_bytes);
        bytes += copier.restore()?.copied_bytes;
    }
    let to = args.to.display();
    done(
        context,
        &format!(
            "copied {} of {} to {to}: start with DATA_PATH={to} and SHARDS={}",
            words::bytes(bytes as f64),
            count(u64::from(fleet.shards), "log"),
            fleet.shards
        ),
    )
}
