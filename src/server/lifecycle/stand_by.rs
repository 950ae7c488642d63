//! A node of a fleet that does not own the logs: it watches the one that does, passes its own clients on to it, and copies its
//! rows if that is wished.

use super::error::{StartError, other};
use super::listeners::Listeners;
use super::signals::SignalHandler;
use crate::config::Config;
use crate::server::connection::protocol::Protocol;
use corq_io::chronicle::{Copier, DatabaseError, Fence, Member, Node, Standing};
use corq_io::net::Inherited;
use corq_io::pass_on::{Door, PassOn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often it looks at the node that owns the logs.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Beats in a lease.
pub(super) const BEATS: u32 = 5;

/// The right to append to each log, and the copies of them that there are.
type Claimed = (Vec<Fence>, Follower);

/// A node that stands by, as it was started.
pub struct StandBy<'a> {
    pub config: &'a Config,
    /// Sockets that another process has opened for this one.
    pub inherited: &'a [Inherited],
    pub signal_handler: &'a SignalHandler,
    pub nonce: i64,
}

/// The owner as it was seen first, since when, and over which connection.
struct Seen {
    owner: Member,
    since: Instant,
    connection: u64,
}

/// The ports of this node, whose connections go to another one.
struct Doors {
    listeners: Listeners,
    connections_max: usize,
    /// Where they lead.
    passes: Option<(Member, PassOn)>,
}

impl StandBy<'_> {
    /// Claims the logs once they are free, or their owner has been seen to stand still for a whole lease. None if the end is
    /// wanted before.
    pub fn claim(
        &self,
        node: &mut Node,
        copiers: Vec<Copier>,
    ) -> Result<Option<Claimed>, StartError> {
        let lease = Duration::from_millis(self.config.fleet_lease_ms);
        let follower = Follower::start(copiers, self.config.fleet_follow)?;
        let (mut seen, mut doors) = (None, None);
        let (mut is_away, mut beaten) = (false, Instant::now());
        loop {
            match self.step(node, lease, &mut seen) {
                Ok(Some(fences)) => {
                    drop(doors);
                    return Ok(Some((fences, follower)));
                }
                Ok(None) => is_away = false,
                Err(error) => {
                    seen = None;
                    if !std::mem::replace(&mut is_away, true) {
                        tracing::warn!("fleet: the database is not to be reached: {error}");
                    }
                }
            }
            if let Some(Seen { owner, .. }) = &seen {
                let doors = match &mut doors {
                    Some(doors) => doors,
                    none => none.insert(self.open_doors()?),
                };
                if doors.lead_to(owner).map_err(|e| other("cannot pass connections on", e))? {
                    self.say(owner);
                }
            }
            if beaten.elapsed() >= lease / BEATS {
                beaten = Instant::now();
                // An answer to it changes nothing for a node that owns nothing.
                let _ = node.beat();
            }
            if let Some(signal) = self.signal_handler.wants_end() {
                tracing::info!("stopping on {signal:?}, while standing by");
                return Ok(None);
            }
            self.signal_handler.is_alive();
            thread::sleep(LOOK_EVERY.min(lease / 10));
        }
    }

    fn step(
        &self,
        node: &mut Node,
        lease: Duration,
        seen: &mut Option<Seen>,
    ) -> Result<Option<Vec<Fence>>, DatabaseError> {
        let owner = match node.standing()? {
            Standing::Free | Standing::Own => return node.claim(self.nonce),
            Standing::Of(owner) => owner,
        };
        match seen {
            Some(before)
                if before.owner.name == owner.name
                    && (before.owner.incarnation, before.owner.beat)
                        == (owner.incarnation, owner.beat)
                    && before.connection == node.connections =>
            {
                if before.since.elapsed() >= lease && node.declare_dead(&owner)? {
                    tracing::warn!(
                        "fleet: node {} has not been heard of for {} ms and counts as dead",
                        owner.name,
                        lease.as_millis()
                    );
                }
            }
            _ => *seen = Some(Seen { owner, since: Instant::now(), connection: node.connections }),
        }
        Ok(None)
    }

    fn open_doors(&self) -> Result<Doors, StartError> {
        let again = |it: &Inherited| {
            let socket = it.socket.try_clone()?;
            Ok(Inherited { name: it.name.clone(), place: it.place.clone(), socket })
        };
        let inherited: std::io::Result<Vec<_>> = self.inherited.iter().map(again).collect();
        let inherited = inherited.map_err(|error| other("inherited sockets", error))?;
        // TLS is between the client and the owner.
        let listeners = Listeners::bind(self.config, 1, None, inherited)?;
        let connections_max = self.config.connections_max as usize;
        Ok(Doors { listeners, connections_max, passes: None })
    }

    fn say(&self, owner: &Member) {
        let (name, address) = (&owner.name, &owner.address);
        tracing::info!(
            "fleet: standing by, node {name} at {address} owns the logs and gets the connections"
        );
        self.signal_handler.is_ready(&format!("stands by, node {name} at {address} serves"));
    }
}

impl Doors {
    /// Passes connections on to this node from now on. False if it did already.
    fn lead_to(&mut self, owner: &Member) -> std::io::Result<bool> {
        let is_same = |(to, _): &(Member, PassOn)| {
            (&to.name, to.incarnation, &to.address)
                == (&owner.name, owner.incarnation, &owner.address)
        };
        if self.passes.as_ref().is_some_and(is_same) {
            return Ok(false);
        }
        // Ends the connections to the one before, which may hang.
        self.passes = None;
        let Some((host, tcp, http)) = owner.place() else { return Ok(false) };
        let all = self.listeners.of_shards.iter().flatten();
        let doors = all.map(|listener| {
            let port = if listener.port.protocol == Protocol::Http { http } else { tcp };
            let socket = listener.socket.try_clone()?;
            Ok(Door { socket, is_path: listener.port.is_path, port })
        });
        let doors = doors.collect::<std::io::Result<Vec<_>>>()?;
        self.passes = Some((owner.clone(), PassOn::open(doors, host, self.connections_max)?));
        Ok(true)
    }
}

/// The thread that copies rows as they come, if that is wished.
pub enum Follower {
    Follows(JoinHandle<Vec<Copier>>, Arc<AtomicBool>),
    Idle(Vec<Copier>),
}

impl Follower {
    fn start(mut copiers: Vec<Copier>, follows: bool) -> Result<Self, StartError> {
        if !follows {
            return Ok(Self::Idle(copiers));
        }
        let ends = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&ends);
        let thread = thread::Builder::new().name("corq-follow".into()).spawn(move || {
            let mut has_failed = false;
            while !ended.load(Ordering::Acquire) {
                let outcome = copiers.iter_mut().try_for_each(Copier::follow);
                if let Err(error) = &outcome
                    && !has_failed
                {
                    tracing::warn!("fleet: rows could not be copied ahead, tried again: {error}");
                }
                has_failed = outcome.is_err();
                thread::park_timeout(LOOK_EVERY);
            }
            copiers
        });
        let thread = thread.map_err(|error| other("cannot start to follow the logs", error))?;
        Ok(Self::Follows(thread, ends))
    }

    /// The copiers, once the thread has ended what it is about: the node must beat meanwhile.
    pub fn end(self) -> Result<Vec<Copier>, StartError> {
        match self {
            Self::Idle(copiers) => Ok(copiers),
            Self::Follows(thread, ends) => {
                ends.store(true, Ordering::Release);
                thread.thread().unpark();
                thread.join().map_err(|_| other("FLEET_FOLLOW", "its thread has failed"))
            }
        }
    }
}
