//! The connections of a shard, and all that the shard may ask of one.
//!
//! Nothing here talks to the kernel about data: a wish is noted, and the reactor's next wait turns
//! the wishes of a turn into operations. An id whose connection is gone is answered with nothing.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::connection::{Connection, Life};
use super::handshake_memory::HandshakeMemory;
use super::output::Pool;
use super::permits::Permit;
use super::shared::{Shared, Tally};
use super::tls_session::TlsSession;
use super::{Config, ConnId};

/// In these a connection has so much time.
const CUT: [Life; 3] = [Life::Draining, Life::Lingering, Life::Handshake];

/// A connection between two shards: its socket and, where it has them, its keys.
#[derive(Debug)]
pub struct Socket {
    pub(super) fd: OwnedFd,
    pub(super) tls: Option<Box<TlsSession>>,
    pub(super) permit: Permit,
}

struct Slot {
    generation: u32,
    conn: Option<Connection>,
}

/// The connections of a shard.
pub struct Connections {
    slots: Vec<Slot>,
    free: Vec<u32>,
    pub(super) pool: Pool,
    /// To be looked at before the next wait; each at most once.
    pub(super) dirty: Vec<ConnId>,
    /// Closed connections and when they are cut; each list is in order of time. What is in them is
    /// bounded by the closes within these times.
    pub(super) draining: VecDeque<(Instant, ConnId)>,
    pub(super) lingering: VecDeque<(Instant, ConnId)>,
    /// Connections in their handshake, and when each is cut if the handshake is not over.
    pub(super) handshaking: VecDeque<(Instant, ConnId)>,
    handshake_memory: HandshakeMemory,
    drain: Duration,
    begin_handshake: Duration,
    tls: usize,
    most: usize,
    turned_away: u64,
    /// Memory that outputs hold each for itself.
    own_bytes: usize,
    shared: Tally,
    /// How often one has begun to have output, or some of it has been taken.
    begun: u64,
}

impl Connections {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            pool: Pool::default(),
            dirty: Vec::new(),
            draining: VecDeque::new(),
            lingering: VecDeque::new(),
            handshaking: VecDeque::new(),
            handshake_memory: HandshakeMemory::new(config.handshakes_bytes_max),
            drain: Duration::from_millis(config.drain_ms),
            begin_handshake: Duration::from_millis(config.handshake_ms),
            tls: 0,
            most: config.connections_max,
            turned_away: 0,
            own_bytes: 0,
            shared: Tally::default(),
            begun: 0,
        }
    }

    /// Connections there are, those being closed included.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many of them speak TLS.
    pub fn tls_connections(&self) -> usize {
        self.tls
    }

    /// True until the shard closes it (or the id is stale).
    pub fn is_open(&self, id: ConnId) -> bool {
        self.get(id).is_some_and(|conn| conn.life == Life::Open)
    }

    /// The peer's address.
    pub fn peer(&self, id: ConnId) -> io::Result<SocketAddr> {
        let conn = self.get(id).ok_or(io::ErrorKind::NotConnected)?;
        let address = SockRef::from(&conn.fd).peer_addr()?;
        address.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// Where to append output. Only append: what was there before is spoken for. `None` if nothing
    /// can be sent any more (stale, closed, or the peer is gone).
    pub fn output(&mut self, id: ConnId) -> Option<&mut Vec<u8>> {
        let Self { slots, pool, .. } = self;
        let conn = find_mut(slots, id)?;
        let usable = conn.life == Life::Open && !conn.broken;
        usable.then(|| conn.output.filling(pool))
    }

    /// Appends bytes that others send as well, without a copy. False if nothing can be sent any more.
    pub fn append_shared(&mut self, id: ConnId, shared: &Shared) -> bool {
        let Some(conn) = find_mut(&mut self.slots, id) else { return false };
        let usable = conn.life == Life::Open && !conn.broken;
        if usable {
            conn.output.append_shared(shared.clone());
        }
        usable
    }

    /// Where shared bytes are counted.
    pub fn tally(&self) -> &Tally {
        &self.shared
    }

    /// Memory of all output that the kernel has not taken: what is shared counts once. What has been appended
    /// since the last [`Self::allow`] or [`Self::recount`] of a connection is not in it.
    pub fn output_bytes(&self) -> usize {
        self.own_bytes + self.shared.bytes()
    }

    /// Memory of one connection's output that no other has.
    pub fn own_output_bytes(&self, id: ConnId) -> usize {
        self.get(id).map_or(0, |conn| conn.own_bytes)
    }

    /// Notes how much a connection is to be sent as soon as it has taken what it has: where there is too much of all, that
    /// counts as what it has not taken.
    pub fn note_owed(&mut self, id: ConnId, bytes: usize) {
        if let Some(conn) = find_mut(&mut self.slots, id) {
            conn.owed_bytes = bytes;
        }
    }

    /// Bytes that it has not taken, and that it is owed besides.
    pub fn untaken(&self, id: ConnId) -> usize {
        self.get(id).map_or(0, |conn| conn.unsent() + conn.owed_bytes)
    }

    /// Looks again how much memory a connection's output holds.
    pub fn recount(&mut self, id: ConnId) {
        let Self { slots, own_bytes, begun, .. } = self;
        if let Some(conn) = find_mut(slots, id) {
            conn.recount(own_bytes, begun);
        }
    }

    /// The connections that have to go if there is more output than `bytes_max` of all; `None` if there is not. Of those that
    /// have more than few, the ones from which the kernel has taken nothing for the longest. Clients that read come last,
    /// however much they have left; bytes that may not be sent yet do not count. Shared bytes count in full with each
    /// connection, so the list may be too short. A connection that alone has some left may have `alone_bytes_max` in any case,
    /// not counting what its memory has grown beyond that.
    pub fn overdue(&self, bytes_max: usize, alone_bytes_max: usize) -> Option<Vec<ConnId>> {
        let mut excess = self.output_bytes().checked_sub(bytes_max).filter(|bytes| *bytes > 0)?;
        let full = self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let waits = |conn: &&Connection| conn.life != Life::Over && !conn.is_drained();
            let conn = slot.conn.as_ref().filter(waits)?;
            let bytes = conn.unsent().max(conn.own_bytes) + conn.owed_bytes;
            let id = ConnId { index: index as u32, generation: slot.generation };
            (bytes > 0).then_some((conn.untaken_since, bytes, id))
        });
        let mut full: Vec<_> = full.collect();
        if matches!(full[..], [(.., id)] if self.untaken(id) <= alone_bytes_max) {
            return None;
        }
        let average = full.iter().map(|&(_, bytes, _)| bytes).sum::<usize>() / full.len().max(1);
        full.retain(|&(_, bytes, _)| bytes >= average / 2);
        full.sort_unstable_by_key(|&(since, ..)| since);
        let goes = |&(_, bytes, _): &(u64, usize, ConnId)| {
            let wanted = excess > 0;
            excess = excess.saturating_sub(bytes);
            wanted
        };
        Some(full.into_iter().take_while(goes).map(|(.., id)| id).collect())
    }

    /// Bytes ever appended to this connection's output.
    pub fn appended(&self, id: ConnId) -> u64 {
        self.get(id).map_or(0, |conn| conn.output.appended())
    }

    /// Appended bytes that the kernel has not taken yet, allowed or not. The limit on them is the
    /// shard's business.
    pub fn unsent(&self, id: ConnId) -> usize {
        self.get(id).map_or(0, Connection::unsent)
    }

    /// Lets the output go up to the position `upto`, counted in bytes ever appended. Positions only
    /// rise; one that is not appended yet counts as the end.
    pub fn allow(&mut self, id: ConnId, upto: u64) {
        self.with(id, |conn, _| conn.output.allow(upto));
    }

    /// Stops reading, until [`Self::resume_reading`]; `Event::Drained` says when the output is empty
    /// meanwhile. Bytes that the kernel has already taken from the socket still arrive. While
    /// paused, the peer's end is not noticed, except by a send that fails.
    pub fn pause_reading(&mut self, id: ConnId) {
        self.with(id, |conn, _| conn.paused = true);
    }

    /// Reads again.
    pub fn resume_reading(&mut self, id: ConnId) {
        self.with(id, |conn, _| conn.paused = false);
    }

    /// Stops reading and, once everything appended is sent, gives the socket away by
    /// `Event::GivenAway`. A peer that ends before calls it off: then `Event::Ended` comes instead, and
    /// the connection stays.
    pub fn give_away(&mut self, id: ConnId) {
        // Of one that has ended already the shard has yet to learn.
        self.with(id, |conn, _| conn.leaving = !conn.half_closed && !conn.broken);
    }

    /// Takes in a connection that another shard has given away.
    pub fn adopt(&mut self, socket: Socket) -> ConnId {
        self.insert(socket, Life::Open)
    }

    /// Takes in one that another shard has only accepted, unless there are as many as may be.
    pub fn seat(&mut self, socket: Socket) -> Option<ConnId> {
        if self.len() >= self.most {
            self.turned_away += 1;
            return None;
        }
        Some(self.adopt(socket))
    }

    /// Keeps one that was accepted for any shard, unless there are more than may be beside those that only pass:
    /// then it is gone.
    pub fn settle(&mut self, id: ConnId, passing: usize) -> bool {
        let stays = self.len() <= self.most + passing;
        if !stays {
            self.turned_away += 1;
            self.abort(id);
        }
        stays
    }

    /// Connections that [`Self::seat`] and [`Self::settle`] had no room for.
    pub fn turned_away(&self) -> u64 {
        self.turned_away
    }

    /// Tells the shard once, by `Event::Drained`, when all output has been taken by the kernel. There
    /// must be some that has not.
    pub fn notify_when_drained(&mut self, id: ConnId) {
        self.with(id, |conn, _| conn.watched = true);
    }

    /// Sends what is allowed, then closes. From now on no more bytes arrive; `allow` still works
    /// until the output has drained. A peer that does not read is cut after `drain_ms`.
    pub fn close(&mut self, id: ConnId) {
        let cut_at = Instant::now() + self.drain;
        let mut waits = false;
        self.with(id, |conn, _| {
            if conn.life == Life::Open {
                conn.life = Life::Draining;
                waits = !conn.is_drained();
            }
        });
        if waits {
            self.draining.push_back((cut_at, id));
        }
    }

    /// Closes all that speak TLS, for the end of the process: their peers can tell it from a cut.
    pub fn close_tls(&mut self) {
        let ids: Vec<ConnId> = self
            .slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.conn.as_ref().is_some_and(|conn| conn.tls.is_some()))
            .map(|(index, slot)| ConnId { index: index as u32, generation: slot.generation })
            .collect();
        for id in ids {
            self.close(id);
        }
    }

    /// Takes back the memory of [`super::Event::Decrypted`].
    pub fn give_back(&mut self, bytes: Vec<u8>) {
        self.pool.give(bytes);
    }

    /// Closes at once; what is not sent is dropped and the peer gets a reset.
    pub fn abort(&mut self, id: ConnId) {
        self.with(id, |conn, pool| {
            // Let a connection that has broken the rules of TLS end by itself, once its peer has got the alert.
            let ends = conn.tls.as_ref().is_some_and(|tls| tls.failed);
            if conn.life != Life::Over && !ends {
                conn.reset(pool);
            }
        });
    }

    fn with(&mut self, id: ConnId, wish: impl FnOnce(&mut Connection, &mut Pool)) {
        let Self { slots, pool, dirty, own_bytes, begun, handshake_memory, .. } = self;
        if let Some(conn) = find_mut(slots, id) {
            wish(conn, pool);
            conn.recount(own_bytes, begun);
            handshake_memory.note(id, conn);
            if !std::mem::replace(&mut conn.dirty, true) {
                dirty.push(id);
            }
        }
    }

    /// More has come of a handshake.
    pub(super) fn note_handshake(&mut self, id: ConnId) {
        if let Some(conn) = find_mut(&mut self.slots, id) {
            self.handshake_memory.note(id, conn);
        }
    }

    /// The handshake that has to be given up, if all that has come of them is too much together.
    pub(super) fn handshake_over_limit(&self) -> Option<ConnId> {
        self.handshake_memory.over_limit()
    }

    /// Memory of what has come of handshakes that are not over.
    pub fn handshake_bytes(&self) -> usize {
        self.handshake_memory.bytes()
    }

    /// Notes that a connection must be looked at.
    pub(super) fn touch(&mut self, id: ConnId) {
        self.with(id, |_, _| {});
    }

    /// A new connection that begins with a handshake, for which it has so much time.
    pub(super) fn begin_handshake(
        &mut self,
        fd: OwnedFd,
        permit: Permit,
        tls: TlsSession,
    ) -> ConnId {
        let socket = Socket { fd, tls: Some(Box::new(tls)), permit };
        let id = self.insert(socket, Life::Handshake);
        self.handshaking.push_back((Instant::now() + self.begin_handshake, id));
        id
    }

    /// A connection whose handshake has failed is closed once its peer has been told.
    pub(super) fn close_failed(&mut self, id: ConnId) {
        let cut_at = Instant::now() + self.drain;
        self.with(id, |conn, pool| {
            conn.output.discard(pool);
            conn.life = Life::Draining;
            if let Some(tls) = &mut conn.tls {
                tls.fail();
            }
        });
        self.draining.push_back((cut_at, id));
    }

    /// A connection that came for TLS goes on without.
    pub(super) fn continue_without_tls(&mut self, id: ConnId) {
        let mut was = None;
        self.with(id, |conn, pool| {
            was = conn.tls.take();
            if let Some(tls) = &mut was {
                tls.discard(pool);
            }
            conn.life = Life::Open;
        });
        self.tls -= usize::from(was.is_some());
    }

    pub(super) fn insert(&mut self, socket: Socket, life: Life) -> ConnId {
        let Socket { fd, tls, permit } = socket;
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, conn: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        assert!(slot.conn.is_none(), "slot {index} is taken");
        self.tls += usize::from(tls.is_some());
        slot.conn = Some(Connection { life, tls, ..Connection::new(fd, permit) });
        let id = ConnId { index, generation: slot.generation };
        self.touch(id);
        id
    }

    /// Frees the slot and returns the socket. The kernel must hold nothing of it.
    pub(super) fn remove(&mut self, id: ConnId) -> Socket {
        let slot = &mut self.slots[id.index as usize];
        assert_eq!(slot.generation, id.generation, "a stale connection removed");
        let conn = slot.conn.take().filter(Connection::is_quiet);
        let mut conn = conn.expect("a connection removed while the kernel holds it");
        conn.life = Life::Over;
        self.handshake_memory.note(id, &mut conn);
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index);
        self.own_bytes -= conn.own_bytes;
        let Connection { fd, tls, permit, .. } = conn;
        self.tls -= usize::from(tls.is_some());
        Socket { fd, tls, permit }
    }

    pub(super) fn get(&self, id: ConnId) -> Option<&Connection> {
        let slot = self.slots.get(id.index as usize)?;
        slot.conn.as_ref().filter(|_| slot.generation == id.generation)
    }

    /// A connection, and the pool that its output uses.
    pub(super) fn get_mut(&mut self, id: ConnId) -> Option<(&mut Connection, &mut Pool)> {
        let Self { slots, pool, .. } = self;
        find_mut(slots, id).map(|conn| (conn, pool))
    }

    /// The earliest time at which a closed connection is cut. Those that are gone are forgotten.
    pub(super) fn next_cut(&mut self) -> Option<Instant> {
        let mut earliest = None;
        for life in CUT {
            let due = loop {
                let list = self.cuts(life);
                let Some(&(at, id)) = list.front() else { break None };
                if self.get(id).is_some_and(|conn| conn.life == life) {
                    break Some(at);
                }
                self.cuts(life).pop_front();
            };
            earliest = earliest.into_iter().chain(due).min();
        }
        earliest
    }

    /// Cuts those whose time is up; returns how many had not even taken their output, and how many handshakes
    /// were not over.
    pub(super) fn cut(&mut self, now: Instant) -> (u64, u64) {
        let mut cut = (0, 0);
        for life in CUT {
            while let Some(&(_, id)) = self.cuts(life).front().filter(|(at, _)| *at <= now) {
                self.cuts(life).pop_front();
                if self.get(id).is_none_or(|conn| conn.life != life) {
                    continue;
                }
                cut.0 += u64::from(life == Life::Draining);
                cut.1 += u64::from(life == Life::Handshake);
                self.with(id, |conn, pool| match life {
                    Life::Draining | Life::Handshake => conn.reset(pool),
                    _ => conn.finish(pool),
                });
            }
        }
        cut
    }

    fn cuts(&mut self, life: Life) -> &mut VecDeque<(Instant, ConnId)> {
        match life {
            Life::Draining => &mut self.draining,
            Life::Handshake => &mut self.handshaking,
            _ => &mut self.lingering,
        }
    }
}

fn find_mut(slots: &mut [Slot], id: ConnId) -> Option<&mut Connection> {
    let slot = slots.get_mut(id.index as usize)?;
    slot.conn.as_mut().filter(|_| slot.generation == id.generation)
}
