//! The decoder of frames against any bytes, compared with another `MessagePack` library.
//!
//! Promises: it never panics; what decodes is one well-formed value and everything borrowed from
//! it is too; a value ends where the other library says; whatever is refused names its `reqId` if
//! the frame has one that can be read.
#![no_main]

use corq::api::request::Body;
use corq::protocol::decode::decode;
use corq::protocol::frame::{Split, split};
use corq::protocol::msgpack::Reader;
use corq_shards::job::new_job::NewJob;
use libfuzzer_sys::fuzz_target;
use rmpv::Value;

fuzz_target!(|bytes: &[u8]| {
    if let Split::Complete { frame, rest } = split(bytes) {
        assert_eq!(frame.len() + rest.len() + 4, bytes.len());
    }
    let whole = Reader::new(bytes).skip();
    if let Ok(value) = whole {
        let mut judge = value;
        rmpv::decode::read_value(&mut judge).expect("the other library reads it");
        assert!(judge.is_empty(), "and ends at the same byte");
    }
    match decode(bytes) {
        Ok(request) => {
            assert_eq!(whole, Ok(bytes), "what decodes is well-formed");
            request.req_id.into_iter().for_each(one_value);
            check(&request.body);
        }
        Err(refused) => {
            refused.req_id.into_iter().for_each(one_value);
            if let Ok(mut value) = whole
                && let Ok(Value::Map(entries)) = rmpv::decode::read_value(&mut value)
            {
                assert_eq!(refused.req_id.is_some(), entries.iter().any(is_req_id));
            }
        }
    }
});

fn is_req_id((key, value): &(Value, Value)) -> bool {
    key.as_str() == Some("reqId") && !matches!(value, Value::Nil | Value::Ext(0, _))
}

/// The bytes are exactly one value.
fn one_value(bytes: &[u8]) {
    assert_eq!(Reader::new(bytes).skip(), Ok(bytes));
}

fn check(body: &Body<'_>) {
    match body {
        Body::Push { job, .. } => check_job(job),
        Body::PushBatch { jobs, .. } => jobs.iter().for_each(check_job),
        Body::AckBatch { batch } | Body::JobHeartbeatBatch { batch } => {
            for ack in batch.acks() {
                optional_value(ack.result);
            }
        }
        Body::Ack { result, .. } => optional_value(result),
        Body::Update { data, .. } => one_value(data),
        Body::Cron { cron } => one_value(cron.data),
        Body::RegisterWorker { queues, .. } => {
            assert_eq!(queues.iter().count(), queues.len());
        }
        Body::AddWebhook { events, .. } => {
            assert_eq!(events.iter().count(), events.len());
        }
        _ => {}
    }
}

fn optional_value(bytes: &[u8]) {
    if !bytes.is_empty() {
        one_value(bytes);
    }
}

fn check_job(job: &NewJob<'_>) {
    one_value(job.data);
    optional_value(job.tags);
    optional_value(job.depends_on);
    assert!(job.priority.abs() <= 1_000_000 && (1..=1000).contains(&job.max_attempts));
    assert!(job.repeat.is_none_or(|repeat| repeat.every_ms >= 1));
}
