//! One connection: its descriptor, what of it the kernel holds, and how far it is in its life.

use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::time::Duration;

use socket2::SockRef;

use super::output::{Output, Pool};

/// The multishot receive of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receive {
    /// Not with the kernel.
    Idle,
    /// With the kernel.
    Armed,
    /// With the kernel, and asked back.
    Cancelling,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// In use.
    Open,
    /// Closed from here; its allowed output is still to be sent.
    Draining,
    /// All is sent and the end announced; what still comes is read and dropped, since closing a
    /// socket with unread bytes resets it, and the peer would lose our last words.
    Lingering,
    /// Free as soon as the kernel holds nothing of it.
    Over,
}

pub(super) struct Connection {
    /// Closed by the drop, which happens once the kernel holds nothing of the connection.
    pub(super) fd: OwnedFd,
    pub(super) receive: Receive,
    pub(super) life: Life,
    /// The shard does not want to read at present.
    pub(super) paused: bool,
    /// The shard wants to give it away as soon as nothing is under way.
    pub(super) leaving: bool,
    /// The shard wants to know once when the output has been taken.
    pub(super) watched: bool,
    /// The peer will send no more.
    pub(super) half_closed: bool,
    /// The socket is dead both ways.
    pub(super) broken: bool,
    /// In the list of connections to look at.
    pub(super) dirty: bool,
    /// In the list of connections that wait for a receive buffer.
    pub(super) starved: bool,
    /// The socket was full at the last send: the next one waits for room.
    pub(super) full: bool,
    /// The send under way may not wait: without a completion it has succeeded.
    pub(super) prompt_send: bool,
    pub(super) output: Output,
}

impl Connection {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self {
            fd,
            receive: Receive::Idle,
            life: Life::Open,
            paused: false,
            leaving: false,
            watched: false,
            half_closed: false,
            broken: false,
            dirty: false,
            starved: false,
            full: false,
            prompt_send: false,
            output: Output::default(),
        }
    }

    /// Should bytes be received?
    pub(super) fn wants_receive(&self) -> bool {
        let wanted = match self.life {
            Life::Open => !self.paused && !self.leaving,
            Life::Draining | Life::Lingering => true,
            Life::Over => false,
        };
        wanted && !self.half_closed && !self.broken
    }

    /// Goes on with closing as far as it can now. True if it has just begun to linger.
    pub(super) fn advance(&mut self, pool: &mut Pool) -> bool {
        let peer_done = self.half_closed || self.broken;
        match self.life {
            Life::Draining if self.broken => self.finish(pool),
            Life::Draining if self.output.is_drained() && peer_done => self.finish(pool),
            Life::Draining if self.output.is_drained() => {
                // Fails only if the peer has reset, which the receive will say.
                let _ = SockRef::from(&self.fd).shutdown(Shutdown::Write);
                self.life = Life::Lingering;
                return true;
            }
            Life::Lingering if peer_done => self.finish(pool),
            _ => {}
        }
        false
    }

    /// Ends everything: what the kernel still holds comes back at once.
    pub(super) fn finish(&mut self, pool: &mut Pool) {
        self.life = Life::Over;
        self.output.discard(pool);
        if !self.is_quiet() {
            // Fails only if the socket is dead, and then its operations end anyhow.
            let _ = SockRef::from(&self.fd).shutdown(Shutdown::Both);
        }
    }

    /// The same, and the peer gets a reset, so that nothing waits in the kernel for it.
    pub(super) fn reset(&mut self, pool: &mut Pool) {
        // If it fails, the peer gets an orderly end instead.
        let _ = SockRef::from(&self.fd).set_linger(Some(Duration::ZERO));
        self.finish(pool);
    }

    /// True if it can be given away now.
    pub(super) fn can_go(&self) -> bool {
        let usable = self.life == Life::Open && !self.half_closed && !self.broken;
        self.leaving && usable && self.is_quiet() && self.output.unsent() == 0
    }

    /// Does somebody wait for the news that the output has been taken?
    pub(super) fn awaits_drain(&self) -> bool {
        self.paused || self.watched
    }

    /// True if the kernel holds nothing of it.
    pub(super) fn is_quiet(&self) -> bool {
        self.receive == Receive::Idle && !self.output.in_flight()
    }
}
