//! The HTTP port. A request becomes the frame that a client over TCP would send, goes the way of all
//! frames, and its reply becomes JSON on the connection's own shard. What only HTTP has (health,
//! memory, readiness) is asked of all shards.
//!
//! One request of a connection is under way at a time: the next is read once the answer is written.
//!
//! | file | responsibility |
//! |---|---|
//! | `bodies` | the memory of bodies |
//! | `cross_origin` | what a web page may ask without tokens |
//! | `health` | `/health`, `/ready`, `/stats`, `/heapstats` |
//! | `rate_limit` | the sliding window of one client |
//! | `rate_limit_check` | asks the shard that counts a client |
//! | `request` | an HTTP request becomes a frame |
//! | `response` | a reply becomes an HTTP response |
//! | `routes` | methods and paths |
//! | `timeouts` | how long a client is waited for |

mod bodies;
mod cross_origin;
pub(super) mod health;
mod rate_limit;
mod rate_limit_check;
mod request;
mod response;
mod routes;
mod timeouts;

use super::connection::protocol::Protocol;
use super::connection::session::Session;
use super::lifecycle::certificate;
use super::overload::receive_memory::ReceiveMemory;
use super::overload::send_memory::is_tight;
use super::shard_mail::message::ScatterQuery;
use super::shard_server::ShardServer;
use crate::api::error::ErrorKind;
use crate::protocol::decode::value::is_queue_name;
use crate::protocol::http1::answer::EXPOSITION;
use crate::protocol::http1::answer::{Answer, CONTINUE, JSON, Manner, Standing, TEXT};
use crate::protocol::http1::body::Body;
use crate::protocol::http1::head::{self, Head, Length, Method};
use crate::protocol::http1::target::Target;
use crate::protocol::websocket;
use bodies::BODIES_BYTES_MAX;
use corq_io::memory;
use corq_io::net::{ConnId, Connections};
pub use cross_origin::Rules;
pub use rate_limit::{Limiter, Rule, TooMany, Window};
pub use rate_limit_check::RateLimitCheck;
use response::Stage;
pub use response::{date_of, megabytes};
use routes::{Endpoint, Miss};
use std::borrow::Cow;
pub use timeouts::Phase;
use timeouts::{Alarms, Patience};

/// Scratch memory beyond this is given back after the request that needed it.
const SCRATCH_BYTES_MAX: usize = 256 * 1024;

/// The settings of HTTP, as every shard gets them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whose pages may ask and read answers.
    pub rules: Rules,
    /// Longest time a request may take to come.
    pub request_timeout_ms: u64,
    /// Longest time between requests.
    pub idle_timeout_ms: u64,
    /// How often a client may come.
    pub client_rule: Option<Rule>,
    /// How often clients that do not come are forgotten.
    pub cleanup_ms: u64,
    /// How often a connection may send a frame.
    pub frame_rule: Option<Rule>,
    /// How often a WebSocket connection may send a message.
    pub message_rule: Option<Rule>,
    /// Longest time until a connection of frames has shown a token.
    pub auth_timeout_ms: u64,
    /// Longest time that a frame or message may take to come.
    pub frame_timeout_ms: u64,
    /// Whether the text for Prometheus needs a token.
    pub metrics_are_guarded: bool,
}

/// What has been done, for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct HttpCounters {
    /// Requests whose head was understood.
    pub requests: u64,
    /// Requests that were cut off because they did not come in time.
    pub timeouts: u64,
    /// Requests and frames refused because there were too many.
    pub limited: u64,
    /// Requests refused because a web page that may not ask seems to have made them.
    pub cross_origin: u64,
    /// Handshakes of TLS where it is not spoken, also at the port for frames.
    pub handshakes: u64,
    /// Bodies that gave way because all together were too large.
    pub crowded_out: u64,
}

/// What a shard needs for its HTTP connections, beside their sessions.
pub struct HttpState {
    pub settings: Settings,
    pub counters: HttpCounters,
    /// Who of the clients that this shard keeps has come how often.
    pub limiter: Option<Limiter>,
    standing: Standing,
    /// Bodies that are not there yet.
    pub bodies: ReceiveMemory,
    date: String,
    date_of_s: u64,
    alarms: Alarms,
    frame: Vec<u8>,
    reply: Vec<u8>,
    json: Vec<u8>,
}

impl HttpState {
    /// Before the first connection.
    pub fn new(settings: Settings) -> Self {
        Self {
            standing: settings.rules.standing(),
            limiter: settings
                .client_rule
                .map(|rule| Limiter::new(rule, settings.cleanup_ms, crate::secret::hash_key())),
            counters: HttpCounters::default(),
            bodies: ReceiveMemory::new(BODIES_BYTES_MAX),
            date: String::new(),
            date_of_s: u64::MAX,
            alarms: Alarms::default(),
            frame: Vec::new(),
            reply: Vec::new(),
            json: Vec::new(),
            settings,
        }
    }

    /// Where to write a reply that becomes an answer.
    pub fn take_reply(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.reply)
    }

    /// The reply has become one.
    pub fn keep_reply(&mut self, mut reply: Vec<u8>) {
        reply.clear();
        self.reply = slimmed(reply);
    }
}

/// What is remembered of a connection that speaks HTTP.
#[derive(Debug, Default)]
pub struct HttpConnection {
    /// How much of the next head has been looked through in vain.
    seen: usize,
    /// A request whose head is there and whose body is not.
    reading: Option<Box<Reading>>,
    /// The request under way.
    exchange: Option<Exchange>,
    /// Whether its last answer has been written.
    over: bool,
    /// Whether the next request may pass.
    rate_limit_check: RateLimitCheck,
    /// Whether its last request has shown a token, if there are any.
    pub(super) has_shown: bool,
    pub(super) patience: Patience,
}

/// A request that is not there yet.
#[derive(Debug)]
pub struct Reading {
    plan: Plan<'static>,
    body: Body,
}

/// A request that waits for its answer.
#[derive(Clone, Debug)]
struct Exchange {
    endpoint: Endpoint,
    stage: Stage,
    manner: Manner,
}

/// A request that is understood but for its body.
#[derive(Clone, Debug)]
struct Plan<'a> {
    endpoint: Endpoint,
    /// The queue or job in its path.
    name: Cow<'a, str>,
    /// What a pull says of itself.
    timeout: Option<Cow<'a, str>>,
    lock_ttl: Option<Cow<'a, str>>,
    manner: Manner,
}

impl Plan<'_> {
    fn into_owned(self) -> Plan<'static> {
        let own = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        Plan {
            name: own(self.name),
            timeout: self.timeout.map(own),
            lock_ttl: self.lock_ttl.map(own),
            ..self
        }
    }
}

/// Why a request goes nowhere.
struct HttpError {
    error: ErrorKind,
    /// Headers of the answer, each with its line's end.
    extra: String,
}

impl HttpError {
    fn new(error: ErrorKind) -> Self {
        Self { error, extra: String::new() }
    }
}

/// How far a piece of input has brought a connection.
enum Progress {
    /// So many bytes are done with.
    Took(usize),
    /// So many bytes are no part of any request.
    Skipped(usize),
    /// More bytes are needed, or an answer first.
    Wants,
    /// The connection is.
    Over,
}

impl ShardServer {
    /// Handles whole requests at the front of `bytes`; returns how many bytes they took.
    pub(super) fn handle_http(
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
            // What follows is no HTTP.
            return Progress::Wants;
        }
        session.note_unread(conns.untaken(conn), is_tight(conns));
        let Session { http, choked, blocked, affinity, .. } = session;
        let waits = http.exchange.is_some() || http.rate_limit_check == RateLimitCheck::Asked;
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
    fn give_up(&mut self, conns: &mut Connections, conn: ConnId, error: ErrorKind) -> Progress {
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
        let found = routes::find(head.method, target.path);
        let vital = found.as_ref().is_ok_and(|(endpoint, _)| endpoint.is_vital());
        if busy && !vital {
            if let Some(session) = self.sessions.get(conn) {
                session.blocked = true;
            }
            return Progress::Wants;
        }
        let has_shown = self.accepts(head.authorization);
        if let Some(session) = self.sessions.get(conn) {
            session.http.has_shown = has_shown;
        }
        let endpoint = found.as_ref().ok().map(|(endpoint, _)| *endpoint);
        let through_path = self.sessions.get(conn).is_some_and(|session| session.through_path);
        let let_in = self.http.settings.rules.judge(head, endpoint, through_path);
        let limited = found.as_ref().map_or(true, |(endpoint, _)| endpoint.is_limited());
        // A page that may not ask does not use up what others may.
        let passed =
            if limited && let_in.is_ok() { self.check_rate_limit(conn, head) } else { Ok(true) };
        if passed == Ok(false) {
            return Progress::Wants;
        }
        self.http.counters.requests += 1;
        self.http.counters.cross_origin += u64::from(let_in.is_err());
        let mut manner = Manner {
            bodiless: head.method == Method::Head,
            stay: head.keep_alive && !self.stopping,
            origin: self.http.settings.rules.place_of(head),
        };
        let plan = match let_in {
            Ok(()) => self.plan(head, target, found, (passed, has_shown), manner),
            Err(error) => Err(HttpError::new(error)),
        };
        let whole = match head.length {
            Length::Bytes(bytes) if bytes <= behind.len() as u64 => Some(bytes as usize),
            _ => None,
        };
        match (plan, whole) {
            (Ok(Plan { endpoint: Endpoint::Stream { upgrade, of_queue }, name, .. }), whole) => {
                let queue = of_queue.then_some(&*name);
                if whole.is_none() {
                    // What follows the head of such a request is the stream.
                    return self.give_up(conns, conn, ErrorKind::StreamBody);
                }
                self.begin_stream(conns, conn, head, (upgrade, queue), manner);
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

    /// Whether a request may go on, decided before any of its body has come.
    fn plan<'a>(
        &self,
        head: &Head<'_>,
        target: Target<'a>,
        found: Result<(Endpoint, Cow<'a, str>), Miss>,
        (passed, has_shown): (Result<bool, TooMany>, bool),
        manner: Manner,
    ) -> Result<Plan<'a>, HttpError> {
        if let Err(TooMany { wait_ms }) = passed {
            let extra = format!("Retry-After: {}\r\n", wait_ms.div_ceil(1000).max(1));
            return Err(HttpError { extra, ..HttpError::new(ErrorKind::TooOften) });
        }
        let metrics_are_guarded = self.http.settings.metrics_are_guarded;
        let guarded =
            found.as_ref().map_or(true, |(endpoint, _)| endpoint.is_guarded(metrics_are_guarded));
        if guarded && !has_shown {
            let extra = "WWW-Authenticate: Bearer\r\n".to_string();
            return Err(HttpError { extra, ..HttpError::new(ErrorKind::Unauthorized) });
        }
        let (endpoint, name) = found.map_err(|miss| match miss {
            Miss::Unknown => HttpError::new(ErrorKind::PathNotFound),
            Miss::BadPath => HttpError::new(ErrorKind::PathEncoding),
        })?;
        if head.expects == Some(false) {
            return Err(HttpError::new(ErrorKind::Expectation));
        }
        endpoint.body_limit().check(head.length).map_err(HttpError::new)?;
        let value = |name| match endpoint {
            Endpoint::Pull => {
                let value =
                    target.value(name).map_err(|_| HttpError::new(ErrorKind::QueryEncoding))?;
                Ok(value.filter(|text| !text.is_empty()))
            }
            _ => Ok(None),
        };
        let (timeout, lock_ttl) = (value("timeout")?, value("lockTtl")?);
        Ok(Plan { endpoint, name, timeout, lock_ttl, manner })
    }

    fn accepts(&self, authorization: Option<&[u8]>) -> bool {
        if !self.guard.is_on() {
            return true;
        }
        let words = authorization.and_then(|value| std::str::from_utf8(value).ok());
        let Some((scheme, token)) = words.and_then(|words| words.split_once(' ')) else {
            return false;
        };
        scheme.eq_ignore_ascii_case("bearer") && self.guard.accepts(token.trim_start())
    }

    /// Makes the connection a stream of events, of one queue or of all.
    fn begin_stream(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        head: &Head<'_>,
        (upgrade, queue): (bool, Option<&str>),
        mut manner: Manner,
    ) {
        if queue.is_some_and(|queue| !is_queue_name(queue)) {
            self.object(conns, conn, &HttpError::new(ErrorKind::StreamQueue), manner);
            return;
        }
        let accept = || websocket::accept_key(head.minor, |name| head.headers(name));
        let accept = upgrade.then(accept).transpose();
        match accept {
            Err(error) => {
                manner.stay = false;
                let mut error = HttpError::new(error);
                if error.error == ErrorKind::WebSocketVersion {
                    error.extra.push_str(websocket::SPOKEN);
                }
                self.object(conns, conn, &error, manner);
            }
            Ok(accept) => {
                self.await_conn(conn, Phase::Answering);
                let (standing, _) = self.http.standing_at(self.now_ms);
                let standing = standing.lines(manner.origin).to_string();
                match accept {
                    Some(accept) => self.begin_websocket(conns, conn, queue, &accept, &standing),
                    None => self.begin_events(conns, conn, queue, &standing),
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
        let body = Body::new(head.length, plan.endpoint.has_body(), plan.endpoint.body_limit());
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
        let before = reading.body.held_bytes();
        let taken = reading.body.take(bytes);
        let (now, whole) = (reading.body.held_bytes(), reading.body.is_whole());
        self.note_body(conns, conn, before, now);
        if self.sessions.get(conn).is_none_or(|session| session.http.over) {
            return Progress::Over;
        }
        match taken {
            Err(error) => self.give_up(conns, conn, error),
            Ok(taken) => match whole.then(|| self.drop_body(conn)).flatten() {
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
        let Plan { endpoint, manner, .. } = *plan;
        let stage = match endpoint {
            Endpoint::Cancel => Stage::Cancelling(plan.name.as_ref().into()),
            _ => Stage::Only,
        };
        session.http.exchange = Some(Exchange { endpoint, stage, manner });
        match endpoint {
            Endpoint::Alive => self.conclude(conns, conn, 200, TEXT, b"OK"),
            Endpoint::Preflight => self.preflight(conns, conn),
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
            | Endpoint::Prometheus => self.command(conns, conn, plan, body),
            // Its connection became a stream instead.
            Endpoint::Stream { .. } => {}
        }
    }

    fn scatter_for_http(&mut self, conn: ConnId, question: ScatterQuery) {
        let origin = self.origin(conn);
        self.send_scatter_query(origin, None, question);
    }
}

/// Scratch memory for the next request.
fn slimmed(scratch: Vec<u8>) -> Vec<u8> {
    if scratch.capacity() > SCRATCH_BYTES_MAX { Vec::new() } else { scratch }
}
