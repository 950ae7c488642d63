//! The settings of the page: where it lies, and what it shows of them.

use super::files;
use crate::protocol::json;
use std::borrow::Cow;

/// A path of the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place<'a> {
    /// The page without the slash behind it, from where its links would lead elsewhere.
    Bare,
    /// Behind that slash.
    Below(&'a str),
}

/// The page with its settings in it, but without its base, which depends on the request.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where it lies, without a slash at the end.
    path: Box<str>,
    /// The page before and behind the base; the second part has the settings in it.
    parts: [Box<str>; 2],
}

/// The settings that the page shows.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// Which environment this is.
    pub label: Option<&'a str>,
    /// The colour of the label.
    pub color: Option<&'a str>,
    /// Paths in payloads whose values are covered.
    pub redact: &'a [String],
    /// The port of the protocol, for examples of clients.
    pub tcp_port: u16,
    /// Whether both ports speak TLS.
    pub tls: bool,
}

impl Settings {
    /// For a page at `path`.
    pub fn new(path: &str, shown: Shown<'_>) -> Self {
        let (before, rest) = files::INDEX.split_once(files::BASE).unwrap_or((files::INDEX, ""));
        let behind = rest.replace(files::SETTINGS, &as_attribute(&object(path, shown)));
        Self { path: path.into(), parts: [before.into(), behind.into()] }
    }

    /// Where it lies, without a slash at the end.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Where a path is, if it is of the page.
    pub fn within<'a>(&self, path: &'a str) -> Option<Place<'a>> {
        let rest = path.strip_prefix(&*self.path)?;
        match rest.strip_prefix('/') {
            None if rest.is_empty() => Some(Place::Bare),
            below => below.map(Place::Below),
        }
    }

    /// The page, for clients that find it behind `prefix`.
    pub fn page(&self, prefix: &str) -> String {
        let [before, behind] = &self.parts;
        [before, prefix, &self.path, "/", behind].concat()
    }
}

/// The settings for the page, as JSON.
fn object(path: &str, shown: Shown<'_>) -> String {
    let mut out = b"{\"version\":".to_vec();
    json::string(&mut out, env!("CARGO_PKG_VERSION"));
    for (name, value) in [("path", Some(path)), ("label", shown.label), ("color", shown.color)] {
        if let Some(value) = value {
            out.extend_from_slice(format!(",\"{name}\":").as_bytes());
            json::string(&mut out, value);
        }
    }
    out.extend_from_slice(b",\"redact\":[");
    for (at, path) in shown.redact.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        json::string(&mut out, path);
    }
    out.extend_from_slice(
        format!("],\"tcpPort\":{},\"tls\":{}}}", shown.tcp_port, shown.tls).as_bytes(),
    );
    String::from_utf8_lossy(&out).into_owned()
}

/// A text between double quotes.
fn as_attribute(text: &str) -> String {
    let escaped = |character| match character {
        '&' => Cow::Borrowed("&amp;"),
        '"' => Cow::Borrowed("&quot;"),
        '<' => Cow::Borrowed("&lt;"),
        '>' => Cow::Borrowed("&gt;"),
        other => Cow::Owned(String::from(other)),
    };
    text.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Shown<'_> =
        Shown { label: None, color: None, redact: &[], tcp_port: 6789, tls: false };

    #[test]
    fn the_page_is_told_its_settings_and_its_place() {
        let redact = ["password".to_owned(), "*.token".to_owned()];
        let shown = Shown { label: Some("\"><script>"), redact: &redact, ..PLAIN };
        let page = Settings::new("/dash", shown).page("/queue");
        assert!(page.contains("href=\"/queue/dash/\""), "{page}");
        assert!(page.contains("&quot;redact&quot;:[&quot;password&quot;,&quot;*.token&quot;]"));
        assert!(
            page.contains("&quot;label&quot;:&quot;\\&quot;&gt;&lt;script&gt;&quot;"),
            "{page}"
        );
        assert!(!page.contains("{{") && !page.contains("><script>"), "{page}");
    }

    #[test]
    fn what_is_below_the_page_is_told_from_what_only_begins_so() {
        let settings = Settings::new("/ui", PLAIN);
        for (path, below) in [
            ("/ui", Some(Place::Bare)),
            ("/ui/", Some(Place::Below(""))),
            ("/ui/queues/q", Some(Place::Below("queues/q"))),
            ("/uix", None),
            ("/", None),
            ("/queues/ui", None),
        ] {
            assert_eq!(settings.within(path), below, "{path}");
        }
    }
}
