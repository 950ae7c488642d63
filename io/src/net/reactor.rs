//! The turn's two ends: completions become events, wishes become operations.
#![allow(unsafe_code)] // Operations name memory and descriptors that must outlive them.

use std::collections::VecDeque;
use std::io;
use std::num::NonZero;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::types::Fd;
use io_uring::{cqueue, opcode, squeue};

use super::buffers::{Buffers, GROUP};
use super::connection::{Life, Receive};
use super::connections::Connections;
use super::listener::Listener;
use super::op_token::{CONNECTIONS_MAX, TAG_MAX, Token};
use super::wakeup_batching::{LastHeard, WakeupBatching};
use super::{Config, ConnId, Counters, EndReason, Event, Permits};
use crate::log::DiskOpKind;
use crate::mesh::Wakeup;
use crate::ring::{Enter, Ring};

/// A wait that ends this long after its deadline counts as late.
const LATE: Duration = Duration::from_millis(10);
/// How long a drop waits for the kernel to let go of memory before it leaks the memory instead.
const DROP_LIMIT: Duration = Duration::from_secs(2);

/// The sockets, disk operations and wake-ups of one shard. Lives and dies on the shard's thread.
pub struct Reactor {
    /// Received bytes.
    pub buffers: Buffers,
    /// The connections and their outputs.
    pub conns: Connections,
    /// Counts of the work done so far.
    pub counters: Counters,
    pub(super) ring: Ring,
    pub(super) listeners: Vec<Option<Listener>>,
    pub(super) stopped: bool,
    /// A connection that was being accepted when accepting stopped is still taken.
    pub(super) takes_last: bool,
    /// Some listener has no accept with the kernel.
    pub(super) listeners_dirty: bool,
    wakeup: Option<Arc<Wakeup>>,
    wakeup_armed: bool,
    starved: Vec<ConnId>,
    /// Handshakes of which something has come, in the order in which their turn comes.
    pub(super) handshakes: VecDeque<ConnId>,
    /// Connections with a send that may not wait, since the last look.
    prompt_sends: Vec<ConnId>,
    batching: WakeupBatching,
    /// How many a sleep is for that is no longer than the window.
    clients_wanted: Option<NonZero<u32>>,
    /// When the wake-up came last: other shards are one source of work.
    wakeup_heard: LastHeard,
    /// Disk operations that are not over.
    disk_ops: u32,
    /// Scratch space of a wait.
    reaped: Vec<cqueue::Entry>,
    pub(super) permits: Permits,
    pub(super) config: Config,
}

impl Reactor {
    /// Sets up the ring and the buffers. To be called on the shard's thread, in its executor.
    ///
    /// # Panics
    ///
    /// If a size in `config` is out of its bounds.
    pub fn new(config: Config) -> io::Result<Self> {
        assert!(config.connections_max <= CONNECTIONS_MAX, "connections_max is too large");
        let ring = Ring::new(config.ring_entries)?;
        let batching =
            WakeupBatching::new(if ring.can_batch_wakeups() { config.gather_us } else { 0 });
        Ok(Self {
            buffers: Buffers::new(&ring, config.buffers, config.buffer_bytes)?,
            conns: Connections::new(&config),
            counters: Counters::default(),
            ring,
            listeners: Vec::new(),
            stopped: false,
            takes_last: false,
            listeners_dirty: false,
            wakeup: None,
            wakeup_armed: false,
            starved: Vec::new(),
            handshakes: VecDeque::new(),
            prompt_sends: Vec::new(),
            batching,
            clients_wanted: None,
            wakeup_heard: LastHeard::default(),
            disk_ops: 0,
            reaped: Vec::new(),
            permits: Permits::new(usize::MAX, 0, 0),
            config,
        })
    }

    /// From now on connections are taken as far as there are permits for them.
    pub fn limit(&mut self, permits: Permits) {
        self.permits = permits;
    }

    /// Listens to the shard's wake-ups: from now on one of them ends a wait with [`Event::Woken`].
    ///
    /// # Panics
    ///
    /// If there is one already.
    pub fn watch(&mut self, wakeup: Arc<Wakeup>) {
        assert!(self.wakeup.is_none(), "a reactor has one wakeup");
        self.wakeup = Some(wakeup);
    }

    /// Starts a disk operation. It completes as [`Event::Disk`] with this tag (below 2^60).
    ///
    /// # Panics
    ///
    /// If the tag is too large.
    ///
    /// # Safety
    ///
    /// The memory and the descriptor stay valid, and the memory is not touched (for a read) or
    /// changed (for a write), until that event, or for ever if the reactor is dropped before it.
    pub unsafe fn submit_disk(&mut self, op: DiskOpKind, tag: u64) {
        assert!(tag < TAG_MAX, "tag {tag} is too large");
        let entry = match op {
            DiskOpKind::Write { fd, offset, ptr, len, dsync, apart } => {
                let write = opcode::Write::new(Fd(fd), ptr, len).offset(offset);
                let write = write.rw_flags(if dsync { libc::RWF_DSYNC } else { 0 }).build();
                if apart { write.flags(squeue::Flags::ASYNC) } else { write }
            }
            DiskOpKind::Sync { fd, data_only } => {
                let flags = io_uring::types::FsyncFlags::DATASYNC;
                let flags = if data_only { flags } else { io_uring::types::FsyncFlags::empty() };
                opcode::Fsync::new(Fd(fd)).flags(flags).build()
            }
            DiskOpKind::Read { fd, offset, ptr, len } => {
                opcode::Read::new(Fd(fd), ptr, len).offset(offset).build()
            }
            DiskOpKind::Allocate { fd, bytes } => opcode::Fallocate::new(Fd(fd), bytes).build(),
            DiskOpKind::Unlink { fd, name } => opcode::UnlinkAt::new(Fd(fd), name).build(),
        };
        // SAFETY: as the caller promises.
        unsafe { self.ring.push(entry.user_data(Token::Disk(tag).pack())) };
        self.disk_ops += 1;
    }

    /// Submits all wishes and collects what has happened, without sleeping.
    pub fn poll(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        self.prepare(events);
        self.ring.enter(Enter::Poll)?;
        self.dispatch(events);
        Ok(())
    }

    /// Whether a block should wait for the connections that are answered now, since they will have something for it at
    /// once.
    pub fn expects_more_clients(&self) -> bool {
        self.disk_ops == 0 && self.batching.is_worth_while()
    }

    /// Submits all wishes and sleeps until so many connections could be heard, or for as long as others are waited
    /// for.
    pub fn wait_for_clients(
        &mut self,
        wanted: NonZero<u32>,
        events: &mut Vec<Event>,
    ) -> io::Result<()> {
        self.clients_wanted = Some(wanted);
        let result = self.wait(Some(Instant::now() + self.batching.window()), events);
        self.clients_wanted = None;
        result
    }

    /// Submits all wishes and sleeps until something has happened (then it is in `events`, behind
    /// what was there before) or `deadline` is reached.
    ///
    /// An error means that the ring is unusable.
    pub fn wait(&mut self, deadline: Option<Instant>, events: &mut Vec<Event>) -> io::Result<()> {
        let before = events.len();
        loop {
            self.prepare(events);
            let until = if events.len() > before || !self.handshakes.is_empty() {
                Enter::Poll
            } else {
                self.sleep_until(deadline)
            };
            self.ring.enter(until)?;
            self.dispatch(events);
            if events.len() > before {
                return Ok(());
            }
            // Completions that concern nobody outside, such as a send's, do not end a wait.
            if let Some(deadline) = deadline {
                let now = Instant::now();
                if now >= deadline {
                    self.counters.late += u64::from(now - deadline > LATE);
                    return Ok(());
                }
            }
        }
    }

    /// A sleep until the deadline at most.
    fn sleep_until(&mut self, deadline: Option<Instant>) -> Enter {
        let until = self.earliest(deadline);
        let wanted = match self.clients_wanted {
            // A client that waits for the disk does not wait for other clients as well.
            _ if self.disk_ops > 0 => None,
            Some(wanted) => self.batching.want(wanted),
            None => self.batching.wanted(),
        };
        match wanted {
            None => Enter::Until(until),
            Some(wanted) => Enter::Batch { until, wanted, window: self.batching.window() },
        }
    }

    /// The deadline, or something of our own before it.
    fn earliest(&mut self, deadline: Option<Instant>) -> Option<Instant> {
        let accepting = self.listeners.iter().flatten().filter_map(|at| at.paused_until).min();
        let cut = self.conns.next_cut();
        deadline.into_iter().chain(accepting).chain(cut).min()
    }

    /// Turns wishes into operations.
    fn prepare(&mut self, events: &mut Vec<Event>) {
        if let Some(wakeup) = &self.wakeup
            && !self.wakeup_armed
        {
            self.wakeup_armed = true;
            let fd = Fd(wakeup.as_raw_fd());
            // Never read: each write to an eventfd wakes its pollers, whatever its count is.
            let poll = opcode::PollAdd::new(fd, libc::POLLIN as u32).multi(true).build();
            // SAFETY: the reactor holds the descriptor until the ring is done.
            unsafe { self.ring.push(poll.user_data(Token::Wakeup.pack())) };
        }
        if self.listeners_dirty {
            self.arm_listeners();
        }
        let Connections { draining, lingering, handshaking, .. } = &self.conns;
        if !draining.is_empty() || !lingering.is_empty() || !handshaking.is_empty() {
            let (drains, handshakes) = self.conns.cut(Instant::now());
            self.counters.drains_cut += drains;
            self.counters.handshakes_late += handshakes;
        }
        if !self.starved.is_empty() && self.buffers.any_free() {
            for id in std::mem::take(&mut self.starved) {
                if let Some((conn, _)) = self.conns.get_mut(id) {
                    conn.starved = false;
                    self.conns.touch(id);
                }
            }
        }
        let mut dirty = std::mem::take(&mut self.conns.dirty);
        for id in dirty.drain(..) {
            self.service(id, events);
        }
        assert!(self.conns.dirty.is_empty(), "serving a connection needs no second service");
        self.conns.dirty = dirty;
    }

    /// Gives one connection what it needs: a send, a receive, a step of its closing.
    fn service(&mut self, id: ConnId, events: &mut Vec<Event>) {
        let Some((conn, pool)) = self.conns.get_mut(id) else { return };
        conn.dirty = false;
        let fd = Fd(conn.fd.as_raw_fd());
        let sends = conn.life != Life::Over && !conn.broken;
        let piece = if sends { conn.next_send(pool) } else { Ok(None) };
        let piece = piece.map(|piece| piece.map(|bytes| (bytes.as_ptr(), bytes.len())));
        if piece.is_err() {
            conn.broken = true;
            conn.leaving = false;
            conn.discard(pool);
            self.counters.corrupt += 1;
            if conn.life == Life::Open {
                events.push(Event::Ended { conn: id, reason: EndReason::Corrupt });
            }
        } else if let Ok(Some((bytes, length))) = piece {
            self.counters.sends += 1;
            let token = Token::Send(id).pack();
            let send = opcode::Send::new(fd, bytes, length as u32);
            // Nobody may wait for news of a send that says nothing.
            let last = conn.life == Life::Open && !conn.awaits_drain() && conn.is_last_send();
            // SAFETY: `next_send` promises that the bytes stay; the descriptor is closed only after
            // the completion, or after `finish_prompt_sends` has found the send done without one.
            unsafe {
                if conn.full || !last {
                    self.ring.push(send.flags(libc::MSG_NOSIGNAL).build().user_data(token));
                } else {
                    // Almost every socket has room: such a send is over when it is submitted, and
                    // says nothing if all of it went.
                    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_WAITALL;
                    self.ring.push_prompt(send.flags(flags).build().user_data(token));
                    conn.prompt_send = true;
                    self.prompt_sends.push(id);
                }
            }
        }
        if conn.can_go() {
            let socket = self.conns.remove(id);
            self.counters.given_away += 1;
            events.push(Event::GivenAway { conn: id, socket });
            return;
        }
        let lingers = conn.advance(pool);
        match (conn.receive, conn.wants_receive()) {
            (Receive::Idle, true) if self.buffers.any_free() => {
                conn.receive = Receive::Armed;
                let receive = opcode::RecvMulti::new(fd, GROUP).build();
                // SAFETY: the kernel writes only buffers of the group, which outlive the ring's
                // work; the descriptor is closed only after the last completion.
                unsafe { self.ring.push(receive.user_data(Token::Receive(id).pack())) };
            }
            (Receive::Idle, true) if !conn.starved => {
                conn.starved = true;
                self.starved.push(id);
            }
            (Receive::Armed, false) => {
                conn.receive = Receive::Cancelling;
                let cancel = opcode::AsyncCancel::new(Token::Receive(id).pack()).build();
                // SAFETY: a cancel names no memory.
                unsafe { self.ring.push(cancel.user_data(Token::CancelReceive(id).pack())) };
            }
            _ => {}
        }
        if conn.life == Life::Over && conn.is_quiet() {
            drop(self.conns.remove(id));
            self.counters.closed += 1;
            events.push(Event::Closed { conn: id });
        } else if lingers {
            let until = Instant::now() + Duration::from_millis(self.config.linger_ms);
            self.conns.lingering.push_back((until, id));
        }
    }

    /// Turns completions into events.
    fn dispatch(&mut self, events: &mut Vec<Event>) {
        let mut reaped = std::mem::take(&mut self.reaped);
        self.ring.reap(&mut reaped);
        let mut woken = false;
        self.batching.begin_round();
        for entry in reaped.drain(..) {
            let (result, last) = (entry.result(), !cqueue::more(entry.flags()));
            match Token::unpack(entry.user_data()) {
                Some(Token::Receive(id)) => self.received(id, &entry, events),
                Some(Token::Send(id)) => self.sent(id, result, events),
                Some(Token::Disk(tag)) => {
                    self.disk_ops -= 1;
                    events.push(Event::Disk { tag, result: count_of(result) });
                }
                Some(Token::Wakeup) => {
                    woken = true;
                    self.batching.note(&mut self.wakeup_heard);
                    self.wakeup_armed = !last;
                }
                Some(Token::Accept(listener)) => {
                    self.accepted(listener as usize, result, last, events);
                }
                Some(Token::CancelReceive(id)) => self.cancelled(id, result),
                Some(Token::CancelAccept) => {}
                None => self.counters.stray += 1,
            }
        }
        self.batching.end_round();
        if woken {
            events.push(Event::Woken);
        }
        self.finish_prompt_sends(events);
        if !self.handshakes.is_empty() {
            self.run_handshakes(events);
        }
        self.reaped = reaped;
        self.counters.enters = self.ring.enters;
    }

    fn received(&mut self, id: ConnId, entry: &cqueue::Entry, events: &mut Vec<Event>) {
        let result = entry.result();
        // A completion may carry a buffer even if it carries no bytes.
        let chunk = cqueue::buffer_select(entry.flags())
            .map(|buffer| self.buffers.take(buffer, result.max(0) as u32));
        let Some((conn, pool)) = self.conns.get_mut(id) else {
            self.counters.stray += 1;
            if let Some(chunk) = chunk {
                self.buffers.recycle(chunk);
            }
            return;
        };
        if result > 0 {
            self.batching.note(&mut conn.heard);
        }
        let open = conn.life == Life::Open && !conn.broken;
        let handshaking = conn.life == Life::Handshake;
        let mut reason = None;
        if result == 0 {
            // Over TLS an announced end has been told already.
            reason = match &conn.tls {
                None => Some(EndReason::HalfClosed),
                Some(_) if conn.half_closed => None,
                Some(_) => Some(EndReason::Truncated),
            };
            conn.half_closed = true;
            self.counters.truncated += u64::from(open && reason == Some(EndReason::Truncated));
        } else if result == -libc::ENOBUFS {
            self.counters.buffers_exhausted += 1;
        } else if result < 0 && ![libc::ECANCELED, libc::EINTR, libc::EAGAIN].contains(&-result) {
            conn.broken = true;
            conn.discard(pool);
            reason = Some(EndReason::of(-result));
        }
        let tls = conn.tls.is_some();
        conn.leaving &= reason.is_none();
        if !cqueue::more(entry.flags()) {
            conn.receive = Receive::Idle;
            self.counters.recv_rearmed += u64::from(conn.wants_receive());
            self.conns.touch(id);
        }
        match chunk {
            Some(chunk) if open && result > 0 => {
                self.counters.received_bytes += chunk.len() as u64;
                self.counters.chunks += 1;
                if tls {
                    self.open_records(id, chunk, events);
                } else {
                    events.push(Event::Received { conn: id, chunk });
                }
            }
            Some(chunk) if handshaking && result > 0 => {
                self.counters.received_bytes += chunk.len() as u64;
                self.receive_handshake(id, chunk, events);
            }
            Some(chunk) => self.buffers.recycle(chunk),
            None => {}
        }
        if let Some(reason) = reason.filter(|_| open) {
            events.push(Event::Ended { conn: id, reason });
        } else if let Some(reason) = reason.filter(|_| handshaking) {
            self.end_handshake(id, reason, events);
        }
    }

    /// Sends that may not wait and of which nothing was heard have gone out whole.
    fn finish_prompt_sends(&mut self, events: &mut Vec<Event>) {
        if self.prompt_sends.is_empty() || !self.ring.is_submitted() {
            return;
        }
        let mut sends = std::mem::take(&mut self.prompt_sends);
        for id in sends.drain(..) {
            let Some((conn, _)) = self.conns.get_mut(id) else { continue };
            if conn.prompt_send {
                let bytes = conn.in_flight_bytes();
                self.ring.succeeded();
                self.sent(id, bytes as i32, events);
            }
        }
        self.prompt_sends = sends;
    }

    fn sent(&mut self, id: ConnId, result: i32, events: &mut Vec<Event>) {
        let Some((conn, pool)) = self.conns.get_mut(id) else {
            self.counters.stray += 1;
            return;
        };
        conn.prompt_send = false;
        conn.complete(result.max(0) as usize, pool);
        conn.full = conn.unsent() > 0 && !conn.is_drained();
        if result > 0 {
            // Counted anew below.
            conn.untaken_since = 0;
        }
        self.counters.sent_bytes += result.max(0) as u64;
        let again = [libc::EINTR, libc::EAGAIN, libc::ENOBUFS, libc::ENOMEM].contains(&-result);
        if result < 0 && !again && !conn.broken {
            conn.broken = true;
            conn.leaving = false;
            if conn.life == Life::Open {
                events.push(Event::Ended { conn: id, reason: EndReason::of(-result) });
            }
        }
        if conn.broken || conn.life == Life::Over {
            conn.discard(pool);
        }
        let drained = conn.life == Life::Open && !conn.broken && conn.unsent() == 0;
        if drained && conn.awaits_drain() {
            conn.watched = false;
            events.push(Event::Drained { conn: id });
        }
        let touched = conn.broken || conn.leaving || conn.life != Life::Open || !conn.is_drained();
        self.conns.recount(id);
        // Most sends end here; only those with something to follow need a look.
        if touched {
            self.conns.touch(id);
        }
    }

    fn cancelled(&mut self, id: ConnId, result: i32) {
        if result < 0
            && let Some((conn, _)) = self.conns.get_mut(id)
            && conn.receive == Receive::Cancelling
        {
            // The receive was on its way through the kernel, and the cancel missed it: cancel again.
            conn.receive = Receive::Armed;
            self.conns.touch(id);
        }
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        let mut reaped = Vec::new();
        let quiet = self.ring.cancel_all(DROP_LIMIT, &mut reaped);
        for entry in reaped {
            if let Some(Token::Accept(_)) = Token::unpack(entry.user_data())
                && entry.result() >= 0
            {
                // SAFETY: a completed accept gives a new descriptor to us alone.
                drop(unsafe { OwnedFd::from_raw_fd(entry.result()) });
            }
        }
        if !quiet {
            // The kernel may still use this memory: it must not be used for anything else.
            self.buffers.leak();
            let empty = Connections::new(&self.config);
            std::mem::forget(std::mem::replace(&mut self.conns, empty));
        }
    }
}

fn count_of(result: i32) -> io::Result<u32> {
    u32::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}
