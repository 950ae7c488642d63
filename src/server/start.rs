//! From settings to running shards, and back.

use super::auth::Guard;
use super::book::Book;
use super::core::{Core, Fittings};
use super::deliveries;
use super::engine::Engine;
use super::http::{Desk, Rule, Settings};
use super::message::Batch;
use super::post::Post;
use super::route::Slots;
use super::turn::{Ending, Fatal, Turn};
use super::webhooks::Webhooks;
use crate::config::{Config, Durability, RequestsMax};
use corq_io::clock::Clock;
use corq_io::host::{self, Host, HostError};
use corq_io::log::{DataDir, FileDisk, Log, LogConfig, MemoryDisk, Mode, OpenError, Recovery};
use corq_io::mesh::{Endpoint, Mesh, Waker};
use corq_io::net::{self, Reactor};
use corq_io::runtime::{self, Shards};
use corq_io::signal::{self, Signals};
use corq_io::store::Store;
use corq_io::webhook::Feed;
use corq_shards::Shard;
use ring::rand::{SecureRandom, SystemRandom};
use std::fmt;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Why the server did not start, or did not end well. One line each.
#[derive(Debug)]
pub enum StartError {
    /// The machine lacks something.
    Host(Vec<HostError>),
    /// Something else, said in full.
    Other(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(errors) => {
                for (place, error) in errors.iter().enumerate() {
                    write!(f, "{}{error}", if place > 0 { "\n" } else { "" })?;
                }
                Ok(())
            }
            Self::Other(text) => f.write_str(text),
        }
    }
}

fn other(what: impl fmt::Display, error: impl fmt::Display) -> StartError {
    StartError::Other(format!("{what}: {error}"))
}

/// How long a start waits for a port that is in use.
const PORT_PATIENCE: Duration = Duration::from_secs(3);
/// How often it tries.
const PORT_PAUSE: Duration = Duration::from_millis(20);

/// How often the start looks whether a shard has failed.
const READY_PAUSE: Duration = Duration::from_millis(50);

/// What one shard is given.
struct Seed {
    endpoint: Endpoint<Batch>,
    sockets: (TcpListener, TcpListener),
    chance: u64,
    ready: Sender<()>,
}

/// What all shards share, and only read.
struct Common {
    config: Config,
    slots: Slots,
    guard: Arc<Guard>,
    ending: Arc<Ending>,
    /// Of the data directory.
    log_id: u64,
    webhooks: Feed,
}

/// Runs the server until SIGTERM or SIGINT.
pub fn serve(config: Config) -> Result<(), StartError> {
    let signals = Signals::block().map_err(|error| other("cannot block signals", error))?;
    let host = host::probe().map_err(StartError::Host)?;
    let shards = config.shards.map_or(host.cpus.len(), usize::from);
    let data = match config.data_path() {
        None => None,
        Some(path) => Some(DataDir::open(&path, shards as u16).map_err(|e| other("data path", e))?),
    };
    config.check(shards).map_err(StartError::Other)?;
    let (sockets, addresses) = bind(&config, shards)?;
    let mesh = Mesh::<Batch>::new(shards).map_err(|error| other("cannot make the mesh", error))?;
    let wakers: Vec<Waker> = mesh.iter().map(Endpoint::waker).collect();
    let guard = Guard::new(config.tokens())
        .map_err(|_| StartError::Other("the system gives no randomness".into()))?;
    let ending = Arc::new(Ending::default());
    let pool = deliveries::start(&config).map_err(|e| other("cannot start the webhooks", e))?;
    let common = Arc::new(Common {
        slots: Slots::new(shards),
        guard: Arc::new(guard),
        ending: Arc::clone(&ending),
        log_id: data.as_ref().map_or(0, DataDir::id),
        webhooks: pool.feed(),
        config,
    });
    let (running, ready) = spawn(&host, &common, mesh, sockets)?;
    let failed = announce(&common, &ready, addresses, shards);
    if !failed {
        // An error here would mean that the set of signals is not one.
        let signal = signals.wait().map_err(|error| other("cannot wait for signals", error))?;
        tracing::info!("stopping on {signal:?}");
    }
    let give_up = Instant::now() + Duration::from_millis(common.config.shutdown_timeout_ms);
    ending.wanted.store(true, Ordering::Release);
    wakers.iter().for_each(Waker::wake);
    let outcome = running.join().map_err(StartError::Other);
    drop(data);
    deliveries::stop(pool, give_up);
    if outcome.is_ok() {
        tracing::info!("stopped");
    }
    outcome
}

/// Sockets of every shard on both ports.
#[allow(clippy::type_complexity, reason = "a pair of sockets per shard and the two addresses")]
fn bind(
    config: &Config,
    shards: usize,
) -> Result<(Vec<(TcpListener, TcpListener)>, (SocketAddr, SocketAddr)), StartError> {
    let bind_all = |port: u16, setting: &str| {
        let wished = SocketAddr::new(config.listen_host(), port);
        let fail =
            |error: std::io::Error| other(format!("{setting}: cannot listen on {wished}"), error);
        // Shards share a port by SO_REUSEPORT, which would let a second server share it as well:
        // a socket without it finds out first.
        let probe = listen_patiently(wished).map_err(fail)?;
        let address = probe.local_addr().map_err(fail)?;
        drop(probe);
        let sockets: Result<Vec<_>, _> =
            (0..shards).map(|_| net::listen(address, true).map_err(fail)).collect();
        Ok::<_, StartError>((sockets?, address))
    };
    let (frames, tcp) = bind_all(config.tcp_port, "TCP_PORT")?;
    let (https, http) = bind_all(config.http_port, "HTTP_PORT")?;
    Ok((frames.into_iter().zip(https).collect(), (tcp, http)))
}

/// Listens once the address is free. A server that was just killed keeps its port until the kernel
/// has taken down its ring, some milliseconds after the process is gone.
fn listen_patiently(address: SocketAddr) -> std::io::Result<TcpListener> {
    let give_up = Instant::now() + PORT_PATIENCE;
    loop {
        match net::listen(address, false) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < give_up => {
                std::thread::sleep(PORT_PAUSE);
            }
            outcome => return outcome,
        }
    }
}

fn spawn(
    host: &Host,
    common: &Arc<Common>,
    mesh: Vec<Endpoint<Batch>>,
    sockets: Vec<(TcpListener, TcpListener)>,
) -> Result<(Shards<String>, Receiver<()>), StartError> {
    let (ready, is_ready) = channel();
    let random = SystemRandom::new();
    let mut seeds = Vec::with_capacity(mesh.len());
    for (endpoint, sockets) in mesh.into_iter().zip(sockets) {
        let mut chance = [0; 8];
        random.fill(&mut chance).map_err(|_| other("randomness", "the system gives none"))?;
        let chance = u64::from_le_bytes(chance);
        seeds.push(Seed { endpoint, sockets, chance, ready: ready.clone() });
    }
    let common = Arc::clone(common);
    let shards = runtime::spawn_shards(&host.cpus, seeds, move |index, seed| async move {
        let outcome = run_shard(&common, index, seed).await;
        if let Err(reason) = &outcome {
            tracing::error!("shard {index}: {reason}");
            common.ending.failed.store(true, Ordering::Release);
            // The others hold jobs whose answers need this shard: the process ends as a whole.
            signal::request_stop();
        }
        outcome
    });
    Ok((shards.map_err(|error| other("cannot start the shards", error))?, is_ready))
}

/// Says where the server listens, once it does. True if it never will.
fn announce(
    common: &Common,
    ready: &Receiver<()>,
    (tcp, http): (SocketAddr, SocketAddr),
    shards: usize,
) -> bool {
    for _ in 0..shards {
        // A shard that fails at its start is waited for by the others, who are never ready then.
        while let Err(waited) = ready.recv_timeout(READY_PAUSE) {
            let failed = common.ending.failed.load(Ordering::Acquire);
            if failed || waited == RecvTimeoutError::Disconnected {
                return true;
            }
        }
    }
    let config = &common.config;
    if config.is_open_to_strangers() {
        tracing::warn!(
            "listening on {} without AUTH_TOKENS: everybody who reaches this address can read and \
             delete every job",
            config.listen_host()
        );
    }
    let durability = match (config.data_path(), config.durability) {
        (None, _) => "memory".to_string(),
        (Some(_), Durability::Written) => {
            format!("written, synced every {} ms", config.fsync_interval_ms)
        }
        (Some(_), Durability::Synced) => "synced".to_string(),
    };
    let data = config.data_path().map_or("none".into(), |path| path.display().to_string());
    tracing::info!(
        "corq {} serves tcp {tcp}, http {http}; {shards} shards; durability {durability}; data {data}",
        env!("CARGO_PKG_VERSION"),
    );
    false
}

async fn run_shard(common: &Common, index: usize, seed: Seed) -> Result<(), String> {
    let config = &common.config;
    let shards = common.slots.shards();
    let mut clock = Clock::new();
    let mut shard = Shard::new(corq_shards::Config {
        completed_max: config.completed_max,
        completed_retention_ms: config.completed_retention_ms,
        span_bits: (config.segment_mb << 20).trailing_zeros(),
        chore_slice: corq_shards::SLICE,
        seed: seed.chance,
    });
    let log = open_log(common, index, shards, &mut shard)?;
    shard.restart(clock.read());
    let mut reactor = Reactor::new(net::Config {
        connections_max: config.connections_max as usize,
        ..net::Config::default()
    })
    .map_err(|error| format!("cannot set up its ring: {error}"))?;
    reactor.watch(seed.endpoint.alarm());
    let engine = Engine { shard, book: Book::new(log) };
    let post = Post::new(seed.endpoint, shards);
    let fittings = Fittings {
        slots: common.slots.clone(),
        guard: Arc::clone(&common.guard),
        webhooks: Webhooks::new(common.webhooks.clone(), config.webhook_allow_private),
        http: Desk::new(http_settings(config)),
        unwritten_bytes_max: config.log_waiting_mb << 20,
    };
    let mut core = Core::new(engine, post, fittings, index, clock.now_ms());
    core.streams.keep_alive(config.stream_keep_alive_ms);
    let ending = Arc::clone(&common.ending);
    let timeout_ms = config.shutdown_timeout_ms;
    let turn = Turn::new(core, reactor, clock, seed.sockets, seed.ready, ending, timeout_ms);
    Box::pin(turn.run()).await.map_err(|fatal: Fatal| fatal.to_string())
}

fn http_settings(config: &Config) -> Settings {
    let window_ms = config.rate_limit_window_ms;
    let rule = |most: RequestsMax| most.0.map(|requests_max| Rule { window_ms, requests_max });
    Settings {
        cors_origin: config.cors_allow_origin.clone(),
        request_timeout_ms: config.http_request_timeout_ms,
        idle_timeout_ms: config.http_idle_timeout_ms,
        client_rule: rule(config.rate_limit_max_requests),
        cleanup_ms: config.rate_limit_cleanup_ms,
        frame_rule: rule(config.tcp_rate_limit_max_requests),
        metrics_are_guarded: config.require_auth_for_metrics,
    }
}

fn open_log(
    common: &Common,
    index: usize,
    shards: usize,
    shard: &mut Shard,
) -> Result<Log<Store>, String> {
    let config = &common.config;
    let mode = match config.durability {
        Durability::Written => Mode::Written,
        Durability::Synced => Mode::Synced,
    };
    let store = match config.data_path() {
        None => Store::Memory(MemoryDisk::new()),
        Some(path) => Store::Files(
            FileDisk::open(&path, index as u16, mode)
                .map_err(|error| format!("cannot open its directory: {error}"))?,
        ),
    };
    let settings = LogConfig {
        log_id: common.log_id,
        segment_bytes: config.segment_mb << 20,
        cache_bytes: config.cache_bytes(shards),
        fsync_interval_ms: config.fsync_interval_ms,
        bytes_max: config.data_bytes_max(shards),
        // What the jobs need is known once they are.
        reserve_bytes: 2 * (config.segment_mb << 20),
        ..LogConfig::new(index as u16, mode)
    };
    let began = Instant::now();
    let replay = |position: corq_io::log::Position, record: &[u8]| shard.replay(position.0, record);
    let (log, recovery) =
        Log::open(&settings, store, replay).map_err(|error: OpenError| error.to_string())?;
    report(index, &recovery, began, shard);
    Ok(log)
}

fn report(index: usize, recovery: &Recovery, began: Instant, shard: &Shard) {
    if recovery.records > 0 {
        tracing::info!(
            "shard {index} recovered {} jobs from {} records in {} segments ({} MB) in {} ms",
            shard.holdings().jobs,
            recovery.records,
            recovery.segments,
            recovery.bytes >> 20,
            began.elapsed().as_millis(),
        );
    }
    if let Some(dropped) = &recovery.dropped {
        tracing::warn!(
            "shard {index} dropped {} bytes from byte {} of {} on: {}; the torn tail of a crash, \
             never acknowledged as synced",
            dropped.bytes,
            dropped.offset,
            dropped.file,
            dropped.reason,
        );
    }
}
