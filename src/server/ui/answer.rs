//! Answers requests for the page and its files. Knows heads of requests, no sockets.

use super::files::{self, File};
use super::settings::{Place, Settings};
use crate::protocol::http1::head::Head;
use ring::digest;
use std::fmt::Write;

/// Longest path of a proxy before that of the page.
const PREFIX_BYTES_MAX: usize = 256;

/// Bytes of the hash that tells whether a page is still the same.
const TAG_BYTES: usize = 12;

/// Below the page, where its files are.
const FILES: &str = "f/";

/// The body of an answer.
#[derive(Clone, Debug)]
pub enum Bytes {
    /// In the program.
    Static(&'static [u8]),
    /// Made for this request.
    Made(String),
}

/// The answer to a request for the page or a file.
#[derive(Clone, Debug)]
pub struct PageAnswer {
    pub status: u16,
    pub kind: &'static str,
    /// Headers of this answer alone, each with its line's end.
    pub extra: String,
    pub body: Bytes,
}

/// The type of the page itself.
const HTML: &str = "text/html; charset=utf-8";

impl PageAnswer {
    /// The answer to a request for something below the page: `place` as [`Settings::within`] has it. None if there is
    /// no file of that name.
    pub fn of(settings: &Settings, place: Place<'_>, head: &Head<'_>) -> Option<Self> {
        let prefix = prefix(head);
        let Place::Below(below) = place else {
            let extra =
                format!("Location: {prefix}{}/\r\nCache-Control: no-cache\r\n", settings.path());
            return Some(Self { status: 302, kind: HTML, extra, body: Bytes::Static(b"") });
        };
        match below.strip_prefix(FILES) {
            Some(name) => files::find(name).map(|file| of_file(file, head)),
            // Any other path gets the page, whose script reads the path itself.
            None => Some(of_page(settings.page(prefix), head)),
        }
    }
}

fn of_file(file: &'static File, head: &Head<'_>) -> PageAnswer {
    let gzip = takes_gzip(head);
    let tag = format!("\"{}{}\"", file.name, if gzip { ".gz" } else { "" });
    let mut extra = format!(
        "Cache-Control: public, max-age=31536000, immutable\r\nVary: Accept-Encoding\r\nETag: {tag}\r\n"
    );
    if has_it(head, &tag) {
        return PageAnswer { status: 304, kind: file.kind, extra, body: Bytes::Static(b"") };
    }
    if gzip {
        extra.push_str("Content-Encoding: gzip\r\n");
    }
    let body = Bytes::Static(if gzip { file.gzip } else { file.plain });
    PageAnswer { status: 200, kind: file.kind, extra, body }
}

fn of_page(page: String, head: &Head<'_>) -> PageAnswer {
    let hash = digest::digest(&digest::SHA256, page.as_bytes());
    let tag = data_encoding::HEXLOWER.encode(&hash.as_ref()[..TAG_BYTES]);
    let mut extra = String::from("Cache-Control: no-cache\r\n");
    // Writing to a string cannot fail.
    let _ = write!(extra, "ETag: \"{tag}\"\r\nVary: X-Forwarded-Prefix\r\n");
    if has_it(head, &format!("\"{tag}\"")) {
        return PageAnswer { status: 304, kind: HTML, extra, body: Bytes::Static(b"") };
    }
    PageAnswer { status: 200, kind: HTML, extra, body: Bytes::Made(page) }
}

/// Whether a browser has what has this tag.
fn has_it(head: &Head<'_>, tag: &str) -> bool {
    let tags = head.headers("if-none-match").flat_map(|value| value.split(|&byte| byte == b','));
    let bare = |one: &[u8]| one.strip_prefix(b"W/").unwrap_or(one) == tag.as_bytes();
    tags.map(<[u8]>::trim_ascii).any(bare)
}

/// Whether a client takes gzip. One that says how much it likes it takes it unless that is nothing at all.
fn takes_gzip(head: &Head<'_>) -> bool {
    let codings =
        head.headers("accept-encoding").flat_map(|value| value.split(|&byte| byte == b','));
    codings.filter_map(|coding| std::str::from_utf8(coding).ok()).any(|coding| {
        let (name, rest) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = rest.trim().strip_prefix("q=").and_then(|q| q.trim().parse::<f32>().ok());
        name.trim().eq_ignore_ascii_case("gzip") && weight != Some(0.0)
    })
}

/// The path under which a proxy has the server, without a slash at the end. What is no path becomes none: it goes into the
/// page, and must neither leave the host nor the attribute.
fn prefix<'a>(head: &Head<'a>) -> &'a str {
    let given = head.headers("x-forwarded-prefix").next().unwrap_or_default();
    let prefix = std::str::from_utf8(given).unwrap_or_default().trim_end_matches('/');
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%".contains(&byte);
    let is_path = prefix.starts_with('/')
        && prefix.len() <= PREFIX_BYTES_MAX
        && !prefix.contains("//")
        && prefix.bytes().all(fits);
    if is_path { prefix } else { "" }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::protocol::http1::head;
    use crate::server::ui::settings::Shown;

    fn settings() -> Settings {
        let shown = Shown { label: None, color: None, redact: &[], tcp_port: 1, tls: false };
        Settings::new("/ui", shown)
    }

    fn answer(place: Place<'_>, lines: &str) -> Option<PageAnswer> {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        let head = head::read(text.as_bytes(), &mut 0).unwrap().unwrap();
        PageAnswer::of(&settings(), place, &head)
    }

    fn name() -> &'static str {
        files::INDEX.split("\"f/").nth(1).unwrap().split('"').next().unwrap()
    }

    #[test]
    fn files_come_compressed_to_who_takes_that_and_stay() {
        let path = format!("f/{}", name());
        let plain = answer(Place::Below(&path), "Accept-Encoding: br, gzip;q=0\r\n").unwrap();
        let gzip = answer(Place::Below(&path), "Accept-Encoding: br, gzip\r\n").unwrap();
        assert!(plain.extra.contains("immutable") && !plain.extra.contains("Content-Encoding"));
        assert!(gzip.extra.contains("Content-Encoding: gzip"), "{}", gzip.extra);
        let (Bytes::Static(plain), Bytes::Static(gzip)) = (plain.body, gzip.body) else {
            panic!("files are part of the program")
        };
        assert!(gzip.len() < plain.len() && gzip.starts_with(&[0x1f, 0x8b]));
        let had = format!("Accept-Encoding: gzip\r\nIf-None-Match: \"x\", W/\"{}.gz\"\r\n", name());
        assert_eq!(answer(Place::Below(&path), &had).unwrap().status, 304);
        assert!(answer(Place::Below("f/absent.js"), "").is_none());
    }

    #[test]
    fn the_page_is_looked_at_anew_each_time_and_sent_if_it_is_another() {
        let first = answer(Place::Below("queues/q"), "").unwrap();
        assert_eq!((first.status, first.kind), (200, HTML));
        let tag = first.extra.split("ETag: ").nth(1).unwrap().lines().next().unwrap();
        let line = format!("If-None-Match: {tag}\r\n");
        assert_eq!(answer(Place::Below(""), &line).unwrap().status, 304);
        let behind = format!("{line}X-Forwarded-Prefix: /else\r\n");
        assert_eq!(answer(Place::Below(""), &behind).unwrap().status, 200);
    }

    #[test]
    fn a_prefix_that_is_no_path_is_none() {
        let moved = |prefix: &str| {
            let answer = answer(Place::Bare, &format!("X-Forwarded-Prefix: {prefix}\r\n")).unwrap();
            assert_eq!(answer.status, 302);
            let (_, place) = answer.extra.split_once("Location: ").unwrap();
            place.lines().next().unwrap().to_owned()
        };
        assert_eq!(moved("/corq/"), "/corq/ui/");
        assert_eq!(moved("/a/b-c.d~%20"), "/a/b-c.d~%20/ui/");
        let long = format!("/{}", "a".repeat(PREFIX_BYTES_MAX));
        for prefix in
            ["//evil.example", "https://evil.example", "/a\"onload", "/a b", "corq", &long]
        {
            assert_eq!(moved(prefix), "/ui/", "{prefix}");
        }
    }
}
