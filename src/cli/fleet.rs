//! `fleet`: the nodes that keep their logs in a database. Speaks to the database, and to no server.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::{Args, Subcommand};
use corq_io::chronicle::{Database, DatabaseError, Fleet as Founded, mark, restore};
use corq_io::log::{About, DataDir, make_directory};

use super::context::Context;
use super::failure::Failure;
use super::log::count;
use super::output::{Cell, Table};
use super::words;
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
    database: String,
}

impl Where {
    fn database(&self) -> Result<Database, Failure> {
        Ok(Database::parse(&self.database)?)
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
    #[arg(long, default_value_t = 2, conflicts_with = "data_path", value_parser = clap::value_parser!(u16).range(1..=1024))]
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

fn found(context: &mut Context, args: &Found) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(error.to_string());
    let (log_id, shards) = match &args.data_path {
        Some(path) => {
            // A server that runs would write on beside the fleet.
            let _kept_out = DataDir::keep_out(path).map_err(|error| failed(&error))?;
            let about = DataDir::about(path).map_err(|error| failed(&error))?;
            (about.id, about.shards)
        }
        None => (DataDir::fresh_id().map_err(|error| failed(&error))?, args.shards),
    };
    let fleet = Founded { log_id, shards, segment_bytes: args.segment_mb << 20 };
    let database = args.place.database()?;
    fleet.found(&database)?;
    if let Some(path) = &args.data_path {
        mark(path, &database.shown()).map_err(|error| failed(&error))?;
    }
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
        bytes += restore(&database, &args.to, shard, fleet.segment_bytes)?.copied_bytes;
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
