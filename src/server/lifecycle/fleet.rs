//! A node of a fleet: it owns all logs, or stands by until the node that does is gone.

use super::error::{StartError, other};
use super::signals::SignalHandler;
use super::stand_by::{BEATS, StandBy};
use crate::config::Config;
use corq_io::chronicle::{
    Beat, Calls, Copier, Database, DatabaseError, Fence, Fleet, Lease, Node, Replication, Restored,
    Rows, Scribe, mark, marked,
};
use corq_io::log::{About, DataDir, shard_path};
use corq_io::mesh::Waker;
use corq_io::net::Inherited;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Before another attempt to say that this node lives.
const BEAT_AGAIN: Duration = Duration::from_millis(100);

/// Between two looks whether all logs are copied.
const COPY_PAUSE: Duration = Duration::from_millis(10);

/// The logs of a fleet, owned by this node.
pub struct Owned {
    database: Database,
    fleet: Fleet,
    fences: Vec<Fence>,
    restored: Vec<Restored>,
    /// How long it may speak for them.
    pub lease: Arc<Lease>,
    /// How far they are in other hands.
    pub replication: Arc<Replication>,
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
    (inherited, signal_handler): (&[Inherited], &SignalHandler),
) -> Result<Option<Owned>, StartError> {
    let of_database = |error: DatabaseError| other("FLEET_DATABASE", error);
    fit(fleet, config, data, shards)?;
    mark(data.path(), &database.shown()).map_err(|e| other("data path", e))?;
    let (name, host) = (config.fleet_node(), config.fleet_address.as_deref());
    let ports = (config.tcp_port, config.http_port);
    let mut node = Node::born(database.clone(), &name, host, ports).map_err(of_database)?;
    let nonce = uuid::Uuid::new_v4().as_u64_pair().1 as i64;
    let copier = |shard| Copier::new(database.clone(), data.path(), shard, fleet.segment_bytes);
    let copiers = (0..fleet.shards).map(copier).collect();
    let stand_by = StandBy { config, inherited, signal_handler, nonce };
    let Some((fences, follower)) = stand_by.claim(&mut node, copiers)? else { return Ok(None) };
    let Beat::Alive { is_synchronous } = node.beat().map_err(of_database)? else {
        return Err(other("fleet", "this node was declared dead"));
    };
    if config.fleet_require_sync && !is_synchronous {
        node.release(nonce).map_err(of_database)?;
        return Err(StartError::Other(
            "FLEET_REQUIRE_SYNC: the database has no synchronous standby, so its failover may lose what was acknowledged"
                .into(),
        ));
    }
    let replication = Arc::new(Replication::default());
    replication.is_synchronous.store(is_synchronous, Ordering::Release);
    replication.logs.store(u64::from(fleet.shards), Ordering::Release);
    let (ends, lease) = (Arc::default(), Arc::new(Lease::new(config.fleet_lease_ms)));
    let beats = Beats {
        lease: Arc::clone(&lease),
        replication: Arc::clone(&replication),
        require_sync: config.fleet_require_sync,
        ends: Arc::clone(&ends),
    };
    let beats = Some(beats.begin(node).map_err(|e| other("cannot start the beats", e))?);
    let began = Instant::now();
    let restored = Vec::new();
    let mut owned =
        Owned { database, fleet, fences, restored, lease, replication, nonce, ends, beats };
    match restore_all(follower.end()?, signal_handler)? {
        Some(restored) => owned.restored = restored,
        None => {
            owned.release();
            return Ok(None);
        }
    }
    let Owned { database, fences, restored, .. } = &owned;
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
    Ok(Some(owned))
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

/// The thread that says that this node lives.
struct Beats {
    lease: Arc<Lease>,
    replication: Arc<Replication>,
    require_sync: bool,
    ends: Arc<AtomicBool>,
}

impl Beats {
    fn begin(self, mut node: Node) -> std::io::Result<JoinHandle<Node>> {
        let every = Duration::from_millis(self.lease.ms()) / BEATS;
        thread::Builder::new().name("corq-beat".into()).spawn(move || {
            let mut next = Instant::now();
            while !self.ends.load(Ordering::Acquire) {
                if next > Instant::now() {
                    thread::sleep(BEAT_AGAIN.min(next.saturating_duration_since(Instant::now())));
                    continue;
                }
                let sent_ms = Lease::now_ms();
                match node.beat() {
                    Ok(Beat::Alive { is_synchronous }) => {
                        self.beaten(sent_ms, is_synchronous);
                        next = Instant::now() + every;
                    }
                    Ok(Beat::Dead) => end_at_once("this node was declared dead"),
                    Err(_) => next = Instant::now() + BEAT_AGAIN,
                }
            }
            node
        })
    }

    fn beaten(&self, sent_ms: u64, is_synchronous: bool) {
        let was = self.replication.is_synchronous.swap(is_synchronous, Ordering::AcqRel);
        let may_speak = is_synchronous || !self.require_sync;
        if may_speak {
            self.lease.beaten(sent_ms);
        } else {
            self.lease.withdraw();
        }
        match (was, is_synchronous) {
            (false, true) => tracing::info!("fleet: the database has a synchronous standby"),
            (true, false) if may_speak => tracing::warn!(
                "fleet: the database has no synchronous standby any more, so its failover may lose what was acknowledged"
            ),
            (true, false) => tracing::error!(
                "fleet: the database has no synchronous standby any more, so commands wait until it has one (FLEET_REQUIRE_SYNC)"
            ),
            _ => {}
        }
    }
}

/// Makes the files of all shards equal to their rows, side by side. None if the end is wanted before: what was begun ends with
/// the process.
fn restore_all(
    copiers: Vec<Copier>,
    signal_handler: &SignalHandler,
) -> Result<Option<Vec<Restored>>, StartError> {
    let began = Instant::now();
    let running: Vec<_> =
        copiers.into_iter().map(|mut it| thread::spawn(move || it.restore())).collect();
    while running.iter().any(|it| !it.is_finished()) {
        if let Some(signal) = signal_handler.wants_end() {
            tracing::info!("stopping on {signal:?}, while the logs are copied");
            return Ok(None);
        }
        let seconds = began.elapsed().as_secs();
        signal_handler.progress(&format!("copying the logs from the database for {seconds} s"));
        thread::sleep(COPY_PAUSE);
    }
    let broken = || Err(DatabaseError("a thread has failed".into()));
    let all: Result<Vec<_>, _> =
        running.into_iter().map(|it| it.join().unwrap_or_else(|_| broken())).collect();
    all.map(Some).map_err(|error| other("cannot copy the logs from FLEET_DATABASE", error))
}

impl Owned {
    /// The writer of the rows of one shard, which wakes it.
    pub fn scribe(&self, shard: usize, data: &Path, waker: Waker) -> Option<(Scribe, Calls)> {
        let replication = Arc::clone(&self.replication);
        let tell = move |reached: Result<(), &DatabaseError>| match reached {
            Ok(()) => {
                replication.logs_waiting.fetch_sub(1, Ordering::Relaxed);
                tracing::info!(shard, "fleet: the database is there again, shard {shard} goes on");
            }
            Err(error) => {
                replication.logs_waiting.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    shard,
                    "fleet: the database is not to be reached, commands of shard {shard} wait: {error}"
                );
            }
        };
        let place = (shard as u16, self.fleet.segment_bytes);
        let (fence, restored) = (*self.fences.get(shard)?, self.restored.get(shard)?);
        let rows = Rows::new(self.database.clone(), place, fence, Box::new(tell));
        let directory = shard_path(data, shard as u16);
        let scribe = Scribe::new(Box::new(rows), directory, self.fleet.segment_bytes, restored);
        let (stored, put_back) = (Arc::clone(&self.replication), Arc::clone(&self.replication));
        let calls = Calls {
            wake: Box::new(move || waker.wake()),
            stored: Box::new(move |bytes| {
                stored.rows.fetch_add(1, Ordering::Relaxed);
                stored.row_bytes.fetch_add(bytes, Ordering::Relaxed);
            }),
            put_back: Box::new(move |bytes| {
                put_back.put_back_bytes.fetch_add(bytes, Ordering::Relaxed);
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
        // A shard that is held somewhere says nothing when it goes on.
        self.lease.withdraw();
        if let Err(error) = node.release(self.nonce) {
            tracing::warn!(
                "fleet: the logs could not be given back, others wait for the lease: {error}"
            );
        }
    }
}
