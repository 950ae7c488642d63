//! A client's choice of events: of which queues, types and jobs, and of how many. A choice is a value: clients that
//! choose the same share it, with all that is made for it.
//!
//! A choice is bounded when it is made ([`EVENT_NAMES_MAX`](crate::api::limits::EVENT_NAMES_MAX) of each, one star in a
//! pattern), so that asking it costs a few comparisons, whatever its client has written.

use super::kinds::Kinds;
use super::targets::Target;
use super::text::About;
use crate::api::access::{Grant, Permission, QueuePatterns, Scope};
use crate::protocol::json;
use std::cmp::Ordering;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The queues of a token, told apart by where its list lies: there is one of each, see [`Scope`].
#[derive(Clone, Copy, Debug, Default)]
struct Limits(Scope);

impl Limits {
    fn place(self) -> *const QueuePatterns {
        self.0.map_or(std::ptr::null(), std::ptr::from_ref)
    }
}

impl PartialEq for Limits {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.place(), other.place())
    }
}

impl Eq for Limits {}

impl PartialOrd for Limits {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Limits {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place().cmp(&other.place())
    }
}

/// Verdict of a choice on an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Not asked for.
    Other,
    /// Asked for, and passed over: another job stands for it.
    PassedOver,
    Wanted,
}

/// Choice of a client among events.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Choice {
    pub kinds: Kinds,
    /// Names, in their order. All queues, if there are neither names nor patterns.
    names: Vec<Box<str>>,
    /// Names with one star, in their order.
    patterns: Vec<Box<str>>,
    /// Ids as JSON, in their order. All jobs, if there are none.
    jobs: Vec<Box<[u8]>>,
    /// Events of one of this many jobs are heard.
    pub sample: u32,
    limits: Limits,
}

impl Choice {
    /// Every event of every queue.
    pub fn all() -> Self {
        let (names, patterns, jobs) = (Vec::new(), Vec::new(), Vec::new());
        Self { kinds: Kinds::ALL, names, patterns, jobs, sample: 1, limits: Limits(None) }
    }

    /// None of them.
    pub fn nothing() -> Self {
        Self { kinds: Kinds::NONE, ..Self::all() }
    }

    /// All events of a queue, or of all.
    pub fn of_queue(queue: Option<&str>) -> Self {
        Self::all().of_queues(queue.into_iter())
    }

    /// Of these queues only, if there are any.
    #[must_use]
    pub fn of_queues<'n>(mut self, queues: impl Iterator<Item = &'n str>) -> Self {
        for queue in queues {
            let list = if queue.contains('*') { &mut self.patterns } else { &mut self.names };
            list.push(queue.into());
        }
        for list in [&mut self.names, &mut self.patterns] {
            list.sort_unstable();
            list.dedup();
        }
        self
    }

    /// Of these jobs only, if there are any.
    #[must_use]
    pub fn of_jobs<'n>(mut self, jobs: impl Iterator<Item = &'n str>) -> Self {
        self.jobs = jobs.map(as_json).collect();
        self.jobs.sort_unstable();
        self.jobs.dedup();
        self
    }

    /// The choice, restricted to what a client may hear.
    #[must_use]
    pub fn within(&self, grant: Grant) -> Self {
        if !grant.has(Permission::Read) {
            return Self::nothing();
        }
        Self { limits: Limits(grant.queues), ..self.clone() }
    }

    /// Whether it was made within these queues.
    pub fn is_within(&self, scope: Scope) -> bool {
        self.limits == Limits(scope)
    }

    /// The names and patterns of queues, as a client gave them.
    pub fn queues(&self) -> impl Iterator<Item = &str> {
        self.names.iter().chain(&self.patterns).map(|queue| &**queue)
    }

    /// How many patterns a client gave.
    pub fn patterns(&self) -> usize {
        self.patterns.len()
    }

    /// With how many patterns the queue of an event is compared at most, those of a token among them.
    pub fn comparisons(&self) -> usize {
        self.patterns.len() + self.limits.0.map_or(0, |queues| queues.iter().count())
    }

    /// Memory that it takes, about.
    pub fn bytes(&self) -> usize {
        let texts = self.queues().map(str::len).chain(self.jobs.iter().map(|job| job.len()));
        texts.map(|length| length + ITEM_BYTES).sum()
    }

    /// The targets of the choice: an event that it wants is of one of these.
    pub fn targets(&self) -> Vec<Target> {
        if self.kinds == Kinds::NONE {
            return Vec::new();
        }
        if !self.jobs.is_empty() {
            return self.jobs.iter().cloned().map(Target::Job).collect();
        }
        let of_token = self.limits.0.into_iter().flat_map(QueuePatterns::iter);
        let of_token = of_token.filter(|_| self.queues().next().is_none());
        let mut targets: Vec<Target> =
            self.queues().chain(of_token).map(Target::of_queues).collect();
        if targets.is_empty() {
            targets.push(Target::Under("".into()));
        }
        targets.sort_unstable();
        targets.dedup();
        targets
    }

    /// Whether an event is wanted. `seed` decides which jobs stand for the others.
    pub fn judge(&self, about: &About<'_>, seed: u64) -> Verdict {
        let wants = self.kinds.has(about.kind)
            && (self.jobs.is_empty()
                || self.jobs.binary_search_by(|job| (**job).cmp(about.job)).is_ok())
            && (self.names.is_empty() && self.patterns.is_empty()
                || self.names.binary_search_by(|name| (**name).cmp(about.queue)).is_ok()
                || self.patterns.iter().any(|pattern| fits_star(pattern, about.queue)))
            && self.limits.0.is_none_or(|queues| queues.cover(about.queue));
        match wants {
            false => Verdict::Other,
            true if self.sample > 1 && about.job.len() > 2 => {
                let mut hasher = DefaultHasher::new();
                (seed, about.job).hash(&mut hasher);
                let stands = hasher.finish().is_multiple_of(u64::from(self.sample));
                if stands { Verdict::Wanted } else { Verdict::PassedOver }
            }
            true => Verdict::Wanted,
        }
    }
}

/// Memory of an item beside its text, about.
const ITEM_BYTES: usize = 64;

/// An id as it stands in the text of an event.
fn as_json(id: &str) -> Box<[u8]> {
    let mut text = Vec::with_capacity(id.len() + 2);
    json::string(&mut text, id);
    text.into()
}

/// Whether a name fits a pattern with one star.
fn fits_star(pattern: &str, name: &str) -> bool {
    let Some((front, back)) = pattern.split_once('*') else { return pattern == name };
    name.len() >= front.len() + back.len() && name.starts_with(front) && name.ends_with(back)
}

/// Whether a text is the name of a queue, or one with a star in it.
pub fn is_pattern(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:*".contains(&byte);
    !text.is_empty()
        && text.len() <= crate::api::limits::QUEUE_CHARS_MAX as usize
        && text.bytes().all(is_plain)
        && text.bytes().filter(|byte| *byte == b'*').count() <= 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::access::Role;

    fn about<'e>(queue: &'e str, kind: u8, job: &'e [u8]) -> About<'e> {
        About { queue, kind, job }
    }

    fn wants(choice: &Choice, queue: &str, kind: u8, job: &[u8]) -> bool {
        choice.judge(&about(queue, kind, job), 7) == Verdict::Wanted
    }

    #[test]
    fn an_event_is_wanted_if_all_that_was_chosen_fits() {
        let all = Choice::all();
        assert!(wants(&all, "q", 0, b"\"a\"") && wants(&all, "q", 13, b"\"\""));
        let choice = Choice::all().of_queues(["b", "a.*", "b"].into_iter());
        let choice = Choice { kinds: Kinds(1), ..choice.of_jobs(["1", "2\""].into_iter()) };
        assert!(wants(&choice, "a.x", 0, b"\"1\"") && wants(&choice, "b", 0, b"\"2\\\"\""));
        for (queue, kind, job) in
            [("c", 0, b"\"1\""), ("b", 1, b"\"1\""), ("b", 0, b"\"3\""), ("a", 0, b"\"1\"")]
        {
            assert!(!wants(&choice, queue, kind, job), "{queue} {kind}");
        }
        assert!(!wants(&Choice::nothing(), "q", 0, b"\"a\""));
    }

    #[test]
    fn a_star_stands_for_any_characters_and_there_is_one() {
        for (pattern, name, fits) in [
            ("a.*", "a.", true),
            ("a.*", "a.b.c", true),
            ("a.*", "a", false),
            ("*.eu", "x.eu", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("*", "x", true),
        ] {
            assert_eq!(fits_star(pattern, name), fits, "{pattern} {name}");
        }
        assert!(is_pattern("a.*:b") && is_pattern("*"));
        for wrong in ["", "a*b*", "**", "a b", "ü*", &"a".repeat(257)] {
            assert!(!is_pattern(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_sampled_job_is_heard_as_a_whole_and_events_of_queues_always() {
        let choice = Choice { sample: 10, ..Choice::all() };
        let jobs: Vec<String> = (0..2000).map(|number| format!("\"{number}\"")).collect();
        let heard = |kind| {
            jobs.iter().filter(|job| wants(&choice, "q", kind, job.as_bytes())).collect::<Vec<_>>()
        };
        assert_eq!(heard(0), heard(2));
        assert!((50..500).contains(&heard(0).len()), "{}", heard(0).len());
        assert!(wants(&choice, "q", 11, b"\"\""));
        assert_ne!(choice.judge(&about("q", 0, b"\"x\""), 7), Verdict::Other);
    }

    #[test]
    fn a_token_hears_of_its_queues_alone_and_a_role_that_may_not_read_of_none() {
        let queues: &'static QueuePatterns =
            Box::leak(Box::new(QueuePatterns::new(["a", "b.*", "*.eu"].into_iter())));
        let grant = Grant { role: Role::Read, queues: Some(queues), ..Grant::ALL };
        let choice = Choice::all().within(grant);
        assert!(wants(&choice, "b.x", 0, b"\"\"") && wants(&choice, "x.eu", 0, b"\"\""));
        assert!(!wants(&choice, "c", 0, b"\"\""));
        let under = |prefix: &str| Target::Under(prefix.into());
        assert_eq!(choice.targets(), [under(""), under("b."), Target::Queue("a".into())]);
        assert_ne!(choice, Choice::all());
        let pusher = Grant { role: Role::Push, ..Grant::ALL };
        assert!(Choice::all().within(pusher).targets().is_empty());
    }
}
