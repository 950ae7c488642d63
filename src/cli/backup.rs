//! `backup`: a copy of the data of a server on this machine, in a directory or a bucket. The server says where its logs can be cut
//! and goes on; the files are copied here. And the list of backups that there are.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use corq_io::log::{DataDir, Position};
use corq_io::s3::Stop;

use super::client::Reply;
use super::config::failed;
use super::context::{Context, fetch};
use super::failure::Failure;
use super::log::count;
use super::output::{Cell, Output, Table};
use super::progress::Progress;
use super::request::Request;
use super::value::Value;
use super::words;
use crate::api::commands::Op;
use crate::api::error::ErrorKind;
use crate::backups::name::Name;
use crate::backups::target::BackupTarget;
use crate::backups::{Found, access, directory};
use crate::config::{Config, Environment, Layers};
use crate::protocol::msgpack::writer::Writer;
use crate::tools::backup::{Making, Moment, Summary, make};
use crate::tools::place::{Fault, Place, Whereabouts, must_own};

/// Arguments of `backup`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Backup {
    #[command(subcommand)]
    other: Option<Other>,
    #[arg(
        required = true,
        help = "Where the backup goes: a directory that does not exist, or is empty; or s3://BUCKET/PREFIX, below which it gets a name"
    )]
    to: Option<PathBuf>,
    /// The server's data directory, on this machine [default: that of the environment, else the one that the server names, else
    /// ./corq-data]
    #[arg(long)]
    data_path: Option<PathBuf>,
    /// Share no file with the server, although the backup is on the same file system
    #[arg(long)]
    copy: bool,
    #[command(flatten)]
    storage: Storage,
}

#[derive(Subcommand, Debug)]
enum Other {
    /// Show the backups of a directory or a bucket
    List(List),
}

#[derive(Args, Debug)]
struct List {
    #[arg(help = "The directory, or s3://BUCKET/PREFIX [default: BACKUP_TO of the settings]")]
    target: Option<String>,
    #[command(flatten)]
    storage: Storage,
}

/// Where settings of the storage come from.
#[derive(Args, Debug)]
pub struct Storage {
    /// Settings file that says how to reach a bucket (`backup_s3_...`) [default: the one that the environment names, if it does]
    #[arg(long = "config", value_name = "FILE")]
    file: Option<PathBuf>,
}

impl Storage {
    /// The settings of backups, out of the environment and the file; `server` describes the command line of a server.
    pub fn settings(&self, server: fn() -> clap::Command) -> Result<Config, Failure> {
        let mut words = vec![OsString::from("corq")];
        if let Some(path) = &self.file {
            words.extend(["--config".into(), path.into()]);
        }
        let environment = Environment::of_process().of_backups();
        Layers::new(server, words, environment).read().map_err(failed)
    }
}

/// The bucket that a path of the command line names; none for a path of a directory.
pub fn bucket(path: &Path) -> Result<Option<BackupTarget>, Failure> {
    match path.to_str().filter(|text| text.contains("://")) {
        Some(text) => BackupTarget::parse(text)
            .map(Some)
            .map_err(|why| Failure::Usage(format!("{text}: {why}"))),
        None => Ok(None),
    }
}

impl Backup {
    /// The directory to copy.
    fn data_path(&self, context: &Context) -> Result<PathBuf, Failure> {
        let named = || Environment::of_process().data_path();
        if let Some(named) = self.data_path.clone().or_else(named) {
            return Ok(named);
        }
        let asked =
            context.client().and_then(|mut client| client.call(Request::new(Op::BackupPoint)));
        let address = context.target.address();
        match asked.as_ref().map_or_else(|_| Told::default(), Told::of) {
            Told::At { path, which } if is_it(&path, &which) => Ok(path),
            Told::At { path, .. } => Err(Failure::Failed(format!(
                "the data directory of the server at {address} is {} of its machine, which cannot be read here: run it \
                 there, as the server's user, or say which directory with --data-path",
                path.display()
            ))),
            Told::Memory => Err(Failure::Failed(format!(
                "the server at {address} keeps all in memory: there is nothing to back up"
            ))),
            Told::Nothing if Path::new(DATA_PATH).exists() => Ok(DATA_PATH.into()),
            // Why the server does not say is more use than that a default is not there.
            Told::Nothing => Err(match asked.and_then(Reply::granted) {
                Err(Failure::Failed(text) | Failure::Refused(text)) => Failure::Failed(format!(
                    "say which directory with --data-path: it is not {DATA_PATH}, and {text}"
                )),
                _ => Failure::Failed("say which directory with --data-path".to_owned()),
            }),
        }
    }
}

/// Where a first start puts its data.
const DATA_PATH: &str = "./corq-data";

/// The data directory that a server names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum Told {
    /// No server, or none that knows the question.
    #[default]
    Nothing,
    /// The server keeps none.
    Memory,
    /// Here, on its machine.
    At {
        /// From the root on.
        path: PathBuf,
        /// Path and identity of the directory.
        which: Whereabouts,
    },
}

impl Told {
    /// Out of the answer to `BackupPoint`.
    pub(super) fn of(reply: &Reply) -> Self {
        if reply.refusal().is_some_and(|it| it.text == ErrorKind::NothingOnDisk.text()) {
            return Self::Memory;
        }
        let told = whereabouts(reply.value().get("data"));
        let at = told.and_then(|which| Some(Self::At { path: which.path.clone()?, which }));
        at.unwrap_or_default()
    }
}

/// Whether a directory on this machine is the server's, not a copy of it.
pub(super) fn is_it(path: &Path, server: &Whereabouts) -> bool {
    Place::of(path).is_ok_and(|place| place.is_used_by(server))
}

/// Carries it out.
pub fn run(
    context: &mut Context,
    backup: &Backup,
    server: fn() -> clap::Command,
) -> Result<(), Failure> {
    if let Some(Other::List(list)) = &backup.other {
        return self::list(context, list, server);
    }
    // The command line is refused without one.
    let Some(to) = &backup.to else { return Err(Failure::Usage("say where it goes".into())) };
    let target = bucket(to)?;
    let data = backup.data_path(context)?;
    must_own(&data)?;
    let place = Place::of(&data)?;
    let mut moment = || {
        // Without a server nobody may start one meanwhile.
        if place.is_live()? {
            cuts(context, &place).map(Moment::Cut)
        } else {
            Ok(Moment::Held(DataDir::keep_out(&place.path).map_err(Fault::from)?))
        }
    };
    let Some(target) = target else {
        let begin = || Making::begin(&place, to, backup.copy);
        let summary = make(begin, &mut moment, &mut |making, cuts| {
            let progress = Progress::bytes(making.bytes(), "backed up");
            making.finish(cuts, &|bytes| progress.add(bytes))
        })?;
        return tell(context, &to.display().to_string(), &place, &summary);
    };
    let objects = access::open(&backup.storage.settings(server)?, &target, &Stop::default())?;
    let Some(objects) = objects else { return Err(Failure::Usage("it is no bucket".into())) };
    let ready = make(|| Making::begin_within(&place), &mut moment, &mut |making, cuts| {
        let progress = Progress::bytes(making.bytes(), "checked");
        making.ready(cuts, &|bytes| progress.add(bytes))
    })?;
    let name = Name { at_ms: Output::now_ms().max(0).cast_unsigned(), id: place.id };
    let progress = Progress::bytes(ready.summary.bytes, "sent");
    objects.send(name, &ready, &|bytes| progress.add(bytes))?;
    drop(progress);
    let summary = Summary { linked: 0, ..ready.summary };
    let to = target.to_string();
    tell(context, &format!("{}/{name}", to.trim_end_matches('/')), &place, &summary)
}

fn list(context: &mut Context, list: &List, server: fn() -> clap::Command) -> Result<(), Failure> {
    let settings = list.storage.settings(server)?;
    let named = list.target.clone().or_else(|| settings.backup_to.clone());
    let named = named.filter(|it| !it.is_empty());
    let named = named
        .ok_or_else(|| Failure::Usage("say where the backups are: TARGET or BACKUP_TO".into()))?;
    let target =
        BackupTarget::parse(&named).map_err(|why| Failure::Usage(format!("{named}: {why}")))?;
    let mut found = match &target {
        BackupTarget::Directory(path) => directory::list(path)?,
        BackupTarget::Bucket { .. } => Vec::new(),
    };
    if let Some(objects) = access::open(&settings, &target, &Stop::default())? {
        found = objects.list()?;
        for one in found.iter_mut().filter(|one| one.is_complete) {
            one.bytes = objects.bytes(one.name)?;
            one.is_complete = one.bytes.is_some();
        }
    }
    if context.target.json {
        return context.out.json(&listed(&found));
    }
    let mut table = Table::new(&["NAME", "AGE", "SIZE", "STATE"]);
    for Found { name, bytes, is_complete } in &found {
        let age_ms = Output::now_ms().saturating_sub(name.at_ms.cast_signed());
        table.row(vec![
            Cell::from(name.to_string()),
            Cell::from(words::duration(age_ms.max(0))),
            Cell::from(bytes.map_or_else(|| "-".into(), |bytes| words::bytes(bytes as f64))),
            Cell::from(if *is_complete { "complete" } else { "not complete" }.to_owned()),
        ]);
    }
    if table.is_empty() {
        return Ok(context.out.line(&format!("no backups at {target}"))?);
    }
    Ok(context.out.table(&table)?)
}

fn listed(found: &[Found]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out);
    writer.map(2);
    writer.str("ok");
    writer.bool(true);
    writer.str("backups");
    writer.array(found.len());
    for Found { name, bytes, is_complete } in found {
        let mut row = writer.begin_map();
        row.key("name").str(&name.to_string());
        row.key("at").uint(name.at_ms);
        row.key("directory").str(&format!("{:016x}", name.id));
        match bytes {
            Some(bytes) => row.key("bytes").uint(*bytes),
            None => row.key("bytes").nil(),
        }
        row.key("complete").bool(*is_complete);
    }
    out
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

/// The id and the paths of the server's directory, from an answer to `BackupPoint`; none without an id.
fn whereabouts(point: Value<'_>) -> Option<Whereabouts> {
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

fn tell(context: &mut Context, to: &str, place: &Place, summary: &Summary) -> Result<(), Failure> {
    let Summary { segments, linked, bytes } = *summary;
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
        writer.str(to);
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
