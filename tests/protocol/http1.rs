//! Requests over HTTP as bytes. The fear: a request that two readers end at different places, bytes
//! that are read differently when they come in pieces, and a limit that does not hold.

use corq::api::error::ErrorKind;
use corq::protocol::http1::answer::{self, Answer, JSON, Manner, Standing};
use corq::protocol::http1::body::{Body, Limit};
use corq::protocol::http1::head::{self, Length, Method};
use corq::protocol::http1::target::{BadEscape, Target, segment};
use corq::protocol::http1::{BODY_BYTES_MAX, HEAD_BYTES_MAX, HEADERS_MAX, UNREAD_BODY_BYTES_MAX};

/// Requests of a connection: method, target, whether the connection goes on, body.
type Said = Vec<(Method, String, bool, Vec<u8>)>;

/// Reads a connection's bytes piece by piece, as the server does.
#[derive(Default)]
struct Listener {
    pending: Vec<u8>,
    seen: usize,
    reading: Option<(Method, String, bool, Body)>,
    said: Said,
    problem: Option<ErrorKind>,
}

impl Listener {
    fn hear(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        while self.problem.is_none() {
            match self.step() {
                Ok(0) => return,
                Ok(used) => drop(self.pending.drain(..used)),
                Err(problem) => self.problem = Some(problem),
            }
        }
    }

    fn step(&mut self) -> Result<usize, ErrorKind> {
        if let Some((method, target, stay, mut body)) = self.reading.take() {
            let used = body.take(&self.pending)?;
            if body.is_whole() {
                self.said.push((method, target, stay, body.into_bytes()));
            } else {
                self.reading = Some((method, target, stay, body));
            }
            return Ok(used);
        }
        let empty = head::empty_lines(&self.pending);
        if empty > 0 || self.pending.is_empty() {
            return Ok(empty);
        }
        let Some(head) = head::read(&self.pending, &mut self.seen)? else { return Ok(0) };
        Limit::COMMAND.check(head.length)?;
        let (method, target) = (head.method, head.target.to_owned());
        let body = Body::new(head.length, true, Limit::COMMAND);
        if body.is_whole() {
            self.said.push((method, target, head.keep_alive, Vec::new()));
        } else {
            self.reading = Some((method, target, head.keep_alive, body));
        }
        Ok(head.raw.len())
    }
}

fn hear(bytes: &[u8]) -> Listener {
    let mut listener = Listener::default();
    listener.hear(bytes);
    listener
}

fn refused(bytes: &[u8]) -> u16 {
    hear(bytes).problem.map_or(0, |problem| problem.code().status())
}

const SEVERAL: &[u8] = b"GET /jobs/x?a=1 HTTP/1.1\r\nHost: h\r\n\r\n\
    \r\nPOST /queues/q/jobs HTTP/1.1\r\nhost: h:1\r\nContent-LENGTH: 11\r\n\r\n{\"data\":42}\
    POST /x HTTP/1.1\r\nHost: [::1]:6790\r\nTransfer-Encoding: Chunked\r\n\r\n\
    5;name=\"v\"\r\nhello\r\n00b \r\n\r\nworld\r\n!!\r\n0\r\nX-Trailer: 1\r\n\r\n\
    DELETE /jobs/y HTTP/1.0\r\n\r\n\
    OPTIONS * HTTP/1.1\r\nHost:\r\nConnection: Keep-Alive, CLOSE\r\n\r\n";

fn several() -> Said {
    let said = |method, target: &str, stay, body: &[u8]| {
        (method, target.to_owned(), stay, body.to_owned())
    };
    vec![
        said(Method::Get, "/jobs/x?a=1", true, b""),
        said(Method::Post, "/queues/q/jobs", true, b"{\"data\":42}"),
        said(Method::Post, "/x", true, b"hello\r\nworld\r\n!!"),
        said(Method::Delete, "/jobs/y", false, b""),
        said(Method::Options, "*", false, b""),
    ]
}

#[test]
fn requests_are_the_same_however_their_bytes_are_split() {
    for at in 0..=SEVERAL.len() {
        let mut listener = hear(&SEVERAL[..at]);
        listener.hear(&SEVERAL[at..]);
        assert_eq!(listener.problem, None, "split at {at}");
        assert_eq!(listener.said, several(), "split at {at}");
        assert!(listener.pending.is_empty());
    }
    for size in 1..40 {
        let mut listener = Listener::default();
        SEVERAL.chunks(size).for_each(|piece| listener.hear(piece));
        assert_eq!(listener.said, several(), "in pieces of {size}");
    }
}

/// A request with these lines behind its host.
fn with(lines: &str) -> Vec<u8> {
    format!("POST /x HTTP/1.1\r\nHost: h\r\n{lines}\r\nabcdefghij").into_bytes()
}

#[test]
fn forms_in_which_a_request_could_be_smuggled_are_refused() {
    for lines in [
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
        "Content-Length: 3\r\nContent-Length: 3\r\n",
        "Content-Length: 3\r\nContent-Length: 4\r\n",
        "Content-Length: 3, 3\r\n",
        "Content-Length: +3\r\n",
        "Content-Length: -3\r\n",
        "Content-Length: 3 4\r\n",
        "Content-Length: 0x3\r\n",
        "Content-Length: \r\n",
        "Content-Length: 1234567890123456789\r\n",
        "Content-Length : 3\r\n",
        " Content-Length: 3\r\n",
        "Content-Length\r\n",
        "A: b\r\n c: d\r\n",
        "A: b\r\n\tContent-Length: 3\r\n",
        "A: b\nContent-Length: 3\r\n",
        "A: b\rContent-Length: 3\r\n",
        "A: b\r\r\n",
        "A: \0\r\n",
        ": b\r\n",
        "Content-Length:\u{b}3\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Host: h\r\n",
        "Host: other\r\n",
    ] {
        assert_eq!(refused(&with(lines)), 400, "{lines:?}");
    }
    for coding in
        ["xchunked", "chunked, identity", "gzip, chunked", "identity", "chunked;q=1", "\"chunked\""]
    {
        assert_eq!(refused(&with(&format!("Transfer-Encoding: {coding}\r\n"))), 501, "{coding}");
    }
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a,b\r\n\r\n", 400),
        ("GET / HTTP/1.1\nHost: h\n\n", 400),
        ("GET / HTTP/1.1\r\nHost: h\r\n\n", 400),
        ("GET / HTTP/1.1\nHost: h\r\n\r\n", 400),
        ("GET  / HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        ("GET / HTTP/1.1 \r\nHost: h\r\n\r\n", 400),
        ("GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        ("GET\t/ HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        ("GET /\r\n\r\n", 400),
        ("\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (" GET / HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        ("GET / HTTP/1.2\r\nHost: h\r\n\r\n", 505),
    ] {
        assert_eq!(refused(request.as_bytes()), status, "{request:?}");
    }
}

#[test]
fn what_begins_like_no_request_is_refused_with_its_first_byte() {
    for first in [&b"\0"[..], b"\x16\x03\x01", b"\x82", b"{", b"*3\r\n", b"\xff", b"\n"] {
        assert_eq!(refused(first), 400, "{first:?}");
    }
    assert_eq!(refused(b"G"), 0);
    assert_eq!(refused(b"\r"), 0);
}

fn chunked(chunks: &[u8]) -> Listener {
    let head = b"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    hear(&[head, chunks].concat())
}

#[test]
fn chunks_that_are_garbled_are_refused() {
    let long = format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(2000));
    let trailers = format!("0\r\n{}\r\n", "a: b\r\n".repeat(200));
    for chunks in [
        "\r\n",
        "x\r\n",
        "-5\r\nhello\r\n",
        "+5\r\nhello\r\n",
        "0x5\r\nhello\r\n",
        " 5\r\nhello\r\n",
        "5\nhello\r\n",
        "5\r\nhello\n",
        "5\r\nhelloX\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\rhello\r\n",
        "5\t\r\nhello\r\n",
        "5 6\r\nhello\r\n",
        "5;\0\r\nhello\r\n",
        "5;a\rb\r\nhello\r\n",
        "ffffffffffffffff\r\n",
        "10000000000000005\r\nhello\r\n",
        "5_\r\nhello\r\n",
        "0\r\nno colon\r\n\r\n",
        "0\r\n: b\r\n\r\n",
        "0\r\n a: b\r\n\r\n",
        "0\r\na: \0\r\n\r\n",
        &long,
        &trailers,
    ] {
        let problem = chunked(chunks.as_bytes()).problem;
        assert_eq!(problem.map(|problem| problem.code().status()), Some(400), "{chunks:.60?}");
    }
}

#[test]
fn heads_and_bodies_have_limits() {
    let padded = |bytes: usize| {
        let line = "GET / HTTP/1.1\r\nHost: h\r\nPad: ";
        format!("{line}{}\r\n\r\n", "x".repeat(bytes - line.len() - 4))
    };
    assert_eq!(hear(padded(HEAD_BYTES_MAX).as_bytes()).said.len(), 1);
    assert_eq!(refused(padded(HEAD_BYTES_MAX + 1).as_bytes()), 431);
    assert_eq!(refused(&vec![b'G'; HEAD_BYTES_MAX]), 431, "a line without an end");
    let headers =
        |count| format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "a: b\r\n".repeat(count - 1));
    assert_eq!(hear(headers(HEADERS_MAX).as_bytes()).said.len(), 1);
    assert_eq!(refused(headers(HEADERS_MAX + 1).as_bytes()), 431);

    let announced = |bytes: usize| with(&format!("Content-Length: {bytes}\r\n"));
    assert_eq!(refused(&announced(BODY_BYTES_MAX)), 0);
    assert_eq!(refused(&announced(BODY_BYTES_MAX + 1)), 413);
    let chunk = [&b"400000\r\n"[..], &vec![b'x'; 0x40_0000], b"\r\n"].concat();
    let three = chunked(&[&chunk.repeat(3)[..], b"0\r\n\r\n"].concat());
    assert_eq!(three.said[0].3.len(), BODY_BYTES_MAX);
    let more = chunked(&[&chunk.repeat(3)[..], b"1\r\n"].concat()).problem;
    assert_eq!(more.map(|problem| problem.code().status()), Some(413));
    assert_eq!(chunked(b"c00001\r\n").problem.map(|problem| problem.code().status()), Some(413));
}

#[test]
fn a_body_costs_no_memory_before_it_comes() {
    let mut body = Body::new(Length::Bytes(BODY_BYTES_MAX as u64), true, Limit::COMMAND);
    body.take(b"few").unwrap();
    assert!(body.into_bytes().capacity() < 4096);
}

#[test]
fn a_body_that_is_only_read_past_costs_no_memory_and_ends_where_it_would() {
    for (length, input, end) in [
        (Length::Bytes(3 << 20), [vec![b'x'; 3 << 20], b"GET".to_vec()].concat(), 3 << 20),
        (Length::Chunked, b"3\r\nabc\r\n0\r\n\r\nGET".to_vec(), 13),
    ] {
        let mut body = Body::new(length, false, Limit::COMMAND);
        assert_eq!(body.take(&input), Ok(end));
        assert!(body.is_whole());
        assert_eq!((body.held_bytes(), body.into_bytes().capacity()), (0, 0));
    }
    let chunk = [&b"400000\r\n"[..], &vec![b'x'; 0x40_0000], b"\r\n"].concat();
    let mut body = Body::new(Length::Chunked, false, Limit::COMMAND);
    for _ in 0..3 {
        assert!(body.take(&chunk).is_ok());
    }
    assert_eq!(body.take(b"1\r\n").map_err(|problem| problem.code().status()), Err(413));
}

#[test]
fn a_body_that_says_nothing_is_refused_by_a_limit_of_its_own() {
    let most = UNREAD_BODY_BYTES_MAX;
    assert_eq!(Limit::UNREAD.check(Length::Bytes(most as u64)), Ok(()));
    let refused = Limit::UNREAD.check(Length::Bytes(most as u64 + 1)).unwrap_err();
    assert_eq!((refused.code().status(), refused.text()), (413, "The body must be at most 64 KB"));
    let mut body = Body::new(Length::Chunked, false, Limit::UNREAD);
    let chunk = [&b"10000\r\n"[..], &vec![b'x'; most], b"\r\n"].concat();
    assert_eq!(body.take(&chunk), Ok(chunk.len()));
    assert_eq!(body.take(b"1\r\n"), Err(refused));
}

#[test]
fn headers_that_count_are_found_in_any_case_and_order() {
    let request =
        b"GET / HTTP/1.1\r\nX-FORWARDED-FOR: 10.0.0.1, 10.0.0.2\r\nauthorization:Bearer t \r\n\
        x-real-ip: 10.0.0.3\r\nExpect: 100-Continue\r\nhOsT: h\r\nSec-Thing:  value\t\r\n\r\n";
    let head = head::read(request, &mut 0).unwrap().unwrap();
    assert_eq!(head.authorization, Some(&b"Bearer t"[..]));
    assert_eq!(head.forwarded_for, Some(&b"10.0.0.1, 10.0.0.2"[..]));
    assert_eq!(head.real_ip, Some(&b"10.0.0.3"[..]));
    assert_eq!(head.expects, Some(true));
    assert_eq!(head.headers("sec-thing").collect::<Vec<_>>(), [b"value"]);
    assert_eq!(head.headers("none").count(), 0);
    let twice =
        b"GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n";
    assert_eq!(head::read(twice, &mut 0).unwrap().unwrap().authorization, Some(&b""[..]));
    let other = b"GET / HTTP/1.1\r\nHost: h\r\nExpect: 200-ok\r\n\r\n";
    assert_eq!(head::read(other, &mut 0).unwrap().unwrap().expects, Some(false));
}

#[test]
fn connections_go_on_as_their_version_says() {
    for (version, connection, stay) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: foo, Close\r\n", false),
        ("1.1", "Connection: keep-alive\r\nConnection: close\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
    ] {
        let request = format!("GET / HTTP/{version}\r\nHost: h\r\n{connection}\r\n");
        assert_eq!(hear(request.as_bytes()).said[0].2, stay, "{request:?}");
    }
}

#[test]
fn paths_and_queries_are_decoded_and_bad_escapes_refused() {
    assert_eq!(segment("a%2Fb%20c+d%C3%a9").as_deref(), Ok("a/b c+d\u{e9}"));
    for bad in ["%", "%2", "%zz", "a%", "%ff", "%C3", "%+1"] {
        assert_eq!(segment(bad), Err(BadEscape), "{bad}");
    }
    let target = Target::of("/queues/q/jobs?timeout=5%30&x&a+b=c+d&timeout=9");
    assert_eq!(target.path, "/queues/q/jobs");
    assert_eq!(target.value("timeout").unwrap().as_deref(), Some("50"));
    assert_eq!(target.value("a b").unwrap().as_deref(), Some("c d"));
    assert_eq!(target.value("x").unwrap().as_deref(), Some(""));
    assert_eq!(target.value("y"), Ok(None));
    assert_eq!(Target::of("/x?a=%").value("b"), Ok(None));
    assert_eq!(Target::of("/x?a=%").value("a"), Err(BadEscape));
    assert_eq!(Target::of("http://h:1/x?y").path, "/x");
    assert_eq!(Target::of("http://h?y"), Target { path: "/", query: "y" });
    assert_eq!(Target::of("*").path, "*");
}

#[test]
fn answers_have_their_length_and_what_every_answer_has() {
    let standing = Standing::new(&["https://b.example".into(), "https://a.example".into()]);
    let answer = Answer { status: 200, kind: JSON, extra: "X-Own: 1\r\n", body: b"{\"ok\":true}" };
    let manner = Manner { bodiless: false, stay: true, origin: 1 };
    let mut out = Vec::new();
    answer::write(&mut out, &standing, "Thu, 01 Jan 1970 00:00:00 GMT", &answer, manner);
    let text = String::from_utf8(out).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let mut lines = head.split("\r\n");
    assert_eq!(lines.next(), Some("HTTP/1.1 200 OK"));
    let lines: Vec<&str> = lines.collect();
    for line in [
        "Content-Type: application/json",
        "Content-Length: 11",
        "Access-Control-Allow-Origin: https://a.example",
        "Vary: Origin",
        "X-Content-Type-Options: nosniff",
        "X-Frame-Options: DENY",
        "X-Own: 1",
        "Date: Thu, 01 Jan 1970 00:00:00 GMT",
        "Connection: keep-alive",
    ] {
        assert!(lines.contains(&line), "no {line} in {lines:?}");
    }
    assert_eq!(body, "{\"ok\":true}");
    let mut out = Vec::new();
    let manner = Manner { bodiless: true, stay: false, origin: 0 };
    answer::write(&mut out, &Standing::new(&["*".into()]), "", &answer, manner);
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("Content-Length: 11\r\n") && text.contains("Connection: close\r\n"));
    assert!(text.ends_with("\r\n\r\n") && !text.contains("Vary"));
}
