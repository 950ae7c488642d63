//! Hands events out to subscribers, and keeps their connections alive. A turn feeds some clients, the next one others; a
//! client whose connection has enough to send is passed over until it has taken that. One that came back gets what was
//! kept for it before anything else, a bounded number of events in a turn for all of those together.

use super::shared_buffer::{Carrier, Form};
use super::subscribers::{BEATS, Subscribers};
use super::topics::Round;
use crate::protocol::{sse, websocket};
use crate::server::overload::send_memory::is_tight;
use crate::server::overload::shared_values::SHARED_BYTES_MIN;
use crate::server::shard_server::ShardServer;
use corq_io::net::{ConnId, Connections};

/// Unsent output of a connection beyond which it gets no more events for now.
const UNSENT_BYTES_MAX: usize = 64 << 10;

/// About how much of a shared buffer a connection gets at a time.
const FEED_BYTES_MAX: usize = 64 << 10;

/// Clients that are fed in a turn, and about how many bytes are copied for them.
const TURN_CLIENTS_MAX: usize = 500;

const TURN_BYTES_MAX: usize = 2 << 20;

/// Kept events that are written in a turn, for all who came back.
const TURN_KEPT_MAX: usize = 2000;

/// Events that follow each other within this time go out together: with many listeners a send for each
/// event costs more than the event.
const PACE_MS: u64 = 5;

/// How often in a row a WebSocket client may leave a ping unanswered.
const MISSED_MAX: u8 = 2;

impl ShardServer {
    /// Hands out new events, to some in a turn, and begins to look for what some have missed that came back. Returns when
    /// to come again, in milliseconds since the epoch.
    pub(crate) fn feed_streams(&mut self, conns: &mut Connections) -> u64 {
        if self.subscribers.clients.is_empty() {
            return u64::MAX;
        }
        self.ask_for_returns(conns);
        self.feed_hungry(conns);
        // Who waits for those that are fed has to see when none is left.
        let looks_ms = self.look_for_missed(conns);
        let next_ms = self.feed_rounds(conns).min(looks_ms);
        let goes_on = self.subscribers.are_hungry() || self.subscribers.returns.is_open();
        if goes_on { self.now_ms } else { next_ms }
    }

    /// Feeds those who were behind and have taken what they had.
    fn feed_hungry(&mut self, conns: &mut Connections) {
        self.subscribers.kept_left = TURN_KEPT_MAX;
        let (mut clients_left, mut bytes) = (TURN_CLIENTS_MAX, TURN_BYTES_MAX);
        while clients_left > 0
            && bytes > 0
            && self.subscribers.kept_left > 0
            && let Some(key) = self.subscribers.next_hungry()
        {
            let topic = self.subscribers.clients[key].topic;
            let copied = self.feed(conns, key);
            self.meter.note_bytes(copied);
            self.subscribers.topics.clear_if_done(topic);
            bytes = bytes.saturating_sub(copied);
            clients_left -= 1;
        }
    }

    fn feed_rounds(&mut self, conns: &mut Connections) -> u64 {
        let subscribers = &mut self.subscribers;
        if subscribers.topics.rounds.is_empty() {
            if subscribers.topics.dirty.is_empty() {
                return u64::MAX;
            }
            if self.now_ms < subscribers.next_feed_ms {
                return subscribers.next_feed_ms;
            }
            subscribers.next_feed_ms = self.now_ms + PACE_MS;
            subscribers.topics.begin_rounds();
        }
        let (mut clients_left, mut bytes) = (TURN_CLIENTS_MAX, TURN_BYTES_MAX);
        while let Some(&Round { topic, serial, left }) = self.subscribers.topics.rounds.front() {
            let known = self.subscribers.topics.known(topic, serial);
            let clients = known.map_or(&[][..], |known| &known.clients);
            let Some(next) = left.min(clients.len()).checked_sub(1) else {
                self.subscribers.topics.end_round();
                continue;
            };
            if clients_left == 0 || bytes == 0 {
                return self.now_ms;
            }
            let key = clients[next];
            self.subscribers.topics.rounds[0].left = next;
            if !self.subscribers.clients[key].behind {
                bytes = bytes.saturating_sub(self.feed(conns, key));
                clients_left -= 1;
            }
        }
        if self.subscribers.topics.dirty.is_empty() {
            u64::MAX
        } else {
            self.subscribers.next_feed_ms
        }
    }

    /// Gives one client what its connection has room for. Returns how many bytes were copied.
    fn feed(&mut self, conns: &mut Connections, key: u32) -> usize {
        let now_ms = self.now_ms;
        let Subscribers { clients, topics, .. } = &mut self.subscribers;
        let subscriber = &mut clients[key];
        let (conn, number) = (subscriber.conn, subscriber.topic);
        if subscriber.opening.as_ref().is_some_and(|opening| opening.holds_place()) {
            return 0;
        }
        let session = self.sessions.get(conn);
        let topic = &mut topics[number];
        let may = session.is_some_and(|session| session.may_hear(&topic.key.choice));
        topic.behind -= usize::from(std::mem::take(&mut subscriber.behind));
        if subscriber.opening.is_some() || !may {
            subscriber.place = topic.buffer.end();
            self.subscribers.end_replay(key);
            return 0;
        }
        let mut copied = 0;
        let tight = is_tight(conns, self.client_memory);
        if conns.unsent(conn) <= if tight { 0 } else { UNSENT_BYTES_MAX } {
            let most = if tight { 1 } else { FEED_BYTES_MAX };
            copied += self.feed_kept(conns, key, most);
            if copied < most {
                copied += self.feed_new(conns, key, most, now_ms);
            }
        }
        let Subscribers { clients, topics, .. } = &mut self.subscribers;
        let (subscriber, topic) = (&mut clients[key], &mut topics[number]);
        if subscriber.replaying.is_some() || subscriber.place != topic.buffer.end() {
            subscriber.behind = true;
            topic.behind += 1;
            if subscriber.replaying.is_some() && self.subscribers.kept_left == 0 {
                // Feed again in a later turn: the output may be empty, and would not notify.
                self.subscribers.feed_in_turn(key);
            } else {
                conns.notify_when_drained(conn);
            }
        }
        copied
    }

    /// Gives a client some of what was kept for it, if it came back. Returns how many bytes were copied.
    fn feed_kept(&mut self, conns: &mut Connections, key: u32, most: usize) -> usize {
        let now_ms = self.now_ms;
        let Subscribers { clients, topics, kept_left, .. } = &mut self.subscribers;
        let subscriber = &mut clients[key];
        let (conn, form) = (subscriber.conn, topics[subscriber.topic].key.form);
        let Some(replaying) = subscriber.replaying.as_deref_mut() else { return 0 };
        let Some(out) = conns.output(conn) else { return 0 };
        let before = out.len();
        while out.len() - before < most
            && *kept_left > 0
            && let Some((passed_over, shard, kept)) = replaying.events.pop_front()
        {
            *kept_left -= 1;
            replaying.position.note(shard, kept.number);
            let id = if form.ids { replaying.position.text() } else { String::new() };
            if passed_over > 0 {
                form.write_passed_over(out, passed_over, now_ms);
            }
            form.write(out, &kept.event(), &id);
        }
        let (copied, is_over) = (out.len() - before, replaying.events.is_empty());
        self.subscribers.owed_bytes.note_taken(now_ms);
        if is_over {
            self.subscribers.end_replay(key);
        }
        self.touched.push(conn);
        copied
    }

    /// Gives a client some of what its topic has. Returns how many bytes were copied.
    fn feed_new(&mut self, conns: &mut Connections, key: u32, most: usize, now_ms: u64) -> usize {
        let Subscribers { clients, topics, counts, .. } = &mut self.subscribers;
        let subscriber = &mut clients[key];
        if subscriber.replaying.is_some() {
            return 0;
        }
        let (conn, topic) = (subscriber.conn, &topics[subscriber.topic]);
        let (mut copied, before) = (0, subscriber.place);
        let form = topic.key.form;
        let lost = topic.buffer.lost_at(subscriber.place);
        if lost > 0
            && form.chosen
            && let Some(out) = conns.output(conn)
        {
            form.write_notice(out, "missed", Some(lost), now_ms);
        }
        counts.lost += topic.buffer.read(&mut subscriber.place, most, |passed_over, event| {
            if passed_over > 0
                && let Some(out) = conns.output(conn)
            {
                let before = out.len();
                form.write_passed_over(out, passed_over, now_ms);
                copied += out.len() - before;
            }
            if event.bytes().len() >= SHARED_BYTES_MIN {
                conns.append_shared(conn, event);
            } else if let Some(out) = conns.output(conn) {
                copied += event.bytes().len();
                out.extend_from_slice(event.bytes());
            }
        });
        if subscriber.place != before {
            self.touched.push(conn);
        }
        copied
    }

    /// A connection has taken all its output.
    pub(crate) fn feed_drained(&mut self, key: u32) {
        self.subscribers.feed_in_turn(key);
    }

    pub(super) fn beat_ms(&self) -> u64 {
        (self.subscribers.keep_alive_ms / BEATS as u64).max(1)
    }

    /// Sends the signs of life that are due. Returns when to come again, in milliseconds since the
    /// epoch.
    pub(crate) fn beat_streams(&mut self, conns: &mut Connections) -> u64 {
        if self.subscribers.clients.is_empty() {
            self.subscribers.beats.iter_mut().for_each(Vec::clear);
            return u64::MAX;
        }
        if self.now_ms >= self.subscribers.next_beat_ms {
            self.subscribers.next_beat_ms = self.now_ms + self.beat_ms();
            let beat = self.subscribers.beat;
            self.subscribers.beat = (beat + 1) % BEATS;
            let mut due = std::mem::take(&mut self.subscribers.beats[beat]);
            due.retain(|&conn| self.show_life(conns, conn));
            self.subscribers.beats[beat] = due;
        }
        self.subscribers.next_beat_ms
    }

    /// Sends one connection a sign of life. False if there is no such stream any more.
    fn show_life(&mut self, conns: &mut Connections, conn: ConnId) -> bool {
        if self.is_session_over(conn) {
            self.look_again(conns, conn);
        }
        let Some(session) = self.sessions.get(conn) else { return false };
        let Some(key) = session.stream else { return false };
        let last_seen_ms = session.last_seen_ms;
        let (now_ms, ping_ms) = (self.now_ms, 2 * self.subscribers.keep_alive_ms);
        let form = self.subscribers.form_of(key);
        let Some(subscriber) = self.subscribers.subscriber(key) else { return false };
        if subscriber.opening.is_some() {
            return true;
        }
        match form.carrier {
            Carrier::Sse => {
                // Unsent output is sign enough.
                if conns.unsent(conn) == 0
                    && let Some(out) = conns.output(conn)
                {
                    match self.subscribers.place_of(key) {
                        Some(place) => sse::place(out, &place),
                        None => out.extend_from_slice(sse::KEEP_ALIVE),
                    }
                    self.touch(conn);
                }
            }
            // A TCP client sees by its own pings that it is connected.
            Carrier::Frames => {}
            // The time is a beat's: a little less is meant as a ping's.
            Carrier::WebSocket if now_ms + ping_ms / 4 < subscriber.pinged_at_ms + ping_ms => {}
            Carrier::WebSocket => {
                let silent = subscriber.pinged_at_ms > 0 && last_seen_ms < subscriber.pinged_at_ms;
                subscriber.missed = if silent { subscriber.missed + 1 } else { 0 };
                subscriber.pinged_at_ms = now_ms;
                if subscriber.missed >= MISSED_MAX {
                    self.close_websocket(conns, conn, Some(websocket::Closing::SILENT));
                    return false;
                }
                if conns.unsent(conn) <= UNSENT_BYTES_MAX
                    && let Some(out) = conns.output(conn)
                {
                    websocket::ping(out);
                    self.touch(conn);
                }
            }
        }
        true
    }

    /// Ends the streams: nothing happens any more. WebSocket clients get the end once their commands are
    /// answered.
    pub(crate) fn end_streams(&mut self, conns: &mut Connections) {
        let Subscribers { clients, topics, .. } = &self.subscribers;
        let form_of = |topic| topics.get(topic).map_or(Form::plain(Carrier::Sse), |it| it.key.form);
        let keys = clients.iter().map(|one| (one.conn, form_of(one.topic).carrier, one.behind));
        let keys: Vec<(ConnId, Carrier, bool)> = keys.collect();
        for (conn, carrier, behind) in keys {
            match carrier {
                Carrier::Sse => self.finish_connection(conns, conn),
                // End a connection that does not read at once: the end must not wait for it.
                Carrier::WebSocket | Carrier::Frames if behind => self.ended(conns, conn),
                // Leave a TCP connection to the usual end, which answers its commands.
                Carrier::Frames => {}
                Carrier::WebSocket => self.say_goodbye_if_answered(conns, conn),
            }
        }
    }
}
