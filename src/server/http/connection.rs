//! A connection that speaks HTTP: from its bytes to requests, each carried out once it is whole.

use super::credentials::{self, Seen};
use super::page;
use super::query;
use super::rate_limit::TooMany;
use super::rate_limit_check::RateLimitCheck;
use super::route::{Endpoint, Route, Values};
use super::routes::Miss;
use super::timeouts::{Patience, Phase};
use super::trace_headers::TraceHeaders;
use crate::api::access::Grant;
use crate::api::error::{Error, ErrorKind};
use crate::api::spelling::shown;
use crate::protocol::decode::repair::takes_any_form;
use crate::protocol::decode::value::is_queue_name;
use crate::protocol::http1::answer::{CONTINUE, Manner, TEXT};
use crate::protocol::http1::body::Body;
use crate::protocol::http1::head::{self, Head, Length, Method};
use crate::protocol::http1::target::Target;
use crate::protocol::websocket;
use crate::server::access::slowed::{RefusalTime, RefusedBy};
use crate::server::connection::deadlines::refuse_token;
use crate::server::connection::protocol::Protocol;
use crate::server::connection::session::Session;
use crate::server::events::wish::Asked;
use crate::server::lifecycle::certificate;
use crate::server::overload::send_memory::is_tight;
use crate::server::shard_mail::message::ScatterQuery;
use crate::server::shard_server::ShardServer;
use crate::server::ui::answer::PageAnswer;
use corq_io::net::{ConnId, Connections};
use std::borrow::Cow;

/// The last id that a client says to have had: a browser that comes back says it in a header, which is newer than what
/// the page has put into the query.
fn last_id(head: &Head<'_>, in_query: Option<Box<str>>) -> Option<Box<str>> {
    let in_header = head.headers("last-event-id").next();
    in_header.and_then(|id| std::str::from_utf8(id).ok()).map(Into::into).or(in_query)
}

/// State of a connection that speaks HTTP.
#[derive(Debug, Default)]
pub struct HttpConnection {
    /// How much of the next head has been looked through in vain.
    seen: usize,
    /// A request whose head is there and whose body is not.
    pub(super) reading: Option<Box<Reading>>,
    /// The request under way.
    pub(super) exchange: Option<Exchange>,
    /// Whether its last answer has been written.
    pub(super) over: bool,
    /// Whether the next request may pass.
    pub(super) rate_limit_check: RateLimitCheck,
    /// When the next request is refused, if its token is wrong.
    pub(super) refused: Option<RefusalTime>,
    /// Whether its last request has shown a token, if there are any.
    pub(crate) has_shown: bool,
    /// Whether its last request came from a page over TLS.
    pub(super) of_https: bool,
    /// Whether its last request came from a page.
    pub(crate) of_page: bool,
    pub(crate) patience: Patience,
}

impl HttpConnection {
    /// Memory of a body that has not come whole.
    pub(crate) fn body_bytes(&self) -> usize {
        self.reading.as_ref().map_or(0, |reading| reading.body.held_bytes())
    }

    /// Whether its request tells what has come of a job.
    pub(crate) fn takes_any_form(&self) -> bool {
        let asks = self.exchange.as_ref().and_then(|exchange| exchange.route.asks.as_ref());
        asks.is_some_and(|asks| takes_any_form(asks.op))
    }
}

/// A request that is not there yet.
#[derive(Debug)]
pub struct Reading {
    plan: Plan<'static>,
    pub(super) body: Body,
}

/// How far a request of more than one command is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stage {
    /// The only command is under way.
    Only,
    /// This job is to be cancelled.
    Cancelling(Box<str>),
    /// The job could not be cancelled, and its state is asked for to tell why.
    WhyNot,
}

/// A request that waits for its answer.
#[derive(Clone, Debug)]
pub struct Exchange {
    pub(super) route: &'static Route,
    pub(super) stage: Stage,
    pub(super) manner: Manner,
    pub(super) trace: Option<Box<TraceHeaders>>,
}

/// A request that is understood but for its body.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    pub(super) route: &'static Route,
    /// The queue, job or the like in its path.
    pub(super) values: Values<'a>,
    /// The query, as it came, which may give fields of the command.
    pub(super) query: Cow<'a, str>,
    manner: Manner,
    /// The answer, if the request is for the dashboard.
    page: Option<Box<PageAnswer>>,
    /// The trace of a push.
    trace: Option<Box<TraceHeaders>>,
}

impl Plan<'_> {
    fn into_owned(self) -> Plan<'static> {
        let own = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        Plan { values: self.values.map(own), query: own(self.query), ..self }
    }
}

/// Why a request goes nowhere.
pub struct HttpError {
    pub(super) error: Error,
    /// Headers of the answer, each with its line's end.
    pub(super) extra: String,
}

impl HttpError {
    pub(super) fn new(error: impl Into<Error>) -> Self {
        Self { error: error.into(), extra: String::new() }
    }
}

/// How far a piece of input has brought a connection.
pub enum Progress {
    /// This many bytes are done with.
    Took(usize),
    /// This many bytes are no part of any request.
    Skipped(usize),
    /// More bytes are needed, or an answer first.
    Wants,
    /// The connection is over.
    Over,
}

impl ShardServer {
    /// Handles whole requests at the front of `bytes`; returns how many bytes they took.
    pub(crate) fn handle_http(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        bytes: &[u8],
    ) -> usize {
        let (mut used, mut skipped) = (0, 0);
        loop {
            match self.read_on(conns, conn, &bytes[used..]) {
                Progress::Took(taken) => used += taken,
                Progress::Skipped(empty) => {
                    used += empty;
                    skipped += empty;
                }
                Progress::Wants => break,
                Progress::Over => return bytes.len(),
            }
        }
        if skipped > 0 && skipped == bytes.len() && self.waits_for_request(conn) {
            // Nothing has been said, which brings no more time to say something.
            return used;
        }
        self.note_phase(conn, used < bytes.len());
        used
    }

    fn read_on(&mut self, conns: &mut Connections, conn: ConnId, bytes: &[u8]) -> Progress {
        let busy = self.must_stall();
        let Some(session) = self.sessions.get(conn) else { return Progress::Over };
        if session.http.over {
            return Progress::Over;
        }
        if session.protocol != Protocol::Http {
            // The connection has become a stream: the bytes behind the request are no HTTP.
            return Progress::Wants;
        }
        session.note_unread(conns.untaken(conn), is_tight(conns, self.client_memory));
        let Session { http, choked, blocked, affinity, .. } = session;
        let waits = http.exchange.is_some() || http.rate_limit_check == RateLimitCheck::Asked;
        let waits = waits || http.refused == Some(RefusalTime::Later);
        let waits = waits || affinity.is_migrating();
        *blocked = waits || *choked || busy && http.reading.is_some();
        if *blocked || bytes.is_empty() {
            return Progress::Wants;
        }
        if http.reading.is_some() {
            return self.read_body(conns, conn, bytes);
        }
        let empty = head::empty_lines(bytes);
        if empty > 0 {
            return Progress::Skipped(empty);
        }
        match head::read(bytes, &mut http.seen) {
            Ok(None) => Progress::Wants,
            Ok(Some(head)) => {
                let body = if let Length::Bytes(bytes) = head.length { bytes as usize } else { 0 };
                if !self.admit(conn, head.raw.len() + body, bytes.len().max(head.raw.len() + body))
                {
                    return Progress::Wants;
                }
                let behind = &bytes[head.raw.len()..];
                self.begin_request(conns, conn, &head, behind, busy)
            }
            Err(error) => {
                let knocks = certificate::is_handshake(bytes);
                self.http.counters.handshakes += u64::from(knocks);
                self.give_up(conns, conn, if knocks { ErrorKind::TlsNotSpoken } else { error })
            }
        }
    }

    /// Answers that what came is no request, and ends the connection.
    pub(super) fn give_up(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        error: ErrorKind,
    ) -> Progress {
        let manner = Manner { bodiless: false, stay: false, origin: 0 };
        self.object(conns, conn, &HttpError::new(error), manner);
        Progress::Over
    }

    /// A head is there.
    fn begin_request(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        head: &Head<'_>,
        behind: &[u8],
        busy: bool,
    ) -> Progress {
        let target = Target::of(head.target);
        let found = page::find(self.http.settings.ui.as_deref(), head.method, target.path);
        let vital = found.as_ref().is_ok_and(|(route, _)| route.endpoint.is_vital());
        if busy && !vital {
            if let Some(session) = self.sessions.get(conn) {
                session.blocked = true;
            }
            return Progress::Wants;
        }
        let endpoint = found.as_ref().ok().map(|(route, _)| route.endpoint);
        let seen = credentials::seen(&self.access, head, endpoint, self.now_ms);
        let through_path = self.note_seen(conn, head, endpoint, &seen);
        if seen.is_wrong {
            match self.refuse_token_of_request(conns, conn) {
                RefusalTime::Now => {}
                RefusalTime::Later => return Progress::Wants,
                RefusalTime::Never => return Progress::Over,
            }
        }
        let rules = &self.http.settings.rules;
        let by_page = seen.by_cookie && endpoint != Some(Endpoint::Page)
            || endpoint.is_some_and(Endpoint::is_for_pages);
        let let_in = rules.judge(head, endpoint, through_path);
        let let_in = let_in.and(if by_page { rules.judge_page(head, endpoint) } else { Ok(()) });
        let limited = found.as_ref().map_or(true, |(route, _)| route.endpoint.is_limited());
        // A page that may not ask does not use up what others may.
        let passed =
            if limited && let_in.is_ok() { self.check_rate_limit(conn, head) } else { Ok(true) };
        if passed == Ok(false) {
            return Progress::Wants;
        }
        if let Some(session) = self.sessions.get(conn) {
            session.http.refused = None;
        }
        self.http.counters.requests += 1;
        self.http.counters.cross_origin += u64::from(let_in.is_err());
        let mut manner = Manner {
            bodiless: head.method == Method::Head,
            stay: head.keep_alive && !self.stopping,
            origin: self.http.settings.rules.place_of(head),
        };
        let plan = match let_in {
            Ok(()) => self.plan(head, target, found, (passed, &seen), manner),
            Err(error) => Err(HttpError::new(error)),
        };
        let whole = match head.length {
            Length::Bytes(bytes) if bytes <= behind.len() as u64 => Some(bytes as usize),
            _ => None,
        };
        match (plan, whole) {
            (
                Ok(Plan {
                    route: Route { endpoint: Endpoint::Stream { upgrade, of_queue }, .. },
                    values: [name, _],
                    query,
                    ..
                }),
                whole,
            ) => {
                let queue = of_queue.then_some(&*name);
                if whole.is_none() {
                    // Refuse a body: the bytes behind the head are the stream's.
                    return self.give_up(conns, conn, ErrorKind::StreamBody);
                }
                match query::read_stream(&query, queue, *upgrade) {
                    // Only the page means none by it.
                    _ if queue == Some(page::NO_QUEUE) => {
                        self.object(conns, conn, &HttpError::new(ErrorKind::StreamQueue), manner);
                    }
                    Ok(asked) => {
                        self.begin_stream(conns, conn, head, (*upgrade, queue), asked, manner);
                    }
                    Err(error) => self.object(conns, conn, &HttpError::new(error), manner),
                }
                Progress::Took(head.raw.len() + whole.unwrap_or(0))
            }
            (Ok(Plan { route: Route { endpoint: Endpoint::PageSocket, .. }, .. }), whole) => {
                if whole.is_none() {
                    return self.give_up(conns, conn, ErrorKind::StreamBody);
                }
                let asked = Asked::plain(Some(page::NO_QUEUE));
                self.begin_stream(conns, conn, head, (true, Some(page::NO_QUEUE)), asked, manner);
                Progress::Took(head.raw.len() + whole.unwrap_or(0))
            }
            (Ok(plan), Some(body_bytes)) => {
                self.carry_out(conns, conn, &plan, behind[..body_bytes].into());
                Progress::Took(head.raw.len() + body_bytes)
            }
            (Ok(plan), None) => {
                self.await_body(conns, conn, head, plan, behind.is_empty());
                Progress::Took(head.raw.len())
            }
            (Err(error), whole) => {
                // A body that is not read would be taken for the next request.
                manner.stay &= whole.is_some();
                self.object(conns, conn, &error, manner);
                Progress::Took(head.raw.len() + whole.unwrap_or(0))
            }
        }
    }

    /// Notes what a request has shown, and with that what it may do. Returns whether it came through a unix socket.
    fn note_seen(
        &mut self,
        conn: ConnId,
        head: &Head<'_>,
        endpoint: Option<Endpoint>,
        seen: &Seen,
    ) -> bool {
        let metrics_are_guarded = self.http.settings.metrics_are_guarded;
        let Some(session) = self.sessions.get(conn) else { return false };
        session.http.has_shown = seen.access.is_some();
        session.http.of_page = credentials::is_of_page(head);
        session.http.of_https = head.origin.is_some_and(|origin| origin.starts_with(b"https://"));
        // Ignore a token where all may ask: one of few rights must not close what is open.
        let counts = endpoint
            .is_some_and(|it| it.is_guarded(metrics_are_guarded) || it == Endpoint::Logout)
            || !self.access.is_on();
        session.access = seen.access.filter(|_| counts).unwrap_or_default();
        session.through_path
    }

    /// Counts a wrong token, once for each request, and says when it is refused.
    fn refuse_token_of_request(&mut self, conns: &mut Connections, conn: ConnId) -> RefusalTime {
        let known = self.sessions.get(conn).and_then(|session| session.http.refused);
        if let Some(time) = known {
            return time;
        }
        self.access.failures += 1;
        self.audit_auth(conns, conn, None);
        let origin = self.origin(conn);
        let time = refuse_token(self, conns, origin, RefusedBy::Request);
        if let Some(session) = self.sessions.get(conn) {
            session.http.refused = Some(time);
            session.blocked = time == RefusalTime::Later;
        }
        time
    }

    /// Refuses a request that has waited for it.
    pub(crate) fn refuse_request(&mut self, conn: ConnId) {
        if let Some(session) = self.sessions.get(conn) {
            session.http.refused = Some(RefusalTime::Now);
        }
    }

    /// Whether a request may go on, decided before any of its body has come.
    fn plan<'a>(
        &self,
        head: &Head<'_>,
        target: Target<'a>,
        found: Result<(&'static Route, Values<'a>), Miss>,
        (passed, seen): (Result<bool, TooMany>, &Seen),
        manner: Manner,
    ) -> Result<Plan<'a>, HttpError> {
        if let Err(TooMany { wait_ms }) = passed {
            let extra = format!("Retry-After: {}\r\n", wait_ms.div_ceil(1000).max(1));
            return Err(HttpError { extra, ..HttpError::new(ErrorKind::TooOften) });
        }
        let metrics_are_guarded = self.http.settings.metrics_are_guarded;
        let guarded = found
            .as_ref()
            .map_or(true, |(route, _)| route.endpoint.is_guarded(metrics_are_guarded));
        if guarded && seen.access.is_none() {
            let extra = "WWW-Authenticate: Bearer\r\n".to_string();
            return Err(HttpError { extra, ..HttpError::new(ErrorKind::Unauthorized) });
        }
        let (route, values) = found.map_err(|miss| match miss {
            Miss::Unknown => HttpError::new(ErrorKind::PathNotFound),
            Miss::Method => {
                let extra = page::allowed(self.http.settings.ui.as_deref(), target.path);
                HttpError { extra, ..HttpError::new(ErrorKind::PathNotFound) }
            }
            Miss::BadPath => HttpError::new(ErrorKind::PathEncoding),
            Miss::Command => {
                let name = target.path.rsplit('/').next().unwrap_or_default();
                HttpError::new(Error::unknown_command(&shown(name)))
            }
            Miss::Connection => HttpError::new(ErrorKind::NeedsConnection),
        })?;
        let grant = seen.access.map_or(Grant::ALL, |access| access.grant);
        route.endpoint.judge(grant).map_err(HttpError::new)?;
        if head.expects == Some(false) {
            return Err(HttpError::new(ErrorKind::Expectation));
        }
        route.body_limit().check(head.length).map_err(HttpError::new)?;
        query::check(route, target.query).map_err(HttpError::new)?;
        let page = page::answer(self.http.settings.ui.as_deref(), route, target.path, head);
        let page = page.map_err(HttpError::new)?;
        let trace = TraceHeaders::of(route, head);
        Ok(Plan { route, values, query: Cow::Borrowed(target.query), manner, page, trace })
    }

    /// Makes the connection a stream of events, of one queue or of all.
    fn begin_stream(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        head: &Head<'_>,
        (upgrade, queue): (bool, Option<&str>),
        asked: Asked,
        mut manner: Manner,
    ) {
        let queues = || queue.filter(|&queue| queue != page::NO_QUEUE);
        if queues().is_some_and(|queue| !is_queue_name(queue)) {
            self.object(conns, conn, &HttpError::new(ErrorKind::StreamQueue), manner);
            return;
        }
        let scope = self.sessions.get(conn).and_then(|session| session.access.scope());
        if queues().is_some_and(|queue| scope.is_some_and(|queues| !queues.cover(queue))) {
            self.object(conns, conn, &HttpError::new(ErrorKind::QueueForbids), manner);
            return;
        }
        let named = asked.choice.queues().find(|&queue| {
            let is_name = !queue.contains('*') && queue != page::NO_QUEUE;
            is_name && scope.is_some_and(|it| !it.cover(queue))
        });
        if named.is_some() {
            self.object(conns, conn, &HttpError::new(ErrorKind::QueueForbids), manner);
            return;
        }
        let accept = || websocket::accept_key(head.minor, |name| head.headers(name));
        let accept = upgrade.then(accept).transpose();
        match accept {
            Err(error) => {
                manner.stay = false;
                let is_version = error == ErrorKind::WebSocketVersion;
                let extra = if is_version { websocket::SPOKEN } else { "" }.to_owned();
                self.object(conns, conn, &HttpError { error: error.into(), extra }, manner);
            }
            Ok(accept) => {
                self.await_conn(conn, Phase::Answering);
                let (standing, _) = self.http.standing_at(self.now_ms);
                let mut standing = standing.lines(manner.origin).to_string();
                if let Some(protocol) = credentials::chosen_protocol(head).filter(|_| upgrade) {
                    standing.extend(["Sec-WebSocket-Protocol: ", protocol, "\r\n"]);
                }
                let asked = Asked { last_id: last_id(head, asked.last_id), ..asked };
                let snapshots = asked.snapshots;
                let begun = match accept {
                    Some(accept) => self.begin_websocket(conns, conn, asked, &accept, &standing),
                    None => self.begin_events(conns, conn, asked, &standing),
                };
                match begun {
                    Ok(()) => self.set_snapshots(conn, snapshots),
                    Err(error) => self.object(conns, conn, &HttpError::new(error), manner),
                }
            }
        }
    }

    /// A head is there whose body is not.
    fn await_body(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        head: &Head<'_>,
        plan: Plan<'_>,
        none_came: bool,
    ) {
        let Some(session) = self.sessions.get(conn) else { return };
        let body = Body::new(head.length, plan.route.has_body(), plan.route.body_limit());
        session.http.reading = Some(Box::new(Reading { plan: plan.into_owned(), body }));
        if head.expects == Some(true)
            && none_came
            && let Some(out) = conns.output(conn)
        {
            out.extend_from_slice(CONTINUE);
            self.touch(conn);
        }
    }

    fn read_body(&mut self, conns: &mut Connections, conn: ConnId, bytes: &[u8]) -> Progress {
        let Some(session) = self.sessions.get(conn) else { return Progress::Over };
        let Some(reading) = &mut session.http.reading else { return Progress::Wants };
        match reading.body.take(bytes) {
            Err(error) => self.give_up(conns, conn, error),
            Ok(taken) => match session.http.reading.take_if(|reading| reading.body.is_whole()) {
                Some(reading) => {
                    let Reading { plan, body } = *reading;
                    self.carry_out(conns, conn, &plan, body.into_bytes().into());
                    Progress::Took(taken)
                }
                None if taken == 0 => Progress::Wants,
                None => Progress::Took(taken),
            },
        }
    }

    /// A request is whole.
    fn carry_out(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        plan: &Plan<'_>,
        body: Cow<'_, [u8]>,
    ) {
        let Some(session) = self.sessions.get(conn) else { return };
        let Plan { route, manner, .. } = *plan;
        let stage = match route.endpoint {
            Endpoint::Cancel => Stage::Cancelling(plan.values[0].as_ref().into()),
            _ => Stage::Only,
        };
        let trace = plan.trace.clone();
        session.http.exchange = Some(Exchange { route, stage, manner, trace });
        match route.endpoint {
            Endpoint::Alive => self.conclude(conns, conn, 200, TEXT, b"OK"),
            Endpoint::Preflight => self.preflight(conns, conn),
            Endpoint::Page => self.conclude_page(conns, conn, plan.page.as_deref()),
            Endpoint::Login => self.login(conns, conn, &body),
            Endpoint::Logout => self.logout(conns, conn),
            Endpoint::Gc => self.give_memory_back(conns, conn),
            Endpoint::Health => self.scatter_for_http(conn, ScatterQuery::Health),
            Endpoint::Ready => self.scatter_for_http(conn, ScatterQuery::Ready),
            Endpoint::Stats => self.scatter_for_http(conn, ScatterQuery::ServerStats),
            Endpoint::Heap => self.scatter_for_http(conn, ScatterQuery::Heap),
            Endpoint::Push
            | Endpoint::Pull
            | Endpoint::PeekPull
            | Endpoint::Get
            | Endpoint::Cancel
            | Endpoint::Ack
            | Endpoint::Fail
            | Endpoint::Metrics
            | Endpoint::Prometheus
            | Endpoint::Command => self.command(conns, conn, plan, body),
            // The connection became a stream instead.
            Endpoint::Stream { .. } | Endpoint::PageSocket => {}
        }
    }

    fn scatter_for_http(&mut self, conn: ConnId, question: ScatterQuery) {
        let origin = self.origin(conn);
        self.send_scatter_query(origin, None, question);
    }
}
