//! Does the generator see what it claims to see? A small server that behaves, and the same one
//! losing a job, delivering one twice, inventing one or refusing a command: the first run must
//! be clean, every other must end with exit code 1 and say why.
#![allow(clippy::unwrap_used)]

use std::collections::{HashMap, VecDeque};
use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::thread;

use rmpv::Value;

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    Lose,
    Double,
    Invent,
    Refuse,
}

#[derive(Default)]
struct State {
    queues: HashMap<String, VecDeque<(u64, Value)>>,
    next: u64,
    faults_done: u32,
}

fn serve(fault: Fault) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let state = Arc::new(Mutex::new(State::default()));
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let state = state.clone();
            thread::spawn(move || answer_all(socket, &state, fault));
        }
    });
    port
}

fn answer_all(socket: TcpStream, state: &Mutex<State>, fault: Fault) {
    let mut output = socket.try_clone().unwrap();
    let mut input = BufReader::new(socket);
    let mut head = [0; 4];
    while input.read_exact(&mut head).is_ok() {
        let mut body = vec![0; u32::from_be_bytes(head) as usize];
        input.read_exact(&mut body).unwrap();
        let request = rmpv::decode::read_value(&mut &body[..]).unwrap();
        let reply = answer(&mut state.lock().unwrap(), &request, fault);
        let mut frame = vec![0; 4];
        rmpv::encode::write_value(&mut frame, &reply).unwrap();
        let length = (frame.len() - 4) as u32;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        if output.write_all(&frame).is_err() {
            return;
        }
    }
}

fn field<'a>(request: &'a Value, key: &str) -> &'a Value {
    let found = request.as_map().unwrap().iter().find(|(name, _)| name.as_str() == Some(key));
    found.map_or(&Value::Nil, |(_, value)| value)
}

fn answer(state: &mut State, request: &Value, fault: Fault) -> Value {
    let queue = field(request, "queue").as_str().unwrap_or_default().to_owned();
    let mut reply: Vec<(Value, Value)> = Vec::new();
    let mut ok = true;
    let mut put = |key: &str, value: Value| reply.push((key.into(), value));
    match field(request, "cmd").as_str().unwrap() {
        "PUSH" => put("id", push(state, &queue, field(request, "data"), fault)),
        "PUSHB" => {
            let jobs = field(request, "jobs").as_array().unwrap();
            let ids = jobs.iter().map(|job| push(state, &queue, field(job, "data"), fault));
            put("ids", Value::Array(ids.collect()));
        }
        "PULLB" => {
            let count = field(request, "count").as_u64().unwrap() as usize;
            let waiting = state.queues.entry(queue).or_default();
            let taken: Vec<_> = waiting.drain(..count.min(waiting.len())).collect();
            let tokens = taken.iter().map(|_| "token".into()).collect();
            put("tokens", Value::Array(tokens));
            put("jobs", Value::Array(taken.into_iter().map(record).collect()));
        }
        "PULL" => {
            let job = state.queues.entry(queue).or_default().pop_front();
            put("token", "token".into());
            put("job", job.map_or(Value::Nil, record));
        }
        "ACK" if fault == Fault::Refuse && state.faults_done == 0 => {
            state.faults_done = 1;
            ok = false;
            put("error", "Job not found or not active".into());
        }
        "Count" => put("count", state.queues.get(&queue).map_or(0, VecDeque::len).into()),
        "Hello" => put("server", "fake".into()),
        _ => {}
    }
    reply.push(("reqId".into(), field(request, "reqId").clone()));
    reply.push(("ok".into(), ok.into()));
    Value::Map(reply)
}

fn push(state: &mut State, queue: &str, data: &Value, fault: Fault) -> Value {
    let id = state.next;
    state.next += 1;
    let waiting = state.queues.entry(queue.to_owned()).or_default();
    let mut data = data.clone();
    if id == 50 && fault == Fault::Invent {
        data = Value::Map(vec![("s".into(), 4_000_000.into())]);
    }
    if id != 50 || fault != Fault::Lose {
        waiting.push_back((id, data.clone()));
    }
    if id == 50 && fault == Fault::Double {
        waiting.push_back((id, data));
    }
    format!("job-{id}").into()
}

fn record((id, data): (u64, Value)) -> Value {
    Value::Map(vec![
        ("timeline".into(), Value::Array(vec![Value::Map(vec![("at".into(), 1.5.into())])])),
        ("data".into(), data),
        ("id".into(), format!("job-{id}").into()),
        ("ttl".into(), Value::Nil),
    ])
}

fn bench(fault: Fault, arguments: &[&str]) -> Output {
    bench_at(serve(fault), arguments)
}

fn bench_at(port: u16, arguments: &[&str]) -> Output {
    let port = port.to_string();
    Command::new(env!("CARGO_BIN_EXE_corq-bench"))
        .args(arguments)
        .args(["--port", &port, "--patience", "1"])
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn every_workload_is_clean_against_a_server_that_behaves() {
    for arguments in [
        &["push", "--jobs", "500", "--window", "7"][..],
        &["push-batch", "--jobs", "1005", "--batch", "10"],
        &["worker", "--jobs", "500", "--spread"],
        &["worker", "--jobs", "100", "--prefill", "300", "--owner", "false"],
        &["drain", "--jobs", "1003", "--batch", "20", "--queues", "7", "--connections", "3"],
        &["mixed", "--jobs", "500", "--connections", "5", "--queues", "3"],
        &["mixed", "--jobs", "500", "--batch", "10"],
        &["open", "--jobs", "200", "--rate", "2000"],
        &["push", "--jobs", "100", "--connections", "2", "--queues", "9"],
    ] {
        let output = bench(Fault::None, arguments);
        assert!(output.status.success(), "{arguments:?}\n{}", text(&output));
        assert!(text(&output).contains("verified"), "{arguments:?}\n{}", text(&output));
    }
}

#[test]
fn a_lost_job_is_seen() {
    for arguments in [
        &["worker", "--jobs", "500"][..],
        &["drain", "--jobs", "500"],
        &["mixed", "--jobs", "500"],
        &["push", "--jobs", "500"],
    ] {
        let output = bench(Fault::Lose, arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}\n{}", text(&output));
        assert!(text(&output).contains("PROBLEM"), "{arguments:?}\n{}", text(&output));
    }
}

#[test]
fn a_job_delivered_twice_is_seen() {
    // All of the queue must be drained for the double to come up.
    let output = bench(Fault::Double, &["mixed", "--jobs", "500"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("PROBLEM"), "{}", text(&output));
}

#[test]
fn a_job_that_nobody_pushed_is_seen() {
    let output = bench(Fault::Invent, &["worker", "--jobs", "500"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("nobody pushed"), "{}", text(&output));
}

#[test]
fn a_refused_command_is_counted_and_its_text_is_shown() {
    let output = bench(Fault::Refuse, &["worker", "--jobs", "500"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("1 errors, the first: Job not found"), "{}", text(&output));
}

#[test]
fn what_an_earlier_run_left_is_taken_and_what_it_lacks_is_seen() {
    let leave = ["push-batch", "--jobs", "500", "--queue-prefix", "left", "--keep"];
    let take = ["drain", "--resume", "--queue-prefix", "left"];
    let server = serve(Fault::None);
    assert!(bench_at(server, &leave).status.success());
    let output = bench_at(server, &take);
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("500 jobs, each received exactly once"), "{}", text(&output));

    let server = serve(Fault::Lose);
    bench_at(server, &leave);
    let output = bench_at(server, &[&take[..], &["--jobs", "500"]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("499 of 500 jobs wait"), "{}", text(&output));
    let output = bench_at(server, &take);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("nobody pushed"), "{}", text(&output));
}

/// A server of events that tells each listener of three, and then goes on or ends.
fn tell(ends: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut open = Vec::new();
        for mut socket in listener.incoming().flatten() {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                socket.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            assert!(request.starts_with(b"GET /events HTTP/1.1\r\n"));
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
            let messages = "data: {\"connected\":true}\n\n: still here\n\n".to_owned()
                + &"data: {\"data\":1}\n\n".repeat(3);
            socket.write_all((head.to_owned() + &messages).as_bytes()).unwrap();
            open.extend((!ends).then_some(socket));
        }
    });
    port.to_string()
}

#[test]
fn listeners_count_every_event_they_hear() {
    let arguments = ["push", "--jobs", "500", "--json", "--listeners", "4", "--http-port"];
    let output = bench(Fault::None, &[&arguments[..], &[&tell(false)]].concat());
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("\"count\":4,"), "{}", text(&output));
    assert!(text(&output).contains("\"events\":12}"), "{}", text(&output));
}

#[test]
fn a_stream_of_events_that_ends_early_is_seen() {
    let arguments = ["push", "--jobs", "5000", "--window", "1", "--listeners", "2", "--http-port"];
    let output = bench(Fault::None, &[&arguments[..], &[&tell(true)]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("2 streams of events ended early"), "{}", text(&output));
}
