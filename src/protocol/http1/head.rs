//! The head of a request: the request line and the headers, read by `httparse` once they are whole.
//!
//! Stricter than the grammar's tolerances wherever these let two readers disagree about where a
//! request ends. What a path or a header's value asks for is not known here.

use std::mem::MaybeUninit;

use super::{HEAD_BYTES_MAX, HEADERS_MAX};
use crate::api::error::ErrorKind;

/// The method of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Delete,
    Options,
    /// Any other token.
    Other,
}

/// How long the body is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// The length in bytes; 0 if the head does not say.
    Bytes(u64),
    /// The body comes in chunks.
    Chunked,
}

/// A head that is whole.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// All of it, to the empty line that ends it.
    pub raw: &'a [u8],
    pub method: Method,
    /// The target of the request: path and query.
    pub target: &'a str,
    /// The minor version: 0 or 1.
    pub minor: u8,
    /// Whether the client wants to go on after the answer.
    pub keep_alive: bool,
    /// The body that follows.
    pub length: Length,
    /// Whether the client waits before it sends the body: `Some(false)` if it expects something that
    /// nobody knows.
    pub expects: Option<bool>,
    /// Who it says it is.
    pub authorization: Option<&'a [u8]>,
    /// By which name or address the server was found.
    pub host: Option<&'a [u8]>,
    /// Of which origin the page is that a browser asks for. Given twice it is empty, which is that of no page.
    pub origin: Option<&'a [u8]>,
    /// How the page stands to the server, as a browser says.
    pub fetch_site: Option<&'a [u8]>,
    /// Which program it says it is.
    pub user_agent: Option<&'a [u8]>,
    /// On whose behalf it comes, as proxies tell.
    pub forwarded_for: Option<&'a [u8]>,
    /// The client's address, as other proxies give it: `X-Real-IP`.
    pub real_ip: Option<&'a [u8]>,
}

/// Bytes of empty lines at the front, which some clients leave behind a body.
pub fn empty_lines(bytes: &[u8]) -> usize {
    bytes.chunks_exact(2).take_while(|pair| pair == b"\r\n").count() * 2
}

/// Reads the head at the front of `bytes`; `None` if it is not whole yet. `seen` says how much has
/// been looked through in vain before, and is to be kept for the next try.
pub fn read<'a>(bytes: &'a [u8], seen: &mut usize) -> Result<Option<Head<'a>>, ErrorKind> {
    // Refuse at once what begins like no method: it never becomes a request, however long one waits.
    let strange = |first: &u8| !first.is_ascii_alphabetic() && *first != b'\r';
    if bytes.first().is_some_and(strange) {
        return Err(ErrorKind::BadRequest);
    }
    let Some(end) = find_end(bytes, seen)? else { return Ok(None) };
    let raw = &bytes[..end];
    // Each LF has a CR before it, so a CR too many stands alone.
    if memchr::memchr_iter(b'\r', raw).count() != memchr::memchr_iter(b'\n', raw).count() {
        return Err(ErrorKind::LineEnds);
    }
    let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(raw, &mut headers) {
        Ok(httparse::Status::Complete(length)) if length == end => {
            understand(raw, &request).map(Some)
        }
        Err(httparse::Error::TooManyHeaders) => Err(ErrorKind::HeadTooLarge),
        Err(httparse::Error::Version) if names_version(raw) => Err(ErrorKind::HttpVersion),
        _ => Err(ErrorKind::BadRequest),
    }
}

/// Whether what stands where the version should is one.
fn names_version(raw: &[u8]) -> bool {
    let third = raw.splitn(3, |byte| *byte == b' ').nth(2);
    third.is_some_and(|version| version.starts_with(b"HTTP/"))
}

/// Where the head ends: behind the first empty line. What lies beyond the limit is not looked at, so
/// that it does not matter in which pieces it comes.
fn find_end(bytes: &[u8], seen: &mut usize) -> Result<Option<usize>, ErrorKind> {
    let window = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
    let from = (*seen).min(window.len());
    for found in memchr::memchr_iter(b'\n', &window[from..]) {
        let lines = &window[..=from + found];
        if lines.ends_with(b"\r\n\r\n") {
            *seen = 0;
            return Ok(Some(lines.len()));
        }
        if !lines.ends_with(b"\r\n") {
            return Err(ErrorKind::LineEnds);
        }
    }
    if bytes.len() >= HEAD_BYTES_MAX {
        return Err(ErrorKind::HeadTooLarge);
    }
    *seen = bytes.len();
    Ok(None)
}

/// Headers that count here.
#[derive(Default)]
struct Headers<'a> {
    length: Option<u64>,
    coding: Option<&'a [u8]>,
    host: Option<&'a [u8]>,
    origin: Option<&'a [u8]>,
    fetch_site: Option<&'a [u8]>,
    user_agent: Option<&'a [u8]>,
    close: bool,
    keep_alive: bool,
    expects: Option<bool>,
    authorization: Option<&'a [u8]>,
    forwarded_for: Option<&'a [u8]>,
    real_ip: Option<&'a [u8]>,
}

fn understand<'a>(
    raw: &'a [u8],
    request: &httparse::Request<'_, 'a>,
) -> Result<Head<'a>, ErrorKind> {
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version)
    else {
        return Err(ErrorKind::BadRequest);
    };
    let mut headers = Headers::default();
    for header in request.headers.iter() {
        headers.note(header.name, header.value.trim_ascii())?;
    }
    if minor == 1 && headers.host.is_none() {
        return Err(ErrorKind::Host);
    }
    let length = match (headers.length, headers.coding) {
        (Some(_), Some(_)) => return Err(ErrorKind::BothLengths),
        (length, None) => Length::Bytes(length.unwrap_or(0)),
        (None, Some(_)) if minor == 0 => return Err(ErrorKind::TransferEncodings),
        (None, Some(coding)) if coding.eq_ignore_ascii_case(b"chunked") => Length::Chunked,
        (None, Some(_)) => return Err(ErrorKind::TransferEncoding),
    };
    Ok(Head {
        raw,
        method: match method {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "POST" => Method::Post,
            "PUT" => Method::Put,
            "DELETE" => Method::Delete,
            "OPTIONS" => Method::Options,
            _ => Method::Other,
        },
        target,
        minor,
        keep_alive: !headers.close && (minor == 1 || headers.keep_alive),
        length,
        // A client of HTTP/1.0 cannot expect anything.
        expects: headers.expects.filter(|_| minor == 1),
        authorization: headers.authorization,
        host: headers.host,
        origin: headers.origin,
        fetch_site: headers.fetch_site,
        user_agent: headers.user_agent,
        forwarded_for: headers.forwarded_for,
        real_ip: headers.real_ip,
    })
}

impl<'a> Headers<'a> {
    fn note(&mut self, name: &str, value: &'a [u8]) -> Result<(), ErrorKind> {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        match name.len() {
            4 if is("host") => {
                let again = self.host.replace(value).is_some();
                return if again || !is_host(value) { Err(ErrorKind::Host) } else { Ok(()) };
            }
            6 if is("origin") => {
                let twice = self.origin.is_some();
                self.origin = Some(if twice { b"" } else { value });
            }
            6 if is("expect") => {
                let known = value.eq_ignore_ascii_case(b"100-continue");
                self.expects = Some(known && self.expects != Some(false));
            }
            9 if is("x-real-ip") => self.real_ip = Some(value),
            10 if is("user-agent") => self.user_agent = Some(value),
            10 if is("connection") => {
                for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                    self.close |= option.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            13 if is("authorization") => {
                // Which of two counts is not for the server to guess: neither fits any token.
                let twice = self.authorization.is_some();
                self.authorization = Some(if twice { b"" } else { value });
            }
            // No browser says it twice, and which of two counts is not for the server to guess.
            14 if is("sec-fetch-site") => {
                let twice = self.fetch_site.is_some();
                self.fetch_site = Some(if twice { b"cross-site" } else { value });
            }
            14 if is("content-length") => {
                let digits =
                    (1..=18).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
                if self.length.is_some() || !digits {
                    return Err(ErrorKind::ContentLength);
                }
                let number = value.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
                self.length = Some(number);
            }
            15 if is("x-forwarded-for") => {
                // The first names the client; the others are proxies on the way.
                self.forwarded_for.get_or_insert(value);
            }
            17 if is("transfer-encoding") && self.coding.replace(value).is_some() => {
                return Err(ErrorKind::TransferEncodings);
            }
            _ => {}
        }
        Ok(())
    }
}

/// A name or address with or without a port; empty is allowed.
fn is_host(value: &[u8]) -> bool {
    value.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]%~".contains(byte))
}

impl<'a> Head<'a> {
    /// The values of any header by its name in lower case, in their order.
    pub fn headers(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.raw.split(|byte| *byte == b'\n').skip(1).filter_map(move |line| {
            let at = memchr::memchr(b':', line)?;
            let fits = line[..at].eq_ignore_ascii_case(name.as_bytes());
            fits.then(|| line[at + 1..].trim_ascii())
        })
    }
}
