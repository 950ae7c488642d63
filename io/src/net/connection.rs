//! A connection: its descriptor, the operations that the kernel has of it, and its stage of life.

use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::time::Duration;

use socket2::SockRef;

use super::output::{Output, Pool, SEND_BYTES_MAX};
use super::permits::Permit;
use super::tls_session::TlsSession;
use super::wakeup_batching::LastHeard;

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
    /// Keys are being agreed on; the shard does not know of it.
    Handshake,
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
    /// When something came last.
    pub(super) heard: LastHeard,
    pub(super) output: Output,
    /// Memory that its output held when it was counted last.
    pub(super) own_bytes: usize,
    /// Bytes that it is to be sent once it has taken those.
    pub(super) owed_bytes: usize,
    /// Since when the kernel has taken nothing of its output, while it has some: which of all that began to have output,
    /// or of which some was taken, it was. Otherwise 0.
    pub(super) untaken_since: u64,
    /// Memory of an unfinished handshake, as last counted in `HandshakeMemory`.
    pub(super) handshake_bytes: usize,
    /// TLS, where it is spoken.
    pub(super) tls: Option<Box<TlsSession>>,
    /// Behind the descriptor: given back once that is closed.
    pub(super) permit: Permit,
}

impl Connection {
    pub(super) fn new(fd: OwnedFd, permit: Permit) -> Self {
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
            heard: LastHeard::default(),
            prompt_send: false,
            output: Output::default(),
            own_bytes: 0,
            owed_bytes: 0,
            untaken_since: 0,
            handshake_bytes: 0,
            tls: None,
            permit,
        }
    }

    /// Should bytes be received?
    pub(super) fn wants_receive(&self) -> bool {
        let wanted = match self.life {
            Life::Open => !self.paused && !self.leaving,
            Life::Handshake => !self.tls.as_ref().is_some_and(|it| it.has_enough_input()),
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
            Life::Draining if self.is_drained() && peer_done => self.finish(pool),
            Life::Draining if self.is_drained() => {
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
        self.discard(pool);
        if !self.is_quiet() {
            // Fails only if the socket is dead, and then its operations end anyhow.
            let _ = SockRef::from(&self.fd).shutdown(Shutdown::Both);
        }
    }

    /// As `finish`, but the peer gets a reset, so that nothing stays in the kernel for the peer.
    pub(super) fn reset(&mut self, pool: &mut Pool) {
        // Ignore a failure: the peer gets an orderly end instead.
        let _ = SockRef::from(&self.fd).set_linger(Some(Duration::ZERO));
        self.finish(pool);
    }

    /// True if it can be given away now.
    pub(super) fn can_go(&self) -> bool {
        let usable = self.life == Life::Open && !self.half_closed && !self.broken;
        self.leaving && usable && self.is_quiet() && self.unsent() == 0
    }

    /// Whether the shard waits for [`super::Event::Drained`].
    pub(super) fn awaits_drain(&self) -> bool {
        self.paused || self.watched
    }

    /// True if the kernel holds nothing of it.
    pub(super) fn is_quiet(&self) -> bool {
        self.receive == Receive::Idle && !self.in_flight()
    }

    // Output on its way: as the shard wrote it, or sealed by TLS. A plain connection pays for one branch only.

    /// The next piece to send, as [`Output::next_send`]. An error ends the connection.
    pub(super) fn next_send(&mut self, pool: &mut Pool) -> Result<Option<&[u8]>, rustls::Error> {
        match &mut self.tls {
            None => Ok(self.output.next_send(SEND_BYTES_MAX)),
            Some(tls) => {
                let over = self.life == Life::Draining;
                tls.next_send(&mut self.output, over, pool)
            }
        }
    }

    /// The send under way has ended after `bytes`.
    pub(super) fn complete(&mut self, bytes: usize, pool: &mut Pool) {
        match &mut self.tls {
            None => self.output.complete(bytes, pool),
            Some(tls) => tls.complete(bytes, pool),
        }
    }

    /// Counts the memory of its output anew, as a part of `sum`, and notes since when it has had any. What the kernel
    /// still has of one that is over is about to come back.
    #[inline]
    pub(super) fn recount(&mut self, sum: &mut usize, begun: &mut u64) {
        if self.unsent() == 0 {
            self.untaken_since = 0;
        } else if self.untaken_since == 0 {
            *begun += 1;
            self.untaken_since = *begun;
        }
        let tls = self.tls.as_ref().map_or(0, |tls| tls.unsent());
        let held = if self.life == Life::Over { 0 } else { self.output.own_bytes() + tls };
        *sum = *sum - self.own_bytes + held;
        self.own_bytes = held;
    }

    /// Bytes in memory that the kernel has not taken.
    pub(super) fn unsent(&self) -> usize {
        self.output.unsent() + self.tls.as_ref().map_or(0, |tls| tls.unsent())
    }

    pub(super) fn in_flight(&self) -> bool {
        match &self.tls {
            None => self.output.in_flight(),
            Some(tls) => tls.in_flight(),
        }
    }

    /// Bytes of the send under way.
    pub(super) fn in_flight_bytes(&self) -> usize {
        match &self.tls {
            None => self.output.in_flight_bytes(),
            Some(tls) => tls.in_flight_bytes(),
        }
    }

    /// Whether nothing more may be sent once the send under way is over.
    pub(super) fn is_last_send(&self) -> bool {
        match &self.tls {
            None => self.output.is_last_send(),
            Some(_) => self.output.is_drained(),
        }
    }

    /// True if nothing is being sent and nothing more may be or, where it is being closed, has to be.
    pub(super) fn is_drained(&self) -> bool {
        match &self.tls {
            None => self.output.is_drained(),
            Some(tls) => {
                let over = self.life != Life::Draining || tls.is_over();
                over && tls.unsent() == 0 && self.output.is_drained()
            }
        }
    }

    /// Gives up what is not being sent.
    pub(super) fn discard(&mut self, pool: &mut Pool) {
        self.output.discard(pool);
        if let Some(tls) = &mut self.tls {
            tls.discard(pool);
        }
    }
}
