//! Ends of the process, and what the next one finds.

use super::book::Book;
use super::check::Check;
use super::model::Model;
use super::node::{Node, close};
use super::ops::end_waits::EndWaits;
use super::ops::schedule::StartSchedules;
use super::settings::{Flaw, Settings};
use super::world::World;
use corq_io::log::{Faults, FaultyDisk, Log, Mode, Position};
use corq_shards::Shard;
use corq_shards::job::id::JobId;
use corq_shards::log_record::Record;
use corq_shards::log_record::job_change::Changed;
use corq_shards::log_record::location::LogRef;
use std::collections::BTreeMap;

/// How a process ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// Written data stays; blocks that were still to be written go.
    Kill,
    /// Data that was not synced goes.
    Power,
    /// Everybody gets an answer, and the log is closed.
    Stop,
}

struct Found {
    shard: Shard,
    log: Log<FaultyDisk>,
    records: Vec<(Position, Vec<u8>)>,
}

fn open(settings: &Settings, index: usize, start: u64, disk: FaultyDisk) -> Found {
    let mut shard = Shard::new(settings.shard(index, start));
    let mut records = Vec::new();
    let opened = Log::open(&settings.log(index), disk, |position, body| {
        records.push((position, body.to_vec()));
        shard.replay(position.0, body).map_err(|error| format!("{error:?}"))
    });
    match opened {
        Ok((log, _)) => Found { shard, log, records },
        Err(error) => panic!("[{:?}] shard {index} does not open: {error}", Check::Log),
    }
}

impl World {
    pub fn first_start(&mut self) {
        for index in 0..self.settings.shards {
            let disk = FaultyDisk::new(self.dice.draw(), self.settings.faults);
            let Found { mut shard, log, records } = open(&self.settings, index, 0, disk);
            shard.restart(self.now_ms);
            let book = Book { log, written: records, gone: Position(0), flaw: self.settings.flaw };
            let settings = &self.settings;
            let keep = settings.completed_max as usize;
            let mut model = Model::new(self.checks, keep, settings.completed_retention_ms);
            model.expired_kept_ms = settings.expired_kept_ms;
            let mut node = Node::new(index, shard, book, model);
            node.listen(!self.dice.one_in(4));
            node.run(self.now_ms, 0, 0, &StartSchedules);
            self.nodes.push(node);
        }
    }

    /// Ends the process in one of its ways, and starts the next one.
    pub fn crash(&mut self) {
        let failed = self.nodes.iter().any(|node| node.book.log.failure().is_some());
        let way = match self.dice.below(3) {
            0 => Way::Power,
            1 if !failed && !self.armed && self.stop() => Way::Stop,
            _ => Way::Kill,
        };
        self.starts += 1;
        self.power_losses += u64::from(way == Way::Power);
        self.trace.note(format_args!("{} {way:?}, start {}", self.now_ms, self.starts));
        self.armed = false;
        self.open.clear();
        self.mail.clear();
        self.tasks.clear();
        for client in 0..self.clients.len() {
            self.reconnect(client);
        }
        let pause_ms = self.dice.pick(&[0, 0, 100, 5000, 100_000]);
        if self.settings.clock_jumps > 0 && self.dice.one_in(3) {
            self.clock.jump(&mut self.dice);
        }
        self.clock.pass(0, pause_ms);
        self.now_ms = self.clock.shown_ms();
        self.latest_ms = self.latest_ms.max(self.now_ms);
        self.trace.note(format_args!("the next process begins at {}", self.now_ms));
        let before = self.settings.clone();
        if self.dice.one_in(3) {
            self.settings.change(&mut self.dice);
        }
        let nodes = std::mem::take(&mut self.nodes);
        for node in nodes {
            let mut node = self.start_again(node, way, &before);
            node.listen(!self.dice.one_in(4));
            self.nodes.push(node);
        }
        let all = way != Way::Power || self.settings.mode != Mode::Written;
        self.ledger.check(self.checks, &self.nodes, all);
        self.forget_flows(all);
        self.rebuild_directories(all);
        self.resume_flows();
        self.renew_watches();
        self.open_doors();
        for node in &mut self.nodes {
            node.run(self.now_ms, 0, 0, &StartSchedules);
            node.tick(self.now_ms);
            let Node { model, shard, .. } = node;
            if way != Way::Stop {
                model.note_torn_keys(self.now_ms);
            }
            model.compare(self.now_ms, shard);
            model.compare_completed_names(shard);
            node.check_replay(&self.settings);
            node.check_payloads();
            node.check_values();
        }
    }

    /// No client is served before all shards have the messages that each of them sends at its start.
    fn open_doors(&mut self) {
        for node in 0..self.nodes.len() {
            while let Some(mail) = self.take_mail(node) {
                self.receive(node, mail);
            }
        }
        self.drop_uncommitted_flows();
    }

    /// A clean stop. False if it came to nothing.
    fn stop(&mut self) -> bool {
        for node in 0..self.nodes.len() {
            self.nodes[node].run(self.now_ms, 0, 0, &EndWaits);
            if close(&mut self.nodes[node].book, self.now_ms).is_err() {
                return false;
            }
            self.nodes[node].hold_back();
            self.release(node);
        }
        true
    }

    /// `before`: the settings of the process that has ended.
    fn start_again(&mut self, node: Node, way: Way, before: &Settings) -> Node {
        let Node { index, book, mut model, .. } = node;
        let (mut written, book_gone) = (book.written, book.gone);
        let mut disk = book.log.into_disk();
        let faults = disk.faults;
        let disks = Faults { fail_create: false, fail_open: false, ..faults };
        disk.faults = Faults { fail_write: 0, fail_sync: 0, ..disks };
        if way == Way::Power || way == Way::Stop && self.dice.one_in(2) {
            disk.power_loss();
        } else {
            disk.kill();
        }
        let given = if self.settings.has(Flaw::OldSettings) { before } else { &self.settings };
        let Found { mut shard, log, records } = open(given, index, self.starts, disk);
        if self.settings.has(Flaw::BentRecord)
            && let Some((_, bytes)) = written.last_mut()
        {
            bytes[0] ^= 1;
        }
        let forgotten = written.partition_point(|(at, _)| *at < book_gone);
        let first = records
            .first()
            .map_or(forgotten, |(first, _)| written.partition_point(|(at, _)| at < first));
        let kept = first + records.len();
        let part = kept <= written.len() && records[..] == written[first..kept];
        self.checks.must(Check::Log, part && first <= forgotten, || {
            format!(
                "shard {index}: of {} records those from {first} to {kept} came back, up to \
                 {forgotten} were forgotten",
                written.len()
            )
        });
        self.checks.must(Check::Lost, way != Way::Stop || kept == written.len(), || {
            format!("shard {index} stopped cleanly with {} records, found {kept}", written.len())
        });
        written.truncate(kept);
        let gone = records.first().map_or(book_gone, |(first, _)| *first);
        let mut book = Book { log, written, gone, flaw: self.settings.flaw };
        model.rewind(kept, &mut shard, &book);
        let delayed = model.recall_delays(&shard);
        self.believe_clock(&mut shard, &mut book, &mut model);
        shard.restart(self.now_ms);
        model.completed_max = self.settings.completed_max as usize;
        model.retention_ms = self.settings.completed_retention_ms;
        model.restart(self.now_ms, &delayed);
        Node::new(index, shard, book, model)
    }

    /// As the server does it, before anything else: if the log was written by a clock that was ahead, its times are set back.
    fn believe_clock(&mut self, shard: &mut Shard, book: &mut Book, model: &mut Model) {
        let before = book.written.len();
        let shown_ms = match self.settings.flaw {
            Flaw::BlindStarts => u64::MAX,
            Flaw::ShyStarts => self.now_ms + 500,
            _ => self.now_ms,
        };
        if shown_ms < u64::MAX {
            let back = shard.set_clock_back(shown_ms, book);
            self.set_back += u64::from(back.is_some());
            shard.note_clock_of_start(shown_ms, book);
        }
        model.follow_clock((self.now_ms, self.latest_ms), &book.written[before..], before);
    }

    /// As the server does it: every shard tells all its names, before time brings anything new.
    fn rebuild_directories(&mut self, all: bool) {
        let mut borne: BTreeMap<String, Vec<JobId>> = BTreeMap::new();
        for node in 0..self.nodes.len() {
            let names = self.nodes[node].shard.custom_ids();
            let names: Vec<(String, JobId)> = names.map(|(name, id)| (name.into(), id)).collect();
            for (name, id) in names {
                let owner = self.owner_of_name(&name);
                self.nodes[owner].directory.settle(&name, id);
                borne.entry(name).or_default().push(id);
            }
        }
        for node in 0..self.nodes.len() {
            for name in self.nodes[node].shard.staged_names() {
                let owner = self.owner_of_name(&name);
                self.nodes[owner].directory.claim(&name);
            }
        }
        for (name, mut jobs) in borne.into_iter().filter(|(_, jobs)| jobs.len() > 1) {
            jobs.sort_unstable();
            jobs.pop();
            let known = self.contested.contains(&name) || !all;
            self.checks.must(Check::Directory, known, || {
                format!("after a restart {name} is still borne by {jobs:?}")
            });
            self.contested.insert(name);
        }
    }
}

impl Node {
    /// Checks that each job points to its own payload in the log.
    fn check_payloads(&self) {
        for job in self.model.jobs.values() {
            let Some(index) = self.shard.find(job.id) else { continue };
            let pushed = self.book.pushed_at(self.shard.view(index).data.position);
            // The runs of a series share a record.
            let own = pushed.as_ref().is_some_and(|pushed| {
                pushed.job.data == &job.data[..] && (pushed.id == job.id || job.series.is_some())
            });
            self.model.must(Check::Lost, own, || format!("{job:?} points to {pushed:?}"));
            let notes = self.shard.view(index).options.and_then(|has| has.notes.as_deref());
            let Some(notes) = notes else { continue };
            let logs = notes.logs.iter().map(|entry| entry.stored);
            let texts = logs.zip(job.notes.logs.iter().map(|(_, _, text)| text));
            for (stored, text) in texts.chain(notes.message.iter().copied().zip(&job.notes.message))
            {
                let own = self.has_text(job.id, stored, text);
                self.model.must(Check::Lost, own, || format!("{job:?} has not its {text}"));
            }
        }
    }

    /// Whether a record tells this text of a job.
    fn has_text(&self, id: JobId, stored: LogRef, text: &str) -> bool {
        let Some(bytes) = self.book.record_at(stored.position) else { return false };
        match Record::decode_original(bytes) {
            Ok(Record::Changed(Changed::Progressed { id: of, message, .. })) => {
                of == id && message == Some(text.as_bytes())
            }
            Ok(Record::Changed(Changed::Logged { id: of, message, .. })) => {
                of == id && message == text
            }
            _ => false,
        }
    }
}
