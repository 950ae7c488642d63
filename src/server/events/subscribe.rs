//! The commands by which a connection listens: `SubscribeEvents` and `UnsubscribeEvents` for one queue, over TCP;
//! `Subscribe` and `Unsubscribe` by choice, also over WebSocket. How events come to it is not known here.

use super::choice::Choice;
use super::greeting::{Hello, Told};
use super::shared_buffer::Carrier;
use super::wish::{Asked, Wish, empty_list, meaning_of, never_among};
use crate::api::error::ErrorKind;
use crate::protocol::msgpack::Texts;
use crate::protocol::reply;
use crate::server::connection::protocol::Protocol;
use crate::server::connection::reply_writer::framed;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::{ConnId, Connections};

impl ShardServer {
    /// By what events reach a connection that gives commands.
    fn carrier_of(&mut self, conn: ConnId) -> Option<Carrier> {
        match self.sessions.protocol(conn)? {
            Protocol::Frames => Some(Carrier::Frames),
            Protocol::WebSocket => Some(Carrier::WebSocket),
            Protocol::Http | Protocol::Events => None,
        }
    }

    /// `SubscribeEvents`: the answer comes once every later event will reach the client. One choice per connection: another
    /// subscription ends the one before.
    pub(crate) fn subscribe(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        queue: &str,
    ) {
        if self.carrier_of(ctx.origin.conn) != Some(Carrier::Frames) {
            self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::SubscribeOverTcp);
            return;
        }
        self.begin_to_listen(conns, ctx, Carrier::Frames, Asked::plain(Some(queue)), None);
    }

    /// Answers `UnsubscribeEvents`.
    pub(crate) fn unsubscribe(&mut self, conns: &mut Connections, ctx: RequestContext<'_>) {
        if self.carrier_of(ctx.origin.conn) != Some(Carrier::Frames) {
            self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::SubscribeOverTcp);
            return;
        }
        self.set_snapshots(ctx.origin.conn, false);
        self.end_subscription(conns, ctx.origin.conn);
        self.respond(conns, ctx.origin, |_, sink| reply::ok(sink.out, ctx.req_id));
    }

    /// `Subscribe`. Names are added to those that the connection has asked for by names; all else that it asks for
    /// replaces what was before.
    pub(crate) fn subscribe_by_choice(&mut self, conns: &mut Connections, ctx: RequestContext<'_>) {
        let conn = ctx.origin.conn;
        let Some(carrier) = self.carrier_of(conn) else {
            return self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::WatchOverHttp);
        };
        let Some(asked) = Wish::of(ctx.body).map(|wish| wish.read(carrier)) else { return };
        let mut asked = match asked {
            Ok(asked) => match empty_list(&ctx.frame) {
                Some(error) => return self.refuse(conns, ctx.origin, ctx.req_id, &error),
                None => asked,
            },
            Err(error) => return self.refuse(conns, ctx.origin, ctx.req_id, &error),
        };
        if asked.choice.queues().next().is_none() {
            asked.choice = asked.choice.of_queues(self.address_of(conn).as_deref().into_iter());
        }
        if !asked.names.is_empty() {
            let before = self.names_of(conn);
            let new = asked.names.iter().filter(|name| !before.contains(name)).cloned();
            let new: Vec<Box<str>> = new.collect();
            take_names(&mut asked, [before, new].concat());
        }
        let told = self.told(conn, &asked);
        self.begin_to_listen(conns, ctx, carrier, asked, Some(told));
    }

    /// `Unsubscribe`: from these names, or from everything.
    pub(crate) fn unsubscribe_from(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        events: Texts<'_>,
    ) {
        let conn = ctx.origin.conn;
        let Some(carrier) = self.carrier_of(conn) else {
            return self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::WatchOverHttp);
        };
        let before = self.names_of(conn);
        let left = before.iter().filter(|name| !events.iter().any(|one| one == &***name));
        let left: Vec<Box<str>> = left.cloned().collect();
        if events.is_empty() || left.is_empty() && !before.is_empty() {
            let nothing = Asked { choice: Choice::nothing(), chosen: true, ..Asked::plain(None) };
            if carrier == Carrier::WebSocket {
                let told = Some(Told { subscribed: Vec::new(), never: Vec::new() });
                return self.begin_to_listen(conns, ctx, carrier, nothing, told);
            }
            self.set_snapshots(conn, false);
            self.end_subscription(conns, conn);
        } else if left.len() < before.len()
            && let Some(mut asked) = self.asked_of(conn)
        {
            take_names(&mut asked, left);
            let told = self.told(conn, &asked);
            return self.begin_to_listen(conns, ctx, carrier, asked, Some(told));
        }
        let subscribed = self.subscribed_of(conn);
        self.respond(conns, ctx.origin, |_, sink| {
            framed(sink, ctx.req_id, |sink| {
                let subscribed: Vec<&str> = subscribed.iter().map(|name| &**name).collect();
                reply::begin(sink.out, true, ctx.req_id).key("subscribed").strs(&subscribed);
            });
        });
    }

    fn begin_to_listen(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        carrier: Carrier,
        asked: Asked,
        told: Option<Told>,
    ) {
        let conn = ctx.origin.conn;
        let snapshots = asked.snapshots;
        let req_id = ctx.req_id.map(Into::into);
        self.deferred(ctx.origin);
        let hello = Hello::Reply { req_id, told: told.map(Box::new) };
        if let Err(error) = self.open_stream(conns, conn, carrier, asked, hello) {
            self.answered(ctx.origin);
            return self.refuse(conns, ctx.origin, ctx.req_id, error);
        }
        self.set_snapshots(conn, snapshots);
    }

    /// The queue in the address of a WebSocket: what it asks for is of that one, unless it names queues.
    fn address_of(&mut self, conn: ConnId) -> Option<Box<str>> {
        let key = self.sessions.get(conn)?.stream?;
        self.subscribers.clients.get(key)?.address.clone()
    }

    /// The names of dashboards by which a connection has asked.
    fn names_of(&mut self, conn: ConnId) -> Vec<Box<str>> {
        let key = self.sessions.get(conn).and_then(|session| session.stream);
        let subscriber = key.and_then(|key| self.subscribers.clients.get(key));
        subscriber.map(|subscriber| subscriber.names.clone()).unwrap_or_default()
    }

    /// The request that the stream of a connection follows.
    fn asked_of(&mut self, conn: ConnId) -> Option<Asked> {
        let key = self.sessions.get(conn)?.stream?;
        let subscriber = self.subscribers.clients.get(key)?;
        let form = self.subscribers.form_of(key);
        let (choice, names) = ((*subscriber.asked).clone(), subscriber.names.clone());
        let (named, data, ids, chosen) = (form.named, form.data, form.ids, form.chosen);
        Some(Asked { choice, named, data, ids, chosen, names, ..Asked::plain(None) })
    }

    /// Lists for the reply to a request.
    fn told(&mut self, conn: ConnId, asked: &Asked) -> Told {
        let mut never = asked.never.clone();
        let sees_all = self.sessions.get(conn).is_some_and(|it| it.access.scope().is_none());
        // Figures of the whole server are not for a token of some queues.
        let figures = asked.names.iter().filter(|name| !sees_all && name.starts_with("stats:"));
        never.extend(figures.cloned());
        let types = || asked.choice.kinds.names().map(Into::into).collect();
        let subscribed = if asked.names.is_empty() { types() } else { asked.names.clone() };
        Told { subscribed, never }
    }

    fn subscribed_of(&mut self, conn: ConnId) -> Vec<Box<str>> {
        let asked = self.asked_of(conn);
        asked.map(|asked| self.told(conn, &asked).subscribed).unwrap_or_default()
    }
}

/// Has a client ask by these names, which are known.
fn take_names(asked: &mut Asked, names: Vec<Box<str>>) {
    let all = meaning_of(&names).unwrap_or_default();
    (asked.choice.kinds, asked.snapshots) = (all.kinds, all.snapshots);
    asked.never = never_among(&names);
    asked.names = names;
}
