//! Which events a client wants to hear, and what it has missed of them.

use crate::wire::request::Request;

/// Which events to hear, for [`Client::events_of`](crate::Client::events_of). Without anything said, all of all queues.
///
/// ```
/// use corq_client::{EventChoice, EventType};
///
/// let failures = EventChoice::new()
///     .queues(["emails", "tenant-7.*"])
///     .types([EventType::Failed, EventType::Stalled])
///     .without_data();
/// # let _ = failures;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventChoice {
    queues: Vec<String>,
    types: Vec<EventType>,
    jobs: Vec<String>,
    sample: Option<u32>,
    without_data: bool,
}

impl EventChoice {
    /// All events.
    pub fn new() -> Self {
        Self::default()
    }

    /// Of these queues only, at most 100; one `*` in a name stands for any characters.
    #[must_use]
    pub fn queues(mut self, queues: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.queues.extend(queues.into_iter().map(Into::into));
        self
    }

    /// Of these types only.
    #[must_use]
    pub fn types(mut self, types: impl IntoIterator<Item = EventType>) -> Self {
        self.types.extend(types);
        self
    }

    /// Of these jobs only, at most 100.
    #[must_use]
    pub fn jobs(mut self, jobs: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.jobs.extend(jobs.into_iter().map(Into::into));
        self
    }

    /// The events of one in so many jobs; how many were passed over is in [`Event::passed_over`](crate::Event::passed_over).
    #[must_use]
    pub fn sample(mut self, one_in: u32) -> Self {
        self.sample = Some(one_in);
        self
    }

    /// Without data and results, which the server then does not read.
    #[must_use]
    pub fn without_data(mut self) -> Self {
        self.without_data = true;
        self
    }

    /// A list that is empty says nothing.
    pub(crate) fn request(&self, last_id: Option<&str>) -> Request {
        let list = |request: Request, name, items: Vec<&str>| {
            if items.is_empty() { request } else { request.strs(name, items.into_iter()) }
        };
        let request = Request::new("Subscribe").flag("ids", true);
        let request = list(request, "queues", self.queues.iter().map(String::as_str).collect());
        let request = list(request, "types", self.types.iter().map(|it| it.name()).collect());
        let request = list(request, "jobs", self.jobs.iter().map(String::as_str).collect());
        let request = request.opt_uint("sample", self.sample.map(u64::from));
        let request = if self.without_data { request.bool("data", false) } else { request };
        request.opt_str("lastEventId", last_id)
    }
}

macro_rules! event_types {
    ($($type:ident = $name:literal, $text:literal;)*) => {
        /// A type of event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum EventType { $(#[doc = $text] $type,)* }

        impl EventType {
            /// The name on the wire, as in [`Event::event_type`](crate::Event::event_type).
            pub const fn name(self) -> &'static str {
                match self { $(Self::$type => $name,)* }
            }
        }
    };
}

event_types! {
    Pushed = "pushed", "A job was pushed.";
    Pulled = "pulled", "A worker has pulled it.";
    Completed = "completed", "It has completed.";
    Failed = "failed", "An attempt has failed.";
    Progress = "progress", "Its worker has told how far it is.";
    Stalled = "stalled", "Its lock has expired.";
    Removed = "removed", "It was removed.";
    Delayed = "delayed", "It was delayed.";
    Duplicated = "duplicated", "A push brought nothing new because of it.";
    Retried = "retried", "It runs again.";
    WaitingChildren = "waiting-children", "It waits for others.";
    Drained = "drained", "The queue was drained.";
    Paused = "paused", "The queue was paused.";
    Resumed = "resumed", "It goes on.";
}

/// Events that this client has missed, as far as the server can tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// Events that the server counted.
    pub events: u64,
    /// Gaps whose number of events the server could not tell.
    pub unknown: u64,
}
