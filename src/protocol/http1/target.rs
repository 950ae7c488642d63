//! The target of a request taken apart: a path of segments and a query of pairs.

use std::borrow::Cow;

/// A path and its query, still as they came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target<'a> {
    /// With its leading slash.
    pub path: &'a str,
    /// Without the question mark.
    pub query: &'a str,
}

/// An escape that is none, or escapes that make no text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadEscape;

impl<'a> Target<'a> {
    /// Takes a target apart; one that names its server, as to a proxy, loses that name.
    pub fn of(target: &'a str) -> Self {
        let local = if target.starts_with('/') {
            target
        } else if let Some((_, behind)) = target.split_once("://") {
            let at = behind.find(['/', '?']).unwrap_or(behind.len());
            &behind[at..]
        } else {
            target
        };
        let (path, query) = local.split_once('?').unwrap_or((local, ""));
        Self { path: if path.is_empty() { "/" } else { path }, query }
    }

    /// The value of the first pair of this name.
    pub fn value(&self, name: &str) -> Result<Option<Cow<'a, str>>, BadEscape> {
        for (key, value) in pairs(self.query) {
            if of_query(key)? == name {
                return of_query(value).map(Some);
            }
        }
        Ok(None)
    }
}

/// The pairs of a query, still as they came.
pub fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// A key or a value of a query with its escapes undone.
pub fn of_query(text: &str) -> Result<Cow<'_, str>, BadEscape> {
    decode(text, true)
}

/// A segment of a path with its escapes undone.
pub fn segment(segment: &str) -> Result<Cow<'_, str>, BadEscape> {
    decode(segment, false)
}

fn decode(text: &str, plus_is_space: bool) -> Result<Cow<'_, str>, BadEscape> {
    if !text.bytes().any(|byte| byte == b'%' || plus_is_space && byte == b'+') {
        return Ok(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                let (high, low) = (digit().ok_or(BadEscape)?, digit().ok_or(BadEscape)?);
                (high << 4 | low) as u8
            }
            b'+' if plus_is_space => b' ',
            other => other,
        });
    }
    String::from_utf8(decoded).map(Cow::Owned).map_err(|_| BadEscape)
}
