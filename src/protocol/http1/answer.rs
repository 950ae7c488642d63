//! Answers: status line, headers and body, written straight into a connection's output.

use std::io::Write;

/// The type of most answers.
pub const JSON: &str = "application/json";
/// The type of plain words.
pub const TEXT: &str = "text/plain";
/// The type of the text that Prometheus reads.
pub const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Tells a client that it may send its body.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// An answer to an HTTP request.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    pub status: u16,
    /// The type of the body.
    pub kind: &'static str,
    /// Headers of this answer alone, each with its line's end.
    pub extra: &'a str,
    pub body: &'a [u8],
}

/// How an answer is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Manner {
    /// Whether the body is left out, as HEAD wants it.
    pub bodiless: bool,
    /// Whether the connection goes on.
    pub stay: bool,
    /// Which of the origins that may read answers it is for, by its place; the first if it is for none of them.
    /// [`PAGE`] for what the dashboard is made of.
    pub origin: u8,
}

/// In the place of an origin: an answer that is a page of this server, or a file of it.
pub const PAGE: u8 = u8::MAX;

/// Headers of a page: it may run the scripts of this server, and talk to it. No text becomes a script or a part of the
/// page.
const PAGE_LINES: &str = "X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n\
    Referrer-Policy: no-referrer\r\nCross-Origin-Opener-Policy: same-origin\r\n\
    Cross-Origin-Resource-Policy: same-origin\r\n\
    Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data:; base-uri 'self'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'\r\n";

/// The headers that every answer has.
#[derive(Debug)]
pub struct Standing {
    /// For each of the origins.
    lines: Box<[Box<str>]>,
}

impl Standing {
    /// With answers open to the pages of `origins`, of which there is at least one, or to all with `*` among them. One
    /// answer can name but one of several: the one that asks.
    pub fn new(origins: &[String]) -> Self {
        Self::made(origins, false)
    }

    /// As [`Self::new`], but pages of listed origins may send cookies along.
    pub fn with_cookies(origins: &[String]) -> Self {
        Self::made(origins, true)
    }

    fn made(origins: &[String], cookies: bool) -> Self {
        let all = origins.iter().any(|origin| origin == "*");
        let lines = |origin: &String| {
            let (origin, vary) = match (all, cookies) {
                (true, _) => ("*", ""),
                (false, false) => (&**origin, "Vary: Origin\r\n"),
                (false, true) => {
                    (&**origin, "Vary: Origin\r\nAccess-Control-Allow-Credentials: true\r\n")
                }
            };
            let lines = format!(
                "Access-Control-Allow-Origin: {origin}\r\n{vary}\
                 X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n\
                 Referrer-Policy: no-referrer\r\nCache-Control: no-store\r\n\
                 Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n"
            );
            lines.into()
        };
        Self { lines: origins.iter().map(lines).collect() }
    }

    /// Their lines, for the origin at a place.
    pub fn lines(&self, origin: u8) -> &str {
        if origin == PAGE {
            return PAGE_LINES;
        }
        self.lines.get(usize::from(origin)).map_or("", |lines| lines)
    }
}

/// Writes an answer. `date` is the value of that header.
pub fn write(
    out: &mut Vec<u8>,
    standing: &Standing,
    date: &str,
    answer: &Answer<'_>,
    manner: Manner,
) {
    let Answer { status, kind, extra, body } = *answer;
    let body_bytes = if manner.bodiless { 0 } else { body.len() };
    let standing = standing.lines(manner.origin);
    out.reserve(512 + standing.len() + extra.len() + body_bytes);
    begin(out, status);
    if !matches!(status, 204 | 304) {
        put(out, &["Content-Type: ", kind, "\r\nContent-Length: "]);
        // Writing to a vector cannot fail.
        let _ = write!(out, "{}", body.len());
        put(out, &["\r\n"]);
    }
    let connection = match (status, manner.stay) {
        // Status 426 comes with the header `Upgrade`, which must be named in `Connection`.
        (426, _) => "close, Upgrade",
        (_, true) => "keep-alive",
        (_, false) => "close",
    };
    put(out, &[standing, extra, "Date: ", date, "\r\nConnection: ", connection, "\r\n\r\n"]);
    if !manner.bodiless {
        out.extend_from_slice(body);
    }
}

/// The status line.
pub fn begin(out: &mut Vec<u8>, status: u16) {
    // Writing to a vector cannot fail.
    let _ = write!(out, "HTTP/1.1 {status} {}\r\n", reason(status));
}

fn put(out: &mut Vec<u8>, parts: &[&str]) {
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        101 => "Switching Protocols",
        200 => "OK",
        204 => "No Content",
        302 => "Found",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        408 => "Request Timeout",
        413 => "Content Too Large",
        417 => "Expectation Failed",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        _ => "",
    }
}
