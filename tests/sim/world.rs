//! The simulated server and its clients: virtual time, mail that is late, and the schedule that
//! decides what happens next.

use super::Life;
use super::check::{Check, Checks};
use super::client::{Client, Held};
use super::clock::MachineClock;
use super::dice::Dice;
use super::flows::{FlowMail, Flows};
use super::ledger::Ledger;
use super::names::Task;
use super::node::{News, Node, finish_one};
use super::ops::{self, Call, Learned};
use super::played::Played;
use super::settings::{Flaw, Settings};
use super::trace::Trace;
use corq_io::log::LogError;
use corq_shards::dependency::Notice;
use corq_shards::family::Report;
use corq_shards::job::id::{JobId, Slot};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// The queues of every run.
pub const QUEUES: &[&str] = &["alpha", "beta", "gamma", "delta"];

pub const START_MS: u64 = 1_700_000_000_000;

/// Mail to a shard.
#[derive(Debug)]
pub enum Mail {
    Call { client: u64, request: u64, call: Rc<dyn Call> },
    Claim { task: u64, names: Vec<String> },
    Name { name: String, id: JobId, known: bool },
    Unclaim { name: String },
    Stand { task: u64, jobs: Vec<JobId> },
    Notice(Notice),
    Report { report: Report, value: Vec<u8> },
    Flow(FlowMail),
}

/// Mail keeps its order from one sender (a shard if true, else a connection) to one shard.
type Way = (bool, u64, usize);

/// Shards, clients and everything between them.
pub struct World {
    pub settings: Settings,
    pub checks: Checks,
    pub dice: Dice,
    /// As the process shows it.
    pub now_ms: u64,
    /// The latest that any process has shown.
    pub latest_ms: u64,
    pub clock: MachineClock,
    pub nodes: Vec<Node>,
    pub clients: Vec<Client>,
    /// Jobs that a client once held.
    pub stale: Vec<Held>,
    pub ledger: Ledger,
    pub trace: Trace,
    pub tasks: BTreeMap<u64, Task>,
    pub flows: Flows,
    pub mail: BTreeMap<Way, VecDeque<Mail>>,
    /// Commands that are not answered yet, with who gave them.
    pub open: BTreeMap<u64, (u64, Rc<dyn Call>)>,
    /// Names that two jobs bear since a power loss took one's end and left the other's beginning.
    pub contested: BTreeSet<String>,
    pub pushes: u64,
    pub starts: u64,
    pub power_losses: u64,
    pub set_back: u64,
    /// A failure of a disk is under way.
    pub armed: bool,
    requests: u64,
    connections: u64,
}

impl World {
    pub fn new(settings: Settings, print: bool) -> Self {
        let mut dice = Dice::new(settings.seed);
        if settings.has(Flaw::LoadedDice) {
            dice = Dice::new(settings.seed ^ super::canary::ever_new());
        }
        let mut world = Self {
            checks: settings.checks,
            dice,
            now_ms: START_MS,
            latest_ms: START_MS,
            clock: MachineClock::default(),
            nodes: Vec::new(),
            clients: Vec::new(),
            stale: Vec::new(),
            ledger: Ledger::default(),
            trace: Trace::new(print),
            tasks: BTreeMap::new(),
            flows: Flows::default(),
            mail: BTreeMap::new(),
            open: BTreeMap::new(),
            contested: BTreeSet::new(),
            pushes: 0,
            starts: 0,
            power_losses: 0,
            set_back: 0,
            armed: false,
            requests: 0,
            connections: 0,
            settings,
        };
        world.first_start();
        for _ in 0..world.settings.clients {
            world.clients.push(Client { id: 0, held: Vec::new() });
            world.reconnect(world.clients.len() - 1);
        }
        world
    }

    /// Lives the whole life of the seed.
    pub fn live(mut self) -> Life {
        for _ in 0..self.settings.steps {
            self.step();
        }
        self.drain();
        let played = self.nodes.iter().flat_map(|node| node.model.played.0.iter());
        Life {
            hash: self.trace.hash,
            lived_ms: self.clock.lived_ms(),
            jobs: self.nodes.iter().map(|node| node.model.jobs.len() as u64).sum(),
            restarts: self.starts,
            power_losses: self.power_losses,
            set_back: self.set_back,
            played: Played(played.copied().collect()),
        }
    }

    fn step(&mut self) {
        match self.dice.below(100) {
            0..=34 => self.act(),
            35..=69 => {
                let node = self.dice.index(self.nodes.len());
                let mails = self.dice.below(6);
                self.turn(node, mails);
            }
            70..=87 => self.end_disk_operation(),
            88..=96 => self.pass_time(),
            97 => {
                let node = self.dice.index(self.nodes.len());
                self.nodes[node].check_replay(&self.settings);
            }
            98 if self.dice.one_in(2) => {
                self.check_directory();
                self.check_dependencies();
                self.check_flows();
            }
            _ if self.dice.one_in(2) => self.crash(),
            _ => self.arm(),
        }
    }

    fn act(&mut self) {
        let total: u64 = ops::TABLE.iter().map(|(weight, _)| weight).sum();
        let mut at = self.dice.below(total);
        let client = self.dice.index(self.clients.len());
        for (weight, act) in ops::TABLE {
            if at < *weight {
                act(self, client);
                return;
            }
            at -= weight;
        }
    }

    fn pass_time(&mut self) {
        let pace_ms = self.settings.pace_ms;
        let passed_ms = match self.dice.below(30) {
            0 => self.dice.below(5000),
            1 => self.dice.below(70_000),
            _ => self.dice.below(pace_ms),
        };
        let jumps = self.settings.clock_jumps;
        if jumps > 0 && self.dice.one_in(jumps) {
            self.clock.jump(&mut self.dice);
            self.trace.note(format_args!("the clock shows {}", self.clock.shown_ms()));
        }
        self.pass(passed_ms);
    }

    /// Time passes.
    pub fn pass(&mut self, ms: u64) {
        self.now_ms = self.clock.pass(self.now_ms, ms);
        self.latest_ms = self.latest_ms.max(self.now_ms);
    }

    /// Runs a turn of a shard, as the server's loop does.
    pub fn turn(&mut self, node: usize, mails: u64) {
        for _ in 0..mails {
            let Some(mail) = self.take_mail(node) else { break };
            self.receive(node, mail);
        }
        let now_ms = self.now_ms;
        self.spoil_turn(node);
        let reclaims = self.settings.reclaim > 0 && self.dice.one_in(self.settings.reclaim);
        let steps = if reclaims { self.dice.below(60) } else { 0 };
        let one = &mut self.nodes[node];
        one.tick(now_ms);
        one.reclaim(steps);
        self.tell_of_come_flows(node);
        let one = &mut self.nodes[node];
        let Node { model, shard, .. } = one;
        model.compare(now_ms, shard);
        let flushed = one.flush(now_ms);
        let (head, released) = (one.book.log.head(), one.book.log.released());
        self.trace.note(format_args!("{now_ms} shard {node}: log {head}, released {released}"));
        if self.stopped_by(&flushed) {
            return;
        }
        self.release(node);
    }

    /// A log that has failed takes its process with it. True if so.
    fn stopped_by(&mut self, outcome: &Result<(), LogError>) -> bool {
        if let Err(error) = outcome {
            self.trace.note(format_args!("{error}"));
            self.checks.must(Check::Log, self.armed, || error.to_string());
            self.crash();
        }
        outcome.is_err()
    }

    fn end_disk_operation(&mut self) {
        let node = self.dice.index(self.nodes.len());
        let ended = finish_one(&mut self.nodes[node].book.log).map(|_| ());
        self.stopped_by(&ended);
    }

    pub fn release(&mut self, node: usize) {
        while let Some(held) = self.nodes[node].release() {
            let floor = self.ledger.floors.entry(node).or_default();
            *floor = held.records.max(*floor);
            for news in held.news {
                self.note_event(node, news);
            }
        }
    }

    fn note_event(&mut self, from: usize, news: News) {
        self.trace.note(format_args!("  {from}: {news:?}"));
        match news {
            News::Answer { request, answer } => {
                let Some((client, call)) = self.open.remove(&request) else { return };
                call.learn(self, &Learned { client, shard: from, answer: &answer });
            }
            News::Claimed { task, taken } => self.claimed(task, &taken),
            News::Name { name, id, known } => {
                let way = (true, from as u64, self.owner_of_name(&name));
                self.post(way, Mail::Name { name, id, known });
            }
            News::Unclaim { name } => {
                let way = (true, from as u64, self.owner_of_name(&name));
                self.post(way, Mail::Unclaim { name });
            }
            News::Stood { task, standings } => self.stood(task, standings),
            News::Notice(notice) => self.pass_on(from, notice),
            News::Report { report, value } => {
                let to = self.shard_of_job(report.parent);
                self.post((true, from as u64, to), Mail::Report { report, value });
            }
            News::Flow { to, mail } => self.post((true, from as u64, to), Mail::Flow(mail)),
            News::FlowDone { flow } => self.learn_of_flow(flow),
        }
    }

    pub fn receive(&mut self, node: usize, mail: Mail) {
        self.trace.note(format_args!("{} to {node}: {mail:?}", self.now_ms));
        let now_ms = self.now_ms;
        let index = node;
        let node = &mut self.nodes[index];
        match mail {
            Mail::Notice(notice) => self.notify(index, notice),
            Mail::Report { report, value } => self.report(index, report, value),
            Mail::Flow(mail) => self.read_flow_mail(index, mail),
            Mail::Stand { task, jobs } => node.stand(task, &jobs),
            Mail::Call { client, request, call } => node.run(now_ms, client, request, &*call),
            Mail::Claim { task, names } => node.claim(task, names),
            Mail::Name { name, id, known } => {
                if known {
                    node.directory.settle(&name, id);
                } else {
                    node.directory.forget(&name, id);
                }
                node.retry_claims();
            }
            Mail::Unclaim { name } => {
                node.directory.release(&name);
                node.retry_claims();
            }
        }
    }

    pub fn take_mail(&mut self, node: usize) -> Option<Mail> {
        let ways: Vec<Way> = self.mail.keys().filter(|way| way.2 == node).copied().collect();
        if ways.is_empty() {
            return None;
        }
        let way = self.dice.pick(&ways);
        let letters = self.mail.get_mut(&way)?;
        let mail = letters.pop_front();
        if letters.is_empty() {
            self.mail.remove(&way);
        }
        mail
    }

    pub fn post(&mut self, way: Way, mail: Mail) {
        self.mail.entry(way).or_default().push_back(mail);
    }

    /// Gives a command on a client's connection.
    pub fn send(&mut self, client: usize, shard: usize, call: impl Call + 'static) {
        self.send_as(self.clients[client].id, shard, call);
    }

    pub fn send_as(&mut self, client: u64, shard: usize, call: impl Call + 'static) {
        let request = self.new_request();
        let call: Rc<dyn Call> = Rc::new(call);
        if call.is_answered() {
            self.open.insert(request, (client, Rc::clone(&call)));
        }
        self.post((false, client, shard), Mail::Call { client, request, call });
    }

    pub fn new_request(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    /// A payload like no other.
    pub fn new_data(&mut self) -> Vec<u8> {
        self.pushes += 1;
        let mut data = vec![0xce];
        data.extend_from_slice(&(self.pushes as u32).to_be_bytes());
        data
    }

    pub fn shard_of_queue(&self, queue: &str) -> usize {
        Slot::of_name(queue).index() % self.nodes.len()
    }

    /// A client gets a new connection. Its worker remembers what it held.
    pub fn reconnect(&mut self, client: usize) {
        self.connections += 1;
        self.clients[client].id = self.connections;
    }

    /// A job to answer for: one the client holds, now and then one that a client held long ago.
    pub fn take_held(&mut self, client: usize) -> Option<Held> {
        if self.dice.one_in(8) && !self.stale.is_empty() {
            let place = self.dice.index(self.stale.len());
            return Some(self.bend(self.stale[place]));
        }
        let held = &mut self.clients[client].held;
        if held.is_empty() {
            return None;
        }
        let place = self.dice.index(held.len());
        let one = held.swap_remove(place);
        self.stale.push(one);
        Some(self.bend(one))
    }

    /// A job to show life for: any client's.
    pub fn see_held(&mut self, client: usize) -> Option<Held> {
        let others = self.dice.one_in(3);
        let whose = if others { self.dice.index(self.clients.len()) } else { client };
        let held = &self.clients[whose].held;
        if held.is_empty() {
            return None;
        }
        let one = held[self.dice.index(held.len())];
        Some(self.bend(one))
    }

    /// Now and then the token is missing or wrong.
    fn bend(&mut self, held: Held) -> Held {
        let token = match self.dice.below(25) {
            0 => None,
            1 => Some(corq_shards::command::Token(7)),
            _ => held.token,
        };
        Held { token, ..held }
    }

    /// The directory beside a rebuild from the jobs, if no news of names is on its way.
    pub fn check_directory(&mut self) {
        let quiet = self.mail.is_empty()
            && self.tasks.is_empty()
            && self.nodes.iter().all(|node| node.held.is_empty() && node.news.is_empty());
        if !quiet {
            return;
        }
        let mut borne: BTreeMap<String, Vec<JobId>> = BTreeMap::new();
        for node in &self.nodes {
            for (name, id) in node.shard.custom_ids() {
                borne.entry(name.into()).or_default().push(id);
            }
        }
        borne.retain(|name, _| !self.contested.contains(name));
        let mut kept = vec![0; self.nodes.len()];
        for (name, jobs) in &borne {
            let owner = self.owner_of_name(name);
            let found = self.nodes[owner].directory.find(name);
            self.checks.must(Check::Directory, jobs.iter().max() == found.as_ref(), || {
                format!("{name} is borne by {jobs:?}, the directory says {found:?}")
            });
            kept[owner] += 1;
        }
        for (node, kept) in self.nodes.iter().zip(kept) {
            let names = node.directory.len();
            let contested = self.contested.len();
            self.checks.must(Check::Directory, (kept..=kept + contested).contains(&names), || {
                format!("shard {} keeps {names} names, not {kept}", node.index)
            });
        }
    }

    /// Lets a disk fail soon.
    fn arm(&mut self) {
        self.armed = true;
        let node = self.dice.index(self.nodes.len());
        let (write, sync) = (self.dice.below(60) as u32, self.dice.below(30) as u32);
        let (kind, faults) = (self.dice.below(3), &mut self.nodes[node].book.log.disk_mut().faults);
        let opens = faults.fail_open;
        // All that fails at a time says the same, and only what lacks descriptors or memory is worth a wait.
        (faults.errno, faults.fail_open) = (libc::EIO, false);
        match kind {
            0 => faults.fail_write = write,
            1 => faults.fail_sync = sync,
            _ if write.is_multiple_of(2) => {
                faults.errno = libc::ENOSPC;
                faults.fail_create = !faults.fail_create;
            }
            // Open files stay so; opening others fails, and reads of them wait.
            _ => {
                faults.errno = [libc::EMFILE, libc::ENFILE, libc::ENOMEM][sync as usize % 3];
                faults.fail_open = !opens;
            }
        }
    }
}
