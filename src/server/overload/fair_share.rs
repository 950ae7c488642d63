//! Fair sharing: limits how many request bytes one connection may consume per turn, so that a flooding client cannot starve
//! the others.
//!
//! Each connection that sends in a turn gets an equal share of it. A share holds what a client usually has in flight, so
//! that replies still go out many at a time, and is larger where few connections send. What is beyond it waits behind the
//! connection's other bytes. Before the waiting connections get their next share, the others have a turn of their own,
//! which ends at once for them: they wait for no more than what is under way.
//!
//! Where some connections send little while others send much, those with much wait from the start, and a turn serves only
//! the first few of them, each whole: what is under way is short then, and still costs one send for each.

use crate::server::connection::session::Session;
use crate::server::shard_server::ShardServer;
use corq_io::net::ConnId;
use std::collections::VecDeque;

/// Bytes of requests that few connections share. Their work takes about a tenth of a millisecond, some ten times what a
/// turn costs by itself.
const TURN_BYTES: usize = 32 << 10;

/// Bytes of requests that are served in a turn of those who ask for much, while others ask for little.
const MIXED_TURN_BYTES: usize = 8 << 10;

/// A connection with no more than this at hand asks for little: up to a dozen short requests. So does one with a single
/// request that a turn has room for.
const LITTLE_BYTES: usize = 1 << 10;

/// For so many turns it counts that a connection asked for little.
const MIXED_TURNS: u32 = 64;

/// Bytes that each request counts beside its own, for its work: a short one is not free.
const REQUEST_BYTES: usize = 128;

/// The least share, however many are heard: 50 short pushes. With less, many connections that each have some in flight are
/// answered a few at a time, and the sends cost half as much again as the work.
const SHARE_BYTES_MIN: usize = 16 << 10;

/// Bytes that all connections which wait for their share may hold together, as long as each may hold
/// [`HELD_BYTES_MIN`].
const HELD_BYTES: usize = 4 << 20;
const HELD_BYTES_MIN: usize = 16 << 10;

/// The part of a turn that a connection has used.
#[derive(Clone, Copy, Debug, Default)]
pub struct TurnQuota {
    turn: u32,
    bytes: usize,
    /// Whether it is among those that wait.
    waits: bool,
    /// The turn in which its share came, after it had waited.
    called: u32,
}

impl TurnQuota {
    /// Whether what has come of it has to wait for its next share.
    pub fn waits(self) -> bool {
        self.waits
    }
}

/// Fair share: what each connection has had of a turn.
#[derive(Debug)]
pub struct FairShares {
    turn: u32,
    /// Of one connection.
    bytes: usize,
    /// How many connections are heard in this turn.
    heard: usize,
    /// For how many turns it still counts that a connection asked for little.
    mixed_turns: u32,
    /// Bytes of those who asked for little, since others were called.
    passed_bytes: usize,
    waiting: VecDeque<ConnId>,
    /// How many waited when they last got their shares.
    crowd: usize,
    /// Whether those that wait have let the others pass in the last turn.
    let_pass: bool,
}

impl Default for FairShares {
    fn default() -> Self {
        // No session has had anything of this turn.
        Self {
            turn: 1,
            bytes: TURN_BYTES,
            heard: 0,
            mixed_turns: 0,
            passed_bytes: 0,
            waiting: VecDeque::new(),
            crowd: 0,
            let_pass: false,
        }
    }
}

impl FairShares {
    /// A turn begins. As many are expected in it as were heard in the last, or wait.
    pub fn begin_turn(&mut self) {
        self.turn = self.turn.wrapping_add(1);
        let expected = self.heard.max(self.waiting.len()).max(1);
        let bytes = if self.mixed_turns > 0 { MIXED_TURN_BYTES } else { TURN_BYTES };
        self.bytes = (bytes / expected).max(SHARE_BYTES_MIN);
        self.mixed_turns = self.mixed_turns.saturating_sub(1);
        self.heard = 0;
    }

    /// How many connections wait for their next share.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Received bytes that a connection may hold while it waits.
    pub fn held_bytes_max(&self) -> usize {
        // While they get their shares, those who will wait again are not there yet.
        let waiting = self.crowd.max(self.waiting.len()).max(1);
        (HELD_BYTES / waiting).max(HELD_BYTES_MIN)
    }

    /// Whether a request of so many bytes, the first of those at hand, is within the connection's share. If not, it waits
    /// for the next, in front of all that follows it. A share that is left has room for any one request.
    #[inline]
    pub fn admit(&mut self, session: &mut Session, bytes: usize, at_hand: usize) -> bool {
        let quota = &mut session.quota;
        if quota.turn != self.turn {
            if quota.called != self.turn {
                if at_hand <= LITTLE_BYTES || at_hand == bytes && bytes <= MIXED_TURN_BYTES {
                    self.mixed_turns = MIXED_TURNS;
                    self.passed_bytes += at_hand + REQUEST_BYTES;
                } else if self.mixed_turns > 0 {
                    self.wait(session);
                    return false;
                }
                self.heard += 1;
            }
            quota.turn = self.turn;
            quota.bytes = 0;
        }
        if quota.bytes >= self.bytes {
            self.wait(session);
            return false;
        }
        quota.bytes += bytes + REQUEST_BYTES;
        true
    }

    /// A connection waits for its next share.
    #[cold]
    pub fn wait(&mut self, session: &mut Session) {
        session.blocked = true;
        if !std::mem::replace(&mut session.quota.waits, true) {
            self.waiting.push_back(session.conn);
        }
    }

    /// The next of those whose turn it is now that all others have been heard; `pending` says how many bytes each has,
    /// if it is still there.
    fn take_waiting(
        &mut self,
        mut pending: impl FnMut(ConnId) -> Option<usize>,
    ) -> VecDeque<ConnId> {
        let others_first = self.heard > 0 && !self.let_pass;
        self.let_pass = others_first && !self.waiting.is_empty();
        if others_first {
            return VecDeque::new();
        }
        self.crowd = self.waiting.len();
        // As much as those had who asked for little, however many they are.
        let mut left = std::mem::take(&mut self.passed_bytes).max(MIXED_TURN_BYTES);
        if self.mixed_turns == 0 {
            return std::mem::take(&mut self.waiting);
        }
        let mut called = 0;
        while let Some(&conn) = self.waiting.get(called)
            && left > 0
        {
            // Short requests count twice their bytes.
            let bytes = pending(conn).map_or(0, |bytes| bytes.max(REQUEST_BYTES) * 2);
            left = left.saturating_sub(bytes);
            called += 1;
        }
        self.waiting.drain(..called).collect()
    }
}

impl ShardServer {
    /// As [`FairShares::admit`].
    pub(crate) fn admit(&mut self, conn: ConnId, bytes: usize, at_hand: usize) -> bool {
        let Self { sessions, fair_shares, .. } = self;
        sessions.get(conn).is_some_and(|session| fair_shares.admit(session, bytes, at_hand))
    }

    /// After all that has come: those that wait get their share of this turn, or the others' answers go
    /// out first.
    pub fn begin_fair_shares(&mut self) {
        let Self { sessions, fair_shares, .. } = self;
        let pending = |conn| sessions.get(conn).map(|session| session.pending.len());
        for conn in fair_shares.take_waiting(pending) {
            if let Some(session) = sessions.get(conn) {
                session.quota.waits = false;
                session.quota.called = fair_shares.turn;
                self.unblocked.push(conn);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::server::connection::protocol::Protocol;
    use crate::server::connection::session::Sessions;

    const REQUEST: usize = 100;
    const IN_FLIGHT: usize = 25;

    struct House {
        fair_shares: FairShares,
        sessions: Sessions,
    }

    impl House {
        fn new(connections: u32) -> Self {
            let mut sessions = Sessions::default();
            for index in 0..connections {
                sessions.open(0, conn(index), Protocol::Frames, true);
            }
            Self { fair_shares: FairShares::default(), sessions }
        }

        /// A turn in which these have so many requests more, and whose turn it is has so many as well; how many
        /// of each were admitted.
        fn turn(&mut self, fresh: &[(u32, usize)], waiting: usize) -> Vec<(u32, usize)> {
            self.fair_shares.begin_turn();
            let mut admitted: Vec<_> =
                fresh.iter().map(|&(who, most)| (who, self.take(who, most))).collect();
            for id in self.fair_shares.take_waiting(|_| Some(IN_FLIGHT * REQUEST)) {
                let quota = &mut self.sessions.get(id).unwrap().quota;
                (quota.waits, quota.called) = (false, self.fair_shares.turn);
                admitted.push((id.index, self.take(id.index, waiting)));
            }
            admitted
        }

        fn take(&mut self, who: u32, most: usize) -> usize {
            let Self { fair_shares, sessions } = self;
            let session = sessions.get(conn(who)).unwrap();
            let at_hand = most.saturating_mul(REQUEST);
            (0..most).take_while(|_| fair_shares.admit(session, REQUEST, at_hand)).count()
        }
    }

    fn conn(index: u32) -> ConnId {
        ConnId { index, generation: 0 }
    }

    #[test]
    fn whoever_floods_gets_a_turn_of_his_own_and_then_lets_the_others_pass() {
        let mut house = House::new(2);
        let full = TURN_BYTES.div_ceil(REQUEST + REQUEST_BYTES);
        assert_eq!(house.turn(&[(0, usize::MAX)], usize::MAX), [(0, full)]);
        assert_eq!(house.turn(&[], usize::MAX), [(0, full)]);
        for _ in 0..10 {
            assert_eq!(house.turn(&[(1, 3)], usize::MAX), [(1, 3)], "nobody else is in this turn");
            let next = house.turn(&[(1, 3)], usize::MAX);
            assert_eq!((next[0], next[1].0), ((1, 3), 0), "but he is in the next");
            assert!(next[1].1 >= full / 2);
        }
    }

    #[test]
    fn many_who_flood_get_equal_parts_and_any_request_gets_through() {
        let mut house = House::new(101);
        let all: Vec<_> = (0..100).map(|who| (who, usize::MAX)).collect();
        house.turn(&all, usize::MAX);
        let part = SHARE_BYTES_MIN.div_ceil(REQUEST + REQUEST_BYTES);
        for _ in 0..3 {
            let next = house.turn(&[], usize::MAX);
            assert_eq!(next.len(), 100);
            assert!(next.iter().all(|&(_, admitted)| admitted == part), "{next:?}");
            assert_eq!(
                house.turn(&[(100, 20)], usize::MAX)[0],
                (100, 20),
                "whoever passes makes no share larger"
            );
        }
        let House { mut fair_shares, mut sessions } = house;
        fair_shares.begin_turn();
        let session = sessions.get(conn(0)).unwrap();
        assert!(fair_shares.admit(session, 64 << 20, 64 << 20), "however large it is");
        assert!(!fair_shares.admit(session, 1, 1));
    }

    #[test]
    fn beside_who_asks_for_little_a_turn_serves_few_of_those_who_ask_for_much() {
        let mut house = House::new(9);
        let much: Vec<_> = (0..8).map(|who| (who, IN_FLIGHT)).collect();
        assert_eq!(house.turn(&much, 0), much, "nobody else is there");
        house.turn(&[(8, 1)], 0);
        let mut served = [0_u32; 8];
        let mut more = much;
        for turn in 0..100 {
            let little = if turn % 2 == 0 { &[(8, 1)][..] } else { &[] };
            let admitted = house.turn(&[little, &more].concat(), IN_FLIGHT);
            assert!(admitted.starts_with(little), "{admitted:?} without {little:?}");
            // A client with an answer has more to ask for.
            more =
                admitted.into_iter().filter(|&(who, admitted)| who < 8 && admitted > 0).collect();
            assert!(more.len() <= 2, "{more:?}");
            for &(who, _) in &more {
                served[who as usize] += 1;
            }
        }
        assert!(
            served.iter().all(|times| *times > 10 && times.abs_diff(served[0]) <= 1),
            "{served:?}"
        );
    }

    #[test]
    fn those_who_ask_for_much_get_as_much_as_all_who_ask_for_little() {
        let mut house = House::new(108);
        let little: Vec<_> = (8..108).map(|who| (who, 1)).collect();
        let mut more: Vec<_> = (0..8).map(|who| (who, IN_FLIGHT)).collect();
        let mut served = [0, 0];
        for _ in 0..100 {
            let admitted = house.turn(&[&little[..], &more].concat(), IN_FLIGHT);
            assert!(admitted.starts_with(&little));
            for &(who, admitted) in &admitted {
                served[usize::from(who < 8)] += admitted;
            }
            more =
                admitted.into_iter().filter(|&(who, admitted)| who < 8 && admitted > 0).collect();
        }
        assert!(served[1] * 10 >= served[0] * 8, "{served:?}");
    }
}
