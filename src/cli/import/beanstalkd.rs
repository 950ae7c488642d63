//! beanstalkd, which has no command that lists: jobs are reserved, pushed, and deleted once the server has them. So nothing can be
//! moved without removing it; without `--remove` the jobs of a tube are counted, and one of each state is looked at.

use super::model::{Death, ForeignJob, Mark, State, payload, queue_name};
use super::place::{Stream, Url};
use super::sink::Sink;
use crate::cli::failure::Failure;

const PORT: u16 = 11_300;
/// Jobs that are held before they are pushed.
const HELD_MAX: usize = 100;
/// The priority of what is urgent, and of a job of a client that does not say.
const PRIORITY_USUAL: i64 = 1024;
/// Time to live of a reservation below which a job may go back to its tube while it is held, seconds.
const TTR_SHORT: i64 = 5;

/// A connection to a server.
#[derive(Debug)]
pub struct Beanstalkd {
    stream: Stream,
    /// Name that the server gives itself, a new one at each of its starts, at which ids begin anew as well.
    instance: String,
    /// Whether it knows `reserve-job`.
    reserves_by_id: bool,
}

/// A job of the server.
struct Found {
    id: String,
    body: Vec<u8>,
}

impl Beanstalkd {
    pub fn open(text: &str) -> Result<Self, Failure> {
        let url = Url::parse(text, &["tcp", "beanstalk", "tcp+unix"])?;
        let stream = Stream::open(&url, PORT, false, None)?;
        let mut server = Self { stream, instance: String::new(), reserves_by_id: true };
        let stats = server.dictionary("stats")?.unwrap_or_default();
        of(&stats, "id").unwrap_or("server").trim_matches('"').clone_into(&mut server.instance);
        Ok(server)
    }

    /// A command and the first line of its answer.
    fn ask(&mut self, line: &str) -> Result<String, Failure> {
        self.stream.send(format!("{line}\r\n").as_bytes())?;
        let answer = self.stream.line()?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// The body that an answer such as `OK 12` announces in its last word.
    fn body(&mut self, answer: &str) -> Result<Vec<u8>, Failure> {
        let length = answer.rsplit(' ').next().and_then(|word| word.parse().ok());
        let length = length
            .ok_or_else(|| self.stream.lost("it does not speak the protocol of beanstalkd"))?;
        self.stream.value(length)
    }

    /// The lines of a dictionary or a list; `None` if there is none.
    fn dictionary(&mut self, line: &str) -> Result<Option<Vec<String>>, Failure> {
        let answer = self.ask(line)?;
        if !answer.starts_with("OK ") {
            return Ok(None);
        }
        let body = self.body(&answer)?;
        let text = String::from_utf8_lossy(&body).into_owned();
        Ok(Some(text.lines().skip(1).map(str::to_owned).collect()))
    }

    /// A job that a command gives.
    fn job(&mut self, line: &str) -> Result<Option<Found>, Failure> {
        let answer = self.ask(line)?;
        if !answer.starts_with("RESERVED ") && !answer.starts_with("FOUND ") {
            return Ok(None);
        }
        let id = answer.split(' ').nth(1).unwrap_or_default().to_owned();
        Ok(Some(Found { id, body: self.body(&answer)? }))
    }

    pub fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), Failure> {
        let tubes = self.dictionary("list-tubes")?.unwrap_or_default();
        for tube in
            tubes.iter().map(|line| line.trim_start_matches("- ").trim_matches('"').to_owned())
        {
            if !sink.options.takes_queue(&tube) {
                continue;
            }
            if sink.options.remove {
                self.move_tube(&tube, sink)?;
            } else {
                self.count(&tube, sink)?;
            }
        }
        Ok(())
    }

    fn count(&mut self, tube: &str, sink: &mut Sink<'_>) -> Result<(), Failure> {
        let stats = self.dictionary(&format!("stats-tube {tube}"))?.unwrap_or_default();
        self.ask(&format!("use {tube}"))?;
        for (name, peek, state) in [
            ("current-jobs-ready", "peek-ready", State::Waiting),
            ("current-jobs-delayed", "peek-delayed", State::Delayed),
            ("current-jobs-buried", "peek-buried", State::Dead),
            ("current-jobs-reserved", "", State::Active),
        ] {
            let count: u64 = of(&stats, name).and_then(|text| text.parse().ok()).unwrap_or(0);
            for _ in 0..count {
                sink.report.read(state);
                sink.report.left(state);
            }
            if count > 0 && !peek.is_empty() {
                if let Some(found) = self.job(peek)? {
                    let stats =
                        self.dictionary(&format!("stats-job {}", found.id))?.unwrap_or_default();
                    // A single job, for the report of its fields.
                    self.map(tube, &found, &stats, state, sink);
                }
                sink.report.dropped(
                    "jobs of a tube",
                    "only counted: this protocol gives them with --remove",
                    tube,
                );
            }
        }
        Ok(())
    }

    fn move_tube(&mut self, tube: &str, sink: &mut Sink<'_>) -> Result<(), Failure> {
        self.ask(&format!("watch {tube}"))?;
        if tube != "default" {
            self.ask("ignore default")?;
        }
        self.ask(&format!("use {tube}"))?;
        for (command, state) in [
            ("reserve-with-timeout 0", State::Waiting),
            ("peek-delayed", State::Delayed),
            ("peek-buried", State::Dead),
        ] {
            if sink.takes(state) {
                self.move_state(tube, command, state, sink)?;
            }
        }
        if tube != "default" {
            self.ask("watch default")?;
            self.ask(&format!("ignore {tube}"))?;
        }
        Ok(())
    }

    fn move_state(
        &mut self,
        tube: &str,
        command: &str,
        state: State,
        sink: &mut Sink<'_>,
    ) -> Result<(), Failure> {
        loop {
            let (mut held, mut ended) = (0, false);
            while held < HELD_MAX {
                let Some(found) = self.job(command)? else {
                    ended = true;
                    break;
                };
                held += 1;
                // Of a job that is held, these are still those of its state before.
                let stats =
                    self.dictionary(&format!("stats-job {}", found.id))?.unwrap_or_default();
                let job = self.map(tube, &found, &stats, state, sink);
                let is_short = of(&stats, "ttr")
                    .and_then(|ttr| ttr.parse::<i64>().ok())
                    .is_some_and(|ttr| ttr < TTR_SHORT);
                let holds = state == State::Waiting || self.hold(&found.id)?;
                sink.job(job)?;
                // A job that is only looked at stays the first until it is deleted.
                if !holds || is_short {
                    break;
                }
            }
            let refused = sink.report.refusals();
            let marks = sink.settle()?;
            let moved = marks.len();
            for mark in marks {
                let id = String::from_utf8_lossy(&mark.member).into_owned();
                let answer = self.ask(&format!("delete {id}"))?;
                sink.report.removed(answer == "DELETED");
            }
            // Jobs that were refused are given back when the connection ends.
            let stuck = moved == 0
                && held > 0
                && sink.report.refusals() > refused
                && state != State::Waiting
                && !self.reserves_by_id;
            if ended || stuck {
                return Ok(());
            }
        }
    }

    /// Takes a delayed or buried job out of the sight of others, so that the next one can be looked at.
    fn hold(&mut self, id: &str) -> Result<bool, Failure> {
        if !self.reserves_by_id {
            return Ok(false);
        }
        let held = self.ask(&format!("reserve-job {id}"))?;
        if held.starts_with("RESERVED ") {
            self.body(&held)?;
            return Ok(true);
        }
        self.reserves_by_id = held != "UNKNOWN_COMMAND";
        Ok(false)
    }

    fn map(
        &self,
        tube: &str,
        found: &Found,
        stats: &[String],
        state: State,
        sink: &mut Sink<'_>,
    ) -> ForeignJob {
        let Found { id, body } = found;
        let number = |name: &str| of(stats, name).and_then(|text| text.parse::<i64>().ok());
        let mut job = ForeignJob::new(&queue_name(tube), format!("{}:{id}", self.instance), state);
        job.fields.raw("data", &payload(body));
        sink.report.carried("body (JSON, else text, else bytes)", "data", id);
        let now_ms = crate::cli::output::Output::now_ms();
        job.created_ms = number("age").map(|age| now_ms - age * 1000);
        let priority = number("pri").unwrap_or(PRIORITY_USUAL);
        if priority != PRIORITY_USUAL {
            job.fields
                .integer("priority", (PRIORITY_USUAL - priority).clamp(-1_000_000, 1_000_000));
            sink.report.carried("pri", "priority: 1024 less pri", id);
        }
        if let Some(ttr) = number("ttr") {
            job.fields.integer("timeout", (ttr * 1000).clamp(0, 86_400_000));
            sink.report.carried("ttr", "timeout", id);
        }
        if state == State::Delayed {
            job.run_at_ms = Some(now_ms + number("time-left").unwrap_or(0) * 1000);
            sink.report.carried("delay (time-left)", "delay", id);
        }
        if state == State::Dead {
            let attempts = number("reserves").unwrap_or(0);
            job.death = Some(Death {
                error: "buried in beanstalkd".to_owned(),
                reason: "unknown",
                attempts,
            });
            sink.report.carried("buried", "dead letter", id);
        }
        for name in ["releases", "timeouts"] {
            if number(name).is_some_and(|count| count > 0) {
                sink.report.dropped(
                    name,
                    "workers of beanstalkd decide themselves how often a job is tried",
                    id,
                );
            }
        }
        job.mark = Mark { member: id.clone().into_bytes(), ..Mark::default() };
        job
    }
}

/// The value of a line of a dictionary.
fn of<'a>(lines: &'a [String], name: &str) -> Option<&'a str> {
    lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
}
