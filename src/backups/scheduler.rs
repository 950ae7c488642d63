//! The thread that makes backups by the schedule: when the next one is due, what comes after one that failed, and which old ones go.
//! Reads the settings each time, so that they count without a restart.

use super::access;
use super::directory;
use super::name::Name;
use super::objects::Objects;
use super::state::BackupState;
use super::surplus;
use super::target::BackupTarget;
use crate::config::Config;
use crate::tools::backup::{Making, Moment, make};
use crate::tools::place::{Fault, Place};
use crate::units;
use corq_io::s3::Stop;
use corq_shards::cron::expression::Plan;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often the thread looks whether something is due or settings have changed.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// How long the shards may take to say where their logs can be cut. On a disk that is full they may not get that far.
const CUT_WAIT_MAX: Duration = Duration::from_mins(1);
/// The pause behind an attempt that failed; it doubles up to an hour.
const RETRY_MS: u64 = 5_000;
const RETRY_MS_MAX: u64 = 3_600_000;

/// Handles that the thread gets from the server.
pub struct Surroundings {
    /// The settings that count by now.
    pub config: Box<dyn Fn() -> Arc<Config> + Send>,
    /// Wakes the shard that asks for cuts.
    pub wake: Box<dyn Fn() + Send>,
    pub state: Arc<BackupState>,
    /// The data directory.
    pub data: PathBuf,
}

/// The way to the thread.
#[derive(Debug)]
pub struct Scheduler {
    stop: Stop,
    end: Sender<()>,
    ended: Receiver<()>,
}

impl Scheduler {
    pub fn start(surroundings: Surroundings) -> io::Result<Self> {
        let stop = Stop::default();
        let (end, wanted) = channel();
        let (say, ended) = channel();
        let mut work = Work {
            surroundings,
            stop: stop.clone(),
            timetable: None,
            settings: None,
            unfinished: Vec::new(),
        };
        thread::Builder::new().name("corq-backups".into()).spawn(move || {
            while matches!(wanted.recv_timeout(LOOK_PAUSE), Err(RecvTimeoutError::Timeout)) {
                work.look();
            }
            // The stopping thread may have given up.
            let _ = say.send(());
        })?;
        Ok(Self { stop, end, ended })
    }

    /// Breaks off what is under way, and waits for that until `give_up` at most. What is left of it the next start removes.
    pub fn stop(self, give_up: Instant) {
        self.stop.set();
        drop(self.end);
        let _ = self.ended.recv_timeout(give_up.saturating_duration_since(Instant::now()));
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// When backups are due by a schedule.
#[derive(Clone, PartialEq, Debug)]
struct Timetable {
    /// The texts of the settings that it follows from.
    schedule: String,
    to: String,
    plan: Plan,
    /// When the next one is due; never, of a schedule such as the 30th of February.
    due_ms: Option<u64>,
    /// When it is tried again after failures, and how many there were.
    retry_ms: u64,
    failures: u32,
    /// When it was looked at last.
    looked_ms: u64,
}

impl Timetable {
    /// Whether one is to be made now.
    fn is_due(&mut self, now_ms: u64) -> bool {
        if now_ms < self.looked_ms {
            // The clock was set back: what it said before is too late now.
            self.due_ms = self.due_ms.into_iter().chain(self.plan.next(now_ms, now_ms)).min();
            self.retry_ms = self.retry_ms.min(now_ms + RETRY_MS_MAX);
        }
        self.looked_ms = now_ms;
        self.due_ms.is_some_and(|due_ms| due_ms.max(self.retry_ms) <= now_ms)
    }

    fn succeeded(&mut self, now_ms: u64) {
        (self.failures, self.retry_ms) = (0, 0);
        self.due_ms = self.plan.next(now_ms, now_ms);
    }

    /// Returns in how many milliseconds it is tried again.
    fn failed(&mut self, now_ms: u64) -> u64 {
        let pause_ms = RETRY_MS.saturating_mul(1 << self.failures.min(16)).min(RETRY_MS_MAX);
        self.failures += 1;
        self.retry_ms = now_ms + pause_ms;
        pause_ms
    }
}

/// Of a backup that is complete.
struct Made {
    files: u64,
    bytes: u64,
    /// Whether those that it replaces have gone.
    tidied: Result<(), Fault>,
}

struct Work {
    surroundings: Surroundings,
    stop: Stop,
    timetable: Option<Timetable>,
    /// The settings that counted when it was looked last.
    settings: Option<Arc<Config>>,
    /// Backups that this process has begun to send and not finished.
    unfinished: Vec<Name>,
}

/// Of what was not finished and cannot be removed, so many names are kept; the others go by their age.
const UNFINISHED_MAX: usize = 16;

impl Work {
    fn look(&mut self) {
        let config = (self.surroundings.config)();
        self.follow(&config);
        let Some(timetable) = &mut self.timetable else { return };
        if !timetable.is_due(now_ms()) {
            return;
        }
        let (at_ms, began) = (now_ms(), Instant::now());
        let target = BackupTarget::parse(&timetable.to);
        let outcome = target.map_err(Fault).and_then(|target| self.make(&config, &target, at_ms));
        let Some(timetable) = &mut self.timetable else { return };
        let counters = &self.surroundings.state.counters;
        match outcome {
            _ if self.stop.is_set() => {
                tracing::warn!("a backup was broken off: the server stops");
            }
            Ok(made) => {
                timetable.succeeded(now_ms());
                let took_ms = began.elapsed().as_millis() as u64;
                counters.made.fetch_add(1, Relaxed);
                counters.failures_in_a_row.store(0, Relaxed);
                counters.last_success_s.store(at_ms / 1000, Relaxed);
                counters.last_duration_ms.store(took_ms, Relaxed);
                counters.last_bytes.store(made.bytes, Relaxed);
                let size = units::bytes(made.bytes as f64);
                tracing::info!(
                    "a backup to {} is complete: {} files, {size}, in {took_ms} ms",
                    timetable.to,
                    made.files
                );
                // The backup counts even if old ones stay: made again, it would only take more room.
                if let Err(fault) = made.tidied {
                    counters.tidying_failures.fetch_add(1, Relaxed);
                    tracing::error!("old backups at {} are not all removed: {fault}", timetable.to);
                }
            }
            Err(fault) => {
                let pause_ms = timetable.failed(now_ms());
                counters.failures.fetch_add(1, Relaxed);
                counters.failures_in_a_row.fetch_add(1, Relaxed);
                tracing::error!(
                    "a backup to {} failed: {fault}: next attempt in {} s",
                    timetable.to,
                    pause_ms / 1000
                );
            }
        }
        self.show_due();
    }

    fn show_due(&self) {
        let due_ms = self.timetable.as_ref().and_then(|it| it.due_ms).unwrap_or(0);
        self.surroundings.state.counters.due_s.store(due_ms / 1000, Relaxed);
    }

    /// Takes over a schedule or a target that is new.
    fn follow(&mut self, config: &Arc<Config>) {
        let is_known = self.settings.as_ref().is_some_and(|known| Arc::ptr_eq(known, config));
        if is_known {
            return;
        }
        self.settings = Some(Arc::clone(config));
        if let Some(timetable) = &mut self.timetable {
            // The new settings may have put right what failed, so the next attempt need not wait.
            timetable.retry_ms = 0;
        }
        let known = self.timetable.as_ref().map(|it| (&*it.schedule, &*it.to));
        let wanted = config.backup_plan();
        if known == wanted {
            return;
        }
        self.timetable = wanted.and_then(|(schedule, to)| {
            let plan = Plan::at(schedule, None).ok()?;
            let now_ms = now_ms();
            let last_ms = self.last_ms(config, to, now_ms);
            let last_success_ms = last_ms.as_ref().ok().copied().flatten().unwrap_or(0);
            let counters = &self.surroundings.state.counters;
            counters.last_success_s.store(last_success_ms / 1000, Relaxed);
            let due_ms = match last_ms {
                // A backup that was due while no server ran is made up for.
                Ok(last_ms) => plan.next(last_ms.unwrap_or(now_ms), 0),
                Err(fault) => {
                    tracing::warn!("the backups at {to} cannot be listed: {fault}");
                    // There may be none for long.
                    plan.next(now_ms, 0).map(|_| now_ms)
                }
            };
            let (schedule, to) = (schedule.to_owned(), to.to_owned());
            let (retry_ms, failures, looked_ms) = (0, 0, now_ms);
            Some(Timetable { schedule, to, plan, due_ms, retry_ms, failures, looked_ms })
        });
        self.show_due();
    }

    /// When the last backup of this data directory was begun that lies there. One of later than now does not count: the next one
    /// would be due after that.
    fn last_ms(&self, config: &Config, to: &str, now_ms: u64) -> Result<Option<u64>, Fault> {
        let target = BackupTarget::parse(to).map_err(Fault)?;
        let id = Place::of(&self.surroundings.data)?.id;
        let found = match (access::open(config, &target, &self.stop)?, &target) {
            (None, BackupTarget::Directory(path)) => directory::list(path)?,
            (Some(objects), _) => objects.list()?,
            (None, BackupTarget::Bucket { .. }) => Vec::new(),
        };
        let own = found.iter().filter(|it| it.is_complete && it.name.id == id);
        Ok(own.map(|it| it.name.at_ms).filter(|at_ms| *at_ms <= now_ms).max())
    }

    fn make(&mut self, config: &Config, target: &BackupTarget, at_ms: u64) -> Result<Made, Fault> {
        let data = self.surroundings.data.clone();
        let place = Place::of(&data)?;
        let name = Name { at_ms, id: place.id };
        let keep = config.backup_keep as usize;
        match (access::open(config, target, &self.stop)?, target) {
            (Some(objects), _) => self.upload(&objects, &place, name, keep),
            (None, BackupTarget::Directory(path)) => self.to_directory(path, &place, name, keep),
            (None, BackupTarget::Bucket { .. }) => {
                Err(Fault("the bucket cannot be reached".into()))
            }
        }
    }

    fn to_directory(
        &self,
        path: &Path,
        place: &Place,
        name: Name,
        keep: usize,
    ) -> Result<Made, Fault> {
        // Leftovers of a backup that was killed take room; they are looked for once more behind this one.
        let _ = directory::sweep(path, name.id);
        let to = path.join(name.to_string());
        let summary = make(
            || Making::begin(place, &to, false),
            &mut || self.moment(),
            &mut |making, cuts| making.finish(cuts, &|_| {}),
        )?;
        let tidy = || {
            directory::sweep(path, name.id)?;
            for old in surplus(&directory::list(path)?, name, keep) {
                directory::remove(path, old)?;
                tracing::info!("removed the backup {old}: BACKUP_KEEP is {keep}");
            }
            Ok(())
        };
        Ok(Made { files: summary.segments, bytes: summary.bytes, tidied: tidy() })
    }

    fn upload(
        &mut self,
        objects: &Objects,
        place: &Place,
        name: Name,
        keep: usize,
    ) -> Result<Made, Fault> {
        // A key that may not delete keeps no backup from being made.
        while let Some(&left) = self.unfinished.last()
            && objects.remove(left).is_ok()
        {
            self.unfinished.pop();
        }
        let too_many = self.unfinished.len().saturating_sub(UNFINISHED_MAX);
        self.unfinished.drain(..too_many);
        let ready =
            make(|| Making::begin_within(place), &mut || self.moment(), &mut |making, cuts| {
                making.ready(cuts, &|_| {})
            })?;
        self.unfinished.push(name);
        objects.send(name, &ready, &|_| {})?;
        self.unfinished.pop();
        let summary = ready.summary;
        drop(ready);
        let tidied = tidy_bucket(objects, name, keep);
        Ok(Made { files: summary.segments, bytes: summary.bytes, tidied })
    }

    /// Where the logs can be cut.
    fn moment(&self) -> Result<Moment, Fault> {
        let Surroundings { state, wake, .. } = &self.surroundings;
        let number = state.ask();
        wake();
        state.wait(number, CUT_WAIT_MAX).map(Moment::Cut).ok_or_else(|| {
            let limit_s = CUT_WAIT_MAX.as_secs();
            Fault(format!("the shards did not say within {limit_s} s where their logs can be cut: see 'corq health'"))
        })
    }
}

/// Removes what a backup that is complete replaces, and what was given up.
fn tidy_bucket(objects: &Objects, newest: Name, keep: usize) -> Result<(), Fault> {
    let found = objects.list()?;
    for old in surplus(&found, newest, keep) {
        objects.remove(old)?;
        tracing::info!("removed the backup {old}: BACKUP_KEEP is {keep}");
    }
    for left in Objects::given_up(&found, newest.id, now_ms()) {
        if objects.remove(left)? > 0 {
            tracing::info!("removed the backup {left}, which was never completed");
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn timetable(due_ms: u64) -> Timetable {
        let plan = Plan::at("0 3 * * *", None).unwrap();
        Timetable {
            schedule: String::new(),
            to: String::new(),
            plan,
            due_ms: Some(due_ms),
            retry_ms: 0,
            failures: 0,
            looked_ms: 0,
        }
    }

    #[test]
    fn a_clock_that_is_set_back_puts_no_backup_off() {
        const DAY_MS: u64 = 24 * 3_600_000;
        let three_ms = 3 * 3_600_000;
        let mut table = timetable(400 * DAY_MS + three_ms);
        assert!(!table.is_due(400 * DAY_MS));
        assert!(!table.is_due(10 * DAY_MS));
        assert_eq!(table.due_ms, Some(10 * DAY_MS + three_ms));
        // A backup that is late stays due.
        assert!(table.is_due(11 * DAY_MS));
        table.failed(11 * DAY_MS);
        assert!(!table.is_due(9 * DAY_MS));
        assert!(table.is_due(11 * DAY_MS));
    }

    #[test]
    fn what_failed_is_tried_again_with_pauses_that_double_up_to_an_hour() {
        let mut table = timetable(1000);
        assert!(!table.is_due(999));
        assert!(table.is_due(1000));
        assert_eq!(table.failed(1000), 5_000);
        assert!(!table.is_due(5_999));
        assert!(table.is_due(6_000));
        let pauses: Vec<u64> = (0..12).map(|_| table.failed(0)).collect();
        assert_eq!((pauses[0], pauses[8], pauses[11]), (10_000, 2_560_000, 3_600_000));
        assert_eq!(table.due_ms, Some(1000), "it stays late");
        table.succeeded(10 * 3_600_000);
        assert_eq!((table.due_ms, table.failures), (Some(27 * 3_600_000), 0));
        assert!(table.is_due(27 * 3_600_000));
    }
}
