//! The life of a server with its data: rounds of load, each ended by a fault, each followed by a look at all of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use crate::support::{Dice, Habit, Receiver, Server, Start};
use crate::torture::audit;
use crate::torture::commands::{QUEUES, Weather};
use crate::torture::face::{Door, Kind};
use crate::torture::player::{Player, Shared, listen, ping};
use crate::torture::settle;

/// How long figures may disagree at rest. Schedules and delays go on, so they do for moments.
const PATIENCE: Duration = Duration::from_mins(5);
/// How long no command may be sent. Long, because a loaded machine is not a stuck server.
const STUCK: Duration = Duration::from_mins(10);
/// Jobs beyond which clients only work.
const JOBS_MAX: u64 = 2500;
/// Memory that no load of this size needs: with a sanitizer, and without.
const RESIDENT_MAX_MB: [u64; 2] = [1500, 250];
const CLIENTS: [Kind; 6] =
    [Kind::Tcp, Kind::Tcp, Kind::Tcp, Kind::WebSocket, Kind::WebSocket, Kind::Http];

/// The conditions of a life.
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) rounds: u64,
    /// Commands of a round.
    pub(crate) commands: u64,
    pub(crate) shards: u64,
    pub(crate) is_synced: bool,
    pub(crate) is_guarded: bool,
    pub(crate) completed_max: u64,
    /// The largest payloads; with many of these the log goes round.
    pub(crate) filler_max: u64,
}

/// Completed jobs of a queue beyond any that a life has.
const ALL: u64 = 1_000_000;

impl Plan {
    pub(crate) fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        Self {
            seed,
            rounds: if seed % 8 == 7 { 12 } else { 4 },
            commands: 1500,
            shards: 1 + seed % 3,
            is_synced: dice.roll(4) == 0,
            is_guarded: dice.roll(3) == 0,
            completed_max: [ALL, 2, 40][dice.roll(3) as usize],
            filler_max: if seed % 4 == 3 { 400_000 } else { 20_000 },
        }
    }
}

/// How a round ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// SIGKILL under load.
    Kill,
    /// SIGTERM under load.
    Stop,
    /// The load ends.
    Rest,
}

/// A server and what it has gone through.
pub(crate) struct Life {
    pub(crate) plan: Plan,
    pub(crate) server: Server,
    pub(crate) door: Door,
    pub(crate) shared: Shared,
    pub(crate) dice: Dice,
    receivers: Vec<Receiver>,
}

/// Commands and fields that are left out.
pub(crate) fn skipped() -> Vec<String> {
    let names = std::env::var("CORQ_TORTURE_SKIP").unwrap_or_default();
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn skips(name: &str) -> bool {
    skipped().iter().any(|skipped| skipped == name)
}

impl Life {
    pub(crate) fn begin(plan: Plan) -> Self {
        let token = plan.is_guarded.then(|| "let-me-in".to_owned());
        let mut start = Start::new()
            .env("SHARDS", plan.shards)
            .env("DURABILITY", if plan.is_synced { "synced" } else { "written" })
            .env("COMPLETED_MAX", plan.completed_max)
            .env("PAYLOAD_CACHE_MB", 4)
            .env("WEBHOOK_ALLOW_PRIVATE", "true")
            .env("WEBHOOK_RETRY_DELAY_MS", 20)
            .env("WEBHOOK_TIMEOUT_MS", 500)
            .env("SHUTDOWN_TIMEOUT_MS", 5000)
            .env("RUST_BACKTRACE", 1)
            // Memory that a sanitizer finds unfreed at the end is what a killed process leaves, too.
            .env("ASAN_OPTIONS", "detect_leaks=0");
        if let Some(token) = &token {
            start = start.env("AUTH_TOKENS", token);
        }
        if let Some(path) = std::env::var_os("CORQ_TORTURE_BIN").map(PathBuf::from) {
            start = start.program(&path);
        }
        eprintln!(
            "CORQ_TORTURE_SEED={} shards={} synced={} guarded={} completed_max={} filler_max={}",
            plan.seed,
            plan.shards,
            plan.is_synced,
            plan.is_guarded,
            plan.completed_max,
            plan.filler_max
        );
        let server = start.start();
        let door = Door { tcp: server.tcp, http: server.http, token };
        let shared = Shared::new();
        shared.ledger.lock().unwrap().begin(plan.completed_max);
        let receivers = [Habit::Status(200), Habit::Status(500), Habit::Close, Habit::DripBody];
        let receivers = receivers.map(Receiver::always).into();
        let dice = Dice::new(plan.seed.wrapping_mul(31) + 7);
        Self { plan, server, door, shared, dice, receivers }
    }

    /// All of it; answers how often each command was played. A finding ends the test.
    pub(crate) fn play(mut self) -> BTreeMap<&'static str, (u64, u64)> {
        match self.whole() {
            Ok(()) => self.shared.played.lock().unwrap().clone(),
            Err(finding) => {
                let file = self.write_down(&finding);
                // All of the server's output is in the file.
                panic!("CORQ_TORTURE_SEED={}: {finding:.3000}\nsee {file}", self.plan.seed);
            }
        }
    }

    fn whole(&mut self) -> Result<(), String> {
        for round in 0..self.plan.rounds {
            let fault = match round {
                0 => Fault::Kill,
                1 => Fault::Stop,
                _ => {
                    [Fault::Kill, Fault::Kill, Fault::Stop, Fault::Rest][self.dice.roll(4) as usize]
                }
            };
            self.round(fault)?;
            self.look().map_err(|text| format!("round {round}, {fault:?}: {text}"))?;
            if self.dice.roll(2) == 0 {
                // At rest, a restart changes nothing, whatever the settings.
                self.change_settings();
                self.restart(self.plan.seed % 2 == round % 2)?;
                self.look().map_err(|text| format!("round {round}, restart at rest: {text}"))?;
            }
        }
        self.finish("", settle::PATIENCE)
    }

    /// Works everything off and looks at what is left.
    pub(crate) fn finish(&mut self, forgotten: &str, patience: Duration) -> Result<(), String> {
        let mut client = self.client();
        settle::release(&mut client, forgotten);
        settle::work_off(&mut client, patience)?;
        settle::nothing_is_held(&self.door, &mut client)?;
        drop(client);
        self.restart(true)?;
        settle::work_off(&mut self.client(), patience)
    }

    fn client(&self) -> crate::support::Client {
        let mut client = self.door.client().expect("the server lets its friends in");
        // Lists and counts are compared as version 2 of the protocol has them.
        client.ok("Hello", serde_json::json!({"protocolVersion": 2}));
        client
    }

    /// Load from all clients, then the fault.
    pub(crate) fn round(&mut self, fault: Fault) -> Result<(), String> {
        let weather = self.weather();
        self.shared.ending.store(false, Ordering::SeqCst);
        self.shared.sent.store(0, Ordering::SeqCst);
        let trace_of = |what: String| self.shared.trace.note("torture", || what);
        trace_of(format!("a round begins, to end with {fault:?}"));
        let (shared, door, plan, dice) = (&self.shared, &self.door, &self.plan, &mut self.dice);
        let server = &mut self.server;
        let result = std::thread::scope(|scope| {
            for (place, kind) in CLIENTS.into_iter().enumerate() {
                let name = format!("client-{place}");
                let dice = Dice::new(dice.roll(u64::MAX));
                let player = Player { name, kind, door, shared, weather: &weather, dice };
                scope.spawn(move || player.play());
            }
            // All of these may end with an error, as the server may go under them.
            for reads in [true, false] {
                scope.spawn(move || drop(listen(door, shared, reads)));
            }
            if !skips("pings") {
                shared.pinging.store(true, Ordering::SeqCst);
                scope.spawn(move || {
                    drop(ping(door, shared));
                    shared.pinging.store(false, Ordering::SeqCst);
                });
            }
            let result = watch(server, shared, plan.commands);
            shared.ending.store(true, Ordering::SeqCst);
            match (&result, fault) {
                (Err(_), _) | (_, Fault::Rest) => {}
                (Ok(()), Fault::Kill) => server.kill(),
                (Ok(()), Fault::Stop) => {
                    let status = server.terminate();
                    if !status.success() {
                        shared.found(format!("a stop ended with {status}"));
                    }
                }
            }
            result
        });
        result?;
        if let Some(finding) = self.shared.finding.lock().unwrap().take() {
            return Err(finding);
        }
        if fault != Fault::Rest {
            if self.dice.roll(3) == 0 {
                self.change_settings();
            }
            self.start();
        }
        Ok(())
    }

    fn weather(&mut self) -> Weather {
        let wild = match self.dice.roll(4) {
            0 => QUEUES.to_vec(),
            _ => vec![QUEUES[self.dice.roll(4) as usize]],
        };
        Weather {
            wild,
            is_crowded: self.shared.ledger.lock().unwrap().count() > JOBS_MAX,
            skipped: skipped(),
            filler_max: self.plan.filler_max,
            urls: self.receivers.iter().map(Receiver::url).collect(),
            token: self.door.token.clone(),
        }
    }

    fn change_settings(&mut self) {
        let mut completed_max = [ALL, 0, 3, 40][self.dice.roll(4) as usize];
        let mut shards = 1 + self.dice.roll(3);
        if skips("COMPLETED_MAX") {
            completed_max = self.plan.completed_max;
        }
        if skips("SHARDS") {
            shards = self.plan.shards;
        }
        self.server.set("COMPLETED_MAX", completed_max);
        self.server.set("SHARDS", shards);
        let mut ledger = self.shared.ledger.lock().unwrap();
        ledger.set_completed_max(completed_max);
        self.shared.trace.note("torture", || {
            format!("the next start has COMPLETED_MAX={completed_max} SHARDS={shards}")
        });
    }

    fn restart(&mut self, by_kill: bool) -> Result<(), String> {
        self.shared.trace.note("torture", || format!("a restart at rest, by kill: {by_kill}"));
        if by_kill {
            self.server.kill();
        } else {
            let status = self.server.terminate();
            if !status.success() {
                return Err(format!("a stop at rest ended with {status}"));
            }
        }
        self.start();
        Ok(())
    }

    fn start(&mut self) {
        self.shared.known.lock().unwrap().forget_leases();
        self.server.start();
    }

    /// Compares everything at rest.
    pub(crate) fn look(&mut self) -> Result<(), String> {
        let mut client = self.client();
        let start = Instant::now();
        let listed = loop {
            match audit::agree(&mut client) {
                Ok(listed) => break listed,
                Err(text) if start.elapsed() > PATIENCE => return Err(text),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        let faults = self.shared.ledger.lock().unwrap().look(&listed);
        if !faults.is_empty() {
            let count = faults.len();
            return Err(format!("{count} faults among {} jobs: {faults:#?}", listed.len()));
        }
        self.note_bounds(&mut client);
        is_lean(&self.server)?;
        sound(&self.server.output())
    }

    /// Rules that take jobs away are excuses for as long as they are set.
    fn note_bounds(&self, client: &mut crate::support::Client) {
        let mut bounded = std::collections::HashSet::new();
        for queue in QUEUES {
            let config = client.ok("GetDlqConfig", serde_json::json!({"queue": queue}));
            let bounds = ["maxAge", "maxEntries"].map(|name| config["config"][name].clone());
            if bounds.iter().any(|bound| *bound != Json::Null) {
                bounded.insert(queue.to_owned());
            }
        }
        self.shared.ledger.lock().unwrap().bounded = bounded;
    }

    /// Leaves a file, which it names, and the data.
    fn write_down(&mut self, finding: &str) -> String {
        let data = self.server.keep_data();
        let dir = option_env!("CARGO_TARGET_TMPDIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let file = dir.join(format!("torture-{}.txt", self.plan.seed));
        let text = format!(
            "CORQ_TORTURE_SEED={}\n{finding}\n\nThe data: {}\n\nThe server said:\n{}\n\nThe last commands:\n{}",
            self.plan.seed,
            data.display(),
            self.server.output(),
            self.shared.trace.text()
        );
        let written = std::fs::write(&file, text);
        written.map_or_else(|error| error.to_string(), |()| file.display().to_string())
    }
}

/// Waits until so many commands have been sent; fails when the server ends before.
fn watch(server: &mut Server, shared: &Shared, commands: u64) -> Result<(), String> {
    let mut last = (Instant::now(), 0);
    loop {
        if let Some(status) = server.ended() {
            return Err(format!("the server has ended by itself: {status}\n{}", tail(server)));
        }
        is_lean(server)?;
        let sent = shared.sent.load(Ordering::SeqCst);
        let is_enough = sent >= commands && !shared.pinging.load(Ordering::SeqCst);
        if is_enough || shared.finding.lock().unwrap().is_some() {
            return Ok(());
        }
        if sent > last.1 {
            last = (Instant::now(), sent);
        } else if last.0.elapsed() > STUCK {
            return Err(format!("no command was sent for {STUCK:?}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn tail(server: &Server) -> String {
    let output = server.output();
    let lines: Vec<&str> = output.lines().collect();
    let from = lines.iter().position(|line| line.contains("panicked at"));
    lines[from.unwrap_or(lines.len().saturating_sub(30))..]
        .iter()
        .take(60)
        .fold(String::new(), |text, line| text + line + "\n")
}

/// Whether the server's memory is within bounds.
fn is_lean(server: &Server) -> Result<(), String> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid()));
    let status = status.unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kb = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let (mb, other) = (kb.unwrap_or_default() >> 10, std::env::var_os("CORQ_TORTURE_BIN"));
    if mb <= RESIDENT_MAX_MB[usize::from(other.is_none())] {
        return Ok(());
    }
    Err(format!("the server has {mb} MB in memory"))
}

/// Checks the output for signs of trouble that the server lived through.
fn sound(output: &str) -> Result<(), String> {
    let wrong = ["panicked at", "AddressSanitizer", "stack overflow", " ERROR "];
    match output.lines().find(|line| wrong.iter().any(|word| line.contains(word))) {
        Some(line) => Err(format!("the server said: {line}")),
        None => Ok(()),
    }
}
