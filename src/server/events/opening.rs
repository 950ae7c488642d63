//! How a stream of events begins, changes what it is of, and ends. What a client wants is announced to the shards where
//! that happens, and the client is answered once all of them know: it gets every event from its answer on.
//!
//! One that came back gets what was kept for it first, and hears what is missing. Once all shards know of it, and it is its
//! turn, it takes its place in the events of its topic, which is a number of each shard. Only then the shards are asked for
//! what they have kept, up to these numbers: all that is behind comes by its topic. So no event is lost between the answers
//! of two shards, and none comes twice.

use super::choice::Choice;
use super::greeting::{Awaited, Hello, Opening, Return};
use super::interest::Resume;
use super::message::{Asker, EventMessage, Heard, Wants};
use super::position::Position;
use super::returns;
use super::shared_buffer::{Carrier, Form};
use super::state::LOOKS_PER_STEP;
use super::targets::{Target, Wanted};
use super::topics::{Changes, TopicKey};
use super::wish::Asked;
use crate::api::error::ErrorKind;
use crate::protocol::reply;
use crate::protocol::{json, sse, websocket};
use crate::server::connection::protocol::Protocol;
use crate::server::shard_mail::message::Message;
use crate::server::shard_server::ShardServer;
use corq_io::net::{ConnId, Connections};
use std::sync::Arc;

/// How many events a client has missed that came back: so many, or none knows.
type Missed = Option<u64>;

/// Looks at kept events in a turn, for all who came back.
const TURN_LOOKS_MAX: usize = 20_000;

/// How streams begin.
impl ShardServer {
    /// Makes a connection a stream of events. Who asked has shown that he may. `headers` are the header lines that every
    /// answer carries, each with its CRLF.
    pub(crate) fn begin_events(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        asked: Asked,
        headers: &str,
    ) -> Result<(), ErrorKind> {
        let mut head = Vec::new();
        sse::begin(&mut head, headers);
        self.open_stream(conns, conn, Carrier::Sse, asked, Hello::Response(head))
    }

    /// Makes a connection a WebSocket that gets events. Who asked has shown that he may; `accept` is what
    /// [`websocket::accept_key`] gave.
    pub(crate) fn begin_websocket(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        asked: Asked,
        accept: &str,
        headers: &str,
    ) -> Result<(), ErrorKind> {
        let mut hello = Vec::new();
        websocket::switch(&mut hello, accept, headers);
        self.open_stream(conns, conn, Carrier::WebSocket, asked, Hello::Switch(hello))
    }

    /// Begins a stream on a connection, or changes what it is of.
    pub(super) fn open_stream(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        carrier: Carrier,
        asked: Asked,
        hello: Hello,
    ) -> Result<(), ErrorKind> {
        let Some(session) = self.sessions.get(conn) else { return Ok(()) };
        let (grant, stream) = (session.access.grant, session.stream);
        let form = asked.form(carrier);
        let key = TopicKey::new(form, asked.choice.within(grant));
        if form.chosen {
            self.subscribers.topics.room_for(&key)?;
        }
        let targets = key.choice.targets();
        self.subscribers.times += 1;
        self.subscribers.now_ms = self.now_ms;
        let mut opening = Opening::new(self.subscribers.times, hello);
        if let Some(last_id) = asked.last_id.filter(|_| form.ids) {
            let Position { epoch, seen } = &self.subscribers.position;
            let from = Position::parse(&last_id, *epoch, seen.len());
            opening.back = Some(Box::new(Return::new(from)));
        }
        let time = opening.time;
        let (key, changes) = match stream {
            Some(stream) => {
                self.end_opening(conns, stream);
                (stream, self.subscribers.move_to(stream, key, opening))
            }
            None => self.subscribers.insert(conn, key, Arc::new(asked.choice.clone()), opening),
        };
        if self.subscribers.clients.len() == 1 {
            self.subscribers.next_beat_ms = self.now_ms + self.beat_ms();
        }
        if let Some(subscriber) = self.subscribers.subscriber(key) {
            subscriber.asked = Arc::new(asked.choice);
            subscriber.names = asked.names;
            if stream.is_none() {
                subscriber.address = asked.address;
            }
        }
        if stream.is_none() {
            self.become_stream(conn, key, carrier);
        }
        let asker = |_| Asker { conn, time, counts: form.ids, resume: None };
        let unheard = self.announce(changes, &targets, Some(&asker));
        self.hold(key, unheard);
        self.open_if_heard(conns, key);
        Ok(())
    }

    /// All shards know of a client that came back: it waits for its turn.
    fn stand_in_line(&mut self, key: u32, time: u64) {
        let comparisons = self.subscribers.choice_of(key).map_or(0, Choice::comparisons);
        let looks = 1 + self.events.interest.kept_max * self.slots.shards() * (1 + comparisons);
        self.subscribers.returns.wait(time, key, looks);
    }

    /// Has the stream of a client wait for so many more shards.
    fn hold(&mut self, key: u32, unheard: usize) {
        if let Some(opening) = self.opening_of(key) {
            opening.unheard += unheard;
        }
    }

    /// Asks the shards for what clients have missed that came back, for as many as may be at a time.
    pub(super) fn ask_for_returns(&mut self, conns: &mut Connections) {
        while let Some((time, key)) = self.subscribers.returns.next() {
            self.subscribers.hold_place(key);
            let Some(subscriber) = self.subscribers.clients.get(key) else { continue };
            let back = subscriber.opening.as_ref().and_then(|opening| opening.back.as_ref());
            let between = back.and_then(|back| back.from.clone().zip(back.hears_from.clone()));
            let conn = subscriber.conn;
            let topic = &self.subscribers.topics[subscriber.topic];
            let (targets, wanted, counts) =
                (topic.targets.clone(), topic.key.wanted(), topic.key.form.ids);
            // A shard was told of its own targets alone, and remembers no other.
            let mut of_shards: Vec<Vec<Target>> = vec![Vec::new(); self.slots.shards()];
            for target in &*targets {
                self.shards_of(target).for_each(|dest| of_shards[dest].push(target.clone()));
            }
            let resume = |shard: usize| {
                let (from, upto) = between.as_ref()?;
                let (number, upto) = (*from.seen.get(shard)?, *upto.seen.get(shard)?);
                Some(Resume { number, upto, targets: of_shards[shard].clone().into(), wanted })
            };
            let asker = |shard| Asker { conn, time, counts, resume: resume(shard) };
            let unheard = self.announce(Vec::new(), &targets, Some(&asker));
            self.hold(key, unheard);
            self.open_if_heard(conns, key);
        }
    }

    /// Looks for what clients have missed that came back, a slice in a turn. Returns when to come again, in milliseconds
    /// since the epoch.
    pub(super) fn look_for_missed(&mut self, conns: &mut Connections) -> u64 {
        let mut looks_left = TURN_LOOKS_MAX;
        let mut next_ms = u64::MAX;
        while let Some(heard) = self.subscribers.returns.first_heard() {
            let until_ms = self.subscribers.waits_until_ms(heard);
            if until_ms > self.now_ms {
                next_ms = until_ms;
                break;
            }
            if !self.subscribers.look_for_missed(heard, &mut looks_left) {
                next_ms = self.now_ms;
                break;
            }
            self.subscribers.returns.end(heard.time);
            self.open_if_heard(conns, heard.key);
        }
        self.meter.note((TURN_LOOKS_MAX - looks_left) / LOOKS_PER_STEP);
        next_ms
    }

    fn become_stream(&mut self, conn: ConnId, key: u32, carrier: Carrier) {
        let Some(session) = self.sessions.get(conn) else { return };
        session.stream = Some(key);
        // Who asked has shown that he may.
        session.trusted = true;
        match carrier {
            Carrier::Sse => self.sessions.change_protocol(conn, Protocol::Events),
            Carrier::WebSocket => self.sessions.change_protocol(conn, Protocol::WebSocket),
            // A TCP connection goes on giving commands.
            Carrier::Frames => {}
        }
    }

    fn opening_of(&mut self, key: u32) -> Option<&mut Opening> {
        self.subscribers.subscriber(key)?.opening.as_deref_mut()
    }

    /// The shards where events of a target happen.
    fn shards_of(&self, target: &Target) -> std::ops::Range<usize> {
        match target {
            Target::Under(_) | Target::Job(_) => 0..self.slots.shards(),
            Target::Queue(queue) => {
                let owner = self.slots.of_queue(queue);
                owner..owner + 1
            }
        }
    }

    /// Tells the shards what the clients of this one want from now on. Those where events of `targets` happen answer if
    /// there is an asker; returns how many.
    fn announce(
        &mut self,
        changes: Changes,
        targets: &[Target],
        asker: Option<&dyn Fn(usize) -> Asker>,
    ) -> usize {
        let shards = self.slots.shards();
        let mut wants: Vec<Vec<(Target, Wanted)>> = vec![Vec::new(); shards];
        for (target, wanted) in changes {
            for dest in self.shards_of(&target) {
                wants[dest].push((target.clone(), wanted));
            }
        }
        let mut asked = vec![false; shards];
        for target in targets.iter().filter(|_| asker.is_some()) {
            for dest in self.shards_of(target) {
                asked[dest] = true;
            }
        }
        self.meter.note(1 + targets.len() * shards / LOOKS_PER_STEP);
        let (me, mut unheard) = (self.me, 0);
        for (dest, wants) in wants.into_iter().enumerate() {
            let asker = asker.filter(|_| asked[dest]).map(|asker| asker(dest));
            if dest == me {
                let asker = asker.filter(|asker| asker.counts);
                let resume = asker.as_ref().and_then(|asker| asker.resume.as_ref());
                let replay = resume.map(|resume| self.events.interest.replay(resume));
                self.take_wants(me as u16, &wants);
                if let Some(asker) = asker {
                    unheard += 1;
                    self.answer_asker(me, &asker, replay);
                }
            } else if asker.is_some() || !wants.is_empty() {
                unheard += usize::from(asker.is_some());
                let wants = Box::new(Wants { shard: me as u16, of_targets: wants, asker });
                let message = Message::Events(EventMessage::Wants(wants));
                self.outbox.immediate(dest).messages.push(message);
            }
        }
        unheard
    }

    /// Another shard knows of a client.
    pub(super) fn heard(&mut self, conns: &mut Connections, heard: Heard) {
        let Heard { conn, time, shard, number, replay } = heard;
        self.subscribers.position.note(shard, number);
        let Some(key) = self.sessions.get(conn).and_then(|session| session.stream) else { return };
        let Some(opening) = self.opening_of(key).filter(|opening| opening.time == time) else {
            return;
        };
        opening.unheard -= 1;
        if let (Some(back), Some(replay)) = (&mut opening.back, replay) {
            back.complete &= replay.complete;
            back.owed.take(shard, replay.events);
        }
        self.open_if_heard(conns, key);
    }

    fn open_if_heard(&mut self, conns: &mut Connections, key: u32) {
        let Some(opening) = self.opening_of(key) else { return };
        let time = opening.time;
        match opening.awaits() {
            Awaited::Shards => {}
            Awaited::Turn => self.stand_in_line(key, time),
            Awaited::Looks => {
                let since_ms = self.now_ms;
                self.subscribers.returns.hear(returns::Heard { time, key, since_ms });
            }
            Awaited::Nothing => self.end_opening(conns, key),
        }
    }

    /// A stream begins; or it does not wait for the shards any more, which then say nothing of what it has missed.
    fn end_opening(&mut self, conns: &mut Connections, key: u32) {
        let Some(subscriber) = self.subscribers.subscriber(key) else { return };
        let Some(opening) = subscriber.opening.take() else { return };
        let (conn, topic) = (subscriber.conn, subscriber.topic);
        self.subscribers.returns.end(opening.time);
        let keeps_place = opening.holds_place() && opening.awaits() == Awaited::Nothing;
        if !keeps_place {
            let end = self.subscribers.topics[topic].buffer.end();
            if let Some(subscriber) = self.subscribers.subscriber(key) {
                subscriber.place = end;
            }
        }
        let Opening { hello, back, .. } = *opening;
        let missed = back.map(|back| self.come_back(key, *back, keeps_place));
        self.say_hello(conns, key, conn, hello, missed);
        if self.sessions.protocol(conn) == Some(Protocol::WebSocket) {
            // Read on: the client may have sent commands meanwhile.
            self.unblocked.push(conn);
        }
        self.subscribers.feed_in_turn(key);
        // Rights may have changed while the stream was opening.
        self.follow_stream(conns, conn);
    }

    /// Gives a client what was kept for it. Says where it is then, and what it misses. If it is not known what it has
    /// missed, it goes on from here.
    fn come_back(&mut self, key: u32, back: Return, is_known: bool) -> (Position, Missed) {
        let Return { from, hears_from, complete, owed } = back;
        let between = from.zip(hears_from).filter(|_| is_known);
        let complete = complete && between.is_some();
        let (mut left_out, mut position) = (0, self.subscribers.position.clone());
        if let Some((from, hears_from)) = between {
            left_out = self.subscribers.begin_replay(key, from.clone(), owed.into_found());
            let replays =
                self.subscribers.clients.get(key).is_some_and(|it| it.replaying.is_some());
            position = if replays { from } else { hears_from };
        }
        let counts = &mut self.subscribers.counts;
        counts.resumed += 1;
        counts.gaps += u64::from(!complete || left_out > 0);
        (position, complete.then_some(left_out))
    }

    fn say_hello(
        &mut self,
        conns: &mut Connections,
        key: u32,
        conn: ConnId,
        hello: Hello,
        back: Option<(Position, Missed)>,
    ) {
        let form = self.subscribers.form_of(key);
        let sample = self.subscribers.subscriber(key).map_or(1, |one| one.asked.sample);
        let (position, missed) = match back {
            Some((position, missed)) => (position, Some(missed)),
            None => (self.subscribers.position.clone(), None),
        };
        let id = form.ids.then(|| position.text());
        match hello {
            Hello::Changed => self.tell_of_gap(conns, conn, form),
            Hello::Switch(bytes) => {
                if let Some(out) = conns.output(conn) {
                    out.extend_from_slice(&bytes);
                    self.touch(conn);
                }
            }
            Hello::Response(head) => {
                let client = uuid::Uuid::new_v4();
                let mut text =
                    format!("{{\"connected\":true,\"clientId\":\"{client}\"").into_bytes();
                if sample > 1 {
                    text.extend_from_slice(b",\"sample\":");
                    json::integer(&mut text, u64::from(sample));
                }
                if let Some(missed) = missed {
                    let missed = missed.map_or("null".to_owned(), |missed| missed.to_string());
                    text.extend_from_slice(format!(",\"missed\":{missed}").as_bytes());
                }
                text.push(b'}');
                if let Some(out) = conns.output(conn) {
                    out.extend_from_slice(&head);
                    let retry = id.as_ref().map(|_| sse::RETRY_MS.to_string());
                    sse::fields(out, &[("retry", retry.as_deref()), ("id", id.as_deref())]);
                    sse::message(out, &text);
                    self.touch(conn);
                }
            }
            Hello::Reply { req_id, told } => {
                let mut frame = Vec::new();
                match told {
                    None => reply::ok(&mut frame, req_id.as_deref()),
                    Some(told) => {
                        let start = reply::Frame::begin(&mut frame);
                        let mut reply = reply::begin(&mut frame, true, req_id.as_deref());
                        let subscribed: Vec<&str> =
                            told.subscribed.iter().map(|it| &**it).collect();
                        reply.key("subscribed").strs(&subscribed);
                        reply.key("sample").uint(u64::from(sample));
                        if !told.never.is_empty() {
                            let never: Vec<&str> = told.never.iter().map(|name| &**name).collect();
                            reply.key("never").strs(&never);
                        }
                        if let Some(missed) = missed {
                            reply.key("missed").uint_or_nil(missed);
                        }
                        if let Some(id) = &id {
                            reply.key("id").str(id);
                        }
                        drop(reply);
                        // The frame is short enough: finishing cannot fail.
                        let _ = start.finish(&mut frame);
                    }
                }
                let origin = self.origin(conn);
                self.answered(origin);
                self.send_frame(conns, origin, &frame);
            }
        }
    }

    /// Notifies a client with ids that it may have missed events: its choice has changed without its doing.
    fn tell_of_gap(&mut self, conns: &mut Connections, conn: ConnId, form: Form) {
        if form.ids
            && let Some(out) = conns.output(conn)
        {
            form.write_notice(out, "missed", None, self.now_ms);
            self.touch(conn);
        }
    }

    /// Follows a change of what a connection may hear. An SSE stream ends, so that its client comes back with its new
    /// rights; any other stream goes on with these.
    pub(crate) fn follow_stream(&mut self, conns: &mut Connections, conn: ConnId) {
        let Some(session) = self.sessions.get(conn) else { return };
        let (grant, Some(key)) = (session.access.grant, session.stream) else { return };
        let Some(subscriber) = self.subscribers.clients.get(key) else { return };
        let topic = &self.subscribers.topics[subscriber.topic].key;
        let choice = subscriber.asked.within(grant);
        if subscriber.opening.is_some() || *topic.choice == choice {
            return;
        }
        let form = topic.form;
        if form.carrier == Carrier::Sse {
            self.finish_connection(conns, conn);
            return;
        }
        let key_now = TopicKey::new(form, choice);
        let targets = key_now.choice.targets();
        self.subscribers.times += 1;
        self.subscribers.now_ms = self.now_ms;
        let time = self.subscribers.times;
        let changes = self.subscribers.move_to(key, key_now, Opening::new(time, Hello::Changed));
        let asker = |_| Asker { conn, time, counts: form.ids, resume: None };
        let unheard = self.announce(changes, &targets, Some(&asker));
        self.hold(key, unheard);
        self.open_if_heard(conns, key);
    }

    /// A client of frames wants no events any more. An opening that it did not wait for is answered all the same.
    pub(super) fn end_subscription(&mut self, conns: &mut Connections, conn: ConnId) {
        let Some(key) = self.sessions.get(conn).and_then(|session| session.stream) else { return };
        self.end_opening(conns, key);
        if let Some(session) = self.sessions.get(conn) {
            session.stream = None;
        }
        self.close_stream(key);
    }

    /// A connection that was a stream is gone, or is to be closed.
    pub(crate) fn close_stream(&mut self, key: u32) {
        let changes = self.subscribers.remove(key);
        self.announce(changes, &[], None);
    }
}
