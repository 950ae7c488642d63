//! A load client for servers that do not speak corq's protocol, driven by lines of JSON: a command
//! comes in, `{"ready":true}` goes out, and at the line `go` the work begins; its outcome is one
//! line. The driver reads the server's CPU time before and after the work.
//!
//! ```text
//! {"do":"push","jobs":1000,"window":50,"batch":1}
//! {"do":"take","jobs":1000,"window":25,"batch":1}     the jobs must be there
//! {"do":"open","jobs":5000,"rate":1000.0}             on connections and queues of its own
//! {"do":"left"}                                       how many jobs the queues hold
//! ```

mod amqp;
mod beanstalkd;
mod connection;
mod driver;
mod nats;
mod payload;
mod postgres;
mod protocol;
mod redis;
mod seen;

use std::io::{BufRead, Write};
use std::num::NonZeroU64;
use std::process::ExitCode;
use std::time::Instant;

use serde_json::{Value, json};

use connection::Connection;
use driver::{Driver, Outcome, Plan};
use protocol::{Lane, Protocol};
use seen::Seen;

/// Connections of the closed loops, each with a queue of its own.
const CONNECTIONS: usize = 4;

struct Client {
    protocol: String,
    port: u16,
    payload_bytes: usize,
    born: Instant,
    seen: Seen,
    driver: Driver,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [protocol, port, payload_bytes] = words.as_slice() else {
        eprintln!("usage: rivals-client <protocol> <port> <payload bytes>");
        return ExitCode::FAILURE;
    };
    match serve(protocol, port, payload_bytes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&json!({ "error": error }));
            ExitCode::FAILURE
        }
    }
}

fn serve(protocol: &str, port: &str, payload_bytes: &str) -> Result<(), String> {
    let port = port.parse().map_err(|_| "the port must be a number")?;
    let payload_bytes: usize = payload_bytes.parse().map_err(|_| "bytes must be a number")?;
    if !(payload::BYTES_MIN..=1 << 20).contains(&payload_bytes) {
        return Err(format!("payloads must be of {} to 1048576 bytes", payload::BYTES_MIN));
    }
    // A due time in an open loop is a few microseconds; the usual slack of a timer is fifty.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1)).map_err(|e| e.to_string())?;
    let born = Instant::now();
    let mut client = Client {
        protocol: protocol.to_owned(),
        port,
        payload_bytes,
        born,
        seen: Seen::default(),
        driver: Driver::new(payload_bytes, born)?,
    };
    for index in 0..CONNECTIONS {
        let lane = Lane { queue: index, waking: false };
        let connection = client.connect(lane, index)?;
        client.driver.add(connection, &mut client.seen)?;
    }
    say(&json!({ "connected": CONNECTIONS }));
    let mut lines = std::io::stdin().lock().lines();
    while let Some(line) = lines.next() {
        let line = line.map_err(|error| error.to_string())?;
        let command: Value = serde_json::from_str(&line).map_err(|error| error.to_string())?;
        let outcome = client.command(&command, || {
            say(&json!({ "ready": true }));
            match lines.next() {
                Some(Ok(line)) if line == "go" => Ok(()),
                _ => Err("expected the line go".to_owned()),
            }
        })?;
        say(&outcome);
    }
    Ok(())
}

fn say(value: &Value) {
    let mut out = std::io::stdout().lock();
    // If this fails, the driver is gone; the end of its input follows.
    let _ = writeln!(out, "{value}").and_then(|()| out.flush());
}

impl Client {
    fn connect(&self, lane: Lane, index: usize) -> Result<Connection, String> {
        let protocol: Box<dyn Protocol> = match self.protocol.as_str() {
            "beanstalkd" => Box::new(beanstalkd::Beanstalkd::new(lane)),
            "redis" => Box::new(redis::Redis::new(lane)),
            "nats" => Box::new(nats::Nats::new(lane, index)),
            "amqp" => Box::new(amqp::Amqp::new(lane)),
            "postgres" => Box::new(postgres::Postgres::new(lane)),
            other => return Err(format!("no protocol {other}")),
        };
        Connection::new(self.port, protocol)
    }

    fn command(
        &mut self,
        command: &Value,
        go: impl FnOnce() -> Result<(), String>,
    ) -> Result<Value, String> {
        let number = |key: &str, default| command[key].as_u64().unwrap_or(default);
        let jobs = number("jobs", 0);
        let mut plan = Plan {
            batch: number("batch", 1).max(1) as u32,
            window: number("window", 1).max(1) as u32,
            rate: None,
        };
        match command["do"].as_str().unwrap_or_default() {
            "push" => {
                go()?;
                let outcome = self.driver.push(jobs, plan, &mut self.seen)?;
                Ok(self.report(outcome.pushed, jobs, &outcome))
            }
            "take" => {
                go()?;
                let outcome = self.driver.take(jobs, plan, &mut self.seen)?;
                Ok(self.report(outcome.received.min(outcome.acked), jobs, &outcome))
            }
            "open" => {
                plan.rate = command["rate"].as_f64();
                let mut driver = Driver::new(self.payload_bytes, self.born)?;
                for index in 0..CONNECTIONS {
                    let queue = CONNECTIONS + index % (CONNECTIONS / 2);
                    let lane = Lane { queue, waking: true };
                    let connection = self.connect(lane, CONNECTIONS + index)?;
                    driver.add(connection, &mut self.seen)?;
                }
                go()?;
                let outcome = driver.open(jobs, plan, &mut self.seen)?;
                Ok(self.report(outcome.received.min(outcome.acked), jobs, &outcome))
            }
            "left" => {
                let left = self.driver.left(&mut self.seen)?;
                Ok(json!({ "left": left, "missing": self.seen.missing() }))
            }
            other => Err(format!("no command {other}")),
        }
    }

    fn report(&self, done: u64, asked: u64, outcome: &Outcome) -> Value {
        let mut problems = self.seen.problems();
        if done != asked {
            problems.push(format!("{done} of {asked} jobs were done"));
        }
        let receipt = &outcome.receipt;
        let us = |quantile| receipt.value_at_quantile(quantile) as f64 / 1e3;
        let latency = (!receipt.is_empty())
            .then(|| json!({ "p50": us(0.5), "p99": us(0.99), "max": receipt.max() as f64 / 1e3 }));
        json!({
            "jobs": done,
            "seconds": outcome.seconds,
            "receipt_us": latency,
            "problems": problems,
        })
    }
}
