//! A node of a fleet: it owns all logs, or stands by until the node that does is gone.

use super::error::{StartError, other};
use super::signals::SignalHandler;
use crate::config::Config;
use corq_io::chronicle::{
    Calls, Database, DatabaseError, Fence, Fleet, Lease, Member, Node, Restored, Rows, Scribe,
    Standing, mark, marked, restore,
};
use corq_io::log::{About, DataDir, shard_path};
use corq_io::mesh::Waker;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often a node that stands by looks at the one that owns the logs.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Before another attempt to say that this node lives.
const BEAT_AGAIN: Duration = Duration::from_millis(100);

/// Beats in a lease.
const BEATS: u32 = 5;

/// The logs of a fleet, owned by this node.
pub struct Owned {
    database: Database,
    fleet: Fleet,
    fences: Vec<Fence>,
    restored: Vec<Restored>,
    /// How long it may speak for them.
    pub lease: Arc<Lease>,
    nonce: i64,
    ends: Arc<AtomicBool>,
    beats: Option<JoinHandle<Node>>,
}

/// The end of this process, from any thread: another node may speak for the logs already.
fn end_at_once(reason: &str) -> ! {
    tracing::error!("fleet: {reason}, so this process ends without another word");
    std::process::exit(1)
}

/// Gives a data directory that is none yet the name of the fleet's. Without a fleet, refuses one that is of a fleet.
pub fn prepare(config: &Config, path: &Path) -> Result<Option<(Database, Fleet)>, StartError> {
    let Some(url) = config.fleet_database() else {
        return marked(path).map_or(Ok(None), |of| {
            Err(StartError::Other(format!(
                "data path: {} is of a node of the fleet in {of}, which may go on elsewhere: set DURABILITY=replicated and \
                 FLEET_DATABASE, or make a directory for a single server with 'corq fleet export'",
                path.display()
            )))
        });
    };
    let database = Database::parse(url).map_err(|e| other("FLEET_DATABASE", e))?;
    let fleet = Fleet::of(&database).map_err(|e| other("FLEET_DATABASE", e))?;
    let is_new = std::fs::read_dir(path).map_or(true, |mut entries| entries.next().is_none());
    if is_new {
        let about = About { shards: fleet.shards, id: fleet.log_id, is_begun: false };
        corq_io::log::make_directory(path).map_err(|e| other("data path", e)).and_then(|()| {
            DataDir::describe_copy(path, about).map_err(|e| other("data path", e))
        })?;
    }
    Ok(Some((database, fleet)))
}

/// Waits until this node owns the logs, and makes the files of the data directory equal to them. None if the end is wanted
/// before.
pub fn own(
    (database, fleet): (Database, Fleet),
    config: &Config,
    data: &DataDir,
    shards: usize,
    signal_handler: &SignalHandler,
) -> Result<Option<Owned>, StartError> {
    fit(fleet, config, data, shards)?;
    mark(data.path(), &database.shown()).map_err(|e| other("data path", e))?;
    let name = config.fleet_node();
    let address = format!("{}:{}:{}", config.fleet_address(), config.tcp_port, config.http_port);
    let born = Node::born(database.clone(), &name, &address);
    let mut node = born.map_err(|e| other("FLEET_DATABASE", e))?;
    let nonce = uuid::Uuid::new_v4().as_u64_pair().1 as i64;
    let lease = Arc::new(Lease::new(config.fleet_lease_ms));
    let Some(fences) = stand_by(&mut node, &lease, nonce, signal_handler) else { return Ok(None) };
    let is_synchronous = node.is_synchronous().map_err(|e| other("FLEET_DATABASE", e))?;
    if config.fleet_require_sync && !is_synchronous {
        node.release(nonce).map_err(|e| other("FLEET_DATABASE", e))?;
        return Err(StartError::Other(
            "FLEET_REQUIRE_SYNC: the database has no synchronous standby, so its failover may lose what was acknowledged"
                .into(),
        ));
    }
    let ends = Arc::new(AtomicBool::new(false));
    let beats = begin_beats(node, Arc::clone(&lease), Arc::clone(&ends));
    let beats = beats.map_err(|e| other("cannot start the beats", e))?;
    let began = Instant::now();
    let restored = restore_all(&database, data.path(), fleet)?;
    let sum = |of: fn(&Restored) -> u64| restored.iter().map(of).sum::<u64>() >> 20;
    tracing::info!(
        "fleet: node {name} owns the logs of {} since epoch {}; {} MB copied, {} MB were here, in {} ms",
        database.shown(),
        fences.first().map_or(0, |fence| fence.epoch),
        sum(|it| it.copied_bytes),
        sum(|it| it.kept_bytes),
        began.elapsed().as_millis(),
    );
    if !is_synchronous {
        tracing::warn!(
            "fleet: the database has no synchronous standby, so its failover may lose what was acknowledged"
        );
    }
    let beats = Some(beats);
    Ok(Some(Owned { database, fleet, fences, restored, lease, nonce, ends, beats }))
}

fn fit(fleet: Fleet, config: &Config, data: &DataDir, shards: usize) -> Result<(), StartError> {
    let wrong = |text: String| Err(StartError::Other(text));
    if usize::from(fleet.shards) != shards {
        return wrong(format!(
            "SHARDS: it is {shards}, and the fleet was founded with {}",
            fleet.shards
        ));
    }
    if fleet.segment_bytes != config.segment_mb << 20 {
        let founded = fleet.segment_bytes >> 20;
        return wrong(format!(
            "SEGMENT_MB: it is {}, and the fleet was founded with {founded}",
            config.segment_mb
        ));
    }
    if data.id() != fleet.log_id {
        return wrong(format!(
            "data path: {} holds the logs of another server, not those of the fleet: name an empty directory",
            data.path().display()
        ));
    }
    Ok(())
}

/// Claims the logs once they are free, or their owner has been seen to stand still for a whole lease.
fn stand_by(
    node: &mut Node,
    lease: &Lease,
    nonce: i64,
    signal_handler: &SignalHandler,
) -> Option<Vec<Fence>> {
    let lease_time = Duration::from_millis(lease.ms());
    // The owner as it was seen first, since when, and over which connection.
    let mut seen: Option<(Member, Instant, u64)> = None;
    let mut is_away = false;
    let mut beaten = Instant::now();
    loop {
        let looked = step(node, nonce, lease_time, &mut seen);
        match looked {
            Ok(Some(fences)) => return Some(fences),
            Ok(None) => is_away = false,
            Err(error) => {
                seen = None;
                if !std::mem::replace(&mut is_away, true) {
                    tracing::warn!("fleet: the database is not to be reached: {error}");
                }
            }
        }
        if beaten.elapsed() >= lease_time / BEATS {
            beaten = Instant::now();
            let _ = node.beat();
        }
        if let Some(signal) = signal_handler.wants_end() {
            tracing::info!("stopping on {signal:?}, while standing by");
            return None;
        }
        thread::sleep(LOOK_EVERY.min(lease_time / 10));
    }
}

fn step(
    node: &mut Node,
    nonce: i64,
    lease_time: Duration,
    seen: &mut Option<(Member, Instant, u64)>,
) -> Result<Option<Vec<Fence>>, DatabaseError> {
    let now = Instant::now();
    match node.standing()? {
        Standing::Free | Standing::Own => node.claim(nonce),
        Standing::Of(owner) => {
            match seen {
                Some((before, since, connection))
                    if before.name == owner.name
                        && (before.incarnation, before.beat) == (owner.incarnation, owner.beat)
                        && *connection == node.connections =>
                {
                    if since.elapsed() >= lease_time && node.declare_dead(&owner)? {
                        tracing::warn!(
                            "fleet: node {} has not been heard of for {} ms and counts as dead",
                            owner.name,
                            lease_time.as_millis()
                        );
                    }
                }
                _ => {
                    if seen.as_ref().is_none_or(|(before, ..)| before.name != owner.name) {
                        tracing::info!(
                            "fleet: standing by, node {} at {} owns the logs",
                            owner.name,
                            owner.address
                        );
                    }
                    *seen = Some((owner, now, node.connections));
                }
            }
            Ok(None)
        }
    }
}

/// Starts the thread that says that this node lives.
fn begin_beats(
    mut node: Node,
    lease: Arc<Lease>,
    ends: Arc<AtomicBool>,
) -> std::io::Result<JoinHandle<Node>> {
    let every = Duration::from_millis(lease.ms()) / BEATS;
    thread::Builder::new().name("corq-beat".into()).spawn(move || {
        let mut next = Instant::now();
        while !ends.load(Ordering::Acquire) {
            if next > Instant::now() {
                thread::sleep(BEAT_AGAIN.min(next.saturating_duration_since(Instant::now())));
                continue;
            }
            let sent_ms = Lease::now_ms();
            match node.beat() {
                Ok(true) => {
                    lease.beaten(sent_ms);
                    next = Instant::now() + every;
                }
                Ok(false) => end_at_once("this node was declared dead"),
                Err(_) => next = Instant::now() + BEAT_AGAIN,
            }
        }
        node
    })
}

fn restore_all(
    database: &Database,
    data: &Path,
    fleet: Fleet,
) -> Result<Vec<Restored>, StartError> {
    let one = |shard: u16| restore(database, data, shard, fleet.segment_bytes);
    let all: Result<Vec<_>, DatabaseError> = thread::scope(|scope| {
        let running: Vec<_> =
            (0..fleet.shards).map(|shard| scope.spawn(move || one(shard))).collect();
        let broken = || Err(DatabaseError("a thread has failed".into()));
        running.into_iter().map(|it| it.join().unwrap_or_else(|_| broken())).collect()
    });
    all.map_err(|error| other("cannot copy the logs from FLEET_DATABASE", error))
}

impl Owned {
    /// The writer of the rows of one shard, which wakes it.
    pub fn scribe(&self, shard: usize, data: &Path, waker: Waker) -> Option<(Scribe, Calls)> {
        let tell = move |reached: Result<(), &DatabaseError>| match reached {
            Ok(()) => {
                tracing::info!(shard, "fleet: the database is there again, shard {shard} goes on");
            }
            Err(error) => tracing::warn!(
                shard,
                "fleet: the database is not to be reached, commands of shard {shard} wait: {error}"
            ),
        };
        let place = (shard as u16, self.fleet.segment_bytes);
        let (fence, restored) = (*self.fences.get(shard)?, self.restored.get(shard)?);
        let rows = Rows::new(self.database.clone(), place, fence, Box::new(tell));
        let directory = shard_path(data, shard as u16);
        let scribe = Scribe::new(Box::new(rows), directory, self.fleet.segment_bytes, restored);
        let calls = Calls {
            wake: Box::new(move || waker.wake()),
            put_back: Box::new(move |bytes| {
                tracing::warn!(
                    shard,
                    "fleet: the database had gone back, {bytes} bytes of shard {shard} were put back"
                );
            }),
            end: Box::new(|reason| end_at_once(&reason)),
        };
        Some((scribe, calls))
    }

    /// Gives the logs back after the last commit.
    pub fn release(&mut self) {
        self.ends.store(true, Ordering::Release);
        let Some(Ok(mut node)) = self.beats.take().map(JoinHandle::join) else { return };
        if let Err(error) = node.release(self.nonce) {
            tracing::warn!(
                "fleet: the logs could not be given back, others wait for the lease: {error}"
            );
        }
    }
}
