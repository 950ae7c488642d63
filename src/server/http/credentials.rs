//! Credentials of a request: a token in its header, among the protocols of a WebSocket, or the cookie of a session.
//!
//! A browser sends a cookie along with whatever a page asks for, so it counts only for pages that may ask:
//! [`Rules::judge_page`](super::cross_origin::Rules::judge_page). A token counts wherever it comes from, because a page that
//! shows one knows it.

use super::route::Endpoint;
use crate::api::access::Grant;
use crate::protocol::http1::head::Head;
use crate::server::access::shown::{Access, ShardAccess, Shown};

/// The cookie of a session. Browsers take a name of the second form only over TLS, and from no other host.
pub(super) const COOKIE: &str = "corq_session";
pub(super) const SECURE_COOKIE: &str = "__Host-corq_session";

/// Cookies of these names that are looked at.
const COOKIES_MAX: usize = 4;

/// The protocol of a WebSocket, and what begins the one that is a token.
const PROTOCOL: &str = "corq";
const TOKEN_PROTOCOL: &str = "token.";

/// Credentials that a request has shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Rights by these credentials, if they count.
    pub(super) access: Option<Access>,
    /// Whether the credentials were a cookie.
    pub(super) by_cookie: bool,
    /// Whether something was shown that does not count.
    pub(super) is_wrong: bool,
}

/// The offered protocols of a WebSocket.
fn protocols<'a>(head: &Head<'a>) -> impl Iterator<Item = &'a str> {
    let values = head.headers("sec-websocket-protocol");
    values
        .flat_map(|value| value.split(|&byte| byte == b','))
        .filter_map(|word| std::str::from_utf8(word.trim_ascii()).ok())
}

/// The protocol that is answered, if it is offered. A token is never repeated.
pub(super) fn chosen_protocol(head: &Head<'_>) -> Option<&'static str> {
    protocols(head).any(|word| word == PROTOCOL).then_some(PROTOCOL)
}

fn token_of_protocols(head: &Head<'_>) -> Option<String> {
    let word = protocols(head).find_map(|word| word.strip_prefix(TOKEN_PROTOCOL))?;
    let bytes = data_encoding::BASE64URL_NOPAD.decode(word.trim_end_matches('=').as_bytes());
    // Bytes that are no text are no token, either.
    Some(bytes.ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default())
}

fn token_of_header(authorization: &[u8]) -> Option<&str> {
    let (scheme, token) = std::str::from_utf8(authorization).ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_start())
}

/// The values of the cookie of a session.
fn cookies<'a>(head: &Head<'a>) -> impl Iterator<Item = &'a [u8]> {
    let pairs = head.headers("cookie").flat_map(|value| value.split(|&byte| byte == b';'));
    let values = pairs.filter_map(|pair| {
        let at = memchr::memchr(b'=', pair)?;
        let name = pair[..at].trim_ascii();
        let is_it = name == COOKIE.as_bytes() || name == SECURE_COOKIE.as_bytes();
        is_it.then(|| pair[at + 1..].trim_ascii())
    });
    values.take(COOKIES_MAX)
}

/// Whether a page seems to have made a request.
pub(super) fn is_of_page(head: &Head<'_>) -> bool {
    head.origin.is_some() || head.fetch_site.is_some()
}

/// Finds the credentials of a request, and its rights by them.
pub(super) fn seen(
    access: &ShardAccess,
    head: &Head<'_>,
    endpoint: Option<Endpoint>,
    now_ms: u64,
) -> Seen {
    if !access.is_on() {
        let looks_on = access.ui_looks_on() && is_of_page(head);
        let shown = Access { grant: Grant { looks_on, ..Grant::ALL }, shown: Shown::Nothing };
        return Seen { access: Some(shown), by_cookie: false, is_wrong: false };
    }
    let by_token = |token: Option<&str>| {
        let access = token.and_then(|token| access.by_token(token));
        Seen { access, by_cookie: false, is_wrong: access.is_none() }
    };
    if let Some(authorization) = head.authorization {
        return by_token(token_of_header(authorization));
    }
    if matches!(endpoint, Some(Endpoint::Stream { upgrade: true, .. } | Endpoint::PageSocket))
        && let Some(token) = token_of_protocols(head)
    {
        return by_token(Some(&token));
    }
    let by_cookie = cookies(head).find_map(|cookie| access.by_cookie(cookie, now_ms));
    Seen { access: by_cookie, by_cookie: by_cookie.is_some(), is_wrong: false }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::protocol::http1::head;

    #[test]
    fn a_token_among_protocols_is_read_and_only_the_name_is_answered() {
        let token = data_encoding::BASE64URL_NOPAD.encode("s:é?".as_bytes());
        for (line, found, chosen) in [
            (format!("corq, token.{token}"), Some("s:é?"), Some("corq")),
            (format!("token.{token}=="), Some("s:é?"), None),
            ("corq,token.***".to_owned(), Some(""), Some("corq")),
            ("chat".to_owned(), None, None),
        ] {
            let text =
                format!("GET / HTTP/1.1\r\nHost: a\r\nSec-WebSocket-Protocol: {line}\r\n\r\n");
            let head = head::read(text.as_bytes(), &mut 0).unwrap().unwrap();
            assert_eq!(token_of_protocols(&head).as_deref(), found, "{line}");
            assert_eq!(chosen_protocol(&head), chosen, "{line}");
        }
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        let lines = "Cookie: a=corq_session; corq_session=one\r\nCookie: __Host-corq_session=two";
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}; xcorq_session=three\r\n\r\n");
        let head = head::read(text.as_bytes(), &mut 0).unwrap().unwrap();
        let found: Vec<&[u8]> = cookies(&head).collect();
        assert_eq!(found, [b"one", b"two"]);
    }
}
