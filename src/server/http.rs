//! The HTTP port as far as a supervisor needs it: is the server there?

use super::core::Core;
use crate::protocol::fields::is_queue_name;
use crate::protocol::websocket;
use corq_io::net::{ConnId, Connections};

/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 32 * 1024;

/// Headers of a request.
const HEADERS_MAX: usize = 64;

impl Core {
    /// Handles whole requests at the front of `bytes`; returns how many bytes they took.
    pub(super) fn handle_http(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        bytes: &[u8],
    ) -> usize {
        let mut used = 0;
        while used < bytes.len() {
            let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
            let mut request = httparse::Request::new(&mut headers);
            match request.parse(&bytes[used..]) {
                Ok(httparse::Status::Complete(length)) if is_bodiless(&request) => {
                    used += length;
                    let stay = stays_open(&request);
                    if self.begin_stream(conns, conn, &request) {
                        return used;
                    }
                    self.answer_http(conns, conn, &request, stay);
                    if !stay {
                        self.finish_connection(conns, conn);
                        return bytes.len();
                    }
                }
                Ok(httparse::Status::Partial) if bytes.len() - used <= HEAD_BYTES_MAX => {
                    return used;
                }
                _ => {
                    let origin = self.origin(conn);
                    let text = response(400, "application/json", JSON_BAD_REQUEST, true, false);
                    self.send_frame(conns, origin, &text);
                    self.finish_connection(conns, conn);
                    return bytes.len();
                }
            }
        }
        used
    }

    /// Makes the connection a stream of events if that is what the request wants, and may have.
    fn begin_stream(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        request: &httparse::Request<'_, '_>,
    ) -> bool {
        let (Some("GET"), Some(path)) = (request.method, request.path) else { return false };
        let (rest, is_websocket) = match (path.strip_prefix("/events"), path.strip_prefix("/ws")) {
            (Some(rest), _) => (rest, false),
            (None, Some(rest)) => (rest, true),
            (None, None) => return false,
        };
        let queue = rest.strip_prefix("/queues/");
        if !rest.is_empty() && !queue.is_some_and(is_queue_name) {
            return false;
        }
        let bearer =
            header(request, "authorization").and_then(|value| value.strip_prefix(b"Bearer "));
        let token = bearer.and_then(|token| std::str::from_utf8(token).ok()).unwrap_or_default();
        let refusal = if !self.guard.accepts(token) {
            Some((401, "Unauthorized"))
        } else if !is_websocket {
            self.begin_events(conns, conn, queue, "");
            None
        } else {
            match websocket::accept_key(|name| header(request, name)) {
                Ok(accept) => {
                    self.begin_websocket(conns, conn, queue, &accept, "");
                    None
                }
                Err(websocket::Refusal { status, error }) => Some((status, error)),
            }
        };
        if let Some((status, error)) = refusal {
            let body = format!("{{\"ok\":false,\"error\":\"{error}\"}}");
            let text = response(status, "application/json", &body, true, false);
            let origin = self.origin(conn);
            self.send_frame(conns, origin, &text);
            self.finish_connection(conns, conn);
        }
        true
    }

    fn answer_http(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        request: &httparse::Request<'_, '_>,
        stay: bool,
    ) {
        let path = request.path.unwrap_or_default().split('?').next().unwrap_or_default();
        let with_body = request.method != Some("HEAD");
        let text = match (request.method, path) {
            (Some("GET" | "HEAD"), "/healthz" | "/live") => {
                response(200, "text/plain", "OK", with_body, stay)
            }
            _ => response(404, "application/json", JSON_NOT_FOUND, with_body, stay),
        };
        let origin = self.origin(conn);
        self.send_frame(conns, origin, &text);
    }
}

const JSON_NOT_FOUND: &str = r#"{"ok":false,"error":"Not found"}"#;
const JSON_BAD_REQUEST: &str = r#"{"ok":false,"error":"Bad request"}"#;

fn header<'a>(request: &'a httparse::Request<'_, '_>, name: &str) -> Option<&'a [u8]> {
    let found = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
    found.map(|header| header.value)
}

/// No path here takes a body, and one that is not understood must not be taken for a request.
fn is_bodiless(request: &httparse::Request<'_, '_>) -> bool {
    header(request, "transfer-encoding").is_none()
        && header(request, "content-length").is_none_or(|length| length == b"0")
}

fn stays_open(request: &httparse::Request<'_, '_>) -> bool {
    let wish = header(request, "connection").unwrap_or_default();
    request.version == Some(1) && !wish.eq_ignore_ascii_case(b"close")
}

fn response(status: u16, kind: &str, body: &str, with_body: bool, stay: bool) -> Vec<u8> {
    let reason = match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        426 => "Upgrade Required",
        _ => "Not Found",
    };
    let connection = if stay { "keep-alive" } else { "close" };
    let mut text = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: {connection}\r\n\r\n",
        body.len(),
    );
    if with_body {
        text.push_str(body);
    }
    text.into_bytes()
}
