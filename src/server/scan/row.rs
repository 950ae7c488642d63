//! A job as a row of a list: what memory holds of it, and of its record what is asked for.
//!
//! A ground type: of the server it imports ground types only.

use crate::api::listing::{DataForm, JOB_SHOWN};
use crate::protocol::json::Print;
use crate::protocol::msgpack::writer::{MapWriter, Writer};
use corq_shards::Shard;
use corq_shards::family::Family;
use corq_shards::job::{State, flags};
use corq_shards::log_record::{Buried, Pushed};
use corq_shards::query::JobView;

/// Characters of a payload that a preview has.
const PREVIEW_CHARS: usize = 200;

/// Bytes of text after which a preview is not written on.
const PREVIEW_BYTES: usize = 4 * PREVIEW_CHARS;

/// Which fields of a job a row shows, and how much of its payload.
#[derive(Clone, Copy, Debug)]
pub struct RowForm {
    /// Bits of [`JOB_SHOWN`].
    fields: u32,
    pub data: DataForm,
    /// The whole job instead, as `GetJob` shows it.
    pub whole: bool,
}

/// The bit of a field.
const fn bit(name: &str) -> u32 {
    let mut at = 0;
    while at < JOB_SHOWN.len() {
        if same(JOB_SHOWN[at], name) {
            return 1 << at;
        }
        at += 1;
    }
    panic!("no such field")
}

const fn same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Bits of the fields that are in records only, not in memory.
const RECORDED: u32 = bit("tags") | bit("failedReason");

impl RowForm {
    /// The form that a request asks for. Without fields, all that is in memory, and all that records hold if payloads
    /// are shown.
    pub fn new(fields: Option<u32>, data: DataForm) -> Self {
        let all = u32::MAX;
        let fields_shown = match (fields, data) {
            (Some(fields), _) => fields,
            (None, DataForm::None) => all & !RECORDED,
            (None, _) => all,
        };
        Self { fields: fields_shown, data, whole: fields.is_none() && data == DataForm::Full }
    }

    fn has(self, field: u32) -> bool {
        self.fields & field != 0
    }

    /// Whether it takes the record of the push.
    pub fn needs_push(self) -> bool {
        self.data != DataForm::None || self.has(bit("tags"))
    }

    /// Whether it takes the record of the end.
    pub fn needs_end(self, state: State) -> bool {
        state == State::Failed && self.has(bit("failedReason"))
    }
}

/// Writes a job. What of its records is absent could not be read.
pub fn write_row(
    writer: &mut Writer<'_>,
    (shard, view): (&Shard, &JobView<'_>),
    form: RowForm,
    pushed: Option<&Pushed<'_>>,
    buried: Option<&Buried<'_>>,
) {
    let mut row = writer.begin_map();
    let job = view.job;
    match view.options.and_then(|options| options.custom_id.as_deref()) {
        Some(name) => row.key("id").str(name),
        None => row.key("id").uuid(job.id.0),
    }
    for (field, name, text) in [
        (bit("queue"), "queue", Some(view.queue)),
        (bit("name"), "name", view.name),
        (bit("state"), "state", Some(job.state.name())),
        (bit("groupId"), "groupId", shard.group_name_in(view)),
        (bit("parentId"), "parentId", family(view).and_then(|family| family.parent.as_deref())),
        (bit("uniqueKey"), "uniqueKey", view.options.and_then(|has| has.unique_key.as_deref())),
    ] {
        if let Some(text) = text.filter(|_| form.has(field)) {
            row.key(name).str(text);
        }
    }
    write_numbers(&mut row, view, form);
    write_recorded(&mut row, view, form, pushed, buried);
}

fn family<'a>(view: &JobView<'a>) -> Option<&'a Family> {
    view.options?.family.as_deref()
}

fn write_numbers(row: &mut MapWriter<'_>, view: &JobView<'_>, form: RowForm) {
    let job = view.job;
    if form.has(bit("priority")) {
        row.key("priority").int(i64::from(job.priority));
    }
    if form.has(bit("progress")) {
        let notes = view.options.and_then(|options| options.notes.as_deref());
        row.key("progress").number(notes.map_or(0.0, |notes| notes.progress));
    }
    if form.has(bit("lifo")) {
        row.key("lifo").bool(job.has(flags::LIFO));
    }
    for (field, name, number) in [
        (bit("createdAt"), "createdAt", view.created_at_ms()),
        (bit("runAt"), "runAt", job.run_at_ms),
        (bit("attempts"), "attempts", u64::from(job.attempts)),
        (bit("maxAttempts"), "maxAttempts", u64::from(job.max_attempts)),
        (bit("stallCount"), "stallCount", u64::from(job.stalls)),
        (bit("dataBytes"), "dataBytes", u64::from(view.data.payload_bytes)),
    ] {
        if form.has(field) {
            row.key(name).uint(number);
        }
    }
    let started_at_ms = match (view.lease, view.outcome) {
        (Some(lease), _) => Some(lease.started_at_ms),
        (None, Some(outcome)) => Some(outcome.started_at_ms).filter(|&at_ms| at_ms > 0),
        (None, None) => None,
    };
    if form.has(bit("startedAt")) {
        row.key("startedAt").uint_or_nil(started_at_ms);
    }
    if form.has(bit("finishedAt")) {
        row.key("finishedAt").uint_or_nil(view.outcome.map(|outcome| outcome.finished_at_ms));
    }
    if let Some(family) = family(view).filter(|family| !family.children.is_empty()) {
        if form.has(bit("children")) {
            row.key("children").uint(family.children.len() as u64);
        }
        if form.has(bit("childrenCompleted")) {
            row.key("childrenCompleted").uint(family.completed() as u64);
        }
    }
}

fn write_recorded(
    row: &mut MapWriter<'_>,
    view: &JobView<'_>,
    form: RowForm,
    pushed: Option<&Pushed<'_>>,
    buried: Option<&Buried<'_>>,
) {
    let lacks_push = form.needs_push() && pushed.is_none();
    let lacks_end = form.needs_end(view.job.state) && buried.is_none();
    if lacks_push || lacks_end {
        row.key("damaged").bool(true);
    }
    if let Some(buried) = buried.filter(|_| form.needs_end(view.job.state)) {
        row.key("failedReason").str(buried.error);
    }
    let Some(pushed) = pushed else { return };
    if form.has(bit("tags")) && !pushed.job.tags.is_empty() {
        row.key("tags").raw(pushed.job.tags);
    }
    match form.data {
        DataForm::None => {}
        DataForm::Full => row.key("data").raw(pushed.job.data),
        DataForm::Preview => {
            let (text, is_whole) = preview(pushed.job.data);
            row.key("dataPreview").str(&text);
            row.key("dataCut").bool(!is_whole);
        }
    }
}

/// The beginning of a payload as JSON text, and whether that is all of it.
fn preview(data: &[u8]) -> (String, bool) {
    let mut text = Vec::new();
    let mut print = Print::value(0, usize::MAX);
    let is_whole = print.go_on(data, &mut text, PREVIEW_BYTES).unwrap_or(true);
    let text = String::from_utf8_lossy(&text);
    let end = text.char_indices().nth(PREVIEW_CHARS).map(|(at, _)| at);
    let shown = &text[..end.unwrap_or(text.len())];
    (shown.to_owned(), is_whole && end.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::json;

    #[test]
    fn a_preview_is_the_beginning_of_the_text_and_says_whether_that_is_all() {
        let shown = |text: &str| {
            let mut bytes = Vec::new();
            json::to_msgpack(text.as_bytes(), &mut bytes).expect("JSON");
            preview(&bytes)
        };
        assert_eq!(shown(r#"{"a":[1,"b"]}"#), (r#"{"a":[1,"b"]}"#.to_owned(), true));
        let (text, is_whole) = shown(&format!("\"{}\"", "ä".repeat(1_000_000)));
        assert_eq!((text.chars().count(), is_whole), (PREVIEW_CHARS, false));
        let (text, is_whole) = shown(&format!("[{}]", vec!["1"; 100_000].join(",")));
        assert!(text.starts_with("[1,1,1,") && text.len() == PREVIEW_CHARS && !is_whole);
    }

    #[test]
    fn rows_take_records_only_for_what_stands_in_them() {
        let memory = RowForm::new(None, DataForm::None);
        assert!(!memory.needs_push() && !memory.needs_end(State::Failed) && !memory.whole);
        let some = RowForm::new(Some(bit("failedReason")), DataForm::None);
        assert!(some.needs_end(State::Failed) && !some.needs_end(State::Waiting));
        assert!(RowForm::new(Some(0), DataForm::Preview).needs_push());
        assert!(RowForm::new(None, DataForm::Full).whole);
        assert!(!RowForm::new(Some(0), DataForm::Full).whole);
    }
}
