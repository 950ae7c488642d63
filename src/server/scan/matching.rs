//! Whether the record of a job has what is searched for. Payloads are what clients made them: each is looked at up to a bound,
//! without recursion, and one that goes on beyond it counts as searched in part.
//!
//! A ground type: it imports nothing of the server.

use crate::protocol::msgpack::step::Step;
use crate::protocol::msgpack::{Reader, Texts};
use corq_shards::log_record::Pushed;
use memchr::memmem::Finder;

/// Bytes of one payload that are searched.
pub const SEARCHED_BYTES_MAX: usize = 256 << 10;

/// Values of one payload that are passed on the way to a path.
const PASSED_MAX: usize = 50_000;

/// The tag, text and field that a job's record must have, as far as they are given.
#[derive(Debug, Default)]
pub struct Sought {
    tag: Option<Box<str>>,
    text: Option<Finder<'static>>,
    path: Option<(Box<str>, Option<Value>)>,
}

/// A value that is searched for.
#[derive(Debug, PartialEq)]
enum Value {
    Nil,
    Bool(bool),
    Number(f64),
    Text(Box<str>),
    /// A list, a map or bytes, as they are encoded.
    Encoded(Box<[u8]>),
}

/// The outcome of a look at one record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Judged {
    pub fits: bool,
    /// Whether the payload was looked at in part only.
    pub partly: bool,
}

impl Value {
    /// The value that is encoded so.
    fn of(bytes: &[u8]) -> Self {
        match Reader::new(bytes).step() {
            Ok(step) => Self::scalar(step).unwrap_or_else(|| Self::Encoded(bytes.into())),
            Err(_) => Self::Encoded(bytes.into()),
        }
    }

    fn scalar(step: Step<'_>) -> Option<Self> {
        Some(match step {
            Step::Nil => Self::Nil,
            Step::Bool(flag) => Self::Bool(flag),
            Step::Uint(number) => Self::Number(number as f64),
            Step::Int(number) => Self::Number(number as f64),
            Step::Float(number) => Self::Number(number),
            Step::Text(text) => Self::Text(text.into()),
            Step::Binary(_) | Step::Extension(..) | Step::Array(_) | Step::Map(_) => return None,
        })
    }

    /// Whether a value of a payload is this one. A text also stands for the number or the word that it spells: what
    /// comes from a URL is text.
    #[allow(clippy::float_cmp, reason = "the same number is the same")]
    fn is(&self, reader: &mut Reader<'_>) -> bool {
        let at = *reader;
        match (self, reader.step()) {
            (Self::Nil, Ok(Step::Nil)) => true,
            (Self::Bool(sought), Ok(Step::Bool(flag))) => *sought == flag,
            (Self::Number(sought), Ok(Step::Uint(number))) => *sought == number as f64,
            (Self::Number(sought), Ok(Step::Int(number))) => *sought == number as f64,
            (Self::Number(sought), Ok(Step::Float(number))) => *sought == number,
            (Self::Text(sought), Ok(Step::Text(text))) => **sought == *text,
            (Self::Text(sought), Ok(Step::Nil)) => **sought == *"null",
            (Self::Text(sought), Ok(Step::Bool(flag))) => {
                **sought == *if flag { "true" } else { "false" }
            }
            (Self::Text(sought), Ok(Step::Uint(number))) => sought.parse() == Ok(number as f64),
            (Self::Text(sought), Ok(Step::Int(number))) => sought.parse() == Ok(number as f64),
            (Self::Text(sought), Ok(Step::Float(number))) => sought.parse() == Ok(number),
            (Self::Encoded(sought), Ok(_)) => at.rest().starts_with(sought),
            _ => false,
        }
    }
}

impl Sought {
    /// This tag, this text, and this value at this path; nothing of what is absent.
    pub fn new(tag: Option<&str>, text: Option<&str>, path: Option<(&str, &[u8])>) -> Self {
        let value = |bytes: &[u8]| (!bytes.is_empty()).then(|| Value::of(bytes));
        Self {
            tag: tag.map(Into::into),
            text: text.map(|text| Finder::new(text.as_bytes()).into_owned()),
            path: path.map(|(path, bytes)| (path.into(), value(bytes))),
        }
    }

    /// Whether nothing is, so that no record has to be looked at.
    pub fn is_none(&self) -> bool {
        self.tag.is_none() && self.text.is_none() && self.path.is_none()
    }

    /// Looks at the record of a job.
    pub fn judge(&self, pushed: &Pushed<'_>) -> Judged {
        let has_tag = |tag: &str| Texts::new(pushed.job.tags).iter().any(|one| one == tag);
        if !self.tag.as_deref().is_none_or(has_tag) {
            return Judged::default();
        }
        let mut judged = Judged { fits: true, partly: false };
        if let Some(finder) = &self.text {
            let (found, partly) = has_text(pushed.job.data, finder);
            judged = Judged { fits: found, partly: partly && !found };
        }
        if let Some((path, value)) = &self.path
            && judged.fits
        {
            judged = has_value(pushed.job.data, path, value.as_ref());
        }
        judged
    }
}

/// Whether a text stands in one of the texts of a payload, keys included; and whether the search ended before the payload did.
fn has_text(data: &[u8], finder: &Finder<'_>) -> (bool, bool) {
    let mut reader = Reader::new(data);
    loop {
        let looked = data.len() - reader.rest().len();
        if reader.rest().is_empty() {
            return (false, false);
        }
        if looked >= SEARCHED_BYTES_MAX {
            return (false, true);
        }
        match reader.step() {
            Ok(Step::Text(text)) => {
                let room = SEARCHED_BYTES_MAX - looked;
                if finder.find(&text.as_bytes()[..text.len().min(room)]).is_some() {
                    return (true, false);
                }
                if text.len() > room {
                    return (false, true);
                }
            }
            Ok(_) => {}
            Err(_) => return (false, false),
        }
    }
}

/// Whether a payload has a value at a path, which is this one if it is given.
fn has_value(data: &[u8], path: &str, value: Option<&Value>) -> Judged {
    let (mut reader, mut steps) = (Reader::new(data), PASSED_MAX);
    for part in path.split('.') {
        match enter(&mut reader, part, &mut steps) {
            Some(true) => {}
            Some(false) => return Judged::default(),
            None => return Judged { fits: false, partly: true },
        }
    }
    let fits = value.is_none_or(|value| value.is(&mut reader));
    Judged { fits, partly: false }
}

/// Goes to the entry or the item of this name. None if that is farther than is looked.
fn enter(reader: &mut Reader<'_>, part: &str, steps: &mut usize) -> Option<bool> {
    match reader.step() {
        Ok(Step::Map(entries)) => {
            for _ in 0..entries {
                let is_it = reader.pass_key().is_ok_and(|key| key == part.as_bytes());
                if is_it {
                    return Some(true);
                }
                if !pass(reader, steps)? {
                    break;
                }
            }
            Some(false)
        }
        Ok(Step::Array(items)) => {
            let Some(place) = part.parse().ok().filter(|place: &usize| *place < items) else {
                return Some(false);
            };
            for _ in 0..place {
                if !pass(reader, steps)? {
                    return Some(false);
                }
            }
            Some(true)
        }
        _ => Some(false),
    }
}

/// Steps over one value. None if it is larger than is looked at.
fn pass(reader: &mut Reader<'_>, steps: &mut usize) -> Option<bool> {
    let mut left = 1;
    let passed = reader.pass_some(&mut left, steps);
    (left == 0 || passed.is_err()).then_some(passed.is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::json;
    use corq_shards::job::new_job::NewJob;

    fn packed(text: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        json::to_msgpack(text.as_bytes(), &mut bytes).expect("JSON");
        bytes
    }

    fn judge(sought: &Sought, data: &[u8], tags: &[u8]) -> Judged {
        let job = NewJob { data, tags, ..NewJob::default() };
        let id = corq_shards::job::id::JobId(1);
        sought.judge(&Pushed { id, queue: "q", run_at_ms: 0, job: job.into() })
    }

    #[test]
    fn texts_are_found_in_values_and_keys_and_not_across_them() {
        let data = packed(r#"{"name": "Ada Lovelace", "list": ["ab", 98, {"deep key": null}]}"#);
        let has = |text: &str| judge(&Sought::new(None, Some(text), None), &data, &[]).fits;
        assert!(has("Lovelace") && has("deep") && has("ab") && has("name"));
        assert!(!has("lovelace") && !has("abb") && !has("Ada  "));
        let long = packed(&format!(r#"["{}", "end"]"#, "x".repeat(SEARCHED_BYTES_MAX)));
        let judged = judge(&Sought::new(None, Some("end"), None), &long, &[]);
        assert_eq!(judged, Judged { fits: false, partly: true });
        assert!(judge(&Sought::new(None, Some("xx"), None), &long, &[]).fits);
    }

    #[test]
    fn a_value_is_found_at_its_path_whether_it_is_given_as_itself_or_as_text() {
        let data = packed(r#"{"a": {"b": [1, {"c": 2.5}], "t": true, "n": null, "s": "x"}}"#);
        let has = |path: &str, value: &str| {
            let value = if value.is_empty() { Vec::new() } else { packed(value) };
            judge(&Sought::new(None, None, Some((path, &value))), &data, &[]).fits
        };
        for (path, value) in [
            ("a.b.0", "1"),
            ("a.b.0", "\"1\""),
            ("a.b.1.c", "2.5"),
            ("a.b.1.c", "\"2.5\""),
            ("a.t", "true"),
            ("a.t", "\"true\""),
            ("a.n", "null"),
            ("a.n", "\"null\""),
            ("a.s", "\"x\""),
            ("a.b", "[1, {\"c\": 2.5}]"),
            ("a.b.1", ""),
        ] {
            assert!(has(path, value), "{path} {value}");
        }
        for (path, value) in [
            ("a.b.0", "2"),
            ("a.b.2", ""),
            ("a.x", ""),
            ("b", ""),
            ("a.s", "\"y\""),
            ("a.s.x", ""),
            ("", ""),
        ] {
            assert!(!has(path, value), "{path} {value}");
        }
    }

    #[test]
    fn a_path_behind_very_many_values_is_not_looked_for_to_the_end() {
        let many = vec!["0"; 2 * PASSED_MAX].join(",");
        let data = packed(&format!(r#"{{"many": [{many}], "a": 1}}"#));
        let judged = judge(&Sought::new(None, None, Some(("a", &[]))), &data, &[]);
        assert_eq!(judged, Judged { fits: false, partly: true });
    }

    #[test]
    fn a_tag_is_one_of_the_tags() {
        let tags = packed(r#"["red", "blue"]"#);
        let has = |tag: &str| judge(&Sought::new(Some(tag), None, None), &[0xc0], &tags).fits;
        assert!(has("red") && has("blue") && !has("re"));
        assert!(!judge(&Sought::new(Some("red"), None, None), &[0xc0], &[]).fits);
        assert!(Sought::default().is_none());
    }
}
