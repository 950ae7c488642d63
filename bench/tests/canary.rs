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
use std::time::Duration;

use rmpv::Value;

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    Lose,
    Double,
    Invent,
    Refuse,
    End,
    Stall,
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
        if fault == Fault::End && field(&request, "cmd").as_str() == Some("ACK") {
            return;
        }
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
        "ListQueues" => {
            let names = state.queues.keys().map(|name| {
                Value::Map(vec![
                    ("name".into(), name.as_str().into()),
                    ("waiting".into(), 1.into()),
                ])
            });
            put("queues", Value::Array(names.collect()));
        }
        "Obliterate" => drop(state.queues.remove(&queue)),
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
    if id == 50 && fault == Fault::Stall {
        thread::sleep(Duration::from_secs(1));
    }
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
    program().args(arguments).args(["--port", &port, "--patience", "1"]).output().unwrap()
}

/// The program, without the variables of this process.
fn program() -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_corq-bench"));
    for name in ["HOST", "PORT", "SOCKET", "HTTP_PORT", "HTTP_SOCKET", "TLS", "TOKEN"] {
        program.env_remove(format!("CORQ_{name}"));
    }
    program
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
        &["push", "--jobs", "100", "--connections", "2", "--queues", "9"],
    ] {
        let output = bench(Fault::None, arguments);
        assert!(output.status.success(), "{arguments:?}\n{}", text(&output));
        assert!(text(&output).contains("verified"), "{arguments:?}\n{}", text(&output));
    }
}

#[test]
fn an_open_loop_receives_every_job_however_late() {
    // A machine may stand still, so that the rate is missed.
    for (jobs, batch) in [("200", &[][..]), ("205", &["--batch", "10"])] {
        let arguments = [&["open", "--jobs", jobs, "--rate", "2000"], batch].concat();
        let (output, said) =
            (bench(Fault::None, &arguments), format!("{jobs} jobs, each received exactly once"));
        assert!(text(&output).contains(&said), "{}", text(&output));
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
    let output = bench_at(server, &[&take[..], &["--jobs", "500", "--keep"]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("499 of 500 jobs wait"), "{}", text(&output));
    let output = bench_at(server, &take);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("nobody pushed"), "{}", text(&output));
}

#[test]
fn a_job_that_time_left_behind_is_looked_for() {
    let output = bench(Fault::None, &["worker", "--seconds", "0.2"]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("each received exactly once"), "{}", text(&output));
    let output = bench(Fault::Lose, &["worker", "--seconds", "0.2"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("neither came nor wait"), "{}", text(&output));
}

#[test]
fn a_prefix_whose_queues_exist_is_refused_unless_told_to_go_on() {
    let server = serve(Fault::None);
    let orders = ["push", "--jobs", "100", "--queue-prefix", "orders"];
    assert!(bench_at(server, &[&orders[..], &["--keep"]].concat()).status.success());
    let output = bench_at(server, &orders);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("the queue orders-0 exists"), "{}", text(&output));
    assert!(text(&output).contains("--use-existing"), "{}", text(&output));
    // Neither counted nor removed: the jobs of others are all there.
    let take = ["drain", "--resume", "--jobs", "100", "--queue-prefix", "orders", "--keep"];
    let output = bench_at(server, &take);
    assert!(output.status.success(), "{}", text(&output));
    let output = bench_at(server, &[&orders[..], &["--use-existing"]].concat());
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn a_server_that_ends_is_named_with_the_command_that_it_left_and_figures_are_printed() {
    let output = bench(Fault::End, &["mixed", "--jobs", "500", "--window", "1"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let closed = "the server closed the connection at ACK";
    assert!(text(&output).contains(closed), "{}", text(&output));
    assert!(text(&output).contains("jobs/s"), "{}", text(&output));

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || listener.incoming().flatten().for_each(drop));
    let output = bench_at(port, &["push"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let closed = "the server closed the connection at Hello";
    assert!(text(&output).contains(closed), "{}", text(&output));
}

#[test]
fn a_missed_rate_is_a_failure_that_prints_its_figures() {
    let port = serve(Fault::Stall).to_string();
    let open = ["open", "--jobs", "200", "--rate", "2000", "--json", "--port", &port];
    let output = program().args(open).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["jobs"], 200);
    let missed = report["rate_missed"].as_str().unwrap();
    assert!(missed.starts_with("the server reached "), "{missed}");
    assert!(missed.contains(" of 2000 jobs/s: ") && missed.ends_with("lower --rate"), "{missed}");
    assert_eq!(report["problems"], serde_json::json!([missed]));
}

#[test]
fn a_workload_has_its_own_options_only() {
    let help = |workload: &str| text(&program().args([workload, "--help"]).output().unwrap());
    for (option, of) in [("--rate", "open"), ("--resume", "drain"), ("--batch", "push-batch")] {
        assert!(help(of).contains(option), "{option} of {of}");
        assert!(!help("push").contains(option), "{option} of push");
        let output = program().args(["push", option, "5"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{option}: {}", text(&output));
    }
    let output = program().args(["push", "--rate", "5"]).output().unwrap();
    assert!(text(&output).contains("--rate is for open, not for push"), "{}", text(&output));
    assert!(help("push").contains("[default: 50]"), "{}", help("push"));
    assert!(help("drain").contains("[default: 100]"), "{}", help("drain"));
}

#[test]
fn variables_of_the_command_line_tool_count_and_say_what_is_wrong_with_them() {
    let port = serve(Fault::None).to_string();
    let run = |variables: &[(&str, &str)], options: &[&str]| {
        let mut program = program();
        program.args(["push", "--jobs", "100"]).args(options);
        text(&program.envs(variables.iter().copied()).output().unwrap())
    };
    let good = [
        (vec![("CORQ_PORT", &*port), ("CORQ_HOST", "localhost")], vec![]),
        (vec![("CORQ_PORT", ""), ("CORQ_SOCKET", " "), ("CORQ_TLS", "")], vec!["--port", &port]),
        // Said at the command line, so that the variables do not count.
        (vec![("CORQ_SOCKET", "/absent"), ("CORQ_PORT", "1")], vec!["--port", &port]),
        (vec![("CORQ_PORT", "tcp://10.0.0.1:6789")], vec!["--port", &port]),
    ];
    for (variables, options) in good {
        let told = run(&variables, &options);
        assert!(told.contains("the queues hold all 100 jobs"), "{variables:?} {options:?}: {told}");
        assert!(!told.contains("warning"), "{variables:?} {options:?}: {told}");
    }
    let told = run(&[("CORQ_PORT", "tcp://10.0.0.1:6789"), ("CORQ_HOST", "host.invalid")], &[]);
    assert!(told.contains("CORQ_PORT is how Kubernetes announces a service"), "{told}");
    assert!(told.contains("host.invalid:6789"), "{told}");
    let told = run(&[], &["--port", &port, "--socket", "/absent"]);
    assert!(told.contains("--socket and --host or --port are two servers"), "{told}");
}

#[test]
fn the_process_of_a_server_on_this_machine_is_found() {
    let output = bench(Fault::None, &["push", "--jobs", "100", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["server_process"]["pid"], std::process::id());
    let notes = report["notes"].to_string();
    assert!(notes.contains("figures vary below 1 s"), "{notes}");
}

#[test]
fn quick_prints_a_table_with_machine_and_server() {
    let port = serve(Fault::None).to_string();
    let quick = ["quick", "--seconds", "4", "--rounds", "2", "--port", &port];
    let output = program().args(quick).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let table = text(&output);
    assert!(table.contains("| work | us | jobs/s | generator us |"), "{table}");
    let rows = ["PUSH, 1 in flight", "PULL + ACK, 25 in flight", "PUSHB 100", "PULLB + ACKB 100"];
    for row in rows {
        let line = table.lines().find(|line| line.starts_with(&format!("| {row} | ")));
        assert_eq!(line.map(|line| line.matches('–').count()), Some(3), "{row}: {table}");
    }
    assert!(table.contains("Linux ") && table.contains(" CPUs ("), "{table}");
    assert!(table.contains("fake ") && table.contains(" process "), "{table}");
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
