//! Events in the model: what subscribers get about each job, step by step, and about queues. The order
//! between jobs is the shard's choice; this checks that each job's steps come in order, with all their
//! fields, and that none is missing or doubled. And which webhooks are to get them.

use super::check::Check;
use super::job_rules::Moment;
use super::model::{Job, Model, State};
use super::node::Node;
use corq_shards::effect::KnownAs;
use corq_shards::event::{Event, Step};
use corq_shards::job::State as Found;
use corq_shards::job::id::JobId;
use corq_shards::webhook::Trigger;
use std::collections::BTreeMap;

/// A step of a job or queue. The beginning of an error is enough where jobs are named in it.
#[derive(Clone, PartialEq, Debug)]
pub enum EventStep {
    Pushed,
    Pulled,
    Completed(Vec<u8>),
    /// Why, and whether no other attempt follows.
    Failed(String, bool),
    Retried(Found),
    Progress(f64),
    Stalled,
    Removed(Found),
    Delayed(u64),
    Duplicated,
    WaitingChildren,
    Drained,
    Paused,
    Resumed,
}

/// An event as the model expects it.
#[derive(Clone, PartialEq, Debug)]
pub struct ModelEvent {
    pub queue: String,
    pub job: Option<KnownAs>,
    pub name: Option<String>,
    pub data: Vec<u8>,
    pub step: EventStep,
}

impl EventStep {
    /// Whether the shard said what was expected.
    fn fits(&self, expected: &Self, is_new: bool) -> bool {
        match (self, expected) {
            (Self::Removed(Found::Delayed), Self::Removed(Found::Waiting)) => is_new,
            (Self::Failed(said, last), Self::Failed(expected, for_good)) => {
                said.starts_with(expected) && last == for_good
            }
            _ => self == expected,
        }
    }

    /// The events that webhooks post, if they are.
    fn triggers(&self) -> &'static [Trigger] {
        match self {
            Self::Completed(_) => &[Trigger::Completed],
            Self::Failed(..) => &[Trigger::Failed],
            Self::Progress(_) => &[Trigger::Progress],
            Self::Pulled => &[Trigger::Active, Trigger::Started],
            Self::Pushed => &[Trigger::Waiting, Trigger::Pushed],
            Self::Delayed(_) => &[Trigger::Delayed],
            Self::Stalled => &[Trigger::Stalled],
            Self::Retried(_)
            | Self::Removed(_)
            | Self::Duplicated
            | Self::WaitingChildren
            | Self::Drained
            | Self::Paused
            | Self::Resumed => &[],
        }
    }
}

impl ModelEvent {
    fn fits(&self, expected: &Self, is_new: bool) -> bool {
        self.step.fits(&expected.step, is_new)
            && (&self.queue, &self.job, &self.name, &self.data)
                == (&expected.queue, &expected.job, &expected.name, &expected.data)
    }
}

/// A post to a webhook: the webhook, the event and the job.
type Post = (u128, u8, Option<String>);

/// By queue and job; those of a queue by itself have no job.
fn by_job(published: &[ModelEvent]) -> BTreeMap<(&str, String), Vec<&ModelEvent>> {
    let mut by_job: BTreeMap<_, Vec<&ModelEvent>> = BTreeMap::new();
    for one in published {
        let job = one.job.as_ref().map_or_else(String::new, ToString::to_string);
        by_job.entry((one.queue.as_str(), job)).or_default().push(one);
    }
    by_job
}

impl Model {
    /// A job takes a step.
    pub fn note_event(&mut self, id: JobId, step: EventStep) {
        let event = Self::event_of(&self.jobs[&id], step);
        self.events.push(event);
    }

    fn event_of(job: &Job, step: EventStep) -> ModelEvent {
        let known_as = match &job.custom_id {
            Some(name) => KnownAs::Custom(name.as_str().into()),
            None => KnownAs::Id(job.id),
        };
        ModelEvent {
            queue: job.queue_name().into(),
            job: Some(known_as),
            name: job.name.clone(),
            data: job.data.clone(),
            step,
        }
    }

    /// A queue takes a step.
    pub fn note_queue_event(&mut self, queue: &str, step: EventStep) {
        let queue = queue.split(super::model::DETACHED).next().unwrap_or_default().into();
        self.events.push(ModelEvent { queue, job: None, name: None, data: Vec::new(), step });
    }

    /// A job comes.
    pub fn come(&mut self, now_ms: u64, job: Job) {
        let id = job.id;
        let (waits, delayed) = (job.state == State::WaitingChildren, job.state == State::Delayed);
        let delay_ms = job.run_at_ms.saturating_sub(now_ms);
        self.add(job);
        self.note_event(id, EventStep::Pushed);
        if waits {
            self.note_event(id, EventStep::WaitingChildren);
        }
        if delayed {
            self.note_event(id, EventStep::Delayed(delay_ms));
        }
    }

    /// A job went elsewhere. If it is delayed there, an event says so.
    pub fn tell_delay(&mut self, now_ms: u64, id: JobId) {
        let job = &self.jobs[&id];
        if job.state == State::Delayed {
            let delay_ms = job.run_at_ms - now_ms;
            self.note_event(id, EventStep::Delayed(delay_ms));
        }
    }

    fn removal_of(&self, id: JobId) -> Option<usize> {
        let probe = Self::event_of(&self.jobs[&id], EventStep::Pulled);
        let its =
            |one: &ModelEvent| matches!(one.step, EventStep::Removed(_)) && one.job == probe.job;
        self.events.iter().rposition(its)
    }

    /// A job did not go in this call, though its time was over.
    pub fn untell_removal(&mut self, id: JobId) {
        if let Some(place) = self.removal_of(id) {
            self.events.remove(place);
        }
    }

    /// A job went to a worker before it was removed in the same call.
    pub fn tell_pull_before_removal(&mut self, id: JobId) {
        let pulled = Self::event_of(&self.jobs[&id], EventStep::Pulled);
        if let Some(place) = self.removal_of(id) {
            self.events[place].step = EventStep::Removed(Found::Active);
            self.events.insert(place, pulled);
        }
    }

    /// Checks that listeners get the events of a call, and no others.
    pub fn check_events(&self, at: &Moment<'_>, published: &[ModelEvent]) {
        let (found, expected) = (by_job(published), by_job(&self.events));
        for (key, expected) in &expected {
            let none = Vec::new();
            let found = found.get(key).unwrap_or(&none);
            let same = found.len() == expected.len()
                && found.iter().zip(expected).all(|(one, other)| one.fits(other, self.is_new));
            self.must(Check::Events, same, || {
                format!("at {}, of {key:?} there is\n  {found:?}\n  not\n  {expected:?}", at.now_ms)
            });
        }
        for (key, found) in &found {
            self.must(Check::Events, expected.contains_key(key), || {
                format!("at {}, of {key:?} there is {found:?}", at.now_ms)
            });
        }
        let mut expected = self.posts();
        let hooks: Vec<_> = at.shard.webhooks().collect();
        let mut found: Vec<Post> = Vec::new();
        for one in published {
            for &trigger in one.step.triggers() {
                for hook in hooks.iter().filter(|hook| hook.is_enabled()) {
                    let wanted = hook.events.wanted_bits() & (1 << trigger as u8) != 0;
                    let watched = hook.queue.as_ref().is_none_or(|queue| **queue == *one.queue);
                    if wanted && watched {
                        let job = one.job.as_ref().map(ToString::to_string);
                        found.push((hook.id, trigger as u8, job));
                    }
                }
            }
        }
        expected.sort();
        found.sort();
        self.must(Check::Hook, found == expected, || {
            format!("at {}, to be posted is {found:?}, not {expected:?}", at.now_ms)
        });
    }

    /// Posts to webhooks for the events of a call.
    fn posts(&self) -> Vec<Post> {
        let mut posts = Vec::new();
        for one in &self.events {
            for &trigger in one.step.triggers() {
                for (id, hook) in &self.hooks {
                    if hook.enabled && hook.wants(&one.queue, trigger) {
                        let job = one.job.as_ref().map(ToString::to_string);
                        posts.push((*id, trigger as u8, job));
                    }
                }
            }
        }
        posts
    }
}

impl Node {
    /// Events of the shard, with their payloads from the log.
    pub fn published(&self, events: &[Event]) -> Vec<ModelEvent> {
        let payload = |stored: corq_shards::log_record::location::LogRef| match stored.payload_bytes
        {
            0 => Vec::new(),
            bytes => self.payload_at(stored.position, bytes),
        };
        let text = |stored| String::from_utf8_lossy(&payload(stored)).into_owned();
        let one = |event: &Event| ModelEvent {
            queue: event.queue.to_string(),
            job: event.job.clone(),
            name: event.name.as_ref().map(ToString::to_string),
            data: payload(event.data),
            step: match event.step {
                Step::Extra(extra) => panic!("{} although no listener asked for it", extra.name()),
                Step::Pushed => EventStep::Pushed,
                Step::Pulled => EventStep::Pulled,
                Step::Completed { result } => EventStep::Completed(payload(result)),
                Step::Failed { error, terminal } => EventStep::Failed(text(error), terminal),
                Step::Retried { prev } => EventStep::Retried(prev),
                Step::Progress(progress) => EventStep::Progress(progress),
                Step::Stalled => EventStep::Stalled,
                Step::Removed { prev } => EventStep::Removed(prev),
                Step::Delayed { delay_ms } => EventStep::Delayed(delay_ms),
                Step::Duplicated => EventStep::Duplicated,
                Step::WaitingChildren => EventStep::WaitingChildren,
                Step::Drained => EventStep::Drained,
                Step::Paused => EventStep::Paused,
                Step::Resumed => EventStep::Resumed,
            },
        };
        events.iter().map(one).collect()
    }
}
