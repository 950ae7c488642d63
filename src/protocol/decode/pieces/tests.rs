use super::*;
use crate::api::request::{Body, Request};
use crate::api::version::Version;
use crate::protocol::decode::find_req_id;
use crate::protocol::decode::{Progress, decode, decode_piece};
use crate::protocol::json;

fn packed(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    json::to_msgpack(text.as_bytes(), &mut bytes).unwrap();
    bytes
}

/// Cuts a request in slices of `steps` values: returns its pieces, or its fault.
fn cut(frame: &[u8], op: &str, steps: usize) -> Result<Vec<Vec<u8>>, Error> {
    let mut walk = Walk::new(CommandSpec::find(op.as_bytes()).unwrap());
    while !walk.go_on(frame, &mut steps.clone())? {}
    let around = walk.around().to_vec();
    let Request { body, .. } = decode(&around).map_err(|refused| refused.error)?;
    let queue = match &body {
        Body::PushBatch { queue, .. } => Some(*queue),
        _ => None,
    };
    let mut pieces = Vec::new();
    let mut progress = Progress::default();
    while progress.place < walk.items() {
        let to = walk.piece_end(progress.place);
        let mut piece = Vec::new();
        walk.write_piece(frame, queue, (progress.place, to), &mut piece);
        decode_piece(piece.as_slice().into(), Version::Two, &mut progress)?;
        progress.place = to;
        pieces.push(piece);
    }
    walk.fits()?;
    Ok(pieces)
}

fn ids(count: usize) -> String {
    (0..count).map(|n| format!("\"id-{n}\"")).collect::<Vec<_>>().join(",")
}

#[test]
fn the_trace_of_a_request_is_that_of_the_jobs_of_each_piece_that_name_none() {
    let (outer, own) = ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", 1);
    let other = format!(r#"{{"data":1,"traceparent":"{}"}}"#, outer.replace('4', "5"));
    let job = |n: usize| if n % 3 == own { other.as_str() } else { r#"{"data":1}"# };
    let jobs = (0..2 * PIECE_ITEMS).map(job).collect::<Vec<_>>().join(",");
    for text in [
        format!(
            r#"{{"cmd":"PUSHB","queue":"q","traceparent":"{outer}","tracestate":"a=1","jobs":[{jobs}]}}"#
        ),
        format!(
            r#"{{"cmd":"PUSHB","jobs":[{jobs}],"tracestate":"a=1","queue":"q","traceparent":"{outer}"}}"#
        ),
    ] {
        let mut place = 0;
        for piece in cut(&packed(&text), "PUSHB", 7).unwrap() {
            let Ok(Request { body: Body::PushBatch { jobs, .. }, .. }) = decode(&piece) else {
                panic!("it is a push")
            };
            for job in jobs {
                let trace = job.trace.unwrap();
                let is_outer = trace.parent.text() == *outer.as_bytes();
                assert_eq!((is_outer, trace.state == "a=1"), (place % 3 != own, place % 3 != own));
                place += 1;
            }
        }
        assert_eq!(place, 2 * PIECE_ITEMS);
    }
    let wrong = format!(r#"{{"cmd":"PUSHB","queue":"q","traceparent":"junk","jobs":[{jobs}]}}"#);
    let error = cut(&packed(&wrong), "PUSHB", 7).unwrap_err().to_string();
    assert!(error.starts_with("traceparent must be 00-"), "{error}");
}

#[test]
fn pieces_of_a_request_are_together_what_it_is() {
    let jobs = |count: usize| {
        let job = |n| format!(r#"{{"data":{{"n":[{n},{{}}]}},"priority":{}}}"#, n % 7);
        (0..count).map(job).collect::<Vec<_>>().join(",")
    };
    for count in [0, 1, PIECE_ITEMS, PIECE_ITEMS + 1, 3 * PIECE_ITEMS] {
        let text =
            format!(r#"{{"reqId":7,"jobs":[{}],"cmd":"PUSHB","x":[1],"queue":"q"}}"#, jobs(count));
        let frame = packed(&text);
        let Ok(Request { body: Body::PushBatch { jobs: all, .. }, .. }) = decode(&frame) else {
            panic!("it is a push")
        };
        for steps in [1, 7, 100_000] {
            let pieces = cut(&frame, "PUSHB", steps).unwrap();
            assert_eq!(pieces.len(), count.div_ceil(PIECE_ITEMS));
            let mut data = Vec::new();
            for piece in &pieces {
                let Ok(Request { body: Body::PushBatch { queue, jobs }, .. }) = decode(piece)
                else {
                    panic!("it is one, too")
                };
                assert_eq!(queue, "q");
                data.extend(jobs.iter().map(|job| (job.data.to_vec(), job.priority)));
            }
            let expected: Vec<_> =
                all.iter().map(|job| (job.data.to_vec(), job.priority)).collect();
            assert_eq!(data, expected);
        }
    }
    let count = 2 * PIECE_ITEMS + 3;
    let results = (0..count).map(|n| format!("[{n}]")).collect::<Vec<_>>().join(",");
    let text = format!(
        r#"{{"cmd":"ACKB","ids":[{}],"results":[{results}],"tokens":["","x"]}}"#,
        ids(count)
    );
    let frame = packed(&text);
    let Ok(Request { body: Body::AckBatch { batch: all }, .. }) = decode(&frame) else { panic!() };
    let mut place = 0;
    for piece in cut(&frame, "ACKB", 50).unwrap() {
        let Ok(Request { body: Body::AckBatch { batch }, .. }) = decode(&piece) else { panic!() };
        for ack in batch.acks() {
            let whole = all.acks().nth(place).unwrap();
            assert_eq!((ack.job, ack.token), (whole.job, whole.token));
            assert_eq!(ack.result, whole.result);
            place += 1;
        }
    }
    assert_eq!(place, count);
}

#[test]
fn a_piece_is_no_longer_than_one_item_more_than_it_may_be() {
    let data = "x".repeat(PIECE_BYTES / 4);
    let jobs = vec![format!(r#"{{"data":"{data}"}}"#); 10].join(",");
    let frame = packed(&format!(r#"{{"cmd":"PUSHB","queue":"q","jobs":[{jobs}]}}"#));
    let pieces = cut(&frame, "PUSHB", 1000).unwrap();
    assert_eq!(pieces.len(), 3);
    assert!(pieces.iter().all(|piece| piece.len() < PIECE_BYTES * 3 / 2));
}

#[test]
fn what_is_wrong_with_a_request_is_told_as_of_one_that_is_read_at_once() {
    let good = vec![r#"{"data":1}"#; PIECE_ITEMS + 1].join(",");
    let many = vec!["1"; BATCH_MAX as usize + 1].join(",");
    let long = "x".repeat(IGNORED_BYTES_MAX + 1);
    for text in [
        format!(r#"{{"cmd":"PUSHB","queue":"q","jobs":[{good},{{"data":1,"priority":"x"}}]}}"#),
        format!(r#"{{"cmd":"PUSHB","queue":"q","jobs":[{good},7]}}"#),
        format!(r#"{{"cmd":"PUSHB","queue":"q","jobs":[{many}]}}"#),
        format!(r#"{{"cmd":"PUSHB","queue":"q","jobs":"{long}"}}"#),
        format!(r#"{{"cmd":"PUSHB","queue":"{long}","jobs":[{good}]}}"#),
        format!(r#"{{"cmd":"PUSHB","queue":[{many}],"jobs":[{good}]}}"#),
        format!(r#"{{"cmd":"PUSHB","queue":"q q","jobs":[{good}]}}"#),
        format!(r#"{{"cmd":"PUSHB","jobs":[{good}]}}"#),
        r#"{"cmd":"PUSHB","queue":"q"}"#.to_owned(),
        format!(r#"{{"cmd":"PUSHB","queue":"q","jobs":[{good}],"jobs":[]}}"#),
        format!(r#"{{"cmd":"PUSHB","queue":"q","jobs":[{good}],"y":"{long}"}}"#),
        format!(r#"{{"cmd":"PUSHB","reqId":"{long}","queue":"q","jobs":[{good}]}}"#),
    ] {
        let frame = packed(&text);
        let expected = decode(&frame).unwrap_err().error;
        for steps in [1, 1_000_000] {
            assert_eq!(cut(&frame, "PUSHB", steps).unwrap_err(), expected);
        }
    }
    let ids = ids(PIECE_ITEMS + 2);
    for (op, rest) in [
        ("ACKB", r#""results":[1]"#.to_owned()),
        ("ACKB", r#""removeOnCompletes":[true]"#.to_owned()),
        ("ACKB", format!(r#""results":[{ids},1,{ids},1]"#)),
        ("ACKB", r#""results":[1],"tokens":[1]"#.to_owned()),
        ("ACKB", format!(r#""tokens":[{ids},""]"#)),
        ("ACKB", format!(r#""removeOnCompletes":[{many}]"#)),
        ("ExtendLocks", r#""durations":[1]"#.to_owned()),
        ("JobHeartbeatB", r#""tokens":["",1]"#.to_owned()),
    ] {
        let frame = packed(&format!(r#"{{"cmd":"{op}","ids":[{ids}],{rest}}}"#));
        assert_eq!(cut(&frame, op, 64).unwrap_err(), decode(&frame).unwrap_err().error);
    }
    for (bytes, op) in [
        (&b"\x83\xa3cmd\xa5PUSHB\xa4jobs\xdc\x00\x03\xc0"[..], "PUSHB"),
        (b"\x82\xa3cmd\xa5PUSHB\xa4jobs\x92\x81\xa4data", "PUSHB"),
        (b"\x82\xa3cmd\xa4ACKB\xa3ids\x91\xa1a\xc0", "ACKB"),
        (b"\x82\xa3cmd\xa4ACKB\xa3ids\x91\xa1\xff", "ACKB"),
    ] {
        let told = cut(bytes, op, 1).unwrap_err();
        assert_eq!(told, decode(bytes).unwrap_err().error);
    }
}

/// The fear: a frame that is refused, and whose rest is gone over in one go for its `reqId` or for what is around its lists.
#[test]
fn what_is_behind_the_first_wrong_thing_costs_nothing_but_a_search_in_slices() {
    let entries = |entry: &[u8], count: u32| {
        let mut frame = vec![0xdf];
        frame.extend_from_slice(&(count + 3).to_be_bytes());
        frame.extend_from_slice(b"\xa3cmd\xa5PUSHB\xa5queue\xa1q");
        for _ in 0..count {
            frame.extend_from_slice(entry);
        }
        frame.extend_from_slice(b"\xa5reqId\x07");
        frame
    };
    for entry in [&b"\xa1a\x01"[..], b"\xa5queue\xa1q", b"\xa4jobs\x90", b"\xa1\xff\x01"] {
        let frame = entries(entry, 200_000);
        let mut walk = Walk::new(CommandSpec::find(b"PUSHB").unwrap());
        let mut steps = usize::MAX;
        let walked = walk.go_on(&frame, &mut steps);
        let looked_at = usize::MAX - steps;
        assert!(looked_at <= 2 * (IGNORED_BYTES_MAX + 4), "{looked_at} values of {entry:?}");
        let expected = decode(&frame).unwrap_err();
        let error = match walked {
            Err(error) => error,
            Ok(ended) => {
                assert!(ended);
                let around = walk.around();
                assert!(around.len() <= 4 * IGNORED_BYTES_MAX, "{} bytes", around.len());
                decode(around).unwrap_err().error
            }
        };
        assert_eq!(error, expected.error, "{entry:?}");
        for slice in [1, 1000, usize::MAX] {
            let (mut search, mut looks) = (ReqIdSearch::default(), 0);
            while !search.go_on(&frame, &mut slice.clone()) {
                looks += 1;
            }
            assert_eq!(search.req_id(&frame), expected.req_id, "{entry:?}");
            assert!(slice > 1 || looks >= 200_000);
        }
    }
}

#[test]
fn a_search_in_slices_finds_the_request_id_that_a_search_at_once_finds() {
    for text in [
        r#"{"cmd":"PUSHB","jobs":[[1,{"reqId":3}],2],"reqId":"x"}"#,
        r#"{"reqId":null,"a":[],"reqId":{"b":[1,2]},"reqId":2}"#,
        r#"{"cmd":"PUSHB","jobs":[]}"#,
        "[1,2]",
    ] {
        let frame = packed(text);
        for cut in 0..=frame.len() {
            let frame = &frame[..cut];
            let mut search = ReqIdSearch::default();
            while !search.go_on(frame, &mut 1) {}
            assert_eq!(search.req_id(frame), find_req_id(frame), "{text} cut at {cut}");
        }
    }
    let key = b"\x82\x92\x01\xa5reqId\x05\xa5reqId\x06";
    assert_eq!(find_req_id(key), Some(&b"\x06"[..]));
    let mut search = ReqIdSearch::default();
    while !search.go_on(key, &mut 1) {}
    assert_eq!(search.req_id(key), find_req_id(key));
}
