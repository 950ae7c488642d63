//! From settings to running shards, and back.

use super::audit::Audit;
use super::certificate;
use super::client_memory;
use super::clock;
use super::data_dir_watch::DataDirWatch;
use super::descriptors::Descriptors;
use super::error::{StartError, other};
use super::fleet::{self, Owned};
use super::http_settings::{http_settings, rules, wrong_tokens_rule};
use super::listeners::{BoundListener, Listeners, once_free};
use super::live_settings::{FollowedSettings, LiveSettings};
use super::placement;
use super::progress::ProgressLimiter;
use super::recovery::{RecoveryProgress, open_log, shard_config};
use super::reshard::{Halt, Progress, reshard};
use super::signals::{Reloads, SignalHandler};
use super::start_report::StartReport;
use super::startup_http::StartupHttp;
use super::time_zones;
use super::warnings;
use super::watchdog::Watchdog;
use crate::backups::scheduler::{Scheduler, Surroundings};
use crate::backups::state::BackupState;
use crate::checks::machine;
use crate::config::{Config, Durability, Layers, PlacementChoice};
use crate::otlp::span::Step;
use crate::server::about::state::About;
use crate::server::access::guard::{Guard, Sources};
use crate::server::access::shown::ShardAccess;
use crate::server::access::slowed::SlowedRefusals;
use crate::server::event_loop::{Ending, EventLoop, Fatal};
use crate::server::http::HttpState;
use crate::server::multi_shard::backup_point::BackupPoints;
use crate::server::overload::client_memory::ClientMemory;
use crate::server::shard_mail::message::Batch;
use crate::server::shard_mail::outbox::Outbox;
use crate::server::shard_mail::slots::Slots;
use crate::server::shard_server::{ShardServer, ShardSettings};
use crate::server::spans::{self, Spans};
use crate::server::storage::data_presence::{DataPresence, Home};
use crate::server::storage::engine::Engine;
use crate::server::storage::journal::LogJournal;
use crate::server::webhooks::Webhooks;
use crate::server::webhooks::delivery;
use corq_io::batch_post::{self, BatchPoster};
use corq_io::cgroup;
use corq_io::clock::Clock;
use corq_io::host::{self, Host};
use corq_io::log::{DataDir, Leftover, LockError, Presence};
use corq_io::memory::SpareMemory;
use corq_io::mesh::{Endpoint, Mesh, Waker};
use corq_io::net::{self, Permits, Reactor};
use corq_io::runtime::{self, Shards};
use corq_io::service_manager::ServiceManager;
use corq_io::signal::{self, Signal, Signals};
use corq_io::tls::CertificateStore;
use corq_io::umask;
use corq_io::webhook::Feed;
use corq_shards::Shard;
use ring::rand::{SecureRandom, SystemRandom};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often the start looks whether a shard has failed.
const READY_PAUSE: Duration = Duration::from_millis(50);

/// How much longer than they may take the shards are waited for. Each gives up by itself before, unless the kernel
/// does not let it.
const HELD_MAX: Duration = Duration::from_secs(6);

/// How long the end waits for the last entries of the audit log: only a disk that does not answer takes so long.
const AUDIT_END_MAX: Duration = Duration::from_secs(5);

/// How long the end waits for a backup that is broken off. What is left of it the next start removes.
const BACKUP_END_MAX: Duration = Duration::from_secs(2);

/// The part of the start that goes to one shard's thread.
struct Seed {
    endpoint: Endpoint<Batch>,
    listeners: Vec<BoundListener>,
    chance: u64,
    ready: Sender<()>,
}

/// State shared by all shards, read-only.
struct Common {
    /// As they were at the start.
    config: Arc<Config>,
    live: Arc<LiveSettings>,
    slots: Slots,
    guard: Arc<Guard>,
    audit: Arc<Audit>,
    backups: Arc<BackupState>,
    ending: Arc<Ending>,
    /// Of the data directory.
    log_id: u64,
    /// Whether the data directory has had its first start: then a log that is not there is missing, not new.
    is_begun: bool,
    webhooks: Feed,
    spans: Option<batch_post::Feed<Step>>,
    recovery: RecoveryProgress,
    client_memory: ClientMemory,
    permits: Permits,
    /// Files of its log that a shard may have open besides those that it writes.
    log_files: usize,
    /// Whether the files of the logs are still there.
    presence: Option<Arc<Presence>>,
    /// Where they are.
    home: Option<Arc<Home>>,
    about: About,
    certificates: Option<Arc<CertificateStore>>,
    /// Tells this life of the server from all others, for clients that come back.
    epoch: u64,
    /// The logs of the fleet that this node owns.
    fleet: Option<Mutex<Owned>>,
}

/// A shard that has ended by itself, and has said why.
#[derive(Debug)]
struct Failed(usize);

/// How the beginning of the shards went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Begun {
    /// All of them are there.
    Ready,
    /// A shard has ended by itself.
    Failed,
    /// The end was wanted before.
    Stopped(Signal),
}

/// As many shards as there are CPUs with time for them. More would be stopped in the middle of their work.
fn shards_of(host: &Host) -> usize {
    let (allowed, quota) = (host.cpus.len(), cgroup::cpu_quota());
    let shards = cgroup::cpus_with_time(allowed, quota);
    if let Some(quota) = quota.filter(|_| shards < allowed) {
        tracing::info!(
            "the control group leaves time for {quota:.2} of {allowed} CPUs: {shards} shards, unless SHARDS says otherwise"
        );
    }
    shards
}

/// Runs the server until a signal ends it. The settings are read again from `layers`.
pub fn serve(config: Config, layers: Layers) -> Result<(), StartError> {
    let signals = Signals::block().map_err(|error| other("cannot block signals", error))?;
    umask::keep_others_out();
    let host = host::probe().map_err(StartError::Host)?;
    let shards = config.shards.map_or_else(|| shards_of(&host), usize::from);
    config.check(shards).map_err(StartError::Other)?;
    config.origins.notes.iter().for_each(|note| tracing::warn!("{note}"));
    time_zones::take_up();
    let live = Arc::new(LiveSettings::new(config, layers, shards));
    let config = live.config();
    let manager = ServiceManager::of_environment().map_err(|e| other("NOTIFY_SOCKET", e))?;
    let manager = Arc::new(manager);
    let most = (config.connections_max, delivery::THREADS_MAX);
    let shares = Descriptors::share_out(host.nofile, shards, most.0, most.1);
    let shares = shares.map_err(StartError::Other)?;
    // The start-up thread accepts, too, before the shards do.
    let at_once = net::Config::default().accepted_at_once();
    let permits = Permits::new(shares.connections, shards + 1, at_once);
    let certificates = certificate::open(&config).map_err(StartError::Other)?;
    let guard = Arc::new(Guard::new(token_sources(&config)).map_err(StartError::Other)?);
    let audit = Arc::new(Audit::default());
    let reloads = Reloads {
        certificates: certificates.clone(),
        guard: Arc::clone(&guard),
        settings: Arc::clone(&live),
        manager: Arc::clone(&manager),
        audit: Arc::clone(&audit),
    };
    let signal_handler = SignalHandler::new(signals, reloads);
    let mut fleet = None;
    let mut data = match config.data_path() {
        None => None,
        Some(path) => {
            warnings::must_not_be_roots(&path)?;
            fleet = fleet::prepare(&config, &path)?;
            let open = || DataDir::open(&path, shards as u16);
            let is_held = |error: &LockError| matches!(error, LockError::Held { .. });
            Some(once_free(open, is_held).map_err(|error| other("data path", error))?)
        }
    };
    let inherited = net::inherited().map_err(|error| other("inherited sockets", error))?;
    let mut owned = None;
    if let (Some(fleet), Some(data)) = (fleet, &data) {
        let outside = (&inherited[..], &signal_handler);
        owned = fleet::own(fleet, &config, data, shards, outside)?;
        if owned.is_none() {
            return Ok(());
        }
    }
    let ports = Listeners::bind(&config, shards, certificates.as_ref(), inherited)?;
    let open = |https| StartupHttp::open(https, rules(&config), permits.clone());
    let startup_http = ports.https().and_then(open);
    let startup_http = startup_http.map_err(|e| other("cannot answer at HTTP_PORT", e))?;
    let report = StartReport::new(startup_http, Arc::clone(&manager));
    let slots = Slots::new(shards);
    if let Some(data) = &mut data
        && let Err(halt) = fit(&config, data, &slots, &signal_handler, &report)
    {
        return match halt {
            Halt::Stopped => Ok(()),
            Halt::Failed(reason) => Err(StartError::Other(reason)),
        };
    }
    audit.open(&config, data.as_ref().map(DataDir::path), &guard)?;
    let mesh = Mesh::<Batch>::new(shards).map_err(|error| other("cannot make the mesh", error))?;
    let wakers: Vec<Waker> = mesh.iter().map(Endpoint::waker).collect();
    let lease = owned.as_ref().map(|owned| Arc::clone(&owned.lease));
    let ending = Arc::new(Ending { lease, ..Ending::default() });
    let pool = delivery::start(&config, shares.posters)
        .map_err(|e| other("cannot start the webhooks", e))?;
    let poster = spans::delivery::start(&config).map_err(|e| other("OTLP_ENDPOINT", e))?;
    let home = data.as_ref().map(home_of).transpose().map_err(|error| other("data path", error))?;
    let presence = data.as_ref().map(|data| Arc::new(Presence::new(data.shards())));
    let common = Arc::new(Common {
        client_memory: client_memory::share_out(&config, shards),
        permits,
        log_files: shares.log_files,
        presence: presence.clone(),
        about: About {
            machine: machine::of_host(&host).into(),
            data: data.as_ref().map(|data| Arc::new(data.path().to_path_buf())),
            fleet: owned.as_ref().map(|owned| Arc::clone(&owned.replication)),
        },
        home: home.map(Arc::new),
        slots,
        guard: Arc::clone(&guard),
        audit: Arc::clone(&audit),
        backups: Arc::default(),
        ending: Arc::clone(&ending),
        log_id: data.as_ref().map_or(0, DataDir::id),
        is_begun: data.as_ref().is_some_and(DataDir::is_begun),
        webhooks: pool.feed(),
        spans: poster.as_ref().map(BatchPoster::feed),
        recovery: RecoveryProgress::new(data.as_ref().map(DataDir::path), shards),
        certificates,
        epoch: uuid::Uuid::new_v4().as_u64_pair().1,
        fleet: owned.map(Mutex::new),
        config,
        live: Arc::clone(&live),
    });
    let Listeners { of_shards: listeners, shown, http, hosts, files, .. } = ports;
    let (running, ready) = spawn(&host, common.config.placement, &common, mesh, listeners)?;
    let (mut data_watch, mut backups) = (None, None);
    match await_shards(&common, &ready, &signal_handler, &report) {
        Begun::Ready => {
            if let Some(data) = &mut data {
                data.set_begun(true).map_err(|error| other("data path", error))?;
            }
            if let (Some(data), Some(presence)) = (&data, presence) {
                let made = DataDirWatch::new(data, presence);
                data_watch = Some(made.map_err(|error| other("data path", error))?);
            }
            report
                .end()
                .map_err(|error| other("the answers at HTTP_PORT before the start", error))?;
            ending.open.store(true, Ordering::Release);
            wakers.iter().for_each(Waker::wake);
            shares.announce(host.nofile, shards, most.0);
            announce(&common, &shown, http, &hosts);
            audit.note_start(shards);
            backups = begin_backups(&common, data.as_ref(), &wakers)?;
            signal_handler.is_ready(&format!("serves {shown}"));
            let mut watchdog = Watchdog::new(&manager, shards);
            let pause =
                watchdog.as_ref().map_or(DataDirWatch::PAUSE, |it| it.pause(DataDirWatch::PAUSE));
            // An error here would mean that the set of signals is not one.
            let news = || (guard.changes(), live.changes());
            let mut known = news();
            let mut spare = SpareMemory::default();
            let look = || {
                spare.look(Instant::now());
                if known != news() {
                    known = news();
                    wakers.iter().for_each(Waker::wake);
                }
                if let Some(watchdog) = &mut watchdog {
                    watchdog.look(&ending.pulse, || wakers.iter().for_each(Waker::wake));
                }
                if let Some(data_watch) = &mut data_watch
                    && data_watch.look()
                {
                    wakers.iter().for_each(Waker::wake);
                }
            };
            let signal = signal_handler.wait(pause, look);
            let signal = signal.map_err(|error| other("cannot wait for signals", error))?;
            tracing::info!("stopping on {signal:?}");
        }
        Begun::Failed => {}
        Begun::Stopped(signal) => {
            tracing::info!("stopping on {signal:?}, before all shards had read their logs");
            // Shards that have read their logs would wait for the others.
            ending.failed.store(true, Ordering::Release);
            common.recovery.give_up();
        }
    }
    let limit = Duration::from_millis(live.config().shutdown_timeout_ms);
    let give_up = Instant::now() + limit;
    if let Some(backups) = backups {
        backups.stop(give_up.min(Instant::now() + BACKUP_END_MAX));
    }
    manager.stopping(limit + HELD_MAX + HELD_MAX);
    ending.wanted.store(true, Ordering::Release);
    wakers.iter().for_each(Waker::wake);
    let outcome = match running.join_before(give_up + HELD_MAX) {
        // Each has said why, in a line of its own.
        Some(outcome) => outcome.map_err(|Failed(shard)| {
            StartError::Other(format!("shard {shard} has failed, as said above"))
        }),
        None => Err(StartError::Other(format!(
            "the log was not closed within {} ms: the kernel holds a shard, as while a disk does not answer",
            (limit + HELD_MAX).as_millis()
        ))),
    };
    if let Some(Ok(mut owned)) = common.fleet.as_ref().map(Mutex::lock) {
        owned.release();
    }
    let outcome = outcome.and(data_watch.map_or(Ok(()), DataDirWatch::end));
    drop(files);
    drop(data);
    delivery::stop(pool, give_up);
    spans::delivery::stop(poster, give_up);
    audit.end(outcome.is_ok(), Instant::now() + AUDIT_END_MAX);
    if outcome.is_ok() {
        tracing::info!("stopped");
    }
    outcome
}

/// Starts the thread that makes backups by the schedule; not without a data directory.
fn begin_backups(
    common: &Arc<Common>,
    data: Option<&DataDir>,
    wakers: &[Waker],
) -> Result<Option<Scheduler>, StartError> {
    let (Some(data), Some(first)) = (data, wakers.first().cloned()) else { return Ok(None) };
    let live = Arc::clone(&common.live);
    let scheduler = Scheduler::start(Surroundings {
        config: Box::new(move || live.config()),
        wake: Box::new(move || first.wake()),
        state: Arc::clone(&common.backups),
        data: data.path().to_path_buf(),
    });
    scheduler.map(Some).map_err(|error| other("cannot start the backups", error))
}

/// From the root on, whatever the settings say and whatever becomes of the directory later.
fn home_of(data: &DataDir) -> std::io::Result<Home> {
    let path = std::fs::canonicalize(data.path());
    let path = path.unwrap_or_else(|_| data.path().to_path_buf());
    Ok(Home { path: path.to_string_lossy().into(), directory: data.identity()?.to_string() })
}

/// Makes the data directory one of as many shards as there are.
fn fit(
    config: &Config,
    data: &mut DataDir,
    slots: &Slots,
    signal_handler: &SignalHandler,
    report: &StartReport,
) -> Result<(), Halt> {
    match data.leftover() {
        None => {}
        Some(Leftover::Discarded) => tracing::info!(
            "removed what a start had left that was broken off while it changed the number of shards"
        ),
        Some(Leftover::Moved) => {
            tracing::info!("ended a change to {} shards that had been broken off", data.shards());
        }
    }
    let (before, after) = (usize::from(data.shards()), slots.shards());
    if before == after {
        return Ok(());
    }
    let path = data.path().display().to_string();
    tracing::info!("{path} was made for {before} shards: changing it to {after}");
    let began = Instant::now();
    let mut pace = ProgressLimiter::default();
    let mut watch = |progress: &Progress| {
        if !pace.is_due() {
            return true;
        }
        report.progress(format!("changing from {before} shards to {after}: {progress}"));
        if pace.tells() {
            tracing::info!("changing from {before} shards to {after}: {progress}");
        }
        match signal_handler.wants_end() {
            Some(signal) => {
                tracing::info!(
                    "stopping on {signal:?} in the middle of the change, which the next start begins anew \
                     or ends"
                );
                false
            }
            None => true,
        }
    };
    let contents = reshard(config, data, slots, &mut watch)?;
    let duration_ms = began.elapsed().as_millis() as u64;
    tracing::info!(
        duration_ms,
        "changed {path} from {before} shards to {after}: {} jobs in {duration_ms} ms",
        contents.jobs_in_all(),
    );
    Ok(())
}

fn spawn(
    host: &Host,
    choice: PlacementChoice,
    common: &Arc<Common>,
    mesh: Vec<Endpoint<Batch>>,
    listeners: Vec<Vec<BoundListener>>,
) -> Result<(Shards<Failed>, Receiver<()>), StartError> {
    let (ready, is_ready) = channel();
    let random = SystemRandom::new();
    let mut seeds = Vec::with_capacity(mesh.len());
    for (endpoint, listeners) in mesh.into_iter().zip(listeners) {
        let mut chance = [0; 8];
        random.fill(&mut chance).map_err(|_| other("randomness", "the system gives none"))?;
        let chance = u64::from_le_bytes(chance);
        seeds.push(Seed { endpoint, listeners, chance, ready: ready.clone() });
    }
    let placement = placement::of(choice, host, seeds.len());
    let common = Arc::clone(common);
    let shards =
        runtime::spawn_shards(&host.cpus, placement, seeds, move |index, seed| async move {
            // On the heap: it holds the whole shard, and grows with it.
            let outcome = run_shard(&common, index, seed);
            outcome.map_err(|reason| {
                tracing::error!(shard = index, "shard {index}: {reason}");
                common.ending.failed.store(true, Ordering::Release);
                // The others hold jobs whose answers need this shard: the process ends as a whole.
                signal::request_stop();
                Failed(index)
            })
        });
    Ok((shards.map_err(|error| other("cannot start the shards", error))?, is_ready))
}

/// Waits until all shards have read their logs and know of each other.
fn await_shards(
    common: &Common,
    ready: &Receiver<()>,
    signal_handler: &SignalHandler,
    report: &StartReport,
) -> Begun {
    let mut waiting = common.slots.shards();
    let mut pace = ProgressLimiter::default();
    while waiting > 0 {
        match ready.recv_timeout(READY_PAUSE) {
            Ok(()) => waiting -= 1,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Begun::Failed,
        }
        let signal = signal_handler.wants_end();
        // A shard that fails at its start is waited for by the others, who are never ready then.
        if common.ending.failed.load(Ordering::Acquire) {
            return Begun::Failed;
        }
        if let Some(signal) = signal {
            return Begun::Stopped(signal);
        }
        report.progress(common.recovery.to_string());
        if pace.tells() {
            tracing::info!("recovering: {}", common.recovery);
        }
    }
    Begun::Ready
}

/// Says where the server listens.
fn announce(common: &Common, shown: &str, http: Option<SocketAddr>, hosts: &[IpAddr]) {
    let config = &common.config;
    for line in warnings::of(config, hosts, &rules(config)) {
        tracing::warn!("{line}");
    }
    let settings = config.config_file.as_deref().filter(|_| config.has_tokens_in_file());
    for path in settings.into_iter().chain(config.auth_tokens_file.as_deref()) {
        if let Some(line) = warnings::of_tokens(path) {
            tracing::warn!("{line}");
        }
    }
    let readable = config.data_path().and_then(|path| warnings::of_data(&path));
    if let Some(line) = readable {
        tracing::warn!("{line}");
    }
    let durability = match (config.data_path(), config.durability) {
        (None, _) => "memory".to_string(),
        (Some(_), Durability::Written) => {
            format!("written, synced every {} ms", config.fsync_interval_ms)
        }
        (Some(_), Durability::Synced) => "synced".to_string(),
        (Some(_), Durability::Replicated) => "replicated".to_string(),
    };
    if let Some(certificates) = &common.certificates {
        tracing::info!(
            "TLS with the certificate of {}",
            certificate::shown(&certificates.identity())
        );
    }
    if let Some(address) = http.filter(|_| config.ui) {
        tracing::info!("the dashboard is at {}", dashboard_url(config, address));
    }
    let data = config.data_path().map_or("none".into(), |path| path.display().to_string());
    let shards = common.slots.shards();
    tracing::info!(
        "corq {} serves {shown}; {shards} shards; durability {durability}; data {data}",
        env!("CARGO_PKG_VERSION"),
    );
}

/// Where a browser on this machine finds the dashboard.
fn dashboard_url(config: &Config, address: SocketAddr) -> String {
    let scheme = if config.tls_cert_file.is_some() { "https" } else { "http" };
    let path = &config.ui_path;
    if address.ip().is_unspecified() {
        format!("{scheme}://localhost:{}{path}/", address.port())
    } else {
        format!("{scheme}://{address}{path}/")
    }
}

fn run_shard(common: &Common, index: usize, seed: Seed) -> Result<(), String> {
    let config = &common.config;
    let shards = common.slots.shards();
    let mut clock = Clock::new();
    let mut shard = Shard::new(shard_config(config, shards, seed.chance));
    let kept = (common.log_id, common.is_begun);
    let mirrored = common.fleet.as_ref().zip(config.data_path());
    let scribe = mirrored
        .and_then(|(owned, data)| owned.lock().ok()?.scribe(index, &data, seed.endpoint.waker()));
    let opened =
        open_log(config, kept, common.log_files, index, scribe, &common.recovery, &mut shard);
    let log = match opened {
        Err(_) if common.recovery.is_given_up() => return Ok(()),
        opened => opened?,
    };
    let now_ms = clock.read();
    let mut journal = LogJournal::new(log);
    clock::check(index, now_ms, &mut shard, &mut journal);
    shard.restart(now_ms);
    let mut reactor = Reactor::new(net::Config {
        connections_max: config.connections_max as usize,
        gather_us: config.gather_us(),
        handshake_ms: config.tls_handshake_timeout_ms,
        handshakes_bytes_max: common.client_memory.handshakes(),
        ..net::Config::default()
    })
    .map_err(|error| format!("cannot set up its ring: {error}"))?;
    reactor.limit(common.permits.clone());
    reactor.watch(seed.endpoint.wakeup());
    let engine = Engine { shard, journal };
    let outbox = Outbox::new(seed.endpoint, shards);
    let shard_settings = ShardSettings {
        slots: common.slots.clone(),
        access: ShardAccess::new(
            Arc::clone(&common.guard),
            config.ui_read_only,
            SlowedRefusals::new(wrong_tokens_rule(config)),
        ),
        audit: common.audit.log(),
        backups: BackupPoints::new(Arc::clone(&common.backups)),
        webhooks: Webhooks::new(common.webhooks.clone(), config.webhook_allow_private),
        spans: Spans::new(common.spans.clone()),
        http: HttpState::new(http_settings(config)),
        client_memory: common.client_memory,
        unwritten_bytes_max: config.log_waiting_mb << 20,
        certificates: common.certificates.clone(),
        data_presence: DataPresence::new(common.presence.clone(), common.home.clone()),
        about: common.about.clone(),
        permits: common.permits.clone(),
        settings: FollowedSettings::new(Arc::clone(&common.live)),
    };
    let mut server = ShardServer::new(engine, outbox, shard_settings, index, clock.now_ms());
    server.subscribers.begin(common.epoch, shards);
    server.events.keep(config.events_kept as usize);
    let ending = Arc::clone(&common.ending);
    let timeout_ms = config.shutdown_timeout_ms;
    let turn =
        EventLoop::new(server, reactor, clock, seed.listeners, seed.ready, ending, timeout_ms);
    turn.run().map_err(|fatal: Fatal| fatal.to_string())
}

fn token_sources(config: &Config) -> Sources {
    Sources { listed: config.auth_tokens.join(","), file: config.auth_tokens_file.clone() }
}
