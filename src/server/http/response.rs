//! From the reply of a command to the answer of a request.

use super::connection::{Exchange, HttpError, Stage};
use super::health::megabytes;
use super::route::Endpoint;
use super::{request, slimmed};
use crate::api::commands::Op;
use crate::api::error::{Code, ErrorKind, ErrorRef};
use crate::protocol::frame::PREFIX_BYTES;
use crate::protocol::http1::answer::{self, Answer, EXPOSITION, JSON, Manner, PAGE, Standing};
use crate::protocol::json::{self, Unshown};
use crate::protocol::msgpack::Reader;
use crate::server::connection::transcode::LONG_REPLY_BYTES;
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_server::ShardServer;
use crate::server::ui::answer::{Bytes, PageAnswer};
use chrono::{DateTime, Datelike, Timelike};
use corq_io::memory;
use corq_io::net::{ConnId, Connections, Shared};

/// The headers of an answer to a preflight.
const PREFLIGHT: &str = "Access-Control-Allow-Methods: GET, POST, PUT, DELETE, OPTIONS\r\n\
    Access-Control-Allow-Headers: Content-Type, Authorization\r\n\
    Access-Control-Max-Age: 86400\r\n";

/// The status of `/ready` while the server takes no jobs.
const NOT_READY: u16 = 503;

/// The answer to a pull that found nothing, or was never made.
const NO_JOB: &[u8] = br#"{"ok":true,"job":null,"token":null}"#;

/// The answer to a pull of several that found nothing, or was never made.
const NO_JOBS: &[u8] = br#"{"ok":true,"jobs":[],"tokens":[]}"#;

/// The answer to a wait for the end of a job that was given up.
const NO_END: &[u8] = br#"{"ok":true,"completed":false}"#;

impl ShardServer {
    /// Makes an answer of the reply frame to the request under way.
    pub(crate) fn answer_http(&mut self, conns: &mut Connections, conn: ConnId, frame: &[u8]) {
        let Some(session) = self.sessions.get(conn) else { return };
        let Some(exchange) = &mut session.http.exchange else { return };
        let payload = &frame[PREFIX_BYTES..];
        let error = error_of(payload);
        match (exchange.route.endpoint, &mut exchange.stage, error) {
            (_, Stage::Cancelling(job), Some(Code::WrongState)) => {
                let job = std::mem::take(job);
                exchange.stage = Stage::WhyNot;
                let mut frame = Vec::new();
                request::bare(&mut frame, "GetState", "id", &job);
                self.begin(conns, conn, (&*frame).into());
            }
            (_, Stage::WhyNot, _) => match text_field(payload, "state") {
                Some("unknown") => self.conclude_error(conns, conn, ErrorKind::JobNotFound),
                _ => self.conclude_error(conns, conn, ErrorKind::NotCancellable),
            },
            (Endpoint::PeekPull, _, None) => self.conclude(conns, conn, 200, JSON, NO_JOB),
            (Endpoint::Prometheus, _, None) => {
                let text = data_of(payload).and_then(|data| text_field(data, "metrics"));
                let text = text.unwrap_or_default().as_bytes();
                self.conclude(conns, conn, 200, EXPOSITION, text);
            }
            (endpoint, ..) => {
                let mut text = std::mem::take(&mut self.http.json);
                text.clear();
                match json::from_reply(payload, &mut text) {
                    Ok(()) => {
                        let status = error.map_or(200, |code| status_of(endpoint, code));
                        self.conclude(conns, conn, status, JSON, &text);
                    }
                    Err(Unshown::TooLong) => {
                        self.conclude_error(conns, conn, ErrorKind::ReplyTooLarge);
                    }
                    Err(Unshown::Malformed(_)) => {
                        self.conclude_error(conns, conn, ErrorKind::Damaged);
                    }
                }
                self.http.json = slimmed(text);
            }
        }
    }

    /// As [`Self::answer_http`], for a frame that is no longer needed; a long one becomes an answer over several turns.
    pub(crate) fn answer_http_or_begin(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        frame: Vec<u8>,
    ) {
        let conn = origin.conn;
        let endpoint = self
            .sessions
            .get(conn)
            .and_then(|session| Some(session.http.exchange.as_ref()?.route.endpoint));
        if frame.len() > LONG_REPLY_BYTES && endpoint != Some(Endpoint::Prometheus) {
            // An error is short.
            self.answer_in_slices(conns, origin, frame, 200);
            return;
        }
        self.answer_http(conns, conn, &frame);
        self.http.keep_reply(frame);
    }

    /// Answers the request under way with what a reply has become.
    pub(crate) fn conclude_text(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        text: Vec<u8>,
        (status, written): (u16, Result<(), Unshown>),
    ) {
        match written {
            Ok(()) => {
                // Send the text from where it is: another copy would take as much memory again.
                let text = conns.tally().share(text);
                let body = text.bytes();
                let answer = Answer { status, kind: JSON, extra: "", body };
                self.conclude_with(conns, conn, &answer, Some(&text));
            }
            Err(Unshown::TooLong) => self.conclude_error(conns, conn, ErrorKind::ReplyTooLarge),
            Err(Unshown::Malformed(_)) => self.conclude_error(conns, conn, ErrorKind::Damaged),
        }
    }

    /// A request whose answer will not come any more, as what it asked for was given up with its
    /// client's half of the connection.
    pub(crate) fn answer_dropped(&mut self, conns: &mut Connections, conn: ConnId) {
        let Some(session) = self.sessions.get(conn) else { return };
        let Some(exchange) = &session.http.exchange else { return };
        if session.in_flight > 0 {
            return;
        }
        let op = exchange.route.asks.map(|asks| asks.op);
        match op {
            Some(Op::Pull) => self.conclude(conns, conn, 200, JSON, NO_JOB),
            Some(Op::PullBatch) => self.conclude(conns, conn, 200, JSON, NO_JOBS),
            Some(Op::WaitJob) => self.conclude(conns, conn, 200, JSON, NO_END),
            _ => self.conclude_error(conns, conn, ErrorKind::Internal),
        }
    }

    /// Answers the request under way.
    pub(super) fn conclude(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        status: u16,
        kind: &'static str,
        body: &[u8],
    ) {
        // Have the client try again: the resource that is lacking may be there at any time.
        let extra = if status == 503 { "Retry-After: 1\r\n" } else { "" };
        self.conclude_with(conns, conn, &Answer { status, kind, extra, body }, None);
    }

    /// Refuses a request whose memory others need, and ends its connection. `was_read` if it was under way and its body was
    /// being read.
    pub(crate) fn crowd_out_request(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        was_read: bool,
    ) {
        let Some(session) = self.sessions.get(conn) else { return };
        session.http.reading = None;
        match &mut session.http.exchange {
            Some(exchange) if was_read => {
                exchange.manner.stay = false;
                self.conclude_error(conns, conn, ErrorKind::BodiesTooLarge);
            }
            // An answer is due first that is still to come.
            Some(_) => self.ended(conns, conn),
            None => {
                let extra = "Retry-After: 1\r\n".to_owned();
                let error = HttpError { extra, ..HttpError::new(ErrorKind::BodiesTooLarge) };
                let manner = Manner { bodiless: false, stay: false, origin: 0 };
                self.object(conns, conn, &error, manner);
            }
        }
    }

    pub(crate) fn conclude_error<'e>(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        error: impl Into<ErrorRef<'e>>,
    ) {
        let error = error.into();
        self.conclude(conns, conn, error.code.status(), JSON, error.json().as_bytes());
    }

    /// The body is `shared` where that is given.
    pub(super) fn conclude_with(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        answer: &Answer<'_>,
        shared: Option<&Shared>,
    ) {
        let Some(session) = self.sessions.get(conn) else { return };
        let Some(Exchange { manner, route, .. }) = session.http.exchange.take() else {
            return;
        };
        if session.blocked || session.half_closed {
            self.unblocked.push(conn);
        }
        let alone = conns.unsent(conn) == 0;
        match shared.filter(|_| !manner.bodiless) {
            Some(body) => {
                self.write_answer(conns, conn, answer, Manner { bodiless: true, ..manner });
                conns.append_shared(conn, body);
            }
            None => self.write_answer(conns, conn, answer, manner),
        }
        if alone && route.endpoint.needs_no_record() {
            self.unrecorded.push((conn, conns.appended(conn)));
        }
    }

    /// Answers a request that goes nowhere.
    pub(super) fn object(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        objection: &HttpError,
        manner: Manner,
    ) {
        let HttpError { error, extra } = objection;
        self.long_refused += u64::from(error.code() == Code::TooLarge);
        let body = ErrorRef::from(error).json();
        let answer =
            Answer { status: error.code().status(), kind: JSON, extra, body: body.as_bytes() };
        self.write_answer(conns, conn, &answer, manner);
    }

    fn write_answer(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        answer: &Answer<'_>,
        manner: Manner,
    ) {
        let Some(out) = conns.output(conn) else { return };
        let (standing, date) = self.http.standing_at(self.now_ms);
        answer::write(out, standing, date, answer, manner);
        self.touch(conn);
        if !manner.stay
            && let Some(session) = self.sessions.get(conn)
        {
            // Ended once whatever led here is done with its effects.
            session.http.over = true;
            self.unblocked.push(conn);
        }
    }

    /// Ends a connection whose last answer is written.
    pub(crate) fn finish_if_over(&mut self, conns: &mut Connections, conn: ConnId) {
        if self.sessions.get(conn).is_some_and(|session| session.http.over) {
            self.finish_connection(conns, conn);
        }
    }

    pub(super) fn preflight(&mut self, conns: &mut Connections, conn: ConnId) {
        let answer = Answer { status: 204, kind: JSON, extra: PREFLIGHT, body: b"" };
        self.conclude_with(conns, conn, &answer, None);
    }

    /// Answers with the page of the dashboard, or with a file of it: that is not copied.
    pub(super) fn conclude_page(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        page: Option<&PageAnswer>,
    ) {
        let Some(PageAnswer { status, kind, extra, body }) = page else {
            self.conclude_error(conns, conn, ErrorKind::PathNotFound);
            return;
        };
        if let Some(session) = self.sessions.get(conn)
            && let Some(exchange) = &mut session.http.exchange
        {
            exchange.manner.origin = PAGE;
        }
        let (bytes, shared) = match body {
            Bytes::Static(bytes) => (*bytes, Some(conns.tally().share(*bytes))),
            Bytes::Made(text) => (text.as_bytes(), None),
        };
        let answer = Answer { status: *status, kind, extra, body: bytes };
        let shared = shared.as_ref().filter(|_| !bytes.is_empty());
        self.conclude_with(conns, conn, &answer, shared);
    }

    /// Gives memory back to the system and shows what that has brought.
    pub(super) fn give_memory_back(&mut self, conns: &mut Connections, conn: ConnId) {
        let before = memory::measure();
        memory::give_back();
        let after = memory::measure();
        let shown = |memory: &memory::Memory| {
            let memory::Memory { heap_used, heap_total, resident, .. } = memory;
            let [used, total, resident] =
                [heap_used, heap_total, resident].map(|&bytes| megabytes(bytes));
            format!(r#"{{"heapUsed":{used},"heapTotal":{total},"rss":{resident}}}"#)
        };
        let body =
            format!(r#"{{"ok":true,"before":{},"after":{}}}"#, shown(&before), shown(&after));
        self.conclude(conns, conn, 200, JSON, body.as_bytes());
    }
}

impl super::HttpState {
    /// The headers that every answer has, and the date, which is made once a second.
    pub fn standing_at(&mut self, now_ms: u64) -> (&Standing, &str) {
        let now_s = now_ms / 1000;
        if now_s != self.date_of_s {
            self.date_of_s = now_s;
            self.date = date_of(now_s);
        }
        (&self.standing, &self.date)
    }
}

/// A time in seconds since the epoch, as the header `Date` has it.
pub fn date_of(now_s: u64) -> String {
    let now = DateTime::from_timestamp_secs(now_s.cast_signed()).unwrap_or_default();
    format!(
        "{}, {:02} {} {} {:02}:{:02}:{:02} GMT",
        now.weekday(),
        now.day(),
        MONTHS[now.month0() as usize],
        now.year(),
        now.hour(),
        now.minute(),
        now.second()
    )
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The status of an error: that of its code, but a server that is not ready says so whatever the reason is.
fn status_of(endpoint: Endpoint, code: Code) -> u16 {
    if endpoint == Endpoint::Ready { NOT_READY } else { code.status() }
}

/// Why a reply says no. A reply that says yes says so first, and is not looked through.
fn error_of(reply: &[u8]) -> Option<Code> {
    let mut ok = field(reply, "ok")?;
    match ok.flag() {
        Ok(Some(true)) => None,
        _ => Some(text_field(reply, "code").and_then(Code::named).unwrap_or(Code::Internal)),
    }
}

/// The text of a field at the top of a reply.
fn text_field<'a>(reply: &'a [u8], name: &str) -> Option<&'a str> {
    let mut reader = field(reply, name)?;
    reader.text().ok()?
}

fn data_of(reply: &[u8]) -> Option<&[u8]> {
    field(reply, "data").map(|reader| reader.rest())
}

/// Looks through the fields of a map. `ok` and what comes before the wanted one are passed over.
fn field<'a>(map: &'a [u8], name: &str) -> Option<Reader<'a>> {
    let mut reader = Reader::new(map);
    for _ in 0..reader.map().ok()?? {
        if reader.pass_key().ok()? == name.as_bytes() {
            return Some(reader);
        }
        reader.pass().ok()?;
    }
    None
}
