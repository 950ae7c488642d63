//! Compares the clients' knowledge with the server's state after a kill.
//!
//! A client knows three things about each step of a job: not taken, answered, or sent without an
//! answer. The first two leave one truth each; only the third leaves two, and the first look at
//! the restarted server settles which: from then on it is as certain as the others.

use std::collections::HashMap;

/// How far the push of a job is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Push {
    Sent,
    Answered,
    /// The push was sent, and the server turned out not to have the job.
    Never,
}

/// How far the completion of a job is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Done {
    No,
    /// Completions, so many, were sent that have no answer: another worker may have the job by then.
    Sent(u32),
    /// Answered; the number says when, in the ledger's own count.
    Answered(u64),
}

/// A job as the clients know it. Its number in the ledger travels in its payload.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) id: Option<String>,
    pub(crate) push: Push,
    pub(crate) done: Done,
}

/// A job as the server shows it.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) number: usize,
    pub(crate) id: String,
    pub(crate) state: String,
}

/// A difference between the two that no kill excuses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The push was answered, the job was not completed, and it is not there.
    Lost(usize),
    /// The completion was answered, and the job is there to be done again.
    Resurrected(usize),
    /// The completion was answered, and there is no trace of it.
    Forgotten(usize),
    /// Nobody has completed the job, and it is completed.
    CompletedByNobody(usize),
    /// A push has made two jobs.
    Doubled(usize),
    /// A job that was not there before, or that nobody pushed.
    Ghost(usize),
    /// The job goes by another id than the one that was answered.
    Renamed(usize),
    /// Two completions of one job were answered.
    CompletedTwice(usize),
    /// A state that the protocol does not know.
    Strange(usize, String),
}

#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) jobs: Vec<Job>,
    /// The server forgets a job on its completion, so that a completed job is one that is gone.
    pub(crate) forgets: bool,
    /// Answers so far; the moments of kills are chosen by it.
    pub(crate) answers: u64,
    /// About how many jobs are not completed; [`Self::count_open`] counts them.
    pub(crate) open: u64,
    /// Pushes refused for want of room.
    pub(crate) refusals: u64,
    /// Faults that were found while the server was up.
    pub(crate) faults: Vec<Fault>,
}

impl Ledger {
    /// A push is about to be sent; answers the job's number.
    pub(crate) fn pushing(&mut self) -> usize {
        self.jobs.push(Job { id: None, push: Push::Sent, done: Done::No });
        self.jobs.len() - 1
    }

    /// The push was refused: the job must never be seen.
    pub(crate) fn not_pushed(&mut self, number: usize) {
        self.answers += 1;
        self.jobs[number].push = Push::Never;
    }

    pub(crate) fn pushed(&mut self, number: usize, id: &str) {
        self.answers += 1;
        self.open += 1;
        let job = &mut self.jobs[number];
        job.push = Push::Answered;
        job.id = Some(id.to_owned());
    }

    /// A pull, sent when the ledger stood at `sent_at` answers, has brought this job.
    pub(crate) fn delivered(&mut self, number: usize, id: &str, sent_at: u64) {
        self.answers += 1;
        let Some(job) = self.jobs.get_mut(number) else {
            self.faults.push(Fault::Ghost(number));
            return;
        };
        if job.push == Push::Never {
            self.faults.push(Fault::Ghost(number));
        }
        if job.id.as_deref().is_some_and(|known| known != id) {
            self.faults.push(Fault::Renamed(number));
        }
        if matches!(job.done, Done::Answered(at) if at <= sent_at) {
            self.faults.push(Fault::Resurrected(number));
        }
    }

    pub(crate) fn completing(&mut self, number: usize) {
        let job = &mut self.jobs[number];
        job.done = match job.done {
            Done::No => Done::Sent(1),
            Done::Sent(others) => Done::Sent(others + 1),
            answered @ Done::Answered(_) => answered,
        };
    }

    pub(crate) fn completed(&mut self, number: usize) {
        self.answers += 1;
        let job = &mut self.jobs[number];
        if matches!(job.done, Done::Answered(_)) {
            self.faults.push(Fault::CompletedTwice(number));
        }
        self.open = self.open.saturating_sub(1);
        job.done = Done::Answered(self.answers);
    }

    /// The completion was refused. Another's may still have counted, so only a doubt is undone
    /// here that this one has raised.
    pub(crate) fn not_completed(&mut self, number: usize) {
        self.answers += 1;
        let job = &mut self.jobs[number];
        job.done = match job.done {
            Done::No | Done::Sent(0 | 1) => Done::No,
            Done::Sent(doubts) => Done::Sent(doubts - 1),
            answered @ Done::Answered(_) => answered,
        };
    }

    /// An answer that says nothing about a job.
    pub(crate) fn answered(&mut self) {
        self.answers += 1;
    }

    /// Compares with all that the server shows, and settles what was in doubt.
    pub(crate) fn reconcile(&mut self, shown: &[Shown]) -> Vec<Fault> {
        let mut faults = std::mem::take(&mut self.faults);
        let mut by_number: HashMap<usize, &Shown> = HashMap::new();
        for each in shown {
            if by_number.insert(each.number, each).is_some() {
                faults.push(Fault::Doubled(each.number));
            }
            if each.number >= self.jobs.len() {
                faults.push(Fault::Ghost(each.number));
            }
        }
        self.open = shown.iter().filter(|job| job.state != "completed").count() as u64;
        let (now, forgets) = (self.answers, self.forgets);
        for (number, job) in self.jobs.iter_mut().enumerate() {
            faults.extend(match by_number.get(&number) {
                Some(shown) => judge(number, job, shown, now),
                None if forgets => judge_forgotten(number, job, now),
                None => judge_absent(number, job),
            });
        }
        faults
    }

    /// Jobs that exist and are not completed, as far as the clients know.
    pub(crate) fn count_open(&self) -> usize {
        self.existing().filter(|job| !matches!(job.done, Done::Answered(_))).count()
    }

    pub(crate) fn existing(&self) -> impl Iterator<Item = &Job> {
        self.jobs.iter().filter(|job| job.push == Push::Answered)
    }
}

fn judge(number: usize, job: &mut Job, shown: &Shown, now: u64) -> Option<Fault> {
    match (job.push, &job.id) {
        (Push::Never, _) => return Some(Fault::Ghost(number)),
        (_, Some(id)) if *id != shown.id => return Some(Fault::Renamed(number)),
        _ => {}
    }
    job.push = Push::Answered;
    job.id = Some(shown.id.clone());
    let completed = match shown.state.as_str() {
        "completed" => true,
        "waiting" | "delayed" | "active" | "failed" => false,
        other => return Some(Fault::Strange(number, other.to_owned())),
    };
    match (job.done, completed) {
        (Done::Answered(_), false) => Some(Fault::Resurrected(number)),
        (Done::No, true) => Some(Fault::CompletedByNobody(number)),
        (Done::Sent(_), true) => {
            job.done = Done::Answered(now);
            None
        }
        (Done::Sent(_), false) => {
            job.done = Done::No;
            None
        }
        (Done::Answered(_), true) | (Done::No, false) => None,
    }
}

fn judge_absent(number: usize, job: &mut Job) -> Option<Fault> {
    match (job.push, job.done) {
        (Push::Never, _) => None,
        (Push::Sent, Done::No) => {
            job.push = Push::Never;
            None
        }
        (_, Done::Answered(_)) => Some(Fault::Forgotten(number)),
        // A job that was seen proves that its push arrived.
        (Push::Answered, _) | (Push::Sent, Done::Sent(_)) => Some(Fault::Lost(number)),
    }
}

/// A job that is not there, on a server that forgets what is completed.
fn judge_forgotten(number: usize, job: &mut Job, now: u64) -> Option<Fault> {
    match job.done {
        Done::No => return judge_absent(number, job),
        Done::Sent(_) => job.done = Done::Answered(now),
        // The id is needed no more, and a long run has millions of them.
        Done::Answered(_) => job.id = None,
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twenty jobs pushed; the even ones of the first ten completed; 18 and 19 in doubt.
    fn history() -> (Ledger, Vec<Shown>) {
        let mut ledger = Ledger::default();
        let mut shown = Vec::new();
        for n in 0..20 {
            let number = ledger.pushing();
            let id = format!("id-{number}");
            if n < 18 {
                ledger.pushed(number, &id);
            }
            let mut state = "waiting";
            if n < 10 && n % 2 == 0 {
                ledger.delivered(number, &id, ledger.answers);
                ledger.completing(number);
                ledger.completed(number);
                state = "completed";
            }
            shown.push(Shown { number, id, state: state.to_owned() });
        }
        (ledger, shown)
    }

    #[test]
    fn an_honest_server_is_found_without_fault() {
        let (mut ledger, mut shown) = history();
        assert_eq!(ledger.reconcile(&shown), []);
        // The first look settles doubts: the job was there, so it must stay.
        shown.pop();
        assert_eq!(ledger.reconcile(&shown), [Fault::Lost(19)]);
    }

    #[test]
    fn a_lost_job_and_a_resurrected_one_are_reported() {
        let (mut ledger, mut shown) = history();
        shown[4].state = "waiting".to_owned();
        shown.remove(11);
        assert_eq!(ledger.reconcile(&shown), [Fault::Resurrected(4), Fault::Lost(11)]);
    }

    #[test]
    fn a_completed_job_without_trace_is_reported() {
        let (mut ledger, mut shown) = history();
        shown.remove(2);
        assert_eq!(ledger.reconcile(&shown), [Fault::Forgotten(2)]);
    }

    #[test]
    fn a_job_completed_by_nobody_a_double_and_a_stranger_are_reported() {
        let (mut ledger, mut shown) = history();
        shown[1].state = "completed".to_owned();
        shown[12].id = "other".to_owned();
        shown[13].state = "confused".to_owned();
        shown.push(shown[15].clone());
        shown.push(Shown { number: 77, id: "id-77".into(), state: "waiting".into() });
        let expected = [
            Fault::Doubled(15),
            Fault::Ghost(77),
            Fault::CompletedByNobody(1),
            Fault::Renamed(12),
            Fault::Strange(13, "confused".into()),
        ];
        assert_eq!(ledger.reconcile(&shown), expected);
    }

    #[test]
    fn an_unanswered_push_that_is_absent_once_must_stay_absent() {
        let (mut ledger, shown) = history();
        assert_eq!(ledger.reconcile(&shown[..19]), []);
        assert_eq!(ledger.reconcile(&shown), [Fault::Ghost(19)]);
    }

    #[test]
    fn a_completed_job_that_is_delivered_again_is_reported() {
        let (mut ledger, shown) = history();
        let before = ledger.answers;
        ledger.delivered(0, "id-0", before);
        assert_eq!(ledger.reconcile(&shown), [Fault::Resurrected(0)]);
        // A delivery that was asked for before the completion was answered may be older than it.
        ledger.delivered(0, "id-0", 0);
        assert_eq!(ledger.reconcile(&shown), []);
    }

    #[test]
    fn two_answered_completions_of_one_job_are_reported() {
        let (mut ledger, shown) = history();
        ledger.completing(0);
        ledger.completed(0);
        assert_eq!(ledger.reconcile(&shown), [Fault::CompletedTwice(0)]);
    }

    #[test]
    fn an_unanswered_completion_may_have_counted_or_not() {
        for state in ["completed", "active"] {
            let (mut ledger, mut shown) = history();
            ledger.completing(15);
            shown[15].state = state.to_owned();
            assert_eq!(ledger.reconcile(&shown), []);
            let expected = if state == "completed" { 4 + 10 } else { 4 + 11 };
            assert_eq!(ledger.count_open(), expected, "{state}");
        }
    }

    #[test]
    fn on_a_server_that_forgets_only_completed_jobs_may_be_gone() {
        let (mut ledger, mut shown) = history();
        ledger.forgets = true;
        ledger.completing(11);
        shown.retain(|job| ![0, 2, 4, 6, 8, 11].contains(&job.number));
        assert_eq!(ledger.reconcile(&shown), []);
        assert_eq!(ledger.jobs[11].done, Done::Answered(ledger.answers));
        let waiting =
            |number| Shown { number, id: format!("id-{number}"), state: "waiting".into() };
        shown.extend([waiting(11), waiting(4)]);
        shown.remove(0);
        let expected = [Fault::Lost(1), Fault::Resurrected(4), Fault::Resurrected(11)];
        assert_eq!(ledger.reconcile(&shown), expected);
    }

    #[test]
    fn a_refused_push_must_never_be_seen() {
        let (mut ledger, shown) = history();
        ledger.not_pushed(19);
        assert_eq!(ledger.reconcile(&shown), [Fault::Ghost(19)]);
    }

    #[test]
    fn a_refused_completion_leaves_the_doubt_of_another() {
        let (mut ledger, mut shown) = history();
        ledger.completing(15);
        ledger.completing(15);
        ledger.not_completed(15);
        shown[15].state = "completed".to_owned();
        assert_eq!(ledger.reconcile(&shown), []);
    }
}
