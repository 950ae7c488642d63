//! An event as text, with a note of where its parts stand, so that the forms that leave something out or call it otherwise
//! are put together from pieces and nothing is read again. A ground type: it imports nothing of the server but the names.

use super::dashboard_names;
use crate::protocol::{json, uuid_text};
use corq_shards::effect::KnownAs;
use corq_shards::event::{Event, Step};

/// Attributes of an event that clients choose by.
#[derive(Clone, Copy, Debug)]
pub struct About<'e> {
    pub queue: &'e str,
    /// The place of its type among all types.
    pub kind: u8,
    /// The id of the job as JSON, quotes included; that of an empty text if it is about a queue.
    pub job: &'e [u8],
}

/// Where a part of a text begins and ends.
pub(super) type Place = (u32, u32);

/// Where the parts of an event's text stand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Layout {
    /// The place of its type among all types.
    pub kind: u8,
    pub at_ms: u64,
    /// Where what follows the type begins.
    pub(super) begin: u32,
    pub(super) job: Place,
    /// With the comma before it.
    pub(super) timestamp: Place,
    /// With the comma before it; empty if there is none.
    pub(super) data: Place,
}

/// Parts of an event to be shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shown<'s> {
    /// By the name that dashboards have for it.
    pub named: bool,
    /// With its data.
    pub data: bool,
    /// With its id.
    pub id: Option<&'s str>,
}

impl Shown<'_> {
    /// The text as it is.
    pub const ALL: Self = Self { named: false, data: true, id: None };
}

/// The text of an event, and where its parts stand in it.
#[derive(Clone, Copy, Debug)]
pub struct EventText<'t> {
    pub text: &'t [u8],
    pub layout: Layout,
}

impl<'t> EventText<'t> {
    fn part(&self, (begin, end): Place) -> &'t [u8] {
        self.text.get(begin as usize..end as usize).unwrap_or_default()
    }

    pub fn about<'q>(&self, queue: &'q str) -> About<'q>
    where
        't: 'q,
    {
        About { queue, kind: self.layout.kind, job: self.part(self.layout.job) }
    }

    /// Appends it as it is to be shown.
    pub fn write(&self, out: &mut Vec<u8>, shown: Shown<'_>) {
        if shown == Shown::ALL {
            out.extend_from_slice(self.text);
            return;
        }
        let Layout { begin, timestamp, data, at_ms, kind, .. } = self.layout;
        let last = self.text.len().saturating_sub(1) as u32;
        let data_shown = if shown.data { self.part(data) } else { b"" };
        // Without data, its place is where it would stand: at the end.
        let behind_data = if data.1 == 0 { last } else { data.1 };
        let before_data = if data.1 == 0 { last } else { data.0 };
        if shown.named {
            out.extend_from_slice(b"{\"event\":\"");
            out.extend_from_slice(dashboard_names::name_of(kind).as_bytes());
            out.extend_from_slice(b"\",\"ts\":");
            json::integer(out, at_ms);
            out.extend_from_slice(b",\"data\":{");
            out.extend_from_slice(self.part((begin, timestamp.0)));
            out.extend_from_slice(self.part((timestamp.1, before_data)));
        } else {
            out.extend_from_slice(self.part((0, before_data)));
        }
        out.extend_from_slice(data_shown);
        out.extend_from_slice(self.part((behind_data, last)));
        if shown.named {
            out.push(b'}');
        }
        if let Some(id) = shown.id {
            out.extend_from_slice(b",\"id\":");
            json::string(out, id);
        }
        out.push(b'}');
    }
}

/// The type of an event, by its place among all types.
pub fn kind_of(step: Step) -> u8 {
    match step {
        Step::Pushed => 0,
        Step::Pulled => 1,
        Step::Completed { .. } => 2,
        Step::Failed { .. } => 3,
        Step::Progress(_) => 4,
        Step::Stalled => 5,
        Step::Removed { .. } => 6,
        Step::Delayed { .. } => 7,
        Step::Duplicated => 8,
        Step::Retried { .. } => 9,
        Step::WaitingChildren => 10,
        Step::Drained => 11,
        Step::Paused => 12,
        Step::Resumed => 13,
        Step::Extra(extra) => dashboard_names::kind_of_extra(extra),
    }
}

/// Writes the id of an event's job as JSON.
pub fn write_job(out: &mut Vec<u8>, event: &Event) {
    match &event.job {
        Some(KnownAs::Id(id)) => {
            out.push(b'"');
            out.extend_from_slice(&uuid_text::format(id.0));
            out.push(b'"');
        }
        Some(KnownAs::Custom(name)) => json::string(out, name),
        None => json::string(out, ""),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::api::objects::EVENT_TYPES;
    use corq_shards::job::State;
    use corq_shards::log_record::location::LogRef;
    use serde_json::{Value, json};
    use std::sync::Arc;

    const TEXT: &[u8] = br#"{"eventType":"completed","queue":"q","jobId":"a\"b","name":"n","timestamp":17,"data":{"x":"}"},"terminal":true}"#;

    fn event(text: &[u8]) -> EventText<'_> {
        let at = |part: &str| {
            let found = text.windows(part.len()).position(|window| window == part.as_bytes());
            found.map(|begin| (begin as u32, (begin + part.len()) as u32))
        };
        let layout = Layout {
            kind: 2,
            at_ms: 17,
            begin: at("\"queue\"").unwrap().0,
            job: at(r#""a\"b""#).unwrap(),
            timestamp: at(",\"timestamp\":17").unwrap(),
            data: at(r#","data":{"x":"}"}"#).unwrap_or_default(),
        };
        EventText { text, layout }
    }

    fn read(event: &EventText<'_>, shown: Shown<'_>) -> Value {
        let mut out = Vec::new();
        event.write(&mut out, shown);
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn every_form_shows_what_it_is_to_show() {
        let plain = Shown::ALL;
        let mut out = Vec::new();
        event(TEXT).write(&mut out, plain);
        assert_eq!(out, TEXT, "the whole of it is the text itself");
        let whole: Value = serde_json::from_slice(TEXT).unwrap();
        let mut lean = whole.clone();
        lean.as_object_mut().unwrap().remove("data");
        assert_eq!(read(&event(TEXT), Shown { data: false, ..plain }), lean);
        let mut with = whole.clone();
        with["id"] = json!("1-2");
        assert_eq!(read(&event(TEXT), Shown { id: Some("1-2"), ..plain }), with);
        let named = Shown { named: true, data: false, ..plain };
        let shown = json!({"queue": "q", "jobId": "a\"b", "name": "n", "terminal": true});
        let expected = json!({"event": "job:completed", "ts": 17, "data": shown});
        assert_eq!(read(&event(TEXT), named), expected);
        let with = read(&event(TEXT), Shown { data: true, id: Some("i"), ..named });
        assert_eq!((&with["data"]["data"], &with["id"]), (&json!({"x": "}"}), &json!("i")));
        assert_eq!(event(TEXT).about("q").job, br#""a\"b""#);
    }

    #[test]
    fn a_form_without_data_of_an_event_that_has_none_is_the_event() {
        let text = br#"{"eventType":"completed","queue":"q","jobId":"a\"b","timestamp":17,"terminal":true}"#;
        let mut out = Vec::new();
        let shown = Shown { named: false, data: false, id: None };
        event(text).write(&mut out, shown);
        assert_eq!(out, text);
        let named = read(&event(text), Shown { named: true, data: true, ..shown });
        assert_eq!(named["data"]["terminal"], true);
    }

    #[test]
    fn the_place_of_a_type_is_that_of_its_name() {
        let none = LogRef::default();
        let steps = [
            Step::Pushed,
            Step::Pulled,
            Step::Completed { result: none },
            Step::Failed { error: none, terminal: false },
            Step::Progress(0.0),
            Step::Stalled,
            Step::Removed { prev: State::Waiting },
            Step::Delayed { delay_ms: 0 },
            Step::Duplicated,
            Step::Retried { prev: State::Waiting },
            Step::WaitingChildren,
            Step::Drained,
            Step::Paused,
            Step::Resumed,
        ];
        assert_eq!(steps.len(), EVENT_TYPES.len());
        for step in steps {
            assert_eq!(EVENT_TYPES[usize::from(kind_of(step))], step.name());
        }
        let queue: Arc<str> = "q".into();
        let job = Some(KnownAs::Custom("a\"".into()));
        let (name, trace) = (None, None);
        let event = Event { at_ms: 1, queue, job, name, trace, data: none, step: Step::Stalled };
        let mut out = Vec::new();
        write_job(&mut out, &event);
        assert_eq!(out, br#""a\"""#);
    }
}
