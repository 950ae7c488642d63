//! The thread that writes entries and reads them. Shards hand entries over and never wait: what does not fit the line before the
//! thread is lost, counted, and said in the log itself by the next entry that can be written.

use super::entry::{Entry, UNKNOWN, Who};
use super::store::Store;
use crate::protocol::json;
use corq_io::line_files::number_of;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Entries and questions that may wait for the thread.
const WAITING_MAX: usize = 4096;

/// Entries that are written at once.
const AT_ONCE_MAX: usize = 256;

/// Longest time between a write and its sync.
const SYNC_PAUSE: Duration = Duration::from_secs(1);

/// That entries cannot be written is logged once within this time.
const SAID_PAUSE: Duration = Duration::from_mins(1);

/// The entry that says how many others were lost.
const LOST: &str = "EntriesLost";

/// Entries as they are answered: a list of maps, newest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// The list, as `MessagePack`.
    pub entries: Vec<u8>,
    pub count: usize,
    /// Where older ones begin, if there may be any.
    pub next: Option<u64>,
}

/// The answer to a question, once it has come; without a page if the entries cannot be read, which has been logged.
pub type Answer = Arc<OnceLock<Option<Page>>>;

/// Counters of the audit log since the start.
#[derive(Debug, Default)]
pub struct Counters {
    pub written: AtomicU64,
    pub lost: AtomicU64,
    pub bytes: AtomicU64,
    /// Of those that are lost, the ones that no entry tells of yet.
    untold: AtomicU64,
}

enum Message {
    Entry(Box<Entry>),
    Page { before: u64, limit: usize, answer: Answer },
    Stop(SyncSender<()>),
}

/// The way to the thread.
#[derive(Clone)]
pub struct AuditLog {
    sender: SyncSender<Message>,
    counters: Arc<Counters>,
}

impl AuditLog {
    /// Starts the thread.
    pub fn start(store: Store) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let counters = Arc::new(Counters::default());
        counters.bytes.store(store.bytes(), Relaxed);
        let writer = Writer { store, counters: Arc::clone(&counters), said: None, unsynced: None };
        thread::Builder::new().name("corq-audit".into()).spawn(move || writer.run(&receiver))?;
        Ok(Self { sender, counters })
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Hands an entry over.
    pub fn note(&self, entry: Entry) {
        if self.sender.try_send(Message::Entry(Box::new(entry))).is_err() {
            self.counters.lose(1);
        }
    }

    /// Asks for at most `limit` entries with numbers below `before`. Nothing if too much waits.
    pub fn ask(&self, before: u64, limit: usize) -> Option<Answer> {
        let answer = Answer::default();
        let question = Message::Page { before, limit, answer: Arc::clone(&answer) };
        self.sender.try_send(question).ok().map(|()| answer)
    }

    /// Waits, until `give_up` at most, for all that was handed over to be written.
    pub fn stop(&self, give_up: Instant) {
        let (done, is_done) = sync_channel(1);
        let mut message = Message::Stop(done);
        loop {
            match self.sender.try_send(message) {
                Ok(()) => break,
                Err(TrySendError::Full(back)) if Instant::now() < give_up => {
                    message = back;
                    thread::sleep(Duration::from_millis(5));
                }
                Err(_) => return,
            }
        }
        let left = give_up.saturating_duration_since(Instant::now());
        // Entries that were written but not synced in time are in the kernel.
        let _ = is_done.recv_timeout(left);
    }
}

impl Counters {
    fn lose(&self, entries: u64) {
        self.lost.fetch_add(entries, Relaxed);
        self.untold.fetch_add(entries, Relaxed);
    }
}

struct Writer {
    store: Store,
    counters: Arc<Counters>,
    /// When it was logged last that entries cannot be written.
    said: Option<Instant>,
    /// Since when something is not synced.
    unsynced: Option<Instant>,
}

impl Writer {
    fn run(mut self, receiver: &Receiver<Message>) {
        loop {
            match receiver.recv_timeout(SYNC_PAUSE) {
                Ok(message) => {
                    if let Some(done) = self.take(message, receiver) {
                        self.sync();
                        // The end of the server may have given up waiting.
                        let _ = done.send(());
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.sync(),
            }
            if self.unsynced.is_some_and(|since| since.elapsed() >= SYNC_PAUSE) {
                self.sync();
            }
        }
    }

    /// Carries out what has come, with the entries that wait behind it. Returns who waits for the end, if it is wanted.
    fn take(&mut self, first: Message, receiver: &Receiver<Message>) -> Option<SyncSender<()>> {
        let mut entries = Vec::new();
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Entry(entry) => entries.push(*entry),
                Message::Page { before, limit, answer } => {
                    self.write(std::mem::take(&mut entries));
                    // Only this thread answers it.
                    let _ = answer.set(self.read(before, limit));
                }
                Message::Stop(done) => {
                    self.write(entries);
                    return Some(done);
                }
            }
            next = if entries.len() < AT_ONCE_MAX { receiver.try_recv().ok() } else { None };
        }
        self.write(entries);
        None
    }

    fn write(&mut self, mut entries: Vec<Entry>) {
        if entries.is_empty() {
            return;
        }
        let untold = self.counters.untold.swap(0, Relaxed);
        if untold > 0 {
            let lost = Entry::new(now_ms(), Who::SERVER, LOST).ended(UNKNOWN);
            entries.insert(0, Entry { count: Some(untold), ..lost });
        }
        let mut text = Vec::new();
        for (number, entry) in (self.store.next()..).zip(&entries) {
            entry.write(number, &mut text);
        }
        let count = entries.len() as u64;
        match self.store.append(&text, count) {
            Ok(()) => {
                self.counters.written.fetch_add(count, Relaxed);
                self.unsynced.get_or_insert_with(Instant::now);
                if self.said.take().is_some() {
                    tracing::info!("the audit log is written again");
                }
            }
            Err(error) => {
                let own = u64::from(untold > 0);
                self.counters.lose(count - own);
                self.counters.untold.fetch_add(untold, Relaxed);
                self.complain(&error);
            }
        }
        self.counters.bytes.store(self.store.bytes(), Relaxed);
    }

    fn complain(&mut self, error: &io::Error) {
        if self.said.is_none_or(|at| at.elapsed() >= SAID_PAUSE) {
            let lost = self.counters.lost.load(Relaxed);
            tracing::error!("the audit log cannot be written: {error}: {lost} entries are lost");
            self.said = Some(Instant::now());
        }
    }

    fn sync(&mut self) {
        if self.unsynced.take().is_some()
            && let Err(error) = self.store.sync()
        {
            self.complain(&error);
        }
    }

    fn read(&self, before: u64, limit: usize) -> Option<Page> {
        match self.store.page(before, limit) {
            Ok(lines) => Some(page_of(&lines, limit)),
            Err(error) => {
                tracing::error!("the audit log cannot be read: {error}");
                None
            }
        }
    }
}

/// Lines as they are answered.
fn page_of(lines: &[Vec<u8>], limit: usize) -> Page {
    let (mut entries, mut count) = (Vec::new(), 0);
    for line in lines {
        let before = entries.len();
        if json::to_msgpack(line, &mut entries).is_ok() {
            count += 1;
        } else {
            entries.truncate(before);
        }
    }
    let last = lines.last().filter(|_| lines.len() >= limit).and_then(|line| number_of(line));
    Page { entries, count, next: last.filter(|number| *number > 1) }
}

/// The time of this machine, in milliseconds since the epoch.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use corq_io::line_files::{Bounds, page};

    const BOUNDS: Bounds = Bounds { file_bytes_max: 1 << 20, files_max: 2 };

    fn entry(command: &'static str) -> Entry {
        Entry::new(1, Who::SERVER, command)
    }

    fn stop(log: &AuditLog) {
        log.stop(Instant::now() + Duration::from_mins(5));
    }

    fn commands(path: &std::path::Path) -> Vec<String> {
        let lines = page(path, u64::MAX, 100).unwrap();
        let command = |line: &Vec<u8>| {
            let value: serde_json::Value = serde_json::from_slice(line).unwrap();
            format!("{} {}", value["command"].as_str().unwrap(), value["count"])
        };
        lines.iter().map(command).collect()
    }

    #[test]
    fn a_stop_waits_for_all_entries_and_a_page_has_those_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let log = AuditLog::start(Store::in_folder(dir.path(), BOUNDS).unwrap()).unwrap();
        (0..3).for_each(|_| log.note(entry("Pause")));
        let answer = log.ask(u64::MAX, 2).unwrap();
        log.note(entry("Drain"));
        stop(&log);
        let page = answer.get().unwrap().clone().unwrap();
        assert_eq!((page.count, page.next), (2, Some(2)));
        assert_eq!(commands(dir.path())[0], "Drain null");
        assert_eq!(log.counters().written.load(Relaxed), 4);
        assert!(log.counters().bytes.load(Relaxed) > 0);
    }

    #[test]
    fn what_could_not_be_written_is_counted_and_told_by_the_next_entry() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        let counters = Arc::new(Counters::default());
        let store = Store::in_folder(&path, BOUNDS).unwrap();
        let mut writer =
            Writer { store, counters: Arc::clone(&counters), said: None, unsynced: None };
        // Where a link stands nothing is written.
        let name = path.join(format!("audit-{:020}.jsonl", 1));
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &name).unwrap();
        writer.write(vec![entry("A"), entry("B")]);
        writer.write(vec![entry("C")]);
        assert_eq!(counters.lost.load(Relaxed), 3);
        std::fs::remove_file(&name).unwrap();
        writer.write(vec![entry("D")]);
        writer.write(vec![entry("E")]);
        assert_eq!(commands(&path), ["E null", "D null", "EntriesLost 3"]);
        assert_eq!((counters.lost.load(Relaxed), counters.written.load(Relaxed)), (3, 3));
    }

    #[test]
    fn entries_beyond_those_that_may_wait_are_lost_and_no_shard_waits() {
        let (sender, receiver) = sync_channel(2);
        let log = AuditLog { sender, counters: Arc::default() };
        (0..5).for_each(|_| log.note(entry("A")));
        assert_eq!(log.counters().lost.load(Relaxed), 3);
        assert!(log.ask(u64::MAX, 1).is_none());
        drop(receiver);
        log.note(entry("A"));
        assert_eq!(log.counters().lost.load(Relaxed), 4);
    }
}
