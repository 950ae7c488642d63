//! Requests as the command line writes them. Names of commands and fields are those of the table in
//! [`crate::api::commands`]; bounds are not looked at here, since the server refuses what is out of them.

use crate::api::commands::{
    BACKOFF_FIELDS, BULK_FILTER_FIELDS, COMMANDS, CRON_JOB_FIELDS, DEDUP_FIELDS, DLQ_CONFIG_FIELDS,
    DLQ_FILTER_FIELDS, FieldSpec, JOB_FIELDS, Op, REPEAT_FIELDS, STALL_CONFIG_FIELDS,
};
use crate::protocol::frame::PREFIX_BYTES;
use crate::protocol::msgpack::writer::{OpenMap, Writer};

/// A map of fields that is being written.
#[derive(Debug)]
pub struct Fields {
    out: Vec<u8>,
    map: OpenMap,
    entries: u16,
    known: &'static [FieldSpec],
}

/// A command with its fields, as a frame in the making.
#[derive(Debug)]
pub struct Request {
    fields: Fields,
    op: Op,
}

impl Request {
    /// A command without fields yet.
    pub fn new(op: Op) -> Self {
        let mut fields = Fields::begin(vec![0; PREFIX_BYTES], &[]);
        // Every command stands in the table; the name of none is what the server would refuse.
        let spec = COMMANDS.iter().find(|spec| spec.op == op);
        fields.write("cmd", |writer| writer.str(spec.map_or("", |spec| spec.name)));
        fields.known = spec.map_or(&[], |spec| spec.fields);
        Self { fields, op }
    }

    /// Which command it is.
    pub fn op(&self) -> Op {
        self.op
    }

    /// A command on a queue.
    pub fn on_queue(op: Op, queue: &str) -> Self {
        Self::new(op).with(|fields| fields.text("queue", queue))
    }

    /// A command on a job.
    pub fn on_job(op: Op, id: &str) -> Self {
        Self::new(op).with(|fields| fields.text("id", id))
    }

    /// Writes fields.
    #[must_use]
    pub fn with(mut self, write: impl FnOnce(&mut Fields)) -> Self {
        write(&mut self.fields);
        self
    }

    /// Marks the request, so that its reply can be told from others.
    #[must_use]
    pub fn numbered(mut self, number: u64) -> Self {
        self.fields.write("reqId", |writer| writer.uint(number));
        self
    }

    /// The whole frame.
    pub fn frame(self) -> Vec<u8> {
        let mut frame = self.fields.finish();
        let length = (frame.len() - PREFIX_BYTES) as u32;
        frame[..PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
        frame
    }
}

impl Fields {
    fn begin(mut out: Vec<u8>, known: &'static [FieldSpec]) -> Self {
        let map = Writer::new(&mut out).open_map();
        Self { out, map, entries: 0, known }
    }

    /// A job of a batch.
    pub fn of_job() -> Self {
        Self::begin(Vec::new(), JOB_FIELDS)
    }

    /// The object form of `backoff`.
    pub fn of_backoff() -> Self {
        Self::begin(Vec::new(), BACKOFF_FIELDS)
    }

    /// The object `dedup`.
    pub fn of_dedup() -> Self {
        Self::begin(Vec::new(), DEDUP_FIELDS)
    }

    /// The object `repeat`.
    pub fn of_repeat() -> Self {
        Self::begin(Vec::new(), REPEAT_FIELDS)
    }

    /// The object `config` of `SetDlqConfig`.
    pub fn of_dlq_config() -> Self {
        Self::begin(Vec::new(), DLQ_CONFIG_FIELDS)
    }

    /// The object `config` of `SetStallConfig`.
    pub fn of_stall_config() -> Self {
        Self::begin(Vec::new(), STALL_CONFIG_FIELDS)
    }

    /// The object `jobOptions` of a schedule.
    pub fn of_cron_job() -> Self {
        Self::begin(Vec::new(), CRON_JOB_FIELDS)
    }

    /// The object `filter` of a dead-letter queue.
    pub fn of_dlq_filter() -> Self {
        Self::begin(Vec::new(), DLQ_FILTER_FIELDS)
    }

    /// The object `filter` of an action on many jobs.
    pub fn of_bulk_filter() -> Self {
        Self::begin(Vec::new(), BULK_FILTER_FIELDS)
    }

    /// Whether nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// The map, closed.
    pub fn finish(self) -> Vec<u8> {
        let Self { mut out, map, entries, .. } = self;
        map.close(&mut Writer::new(&mut out), entries);
        out
    }

    fn write(&mut self, name: &str, value: impl FnOnce(&mut Writer<'_>)) {
        let mut writer = Writer::new(&mut self.out);
        writer.str(name);
        value(&mut writer);
        self.entries += 1;
    }

    fn field(&mut self, name: &str, value: impl FnOnce(&mut Writer<'_>)) {
        debug_assert!(self.known.iter().any(|spec| spec.name == name), "no field {name}");
        self.write(name, value);
    }

    pub fn text(&mut self, name: &str, value: &str) {
        self.field(name, |writer| writer.str(value));
    }

    /// A text that may be left out.
    pub fn text_if(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(name, value);
        }
    }

    /// A whole number.
    pub fn integer(&mut self, name: &str, value: i64) {
        self.field(name, |writer| writer.int(value));
    }

    /// A whole number that may be left out.
    pub fn integer_if(&mut self, name: &str, value: Option<i64>) {
        if let Some(value) = value {
            self.integer(name, value);
        }
    }

    pub fn number(&mut self, name: &str, value: f64) {
        self.field(name, |writer| writer.number(value));
    }

    /// A switch, written where it is on.
    pub fn flag_if(&mut self, name: &str, on: bool) {
        if on {
            self.field(name, |writer| writer.bool(true));
        }
    }

    /// True or false, left out where it is not said.
    pub fn bool_if(&mut self, name: &str, value: Option<bool>) {
        if let Some(value) = value {
            self.field(name, |writer| writer.bool(value));
        }
    }

    /// Nothing, where that says something.
    #[allow(clippy::redundant_closure_for_method_calls)] // The method alone is of one lifetime only.
    pub fn nil(&mut self, name: &str) {
        self.field(name, |writer| writer.nil());
    }

    /// A list of texts.
    pub fn texts(&mut self, name: &str, values: &[String]) {
        self.field(name, |writer| {
            writer.array(values.len());
            for value in values {
                writer.str(value);
            }
        });
    }

    /// A list of texts, left out where it is empty.
    pub fn texts_if(&mut self, name: &str, values: &[String]) {
        if !values.is_empty() {
            self.texts(name, values);
        }
    }

    /// A value that is encoded already.
    pub fn raw(&mut self, name: &str, value: &[u8]) {
        self.field(name, |writer| writer.raw(value));
    }

    /// Writes an encoded value if the command has such a field; leaves it out otherwise.
    pub fn raw_known(&mut self, name: &str, value: &[u8]) {
        if self.known.iter().any(|spec| spec.name == name) {
            self.raw(name, value);
        }
    }

    /// A list of values that are encoded already, `count` of them behind each other.
    pub fn raw_list(&mut self, name: &str, count: usize, values: &[u8]) {
        self.field(name, |writer| {
            writer.array(count);
            writer.raw(values);
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::api::request::Body;
    use crate::protocol::decode::decode;

    #[test]
    fn the_server_reads_what_is_written() {
        let frame = Request::on_queue(Op::Push, "q")
            .with(|fields| {
                fields.raw("data", &[0x01]);
                fields.integer("priority", -7);
                fields.texts_if("tags", &["a".into()]);
                fields.texts_if("dependsOn", &[]);
                fields.flag_if("lifo", true);
            })
            .numbered(9)
            .frame();
        assert_eq!(frame[..4], (frame.len() as u32 - 4).to_be_bytes());
        let request = decode(&frame[4..]).unwrap();
        assert_eq!(request.req_id, Some(&[9][..]));
        let Body::Push { queue: "q", job } = request.body else { panic!("{:?}", request.body) };
        assert_eq!((job.data, job.priority, job.lifo), (&[1][..], -7, true));
    }

    #[test]
    fn a_batch_is_a_list_of_maps() {
        let mut job = Fields::of_job();
        job.raw("data", &[0xc3]);
        let job = job.finish();
        let request = Request::on_queue(Op::PushBatch, "q");
        let frame = request.with(|fields| fields.raw_list("jobs", 2, &job.repeat(2))).frame();
        let Body::PushBatch { jobs, .. } = decode(&frame[4..]).unwrap().body else { panic!() };
        assert_eq!(jobs.len(), 2);
    }
}
