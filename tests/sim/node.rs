//! A shard of the simulated server: the real engine, log and directory, the model beside them, and the rule of the
//! server's turn that nothing leaves before the log has it.

use super::book::Book;
use super::canary;
use super::check::Check;
use super::flows::FlowMail;
use super::job_rules::Moment;
use super::model::{Job, Model, State};
use super::ops::{Answer, Call};
use super::settings::{Flaw, Settings};
use corq_io::log::{Log, LogError, Position};
use corq_shards::command::{ClientId, RequestId};
use corq_shards::dependency::custom_ids::Directory;
use corq_shards::dependency::{News as Tidings, Notice, Standing};
use corq_shards::effect::{Effects, Reply};
use corq_shards::family::Report;
use corq_shards::job::id::JobId;
use corq_shards::{Caller, Out, Shard};
use std::collections::VecDeque;

/// A message of a shard that leaves once the log has the records it follows from.
#[derive(Debug)]
pub enum News {
    Answer { request: u64, answer: Answer },
    Claimed { task: u64, taken: Vec<bool> },
    Name { name: String, id: JobId, known: bool },
    Unclaim { name: String },
    Stood { task: u64, standings: Vec<(JobId, Standing)> },
    Notice(Notice),
    Report { report: Report, value: Vec<u8> },
    Flow { to: usize, mail: FlowMail },
    FlowDone { flow: JobId },
}

/// The news of one turn.
pub struct Held {
    until: Position,
    /// Records in the log by then.
    pub records: usize,
    pub news: Vec<News>,
}

/// A shard with its log and its model.
pub struct Node {
    pub index: usize,
    pub shard: Shard,
    pub book: Book,
    pub model: Model,
    pub directory: Directory,
    /// Claims that wait until another push says what came of a name.
    pub waiting: VecDeque<(u64, Vec<String>)>,
    pub held: VecDeque<Held>,
    /// This turn's.
    pub news: Vec<News>,
    effects: Effects,
    /// There is a subscriber to events.
    pub listening: bool,
}

impl Node {
    /// A shard around a log, both as recovery left them.
    pub fn new(index: usize, shard: Shard, book: Book, model: Model) -> Self {
        Self {
            index,
            directory: Directory::new(shard.hash_key()),
            shard,
            book,
            model,
            waiting: VecDeque::new(),
            held: VecDeque::new(),
            news: Vec::new(),
            effects: Effects::default(),
            listening: false,
        }
    }

    /// Carries out a command and has the model check it. Returns how it was answered, if it was.
    pub fn run(&mut self, now_ms: u64, client: u64, request: u64, call: &dyn Call) {
        let before = self.book.written.len();
        let caller = Caller { client: ClientId(client), request: RequestId(request) };
        let flaw = self.book.flaw;
        self.effects.clear();
        let Self { shard, book, effects, model, .. } = self;
        call.give(&mut |command| {
            model.played.command(command);
            canary::spoil(flaw, command, &mut |command| {
                shard.apply(now_ms, caller, command, &mut Out { journal: book, effects });
            });
        });
        let answers = answers(effects, shard, flaw);
        let written = &book.written[..];
        let at = Moment { now_ms, client, request, shard, by_clock: false, written, before };
        let own = answers.iter().find(|(one, _)| *one == request).map(|(_, answer)| answer);
        model.in_steps = call.is_stepwise();
        call.check(model, &at, own);
        model.follow(&at);
        model.check_bulk(&at, &answers);
        if !call.is_stepwise() {
            // All of it was carried out before anything was delivered.
            model.fresh.clear();
        }
        // As the server does it: the name of a job that was made stays even if a later one of the push has replaced it,
        // and leaves with the name's own news.
        if let Some((_, Reply::Pushed(range))) =
            effects.replies.iter().find(|one| one.0.0 == request)
        {
            let pushed = &effects.pushed[range.clone()];
            let unused = call.names().into_iter().filter(|(place, name)| {
                pushed.get(*place).and_then(|job| job.custom_id.as_deref()) != Some(*name)
            });
            self.news.extend(unused.map(|(_, name)| News::Unclaim { name: name.into() }));
        }
        if let Some(Answer::Refused { .. }) = own {
            let names = call.names().into_iter();
            self.news.extend(names.map(|(_, name)| News::Unclaim { name: name.into() }));
        }
        for (request, answer) in &answers {
            model.check_delivery(&at, *request, answer);
        }
        model.follow_limits(&at);
        self.model.settled(now_ms, false);
        self.model.check_awaits(now_ms, false, &answers);
        self.check_events(now_ms, before);
        self.end_call(before, answers);
    }

    /// Lets time pass in the shard and in the model.
    pub fn tick(&mut self, now_ms: u64) {
        let before = self.book.written.len();
        let flaw = self.book.flaw;
        let shown_ms = match flaw {
            Flaw::ClockAhead => now_ms + 60,
            Flaw::SleepyTimers => now_ms - 400,
            _ => now_ms,
        };
        self.effects.clear();
        let mut out = Out { journal: &mut self.book, effects: &mut self.effects };
        // A long command goes on for one slice, so that others come in between.
        let in_slices =
            !self.model.bulk_operations.is_empty() || !self.model.staged.sliced.is_empty();
        while self.shard.tick(shown_ms, &mut out) <= shown_ms && !in_slices {}
        let answers = answers(&self.effects, &self.shard, flaw);
        let written = &self.book.written[..];
        let shard = &self.shard;
        let at = Moment { now_ms, client: 0, request: 0, shard, by_clock: true, written, before };
        self.model.in_steps = true;
        self.model.follow_slices(&at);
        self.model.follow_bulk(&at);
        self.model.fall_due(&at);
        self.model.follow(&at);
        self.model.check_bulk(&at, &answers);
        for (request, answer) in &answers {
            self.model.check_delivery(&at, *request, answer);
        }
        self.model.follow_limits(&at);
        self.model.settled(now_ms, true);
        self.model.after_time(&at);
        self.model.check_awaits(now_ms, true, &answers);
        self.check_events(now_ms, before);
        self.model.is_new = false;
        self.end_call(before, answers);
    }

    /// Begins or ends to hear what happens.
    pub fn listen(&mut self, listening: bool) {
        self.shard.listen(listening);
        self.listening = listening;
    }

    fn check_events(&mut self, now_ms: u64, before: usize) {
        let mut published = self.published(&self.effects.events);
        canary::spoil_events(self.book.flaw, &mut published);
        if !self.listening {
            let none = published.is_empty();
            self.model
                .must(Check::Events, none, || format!("no listener, but there is {published:?}"));
            return;
        }
        let late = self.effects.events.iter().find(|event| event.at_ms != now_ms);
        self.model
            .must(Check::Events, late.is_none(), || format!("at {now_ms}, there is {late:?}"));
        let (written, shard) = (&self.book.written[..], &self.shard);
        let at = Moment { now_ms, client: 0, request: 0, shard, by_clock: false, written, before };
        self.model.check_events(&at, &published);
    }

    fn end_call(&mut self, before: usize, answers: Answers) {
        self.model.end_call(before, self.book.written.len());
        let answers = answers.into_iter();
        self.news.extend(answers.map(|(request, answer)| News::Answer { request, answer }));
        for change in self.effects.names.drain(..) {
            if change.known || self.book.flaw != Flaw::NamesKept {
                let name = change.name.into();
                self.news.push(News::Name { name, id: change.id, known: change.known });
            }
        }
        let notices = self.effects.notices.drain(..);
        let lost = |notice: &Notice| {
            self.book.flaw == Flaw::LostNotices && notice.news == Tidings::Completed
        };
        self.news.extend(notices.filter(|notice| !lost(notice)).map(News::Notice));
        for report in std::mem::take(&mut self.effects.reports) {
            let value = self.payload_at(report.stored.position, report.stored.payload_bytes);
            if self.book.flaw != Flaw::LostReports {
                self.news.push(News::Report { report, value });
            }
        }
    }

    /// How jobs look to one that wants to depend on them.
    pub fn stand(&mut self, task: u64, jobs: &[JobId]) {
        let standings: Vec<(JobId, Standing)> =
            jobs.iter().map(|&id| (id, self.shard.standing(id))).collect();
        for &(id, standing) in &standings {
            let expected = match self.model.jobs.get(&id) {
                Some(job) if job.met => Standing::Completed,
                // A job that an Obliterate has yet to reach is gone for those that come now.
                Some(job) if job.state != State::Gone && !job.is_detached() => Standing::Open,
                _ => Standing::Unknown,
            };
            // The remembered end of a child may have reached its parent by now.
            let left = self.model.jobs.get(&id).is_some_and(Job::may_leave_unreported);
            let fits = standing == expected || left && standing == Standing::Open;
            self.model.must(Check::Dependency, fits, || {
                format!("{id:?} is {standing:?}, not {expected:?}")
            });
        }
        self.news.push(News::Stood { task, standings });
    }

    /// The end of a turn: writes what is due and holds back this turn's news.
    pub fn flush(&mut self, now_ms: u64) -> Result<(), LogError> {
        self.book.log.flush(now_ms)?;
        self.hold_back();
        Ok(())
    }

    pub fn hold_back(&mut self) {
        if !self.news.is_empty() {
            let (until, records) = (self.book.log.head(), self.book.written.len());
            let news = std::mem::take(&mut self.news);
            self.held.push_back(Held { until, records, news });
        }
    }

    /// The oldest news that may go.
    pub fn release(&mut self) -> Option<Held> {
        let released = self.book.log.released();
        let early = self.book.flaw == Flaw::ReleaseEarly;
        self.held.pop_front_if(|held| early || held.until <= released)
    }

    /// The directory's part of a claim: all names, or for now none.
    pub fn claim(&mut self, task: u64, names: Vec<String>) {
        if names.iter().any(|name| self.directory.is_claimed(name)) {
            self.waiting.push_back((task, names));
            return;
        }
        let taken = names.iter().map(|name| !self.directory.claim(name)).collect();
        self.news.push(News::Claimed { task, taken });
    }

    pub fn retry_claims(&mut self) {
        for (task, names) in std::mem::take(&mut self.waiting) {
            self.claim(task, names);
        }
    }

    /// The log, read again from its first record, gives what the shard is, by whatever settings.
    pub fn check_replay(&self, settings: &Settings) {
        let checks = self.model.checks;
        if let Err(wrong) = self.shard.audit() {
            checks.fail(Check::Audit, || format!("shard {}: {wrong}", self.index));
        }
        let mut again = Shard::new(settings.opposite().shard(self.index, 99));
        let left = self.book.written.iter().filter(|(at, _)| *at >= self.book.gone);
        for (position, record) in left {
            if let Err(error) = again.replay(position.0, record) {
                checks.fail(Check::Replay, || format!("a record is refused: {error:?}"));
            }
        }
        if let Err(wrong) = again.audit() {
            checks.fail(Check::Audit, || format!("shard {} replayed: {wrong}", self.index));
        }
        let unknown = again.unknown_job_records();
        if unknown > 0 {
            checks.fail(Check::Replay, || format!("{unknown} records are about unknown jobs"));
        }
        let (live, again) = (self.shard.facts(), again.facts());
        if live != again {
            checks.fail(Check::Replay, || {
                let only = |of: &[String], not_of: &[String]| -> Vec<String> {
                    of.iter().filter(|fact| !not_of.contains(fact)).cloned().collect()
                };
                let (lost, new) = (only(&live, &again), only(&again, &live));
                format!("shard {}:\n  live {lost:#?}\n  replayed {new:#?}", self.index)
            });
        }
    }
}

type Answers = Vec<(u64, Answer)>;

/// The replies of one call, in values that stay.
fn answers(effects: &Effects, shard: &Shard, flaw: Flaw) -> Answers {
    let answer = |reply: &Reply| match reply {
        Reply::Done => Answer::Done,
        Reply::Late(places) => Answer::Late(places.to_vec()),
        Reply::Refused { place, refusal } => Answer::Refused { place: *place, refusal: *refusal },
        Reply::Pushed(range) => {
            Answer::Pushed(effects.pushed[range.clone()].iter().map(|one| one.id).collect())
        }
        Reply::Pulled(range) => {
            let jobs = effects.deliveries[range.clone()].iter();
            let mut jobs: Vec<_> = jobs.map(|one| (one.job.id, one.token)).collect();
            if flaw == Flaw::PullBackwards {
                jobs.reverse();
            }
            Answer::Pulled(jobs)
        }
        Reply::Count(count) => Answer::Count(*count),
        Reply::Gone { renewed, places } => Answer::Gone(*renewed, places.to_vec()),
        Reply::Ended(ending) => Answer::Ended(*ending),
        Reply::Unended => Answer::Unended,
        Reply::Cleaned(jobs) => Answer::Cleaned(jobs.concat()),
        Reply::Found(jobs) => Answer::Found(jobs.to_vec()),
        Reply::FailedStats(stats) => Answer::Stats(stats.clone()),
        Reply::Dropped => Answer::Dropped,
        Reply::CronSpent { .. } => Answer::Schedule(None),
        Reply::Cron(index) => Answer::Schedule(index.map(|index| {
            let cron = shard.cron_at(index);
            (cron.next_run_ms, cron.executions, cron.version)
        })),
    };
    effects.replies.iter().map(|(request, reply)| (request.0, answer(reply))).collect()
}

/// Ends all operations of a log in flight, as a close does.
pub fn close(book: &mut Book, now_ms: u64) -> Result<(), LogError> {
    while !book.log.close(now_ms)? {
        finish_one(&mut book.log)?;
    }
    Ok(())
}

/// Ends one operation in flight. False if there is none.
pub fn finish_one(log: &mut Log<corq_io::log::FaultyDisk>) -> Result<bool, LogError> {
    let Some((tag, result)) = log.disk_mut().finish_one() else { return Ok(false) };
    log.complete(tag, result)?;
    Ok(true)
}
