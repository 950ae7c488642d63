//! `backup`: a copy of the data of a server on this machine. The server says where its logs can be cut and
//! goes on; the files are copied here.

use std::env;
use std::path::PathBuf;

use clap::Args;
use corq_io::log::{DataDir, Position};

use super::context::{Context, fetch};
use super::failure::Failure;
use super::log::count;
use super::progress::Progress;
use super::value::Value;
use super::words;
use crate::api::commands::Op;
use crate::protocol::msgpack::writer::Writer;
use crate::tools::backup::{Making, Summary, Unfinished};
use crate::tools::place::{Fault, Place, Whereabouts};

/// How often a backup begins again because the log was given up faster than it could be pinned.
const TRIES_MAX: u32 = 10;

/// What `backup` takes.
#[derive(Args, Debug)]
pub struct Backup {
    /// Where the backup goes: a directory that does not exist, or is empty
    to: PathBuf,
    /// The server's data directory, on this machine [default: ./corq-data]
    #[arg(long, env = "DATA_PATH")]
    data_path: Option<PathBuf>,
    /// Share no file with the server, although the backup is on the same file system
    #[arg(long)]
    copy: bool,
}

impl Backup {
    fn data_path(&self) -> PathBuf {
        let other = || env::var_os("BUNQUEUE_DATA_PATH").map(PathBuf::from);
        self.data_path.clone().or_else(other).unwrap_or_else(|| "./corq-data".into())
    }
}

/// Carries it out.
pub fn run(context: &mut Context, backup: &Backup) -> Result<(), Failure> {
    let place = Place::of(&backup.data_path())?;
    for _ in 0..TRIES_MAX {
        let making = Making::begin(&place, &backup.to, backup.copy)?;
        making.pin()?;
        // Without a server nobody may start one meanwhile.
        let held = if place.is_live()? { None } else { Some(take(&place)?) };
        let cuts = match &held {
            None => Some(cuts(context, &place)?),
            Some(_) => None,
        };
        making.pin()?;
        let progress = Progress::bytes(making.bytes(), "backed up");
        match making.finish(cuts.as_deref(), &|bytes| progress.add(bytes)) {
            Ok(summary) => {
                drop(progress);
                return tell(context, backup, &place, &summary);
            }
            Err(Unfinished::Fault(fault)) => return Err(fault.into()),
            Err(Unfinished::Again) => {}
        }
    }
    Err(Failure::Failed(
        "the server gives up its log faster than it can be copied: try again when it is quieter"
            .into(),
    ))
}

fn take(place: &Place) -> Result<DataDir, Failure> {
    let _acting = place.act()?;
    DataDir::take(&place.path).map_err(|error| Fault::from(error).into())
}

/// Where the server says that its logs can be cut.
fn cuts(context: &Context, place: &Place) -> Result<Vec<Position>, Failure> {
    let mut client = context.client()?;
    let reply = fetch(&mut client, Op::BackupPoint)?;
    let point = reply.value().get("data");
    let server = whereabouts(point).unwrap_or_default();
    if !place.is_used_by(&server) {
        return Err(Failure::Failed(not_its(place, &server, &context.target.address())));
    }
    let mut cuts = vec![None; usize::from(place.shards)];
    for shard in point.get("shards").items() {
        let number = shard.get("shard").count() as usize;
        if let Some(cut) = cuts.get_mut(number) {
            *cut = Some(Position(shard.get("end").count()));
        }
    }
    let cuts: Option<Vec<Position>> = cuts.into_iter().collect();
    cuts.ok_or_else(|| Failure::Failed("the server did not speak for all its shards".into()))
}

/// What an answer to `BackupPoint` says of the server's directory.
pub(super) fn whereabouts(point: Value<'_>) -> Option<Whereabouts> {
    Some(Whereabouts {
        id: point.get("id").text()?.to_owned(),
        path: point.get("path").text().map(PathBuf::from),
        directory: point.get("directory").text().map(str::to_owned),
    })
}

/// Why the server at `address` cannot say how far the logs of a directory go.
fn not_its(place: &Place, server: &Whereabouts, address: &str) -> String {
    let here = place.path.display();
    if server.id != format!("{:016x}", place.id) {
        return format!(
            "{here} is the directory of another server than the one at {address}: say which with --data-path, or \
             --host and --port"
        );
    }
    match (&server.directory, &server.path) {
        (Some(_), Some(path)) => format!(
            "the server at {address} uses {} of its machine, and {here} is not that but has the same id, as copies \
             have: say which with --data-path, or --host and --port",
            path.display()
        ),
        _ => format!(
            "the server at {address} is of an earlier build, and does not say whether it uses {here} or a copy of it: \
             stop it before the backup, or make the backup with the build that it is of"
        ),
    }
}

fn tell(
    context: &mut Context,
    backup: &Backup,
    place: &Place,
    summary: &Summary,
) -> Result<(), Failure> {
    let Summary { segments, linked, bytes } = *summary;
    let to = backup.to.display().to_string();
    if context.target.json {
        let figures = [
            ("shards", u64::from(place.shards)),
            ("segments", segments),
            ("linked", linked),
            ("bytes", bytes),
        ];
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        writer.map(figures.len() + 2);
        writer.str("ok");
        writer.bool(true);
        writer.str("path");
        writer.str(&to);
        for (name, figure) in figures {
            writer.str(name);
            writer.uint(figure);
        }
        return context.out.json(&out);
    }
    let shared = match linked {
        0 => String::new(),
        linked => format!("; {} shared with the server", count(linked, "file")),
    };
    Ok(context.out.line(&format!(
        "backed up {}, {}, {} to {to}{shared}",
        count(u64::from(place.shards), "shard"),
        count(segments, "segment"),
        words::bytes(bytes as f64),
    ))?)
}
