//! Listeners in a reactor: accepts connections by one multishot operation each, pauses where there is no room for more,
//! ends.
#![allow(unsafe_code)] // Operations name descriptors that must outlive them.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use io_uring::opcode;
use io_uring::types::Fd;

use super::Event;
use super::connection::Life;
use super::connections::Socket;
use super::listener::Listener;
use super::op_token::Token;
use super::reactor::Reactor;
use super::tls_session::TlsSession;
use crate::tls::Acceptor;

/// Pause of accepting after the process or the machine ran out of something.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

impl Reactor {
    /// Accepts connections from `socket` (see [`super::listen`] and [`super::listen_at`]) under `tag`.
    pub fn add_listener(&mut self, socket: impl Into<OwnedFd>, tag: u32) {
        self.push_listener(socket.into(), tag, (None, true));
    }

    /// As [`Reactor::add_listener`], for other shards as well: a new connection is to be placed by
    /// [`super::Connections::give_away`] or [`super::Connections::settle`], and the limit of connections is checked
    /// then.
    pub fn add_shared_listener(&mut self, socket: impl Into<OwnedFd>, tag: u32) {
        self.push_listener(socket.into(), tag, (None, false));
    }

    /// As [`Reactor::add_listener`], for clients that speak TLS.
    pub fn add_tls_listener(&mut self, socket: impl Into<OwnedFd>, tag: u32, acceptor: Acceptor) {
        self.push_listener(socket.into(), tag, (Some(acceptor), true));
    }

    /// As [`Reactor::add_shared_listener`], for clients that speak TLS: a connection is placed after its handshake.
    pub fn add_shared_tls_listener(
        &mut self,
        socket: impl Into<OwnedFd>,
        tag: u32,
        acceptor: Acceptor,
    ) {
        self.push_listener(socket.into(), tag, (Some(acceptor), false));
    }

    fn push_listener(
        &mut self,
        socket: OwnedFd,
        tag: u32,
        (acceptor, limited): (Option<Acceptor>, bool),
    ) {
        let (armed, recalled, paused_until) = (false, false, None);
        let listener = Listener { socket, tag, acceptor, limited, armed, recalled, paused_until };
        self.listeners.push(Some(listener));
        self.listeners_dirty = true;
    }

    /// Closes all listeners. Connections stay. A connection that is being accepted is turned away.
    pub fn stop_accepting(&mut self) {
        self.stopped = true;
        for (index, place) in self.listeners.iter_mut().enumerate() {
            match place {
                Some(listener) if listener.armed => {
                    let accept = Token::Accept(index as u32).pack();
                    let cancel = opcode::AsyncCancel::new(accept).build();
                    // SAFETY: a cancel names no memory.
                    unsafe { self.ring.push(cancel.user_data(Token::CancelAccept.pack())) };
                }
                _ => *place = None,
            }
        }
    }

    /// Closes all listeners, so that another shard can accept from the same sockets: a connection that is being
    /// accepted still comes as an event.
    pub fn leave_listeners(&mut self) {
        self.takes_last = true;
        self.stop_accepting();
    }

    /// Whether connections may still be accepted.
    pub fn listens(&self) -> bool {
        self.listeners.iter().any(Option::is_some)
    }

    pub(super) fn arm_listeners(&mut self) {
        self.listeners_dirty = false;
        let mut now = None;
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            let Some(listener) = listener.as_mut().filter(|listener| !listener.armed) else {
                continue;
            };
            if let Some(until) = listener.paused_until {
                if until > *now.get_or_insert_with(Instant::now) {
                    self.listeners_dirty = true;
                    continue;
                }
                listener.paused_until = None;
            }
            listener.armed = true;
            let fd = Fd(listener.socket.as_raw_fd());
            let accept = if self.permits.are_ample() {
                opcode::AcceptMulti::new(fd).flags(libc::SOCK_CLOEXEC).build()
            } else {
                let (nobody, nothing) = (std::ptr::null_mut(), std::ptr::null_mut());
                opcode::Accept::new(fd, nobody, nothing).flags(libc::SOCK_CLOEXEC).build()
            };
            // SAFETY: the socket stays open until the accept's last completion.
            unsafe { self.ring.push(accept.user_data(Token::Accept(index as u32).pack())) };
        }
    }

    pub(super) fn accepted(
        &mut self,
        index: usize,
        result: i32,
        last: bool,
        events: &mut Vec<Event>,
    ) {
        let Some(listener) = self.listeners[index].as_mut() else {
            self.counters.stray += 1;
            return;
        };
        if result >= 0 {
            // SAFETY: a completed accept gives a new descriptor to us alone.
            let fd = unsafe { OwnedFd::from_raw_fd(result) };
            let full = listener.limited && self.conns.len() >= self.config.connections_max;
            let permit = self.permits.take();
            if self.stopped && !self.takes_last || full {
                self.counters.rejected += 1;
            } else if let Some(permit) = permit {
                let tag = listener.tag;
                self.counters.accepted += 1;
                if let Some(acceptor) = &mut listener.acceptor {
                    self.conns.begin_handshake(fd, permit, TlsSession::new(acceptor.config(), tag));
                } else {
                    let conn = self.conns.insert(Socket { fd, tls: None, permit }, Life::Open);
                    events.push(Event::Accepted { conn, listener: tag });
                }
            } else {
                self.counters.rejected += 1;
            }
            if !last && !listener.recalled && !self.permits.are_ample() {
                listener.recalled = true;
                let accept = Token::Accept(index as u32).pack();
                let cancel = opcode::AsyncCancel::new(accept).build();
                // SAFETY: a cancel names no memory.
                unsafe { self.ring.push(cancel.user_data(Token::CancelAccept.pack())) };
            }
        }
        if last {
            listener.armed = false;
            let recalled = std::mem::take(&mut listener.recalled);
            if self.stopped {
                self.listeners[index] = None;
                return;
            }
            self.listeners_dirty = true;
            // A client that went away while it was accepted is no reason to pause. All else may
            // come back at once, so it pauses, be it EMFILE, ENFILE, ENOBUFS or ENOMEM.
            let harmless = [libc::ECONNABORTED, libc::EINTR, libc::EAGAIN, libc::EPROTO];
            if result < 0
                && !harmless.contains(&-result)
                && !(recalled && result == -libc::ECANCELED)
            {
                self.counters.accept_pauses += 1;
                listener.paused_until = Some(Instant::now() + ACCEPT_PAUSE);
            }
        }
    }
}
