//! State of a connection, and the table of all connections of a shard.

use super::migration::ShardAffinity;
use super::protocol::Protocol;
use super::transcode::Transcoding;
use crate::api::access::{Grant, Permission};
use crate::api::version::{Spoken, Version};
use crate::protocol::decode::beginning::Verdict;
use crate::protocol::large::LargeFrame;
use crate::server::access::shown::Access;
use crate::server::events::choice::Choice;
use crate::server::http::{HttpConnection, Window};
use crate::server::overload::fair_share::TurnQuota;
use crate::server::overload::receive_memory::ReceivedBytes;
use crate::server::overload::shared_replies::SharedReplies;
use crate::server::shard_mail::envelope::{Origin, Ticket};
use corq_io::net::ConnId;
use corq_shards::command::ClientId;
use std::ops::Range;
use std::sync::Arc;

/// Commands of one connection that may be unanswered at a time (`docs/protocol.md`, "Frames").
pub const IN_FLIGHT_MAX: u32 = 50;

/// Received bytes of one connection that may wait for their turn before it is no longer read.
pub const PENDING_BYTES_MAX: usize = 256 * 1024;

/// Frames of a connection that has not shown its token yet: a stranger gets no memory to fill.
pub const UNAUTHENTICATED_FRAME_BYTES_MAX: usize = 64 * 1024;

/// Unsent replies of one connection beyond which its next commands wait until it has read them: a few
/// bytes may ask for many megabytes.
pub const CHOKING_BYTES: usize = 8 << 20;

/// As [`CHOKING_BYTES`], for a connection that has not shown its token, or has lost its right: replies that say so are
/// all it gets.
pub const UNAUTHENTICATED_CHOKING_BYTES: usize = 64 << 10;

/// Unsent replies of one connection on top of which there comes no other: it is closed instead. Only
/// answers to commands that were under way already can get a connection there.
pub const UNSENT_BYTES_MAX: usize = 64 << 20;

/// Bytes that have come and are taken from the front.
#[derive(Debug, Default)]
pub struct Backlog {
    bytes: Vec<u8>,
    /// How many of them have been handled.
    handled: usize,
    /// End of the bytes that have been searched for requests which pass others.
    searched: usize,
}

/// Requests that have been taken from between others.
pub type Passing = Vec<Vec<u8>>;

impl Backlog {
    /// How many are left.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.handled
    }

    /// Whether none is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Memory held.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// The bytes that have not been handled.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.handled..]
    }

    /// More has come.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes so many from the front, with the memory they lie in and where they begin in it. What is behind them moves.
    pub fn take_front(&mut self, bytes: usize) -> (Vec<u8>, usize) {
        let rest = self.bytes.split_off(self.handled + bytes);
        let mut front = std::mem::replace(&mut self.bytes, rest);
        // Give back spare memory, into which the bytes were to grow.
        front.shrink_to_fit();
        self.searched = 0;
        (front, std::mem::take(&mut self.handled))
    }

    /// Takes up to `most` requests from between those that stay. `first` tells how many bytes the next one takes, and the
    /// request if it goes; `None` where the search ends for now. What has been searched is not searched again.
    pub fn take_passing(
        &mut self,
        most: usize,
        mut first: impl FnMut(&[u8]) -> Option<(usize, Option<Vec<u8>>)>,
    ) -> Passing {
        let mut passing = Passing::new();
        let mut at = self.searched.max(self.handled);
        // Requests that stay close the gaps, so that bytes behind the search move once.
        let mut kept = at;
        while passing.len() < most
            && let Some((length, request)) = first(&self.bytes[at..])
        {
            if let Some(request) = request {
                passing.push(request);
            } else {
                self.bytes.copy_within(at..at + length, kept);
                kept += length;
            }
            at += length;
        }
        self.bytes.drain(kept..at);
        self.searched = kept;
        self.consume(0);
        passing
    }

    /// Takes so many handled bytes off the front. With the last of them the memory goes; bytes that are left move to
    /// the front once they are no more than the others, so that no more bytes are moved than are handled.
    pub fn consume(&mut self, bytes: usize) {
        self.handled += bytes;
        if self.handled == self.bytes.len() {
            *self = Self::default();
        } else if self.handled >= self.len() {
            self.bytes.drain(..self.handled);
            self.searched = self.searched.saturating_sub(self.handled);
            self.handled = 0;
        }
    }
}

/// State of a connection.
#[derive(Debug)]
pub struct Session {
    /// The id with the reactor.
    pub conn: ConnId,
    /// The name with the engine, wherever the connection goes.
    pub client: ClientId,
    pub protocol: Protocol,
    /// The version of the protocol.
    pub spoken: Spoken,
    /// Whether it came through a unix socket.
    pub through_path: bool,
    /// Received and not yet handled.
    pub pending: Backlog,
    /// Memory of an incomplete frame or message, as it was last counted.
    pub received_bytes: ReceivedBytes,
    /// Bytes that are still to come of a frame that was refused.
    pub refused_bytes: usize,
    /// Judgement of the long frame at the front of [`Session::pending`].
    pub front_verdict: Verdict,
    /// The next command, whose large payload has been checked: it goes before [`Session::pending`].
    pub checked: Option<Arc<LargeFrame>>,
    /// The request that is being read in slices.
    pub transcoding: Transcoding,
    /// Whether it may give commands.
    pub trusted: bool,
    /// Rights by the credentials that were shown.
    pub access: Access,
    /// Commands that are not answered yet.
    pub in_flight: u32,
    /// How many of them ask for lists.
    pub lists: u32,
    /// Answers that wait until it has taken what it was sent.
    pub shared_replies: SharedReplies,
    /// Whether other shards may hold something of it.
    pub seen_elsewhere: bool,
    /// Whether [`Session::pending`] waits for its turn rather than for bytes.
    pub blocked: bool,
    /// The connection's use of this turn.
    pub quota: TurnQuota,
    /// Whether it is blocked because it has not read its answers.
    pub choked: bool,
    /// Whether it is not being read.
    pub paused: bool,
    /// Whether the peer sends no more.
    pub half_closed: bool,
    /// Whether it has not given back yet what it held then.
    pub owes_leave: bool,
    /// Whether it has registered a worker.
    pub has_worker: bool,
    /// When the shards of those workers had the last report that it lives.
    pub seen_reported_ms: u64,
    /// The key among the streams of events, if the connection is one.
    pub stream: Option<u32>,
    /// The place among the viewers, if the connection is one.
    pub watch: Option<u32>,
    /// The place among the viewers as a subscriber to snapshots.
    pub snapshots: Option<u32>,
    /// Where its commands go.
    pub affinity: ShardAffinity,
    /// When something of it was last received.
    pub last_seen_ms: u64,
    /// The request under way, if the connection speaks HTTP.
    pub http: HttpConnection,
    /// The frames it has sent lately, where that is limited.
    pub window: Window,
}

impl Session {
    /// The client of a request, as its shard `shard` tells others.
    #[inline]
    pub fn origin(&self, shard: u16) -> Origin {
        let Grant { role, queues: scope, holder, .. } = self.access.grant;
        Origin {
            shard,
            conn: self.conn,
            client: self.client,
            tokenless: self.protocol == Protocol::Http,
            lists: false,
            version: self.spoken.version(),
            scope,
            role,
            holder,
            ticket: Ticket::NONE,
        }
    }

    /// Notes whether it has left so much unread that nothing more of it is handled: whatever it sends may make
    /// output, and what makes output waits until that has been read. Where memory is `tight`, that is little.
    pub fn note_unread(&mut self, unsent_bytes: usize, tight: bool) -> bool {
        let most =
            if self.is_known() && !tight { CHOKING_BYTES } else { UNAUTHENTICATED_CHOKING_BYTES };
        self.choked = unsent_bytes > most;
        self.choked
    }

    /// Whether it has shown a token, if there are any: over HTTP with its last request.
    pub fn is_known(&self) -> bool {
        self.trusted && (self.protocol != Protocol::Http || self.http.has_shown)
    }

    /// Where it notes its place among the viewers.
    pub fn place_as_viewer(&mut self, subscribes: bool) -> &mut Option<u32> {
        if subscribes { &mut self.snapshots } else { &mut self.watch }
    }

    /// Whether the events of a choice are for it, which was made within what it might hear then.
    pub fn may_hear(&self, choice: &Choice) -> bool {
        self.trusted
            && self.access.grant.has(Permission::Read)
            && choice.is_within(self.access.scope())
    }

    /// Whether it has sent what is not begun yet.
    pub fn has_input_left(&self) -> bool {
        !self.pending.is_empty() || self.checked.is_some()
    }

    /// Whether it must show a token and has sent what the server, for reasons of its own, has not looked at.
    pub fn says_what_is_not_read(&self) -> bool {
        !self.trusted && self.blocked && !self.choked
    }

    fn new(me: usize, conn: ConnId, protocol: Protocol, spoken: Spoken, trusted: bool) -> Self {
        Self {
            conn,
            client: client_of(me, conn),
            protocol,
            spoken,
            through_path: false,
            pending: Backlog::default(),
            received_bytes: ReceivedBytes::default(),
            refused_bytes: 0,
            front_verdict: Verdict::default(),
            checked: None,
            transcoding: Transcoding::default(),
            trusted,
            access: Access::default(),
            in_flight: 0,
            lists: 0,
            shared_replies: SharedReplies::default(),
            seen_elsewhere: false,
            blocked: false,
            quota: TurnQuota::default(),
            choked: false,
            paused: false,
            half_closed: false,
            owes_leave: false,
            has_worker: false,
            seen_reported_ms: 0,
            stream: None,
            watch: None,
            snapshots: None,
            affinity: ShardAffinity::default(),
            last_seen_ms: 0,
            http: HttpConnection::default(),
            window: Window::default(),
        }
    }
}

/// The name of a connection with the engine. Unique for as long as anything of it can be left: a
/// table place comes back after sixteen million connections.
fn client_of(shard: usize, conn: ConnId) -> ClientId {
    let place = u64::from(conn.index) & 0xff_ffff;
    let generation = u64::from(conn.generation) & 0xff_ffff;
    ClientId(((shard as u64) << 48) | (generation << 24) | place)
}

/// The connections of a shard, by id.
#[derive(Debug, Default)]
pub struct Sessions {
    places: Vec<Option<Session>>,
    /// How many speak what.
    counts: [usize; Protocol::COUNT],
    /// The version of the protocol that frames are taken to be of before they tell.
    presumed: Version,
}

impl Sessions {
    /// Takes in a new connection of shard `me`.
    pub fn open(&mut self, me: usize, conn: ConnId, protocol: Protocol, trusted: bool) {
        let spoken = match protocol {
            Protocol::Frames => Spoken::presumed(self.presumed),
            Protocol::Http | Protocol::Events | Protocol::WebSocket => Spoken::told(Version::Two),
        };
        self.take_in(Session::new(me, conn, protocol, spoken, trusted));
    }

    /// Takes frames of connections that come from now on to be of this version until they tell.
    pub fn presume(&mut self, version: Version) {
        self.presumed = version;
    }

    /// Takes in a connection with all that is remembered of it.
    pub fn take_in(&mut self, session: Session) {
        let place = session.conn.index as usize;
        if self.places.len() <= place {
            self.places.resize_with(place + 1, || None);
        }
        self.counts[session.protocol as usize] += 1;
        if let Some(former) = self.places[place].replace(session) {
            self.counts[former.protocol as usize] -= 1;
        }
    }

    /// Forgets a connection.
    pub fn close(&mut self, conn: ConnId) -> Option<Session> {
        let place = self.places.get_mut(conn.index as usize)?;
        let closed = place.take_if(|session| session.conn == conn)?;
        self.counts[closed.protocol as usize] -= 1;
        Some(closed)
    }

    /// The protocol of a connection that is still there.
    #[inline]
    pub fn protocol(&self, conn: ConnId) -> Option<Protocol> {
        let session = self.places.get(conn.index as usize)?.as_ref();
        session.filter(|session| session.conn == conn).map(|session| session.protocol)
    }

    /// Notes that a connection speaks something else from now on.
    pub fn change_protocol(&mut self, conn: ConnId, protocol: Protocol) {
        let Some(session) = self.get(conn) else { return };
        let former = std::mem::replace(&mut session.protocol, protocol);
        self.counts[former as usize] -= 1;
        self.counts[protocol as usize] += 1;
    }

    /// A connection has told which version of the protocol it speaks.
    pub fn settle_version(&mut self, conn: ConnId, version: Version) {
        if let Some(session) = self.get(conn) {
            session.spoken = Spoken::told(version);
        }
    }

    /// How many connections speak so.
    pub fn count(&self, protocol: Protocol) -> usize {
        self.counts[protocol as usize]
    }

    /// A connection that is still there.
    pub fn get(&mut self, conn: ConnId) -> Option<&mut Session> {
        self.places.get_mut(conn.index as usize)?.as_mut().filter(|session| session.conn == conn)
    }

    /// The connections that are there.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Session> {
        self.places.iter_mut().flatten()
    }

    /// Some of the places for connections, with those that are there.
    pub fn places(&self, some: Range<usize>) -> &[Option<Session>] {
        &self.places[some.start.min(self.places.len())..some.end.min(self.places.len())]
    }

    /// The connections that are there, to look at.
    pub fn iter(&self) -> impl Iterator<Item = &Session> {
        self.places.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_pass_are_taken_from_between_those_that_stay_and_none_is_searched_twice() {
        let mut backlog = Backlog::default();
        let mut searched = 0;
        let mut take = |backlog: &mut Backlog, most| {
            let passing = backlog.take_passing(most, |bytes| {
                searched += 1;
                let first = *bytes.first()?;
                Some((1, (first == b'p').then(|| vec![first])))
            });
            (passing.len(), std::mem::take(&mut searched))
        };
        backlog.extend(b"spsspp");
        assert_eq!(take(&mut backlog, 2), (2, 5));
        assert_eq!(backlog.bytes(), b"sssp");
        assert_eq!(take(&mut backlog, 2), (1, 2), "the last byte, and its end");
        backlog.consume(1);
        backlog.extend(b"sp");
        assert_eq!(take(&mut backlog, 2), (1, 3));
        assert_eq!(backlog.bytes(), b"sss");
        backlog.consume(3);
        backlog.extend(b"p");
        assert_eq!(take(&mut backlog, 2), (1, 2));
        assert!(backlog.is_empty(), "the memory goes with the last request");
    }
}
