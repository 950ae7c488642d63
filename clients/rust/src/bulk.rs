//! Many jobs at once: what is done with them, which they are, and the task that the server makes of it.

use std::time::Duration;

use crate::client::Client;
use crate::error::Error;
use crate::fields::Fields;
use crate::queue::Queue;
use crate::raw::{Payload, Raw};
use crate::records::{ErrorGroups, JobState, Task};
use crate::wire::request::{Request, millis};

/// The change that is made to each of many jobs. No action takes a job from its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Runs jobs again that have failed for good or were completed.
    Retry,
    /// Removes jobs, ended or not.
    Remove,
    /// Removes jobs that have not ended.
    Cancel,
    /// Ends the delay of jobs.
    Promote,
    /// Moves jobs to the dead-letter queue.
    Discard,
    /// Delivers jobs no sooner than after this time.
    Delay(Duration),
    /// Sets the priority of jobs.
    Priority(i64),
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Remove => "remove",
            Self::Cancel => "cancel",
            Self::Promote => "promote",
            Self::Discard => "discard",
            Self::Delay(_) => "delay",
            Self::Priority(_) => "priority",
        }
    }
}

/// A change of many jobs, for [`Client::bulk`]. A job must meet all conditions on the jobs of the queue.
///
/// ```no_run
/// use corq_client::{Action, Bulk};
///
/// # async fn example(client: corq_client::Client) -> Result<(), corq_client::Error> {
/// for group in client.queue("emails").dead_letter_groups(10).await?.groups {
///     println!("{} times {}", group.count, group.error);
/// }
/// let late = Bulk::of_queue(Action::Retry, "emails").error_group("timeout after # ms");
/// let id = client.bulk(&late).await?;
/// if let Some(task) = client.task(&id).await? {
///     println!("{} of {} so far", task.changed, task.matched);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Bulk {
    action: Action,
    queue: Option<String>,
    ids: Option<Vec<String>>,
    states: Vec<JobState>,
    texts: Vec<(&'static str, String)>,
    numbers: Vec<(&'static str, u64)>,
    value: Option<Raw>,
    limit: Option<u64>,
    dry_run: bool,
}

impl Bulk {
    fn new(action: Action, queue: Option<String>, ids: Option<Vec<String>>) -> Self {
        Self {
            action,
            queue,
            ids,
            states: Vec::new(),
            texts: Vec::new(),
            numbers: Vec::new(),
            value: None,
            limit: None,
            dry_run: false,
        }
    }

    /// With the jobs of a queue that all the rest lets through. Without a state: with those that the action is for.
    pub fn of_queue(action: Action, queue: impl Into<String>) -> Self {
        Self::new(action, Some(queue.into()), None)
    }

    /// With these jobs, one at least and at most 1000, of any queues. What is said of the jobs of a queue is not for them: with both
    /// the server refuses it.
    pub fn of_jobs(action: Action, ids: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::new(action, None, Some(ids.into_iter().map(Into::into).collect()))
    }

    fn text(mut self, name: &'static str, text: impl Into<String>) -> Self {
        self.texts.push((name, text.into()));
        self
    }

    /// Jobs in this state; said again, in one of them.
    pub fn state(mut self, state: JobState) -> Self {
        self.states.push(state);
        self
    }

    /// Jobs of this name.
    pub fn name(self, name: impl Into<String>) -> Self {
        self.text("name", name)
    }

    /// Jobs with this tag.
    pub fn tag(self, tag: impl Into<String>) -> Self {
        self.text("tag", tag)
    }

    /// Jobs of this group.
    pub fn group(self, group: impl Into<String>) -> Self {
        self.text("group", group)
    }

    /// Jobs made at this time or later, in milliseconds since the Unix epoch.
    pub fn from_ms(mut self, from_ms: u64) -> Self {
        self.numbers.push(("from", from_ms));
        self
    }

    /// Jobs made at this time or before.
    pub fn to_ms(mut self, to_ms: u64) -> Self {
        self.numbers.push(("to", to_ms));
        self
    }

    /// Jobs with this text somewhere in their payload.
    pub fn payload_text(self, text: impl Into<String>) -> Self {
        self.text("text", text)
    }

    /// Jobs whose payload has any value at this path, such as `order.lines.0.sku`.
    pub fn payload_path(self, path: impl Into<String>) -> Self {
        self.text("path", path)
    }

    /// Jobs whose payload has this value at this path.
    pub fn payload_value<P: Payload + ?Sized>(
        mut self,
        path: impl Into<String>,
        value: &P,
    ) -> Result<Self, Error> {
        self.value = Some(Raw::encode(value)?);
        Ok(self.payload_path(path))
    }

    /// Dead letters with this text in their error.
    pub fn error(self, text: impl Into<String>) -> Self {
        self.text("error", text)
    }

    /// Dead letters of this group of errors, from [`Client::dead_letter_groups`].
    pub fn error_group(self, group: impl Into<String>) -> Self {
        self.text("errorGroup", group)
    }

    /// At most so many, the oldest.
    pub fn limit(mut self, jobs: u64) -> Self {
        self.limit = Some(jobs);
        self
    }

    /// Nothing is changed; what would be is counted.
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    fn request(&self) -> Result<Request, Error> {
        let request = Request::new("Bulk")
            .str("action", self.action.name())
            .opt_str("queue", self.queue.as_deref())
            .opt_uint("limit", self.limit)
            .flag("dryRun", self.dry_run);
        let request = match self.action {
            Action::Delay(delay) => request.uint("delay", millis(delay)),
            Action::Priority(priority) => request.int("priority", priority),
            _ => request,
        };
        let request = match &self.ids {
            Some(ids) => request.strs("ids", ids.iter().map(String::as_str)),
            None => request,
        };
        // Send conditions along with ids as well: the server refuses the combination, while leaving them out would
        // change jobs that the caller has excluded.
        let is_said = !self.states.is_empty() || !self.texts.is_empty() || !self.numbers.is_empty();
        if self.ids.is_some() && !is_said {
            return Ok(request);
        }
        request.fields(|encoder| {
            let mut outer = Fields::after(0, encoder);
            let mut filter = outer.key("filter").count_fields();
            if !self.states.is_empty() {
                let encoder = filter.key("state");
                encoder.array(self.states.len());
                self.states.iter().for_each(|state| encoder.str(state.as_str()));
            }
            self.texts.iter().for_each(|(name, text)| filter.text(name, Some(text)));
            self.numbers.iter().for_each(|(name, number)| filter.uint(name, Some(*number)));
            if let Some(value) = &self.value {
                filter.key("value").raw(value);
            }
            filter.close();
            Ok(outer.count)
        })
    }
}

impl Client {
    /// Has one thing done with many jobs; answers the id of the task that the server makes of it, which goes on
    /// whatever becomes of this client.
    pub async fn bulk(&self, bulk: &Bulk) -> Result<String, Error> {
        self.ask(bulk.request()?).await?.read("taskId")
    }

    /// How far a task is, or `None`: the server forgets tasks when it starts again, and all but the last that have ended.
    pub async fn task(&self, id: &str) -> Result<Option<Task>, Error> {
        self.task_of(Request::repeatable("GetTask").str("task", id)).await
    }

    /// The tasks that run, and the last that have ended.
    pub async fn tasks(&self) -> Result<Vec<Task>, Error> {
        self.ask(Request::repeatable("ListTasks")).await?.read("tasks")
    }

    /// Stops a task; what it has changed stays. Answers how far it was, or `None` if the server does not know it.
    pub async fn cancel_task(&self, id: &str) -> Result<Option<Task>, Error> {
        self.task_of(Request::repeatable("CancelTask").str("task", id)).await
    }

    async fn task_of(&self, request: Request) -> Result<Option<Task>, Error> {
        match self.ask(request).await {
            Ok(reply) => reply.read("task").map(Some),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The dead letters of all queues by their errors: the largest groups, at most `limit`.
    pub async fn dead_letter_groups(&self, limit: u32) -> Result<ErrorGroups, Error> {
        let request = Request::repeatable("DlqGroups").uint("limit", limit.into());
        self.ask(request).await?.record()
    }
}

impl Queue {
    /// Dead letters of this queue grouped by their errors: the largest groups, at most `limit`.
    pub async fn dead_letter_groups(&self, limit: u32) -> Result<ErrorGroups, Error> {
        let request = self.reading("DlqGroups").uint("limit", limit.into());
        self.client().ask(request).await?.record()
    }
}
