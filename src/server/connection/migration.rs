//! Migration of connections: one whose commands nearly all belong to one other shard moves to that shard, socket and all,
//! so that a command no longer costs two wake-ups of a core. In the same way connections of a unix socket are dealt out:
//! one shard accepts them for all.
//!
//! A connection moves while none of its commands is unanswered and everything it was sent is gone.
//! It keeps its name with the engine, so its leases stay its own. What the commands mean is not known here.

use super::session::Session;
use crate::server::overload::fair_share::TurnQuota;
use crate::server::shard_mail::message::Message;
use crate::server::shard_server::ShardServer;
use corq_io::net::{ConnId, Connections, Socket};

/// Commands for another shard after which a connection moves there for the first time. Each move
/// doubles the number, so that a connection that changes its mind all the time does not travel all the time.
const COMMANDS_BEFORE_MOVE: u32 = 32;
const DOUBLINGS_MAX: u32 = 16;

/// How long a connection with commands under way takes no others for the sake of a move. One that is
/// waiting for a job may wait for long, and its other commands must not wait with it.
const PATIENCE_MS: u64 = 10;

/// Where the commands of a connection go.
#[derive(Debug, Default)]
pub struct ShardAffinity {
    /// Commands since the count began.
    commands: u32,
    /// How many of them went to `dest`.
    forwarded: u32,
    dest: u16,
    /// Moves done or tried.
    doublings: u32,
    migrating: bool,
    /// Whether it is on its way to its first shard.
    seating: bool,
}

impl ShardAffinity {
    /// A command has come.
    #[inline]
    pub fn note_command(&mut self) {
        self.commands = self.commands.saturating_add(1);
    }

    /// Counts a command that goes to another shard.
    #[inline]
    pub fn note_forwarded(&mut self, dest: usize) {
        if usize::from(self.dest) != dest {
            *self = Self { dest: dest as u16, commands: 1, forwarded: 0, ..*self };
        }
        self.forwarded += 1;
    }

    /// Whether seven eighths of its commands go to one other shard, as far as they are counted. A long
    /// past at home is forgotten.
    fn wants_to_move(&mut self) -> bool {
        let enough = COMMANDS_BEFORE_MOVE << self.doublings;
        if self.forwarded < enough {
            return false;
        }
        let wants = self.forwarded / 7 >= self.commands / 8;
        if !wants {
            (self.commands, self.forwarded) = (0, 0);
        }
        wants
    }

    /// Whether it takes no commands because it is about to move.
    #[inline]
    pub fn is_migrating(&self) -> bool {
        self.migrating
    }

    /// Begins again, wherever the connection now is.
    fn settle(&mut self) {
        let doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
        *self = Self { doublings, ..Self::default() };
    }
}

/// A connection on its way.
#[derive(Debug)]
pub struct MigratingConnection {
    socket: Socket,
    session: Session,
}

/// Connections that take no commands because they are about to move.
#[derive(Debug, Default)]
pub struct Migrations {
    /// Which, and until when.
    conns: Vec<(ConnId, u64)>,
    /// The shard of the next one that is seated.
    seat: usize,
    /// How many have been given away to be seated.
    seated: u64,
    /// How many of them are still here.
    passing: usize,
}

impl Migrations {
    /// When patience with the first of them ends.
    pub fn next_ms(&self) -> u64 {
        self.conns.first().map_or(u64::MAX, |&(_, until_ms)| until_ms)
    }

    /// How many have been given away to their first shard.
    pub fn seated(&self) -> u64 {
        self.seated
    }
}

impl Session {
    /// Whether its commands are better carried out elsewhere, and nothing speaks against it.
    pub(crate) fn begins_to_migrate(&mut self) -> bool {
        // A stream of events stays where it listens, and a viewer where it watches.
        let stays = self.stream.is_some() || self.watch.is_some();
        let free = !self.affinity.migrating && !self.half_closed && !stays;
        let leaves = self.affinity.wants_to_move() && free;
        self.affinity.migrating |= leaves;
        leaves
    }
}

impl ShardServer {
    /// A connection is to move as soon as its commands are answered.
    pub(crate) fn note_migration(&mut self, conn: ConnId) {
        self.migrations.conns.push((conn, self.now_ms + PATIENCE_MS));
    }

    /// Sends off the connections that have their answers.
    pub fn move_connections(&mut self, conns: &mut Connections) {
        if self.migrations.conns.is_empty() {
            return;
        }
        let mut leaving = std::mem::take(&mut self.migrations.conns);
        leaving.retain(|&(conn, until_ms)| {
            let Some(session) = self.sessions.get(conn) else { return false };
            if !session.affinity.migrating {
                return false;
            }
            if session.in_flight == 0 && !self.stopping {
                conns.give_away(conn);
                return false;
            }
            let over = self.stopping || until_ms <= self.now_ms;
            if over {
                session.affinity.settle();
                self.unblocked.push(conn);
            }
            !over
        });
        self.migrations.conns = leaving;
    }

    /// Gives a connection that has just come the next shard in turn.
    pub fn seat(&mut self, conns: &mut Connections, conn: ConnId) {
        let dest = self.migrations.seat;
        self.migrations.seat = (dest + 1) % self.slots.shards();
        if dest == self.me {
            if !conns.settle(conn, self.migrations.passing) {
                self.sessions.close(conn);
            }
            return;
        }
        if let Some(session) = self.sessions.get(conn) {
            let dest = dest as u16;
            session.affinity =
                ShardAffinity { dest, migrating: true, seating: true, ..ShardAffinity::default() };
            self.migrations.passing += 1;
            conns.give_away(conn);
        }
    }

    /// A connection that was to move stays: its peer has ended.
    pub fn stays(&mut self, conn: ConnId) {
        if let Some(session) = self.sessions.get(conn)
            && session.affinity.migrating
        {
            let passes = usize::from(session.affinity.seating);
            self.migrations.passing = self.migrations.passing.saturating_sub(passes);
            session.affinity.settle();
            self.unblocked.push(conn);
        }
    }

    /// The socket of a connection that leaves is free to go.
    pub fn given_away(&mut self, conn: ConnId, socket: Socket) {
        self.drop_received(conn);
        // Forgetting a session closes its connection, which calls the move off.
        let Some(mut session) = self.sessions.close(conn) else { return };
        self.http.alarms.send(&mut session.http.patience);
        let dest = usize::from(session.affinity.dest);
        if session.affinity.seating {
            self.migrations.seated += 1;
            self.migrations.passing = self.migrations.passing.saturating_sub(1);
        }
        let moved = Box::new(MigratingConnection { socket, session });
        self.outbox.immediate(dest).messages.push(Message::Adopt(moved));
    }

    /// A connection of another shard comes here.
    pub(crate) fn adopt(&mut self, conns: &mut Connections, moved: MigratingConnection) {
        let MigratingConnection { socket, mut session } = moved;
        let conn = if session.affinity.seating {
            // Nothing of it is anywhere yet.
            session.affinity = ShardAffinity::default();
            let Some(conn) = conns.seat(socket) else { return };
            conn
        } else {
            session.affinity.settle();
            session.seen_elsewhere = true;
            conns.adopt(socket)
        };
        session.conn = conn;
        // Nothing on this shard knows that it waits.
        session.quota = TurnQuota::default();
        session.paused = false;
        self.sessions.take_in(session);
        self.set_alarm_again(conn);
        // The right of the token may have changed while the connection was on its way.
        self.look_again(conns, conn);
        self.go_on(conns, conn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(affinity: &mut ShardAffinity, dest: usize, times: u32) {
        for _ in 0..times {
            affinity.note_command();
            affinity.note_forwarded(dest);
        }
    }

    #[test]
    fn a_connection_moves_to_the_shard_of_nearly_all_its_commands() {
        let mut affinity = ShardAffinity::default();
        send(&mut affinity, 1, COMMANDS_BEFORE_MOVE - 1);
        assert!(!affinity.wants_to_move());
        send(&mut affinity, 1, 1);
        assert!(affinity.wants_to_move());
        affinity.settle();
        send(&mut affinity, 0, COMMANDS_BEFORE_MOVE);
        assert!(!affinity.wants_to_move(), "a second move takes more");
        send(&mut affinity, 0, COMMANDS_BEFORE_MOVE);
        assert!(affinity.wants_to_move());
    }

    #[test]
    fn commands_for_several_shards_keep_a_connection_where_it_is() {
        let mut affinity = ShardAffinity::default();
        for _ in 0..1000 {
            send(&mut affinity, 1, 1);
            send(&mut affinity, 2, 1);
            assert!(!affinity.wants_to_move());
        }
        let mut affinity = ShardAffinity { dest: 1, ..ShardAffinity::default() };
        for _ in 0..1000 {
            send(&mut affinity, 1, 3);
            affinity.note_command();
            assert!(!affinity.wants_to_move(), "a quarter of its commands is at home");
        }
    }

    #[test]
    fn a_long_past_at_home_does_not_hold_a_connection_for_ever() {
        let mut affinity = ShardAffinity { dest: 1, ..ShardAffinity::default() };
        (0..1_000_000).for_each(|_| affinity.note_command());
        let mut moves = 0;
        while !affinity.wants_to_move() {
            send(&mut affinity, 1, 1);
            moves += 1;
        }
        assert!(moves <= 3 * COMMANDS_BEFORE_MOVE);
    }
}
