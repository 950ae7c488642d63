//! The clients' knowledge of every job, and reasons for which a job may be gone.
//!
//! Between two looks at a server at rest, a job can only go for a reason: its own options, a command
//! that was sent (answered or not), a rule of its queue. Whatever goes without one is lost; whatever
//! comes back after its end was answered is resurrected. Each look settles all doubts.

use std::collections::{HashMap, HashSet};

use serde_json::Value as Json;

use crate::torture::commands::{Command, REMOVING};

/// A difference that nothing excuses.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Fault {
    /// The push of the job was answered, nothing has ended it, and it is gone.
    Lost(String),
    /// The job is there although its end was answered.
    Resurrected(String),
    /// The job goes by another id than its push was answered with.
    Renamed(u64, String, String),
    /// A push has made two jobs.
    Doubled(u64, String, String),
    /// A job of a number that no push had.
    Ghost(String),
}

/// A job as it was last seen or answered.
#[derive(Clone, Default, Debug)]
struct Entry {
    /// Queues that the job may be in: an id of the client's own can begin anew elsewhere.
    queues: Vec<String>,
    key: Option<String>,
    /// The job's own options end it without a command.
    ends_by_itself: bool,
    goes_when_completed: bool,
    is_child: bool,
    /// A completion was sent.
    is_acked: bool,
    /// A command that ends or removes this job was sent.
    is_touched: bool,
    /// The answer may be about another job than was pushed.
    is_vague: bool,
    is_completed: bool,
}

/// Possible states of each job, and why it may be gone.
#[derive(Default)]
pub(crate) struct Ledger {
    entries: HashMap<String, Entry>,
    /// Ids by the numbers in payloads, as answered.
    answered: HashMap<u64, String>,
    pub(crate) next_number: u64,
    /// Server-made ids whose removal was answered.
    removed: HashSet<String>,
    /// Jobs that are completed, as answered or seen.
    completed: HashSet<String>,
    /// Commands of the current round that take away, or bring back, jobs of whole queues.
    emptied: HashSet<String>,
    retried: HashSet<String>,
    /// Completed jobs that a command has brought elsewhere.
    discarded: HashSet<String>,
    replaced: HashSet<(String, String)>,
    children_removed: bool,
    /// Jobs that others have named as their children.
    children: HashSet<String>,
    /// Schedules replace holders of keys for as long as they are.
    replaced_by_crons: HashSet<(String, String)>,
    /// Queues whose dead-letter queue has bounds.
    pub(crate) bounded: HashSet<String>,
    /// Completed jobs beyond this many of a queue are forgotten.
    completed_max: u64,
    /// The least of what that was since the last look: a setting acts until the stop, another from the start.
    least_completed_max: u64,
    /// Jobs pushed since the last look, for those who would push more.
    pub(crate) pushed: u64,
}

fn text<'a>(fields: &'a Json, name: &str) -> Option<&'a str> {
    fields[name].as_str()
}

fn ids_of(command: &Command) -> impl Iterator<Item = &str> {
    let many = command.fields.get("ids").and_then(Json::as_array).into_iter().flatten();
    let one = ["id", "jobId"].into_iter().filter_map(|name| command.fields.get(name));
    many.chain(one).filter_map(Json::as_str)
}

/// Jobs that a command pushes, each with its queue.
fn pushes_of(command: &Command) -> Vec<(String, Json)> {
    let fields = &command.fields;
    let queue = fields.get("queue").and_then(Json::as_str).unwrap_or_default();
    let jobs = || fields.get("jobs").and_then(Json::as_array).into_iter().flatten();
    match command.name {
        "PUSH" => vec![(queue.to_owned(), Json::Object(fields.clone()))],
        "PUSHB" => jobs().map(|job| (queue.to_owned(), job.clone())).collect(),
        "PUSHF" => jobs()
            .map(|job| {
                let mut input = job["input"].clone();
                input["customId"] = job["id"].clone();
                (text(job, "queue").unwrap_or_default().to_owned(), input)
            })
            .collect(),
        _ => Vec::new(),
    }
}

fn key_of(job: &Json) -> Option<&str> {
    text(job, "uniqueKey").or(text(job, "debounceId"))
}

fn custom_id_of(job: &Json) -> Option<&str> {
    text(job, "jobId").or(text(job, "customId"))
}

/// Whether the server has made this id.
pub(crate) fn is_made_by_server(id: &str) -> bool {
    id.len() == 36 && id.as_bytes()[14] == b'7'
}

impl Ledger {
    /// A command is about to be sent.
    pub(crate) fn sending(&mut self, command: &Command) {
        let fields = &command.fields;
        let queue = fields.get("queue").and_then(Json::as_str).unwrap_or_default().to_owned();
        let says = |name: &str| fields.get(name).is_some_and(|flag| flag == true);
        match command.name {
            name if REMOVING.contains(&name) => {
                // An action on many may let jobs run anew as well.
                if name == "Bulk" {
                    self.retried.insert(queue.clone());
                }
                self.emptied.insert(queue);
            }
            "SetDlqConfig" => drop(self.bounded.insert(queue)),
            "RetryCompleted" => drop(self.retried.insert(queue)),
            "RemoveUnprocessedChildren" => self.children_removed = true,
            "Cancel" | "RemoveDlqJob" => self.touch(command, |entry| entry.is_touched = true),
            "Discard" => self.discarded.extend(ids_of(command).map(str::to_owned)),
            "FAIL" if says("removeOnFail") => self.touch(command, |entry| entry.is_touched = true),
            "ACK" | "ACKB" => {
                let flags = fields.get("removeOnCompletes").and_then(Json::as_array);
                let goes = says("removeOnComplete") || flags.is_some_and(|list| !list.is_empty());
                self.touch(command, |entry| {
                    entry.is_acked = true;
                    entry.goes_when_completed |= goes;
                });
            }
            "UpdateParent" => {
                if let Some(id) = fields.get("childId").and_then(Json::as_str) {
                    self.entries.entry(id.to_owned()).or_insert_with(vague).is_child = true;
                }
            }
            "Cron" => {
                let job = Json::Object(fields.clone());
                // Without a key its runs have one of their own, if they must not overlap.
                let own = text(&job, "name").map(|name| format!("cron:{name}"));
                if let (Some(key), true) =
                    (key_of(&job).map(str::to_owned).or(own), job["dedup"]["replace"] == true)
                {
                    self.replaced_by_crons.insert((queue, key));
                }
            }
            _ => {}
        }
        for (queue, job) in pushes_of(command) {
            self.pushed += 1;
            let children = job["childrenIds"].as_array().into_iter().flatten();
            self.children.extend(children.filter_map(Json::as_str).map(str::to_owned));
            if let (Some(key), true) = (key_of(&job), job["dedup"]["replace"] == true) {
                self.replaced.insert((queue, key.to_owned()));
            }
        }
    }

    fn touch(&mut self, command: &Command, change: impl Fn(&mut Entry)) {
        for id in ids_of(command) {
            change(self.entries.entry(id.to_owned()).or_insert_with(vague));
        }
    }

    /// A command was answered.
    pub(crate) fn answered(&mut self, command: &Command, reply: &Json) {
        let pushes = pushes_of(command);
        let was_done = reply["ok"] == true && reply["data"]["applied"] != false;
        if !was_done {
            return;
        }
        let ids: Vec<&str> = match command.name {
            "PUSH" => text(reply, "id").into_iter().collect(),
            "PUSHB" => {
                reply["ids"].as_array().into_iter().flatten().filter_map(Json::as_str).collect()
            }
            "PUSHF" => pushes.iter().filter_map(|(_, job)| text(job, "customId")).collect(),
            _ => Vec::new(),
        };
        for ((queue, job), id) in pushes.iter().zip(ids) {
            self.pushed_as(queue, job, id);
        }
        let goes = command.fields.get("removeOnComplete").is_some_and(|flag| flag == true);
        let id = command.fields.get("id").and_then(Json::as_str).unwrap_or_default();
        match command.name {
            "Cancel" => self.removed_for_good(id),
            "ACK" if goes => self.removed_for_good(id),
            "ACK" => drop(self.completed.insert(id.to_owned())),
            _ => {}
        }
    }

    fn removed_for_good(&mut self, id: &str) {
        if is_made_by_server(id) {
            self.removed.insert(id.to_owned());
        }
    }

    fn pushed_as(&mut self, queue: &str, job: &Json, id: &str) {
        let number = job["data"]["number"].as_u64();
        if let Some(number) = number {
            self.answered.insert(number, id.to_owned());
        }
        let key = key_of(job).map(str::to_owned);
        // Another job may have the name, and then it is that one's options that count.
        let is_vague = key.is_some() || custom_id_of(job).is_some() && !id.starts_with("flow-");
        let entry = self.entries.entry(id.to_owned()).or_default();
        let is_new = entry.queues.is_empty();
        if !entry.queues.iter().any(|known| known == queue) {
            entry.queues.push(queue.to_owned());
        }
        entry.is_vague |= is_vague && is_new;
        entry.key = key.or(entry.key.take());
        entry.ends_by_itself |= job["ttl"].as_u64() > Some(0) || job["removeOnFail"] == true;
        entry.goes_when_completed |= job["removeOnComplete"] == true;
        entry.is_child |= !job["parentId"].is_null();
    }

    /// Jobs that are there, about, for those who would push more.
    pub(crate) fn count(&self) -> u64 {
        self.pushed + self.entries.len() as u64
    }

    /// A server that never kept any other number of completed jobs.
    pub(crate) fn begin(&mut self, completed_max: u64) {
        (self.completed_max, self.least_completed_max) = (completed_max, completed_max);
    }

    /// From its next start, the server keeps so many completed jobs of a queue.
    pub(crate) fn set_completed_max(&mut self, completed_max: u64) {
        self.completed_max = completed_max;
        self.least_completed_max = self.least_completed_max.min(completed_max);
    }

    /// Compares with all jobs that the server has, at rest, and settles every doubt.
    pub(crate) fn look(&mut self, listed: &[Json]) -> Vec<Fault> {
        let mut faults = Vec::new();
        let by_id: HashMap<&str, &Json> =
            listed.iter().filter_map(|job| Some((job["id"].as_str()?, job))).collect();
        for (id, entry) in &self.entries {
            if !by_id.contains_key(id.as_str()) && !self.is_excused(id, entry) {
                faults.push(Fault::Lost(format!("{id} {entry:?}")));
            }
        }
        let mut numbers: HashMap<u64, &str> = HashMap::new();
        for (&id, job) in &by_id {
            let queue = text(job, "queue").unwrap_or_default();
            let stays = !self.retried.contains(queue) && !self.discarded.contains(id);
            // An id of the client's own may have begun anew.
            let is_back = self.completed.contains(id)
                && job["state"] != "completed"
                && stays
                && is_made_by_server(id);
            if self.removed.contains(id) || is_back {
                faults.push(Fault::Resurrected(job.to_string()));
            }
            let Some(number) = job["data"]["number"].as_u64() else { continue };
            if number >= self.next_number {
                faults.push(Fault::Ghost(job.to_string()));
            }
            // The runs of a series share their payload.
            if !job["repeat"].is_null() {
                continue;
            }
            if let Some(known) = self.answered.get(&number).filter(|known| *known != id) {
                faults.push(Fault::Renamed(number, known.clone(), id.to_owned()));
            }
            if let Some(other) = numbers.insert(number, id) {
                faults.push(Fault::Doubled(number, other.to_owned(), id.to_owned()));
            }
        }
        faults.sort();
        if faults.is_empty() {
            self.settle(&by_id);
        }
        faults
    }

    fn is_excused(&self, id: &str, entry: &Entry) -> bool {
        let in_one_of =
            |set: &HashSet<String>| entry.queues.iter().any(|queue| set.contains(queue));
        let evicts = self.least_completed_max < 1_000_000;
        let is_replaced = |key: &String| {
            entry.queues.iter().any(|queue| {
                let place = (queue.clone(), key.clone());
                self.replaced.contains(&place) || self.replaced_by_crons.contains(&place)
            })
        };
        entry.is_vague
            || entry.ends_by_itself
            || entry.is_touched
            || entry.is_acked && (evicts || entry.goes_when_completed)
            || entry.is_completed && evicts
            || self.children_removed && (entry.is_child || self.children.contains(id))
            || in_one_of(&self.emptied)
            || in_one_of(&self.bounded)
            || entry.key.as_ref().is_some_and(is_replaced)
    }

    fn settle(&mut self, by_id: &HashMap<&str, &Json>) {
        self.entries = by_id.iter().map(|(&id, job)| (id.to_owned(), entry_of(job))).collect();
        let completed = self.entries.iter().filter(|(_, entry)| entry.is_completed);
        self.completed = completed.map(|(id, _)| id.clone()).collect();
        self.emptied.clear();
        self.retried.clear();
        self.discarded.clear();
        self.replaced.clear();
        self.children_removed = false;
        self.least_completed_max = self.completed_max;
        self.pushed = 0;
    }
}

fn vague() -> Entry {
    Entry { is_vague: true, ..Entry::default() }
}

fn entry_of(job: &Json) -> Entry {
    Entry {
        queues: text(job, "queue").map(str::to_owned).into_iter().collect(),
        key: text(job, "uniqueKey").map(str::to_owned),
        ends_by_itself: job["ttl"].as_u64() > Some(0) || job["removeOnFail"] == true,
        goes_when_completed: job["removeOnComplete"] == true,
        is_child: !job["parentId"].is_null(),
        is_completed: job["state"] == "completed",
        ..Entry::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ID: &str = "01234567-89ab-7def-8000-000000000000";

    fn command(name: &'static str, fields: Json) -> Command {
        let Json::Object(fields) = fields else { panic!("fields are an object") };
        Command { name, fields, is_endless: false }
    }

    fn ledger() -> Ledger {
        let mut ledger = Ledger { next_number: 10, ..Ledger::default() };
        let push = command("PUSH", json!({"queue": "q", "data": {"number": 3}}));
        ledger.begin(100);
        ledger.sending(&push);
        ledger.answered(&push, &json!({"ok": true, "id": ID}));
        ledger
    }

    fn shown(id: &str, number: u64, state: &str) -> Json {
        json!({"id": id, "queue": "q", "state": state, "data": {"number": number}})
    }

    #[test]
    fn a_job_that_goes_without_a_reason_is_lost() {
        let mut ledger = ledger();
        assert!(matches!(ledger.look(&[])[..], [Fault::Lost(_)]));
        assert_eq!(ledger.look(&[shown(ID, 3, "waiting")]), []);
        assert!(matches!(ledger.look(&[])[..], [Fault::Lost(_)]));
    }

    #[test]
    fn a_reason_counts_until_the_next_look() {
        for reason in [
            command("Cancel", json!({"id": ID})),
            command("Drain", json!({"queue": "q"})),
            command("ACK", json!({"id": ID})),
        ] {
            let mut ledger = ledger();
            ledger.sending(&reason);
            assert_eq!(ledger.look(&[shown(ID, 3, "waiting")]), []);
            assert!(matches!(ledger.look(&[])[..], [Fault::Lost(_)]), "{reason:?}");
            ledger.sending(&reason);
            assert_eq!(ledger.look(&[]), []);
        }
    }

    #[test]
    fn a_completion_excuses_nothing_where_all_completed_jobs_are_kept() {
        let mut ledger = ledger();
        ledger.begin(1_000_000);
        ledger.sending(&command("ACK", json!({"id": ID})));
        assert!(matches!(ledger.look(&[])[..], [Fault::Lost(_)]));
    }

    #[test]
    fn a_setting_excuses_what_it_did_before_the_next_start() {
        let mut ledger = ledger();
        ledger.sending(&command("ACK", json!({"id": ID})));
        ledger.set_completed_max(1_000_000);
        assert_eq!(ledger.look(&[]), []);
        assert_eq!(ledger.look(&[shown(ID, 3, "completed")]), []);
        assert!(matches!(ledger.look(&[])[..], [Fault::Lost(_)]));
    }

    #[test]
    fn a_job_that_comes_back_from_its_end_is_found() {
        for (name, state) in [("Cancel", "waiting"), ("ACK", "waiting")] {
            let mut ledger = ledger();
            let end = command(name, json!({"id": ID}));
            ledger.sending(&end);
            ledger.answered(&end, &json!({"ok": true}));
            assert!(matches!(ledger.look(&[shown(ID, 3, state)])[..], [Fault::Resurrected(_)]));
        }
        let mut ledger = ledger();
        assert_eq!(ledger.look(&[shown(ID, 3, "completed")]), []);
        ledger.sending(&command("RetryCompleted", json!({"queue": "q"})));
        assert_eq!(ledger.look(&[shown(ID, 3, "waiting")]), []);
    }

    #[test]
    fn a_wrong_id_a_double_and_a_ghost_are_found() {
        let other = "01234567-89ab-7def-8000-000000000001";
        let mut ledger = ledger();
        let faults = ledger.look(&[shown(other, 3, "waiting")]);
        assert!(faults.contains(&Fault::Renamed(3, ID.into(), other.into())), "{faults:?}");
        let faults = ledger.look(&[shown(ID, 3, "waiting"), shown(other, 3, "waiting")]);
        assert!(faults.iter().any(|fault| matches!(fault, Fault::Doubled(3, ..))), "{faults:?}");
        let faults = ledger.look(&[shown(ID, 3, "waiting"), shown(other, 99, "waiting")]);
        assert!(matches!(faults[..], [Fault::Ghost(_)]), "{faults:?}");
    }
}
