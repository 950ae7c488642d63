//! Parents and children: flows that come as a whole, and what a parent sees of its children.

use std::collections::BTreeMap;

use crate::client::Client;
use crate::error::Error;
use crate::handle::JobHandle;
use crate::options::JobOptions;
use crate::pulled::Pulled;
use crate::raw::{Payload, Raw};
use crate::records::Job;
use crate::telemetry::Producing;
use crate::wire::encode::Encoder;
use crate::wire::request::Request;

/// A job of a flow with the jobs below it, for [`Client::add_flow`]: it waits until all of its children are done, and can
/// [see what came of them](JobHandle::children_values).
///
/// ```no_run
/// use corq_client::{FlowJob, JobOptions};
///
/// # async fn example(client: corq_client::Client) -> Result<(), corq_client::Error> {
/// let mut book = FlowJob::new("books", "book-7", &"a title")?;
/// for page in 0..300 {
///     let page = FlowJob::new("pages", format!("book-7-{page}"), &page)?;
///     book = book.child(page.options(JobOptions::new().max_attempts(5)));
/// }
/// client.add_flow(&[book]).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct FlowJob {
    queue: String,
    id: String,
    data: Raw,
    options: JobOptions,
    children: Vec<FlowJob>,
}

impl FlowJob {
    /// A job without children. Its id is one that no job has, 1 to 256 characters.
    pub fn new<P: Payload + ?Sized>(
        queue: impl Into<String>,
        id: impl Into<String>,
        data: &P,
    ) -> Result<Self, Error> {
        let data = Raw::encode(data)?;
        let (queue, id) = (queue.into(), id.into());
        Ok(Self { queue, id, data, options: JobOptions::new(), children: Vec::new() })
    }

    /// How it is to be handled. Its id and its family are those of the flow, whatever these say;
    /// [`depends_on`](JobOptions::depends_on) names other jobs of the flow. Unique keys and repeats are refused.
    pub fn options(mut self, options: JobOptions) -> Self {
        self.options = options;
        self
    }

    /// A job that has to be done before it.
    pub fn child(mut self, child: Self) -> Self {
        self.children.push(child);
        self
    }

    fn encode(&self, parent: Option<&str>, encoder: &mut Encoder) -> Result<(), Error> {
        encoder.map(3);
        encoder.str("id");
        encoder.str(&self.id);
        encoder.str("queue");
        encoder.str(&self.queue);
        encoder.str("input");
        let children = self.children.iter().map(|child| child.id.as_str());
        let options = self.options.clone().in_flow(parent, children);
        let at = encoder.open_map();
        let count = options.encode(&self.data, "jobId", encoder)?;
        encoder.close_map(at, count);
        Ok(())
    }
}

impl Drop for FlowJob {
    /// Takes it apart from above: a long chain must not need a long stack.
    fn drop(&mut self) {
        let mut below = std::mem::take(&mut self.children);
        while let Some(mut job) = below.pop() {
            below.append(&mut job.children);
        }
    }
}

impl Client {
    /// Pushes jobs of any queues together, each tree from its root on: all of them, or none if one is refused, also if the
    /// server is killed in between. Answers the jobs as they came, each before its children. At most 100,000 of them.
    ///
    /// If its fate is unknown, [asking for](Client::job) any of the jobs tells it.
    pub async fn add_flow(&self, roots: &[FlowJob]) -> Result<Vec<Job>, Error> {
        if roots.is_empty() {
            return Ok(Vec::new());
        }
        let (mut jobs, mut count) = (Encoder::default(), 0);
        let mut next: Vec<(&FlowJob, Option<&str>)> =
            roots.iter().rev().map(|root| (root, None)).collect();
        while let Some((job, parent)) = next.pop() {
            job.encode(parent, &mut jobs)?;
            count += 1;
            next.extend(job.children.iter().rev().map(|child| (child, Some(job.id.as_str()))));
        }
        let queue = roots.first().map_or("", |root| &root.queue);
        let span = Producing::begin("send", queue, Some(count));
        let mut request = Request::new("PUSHF");
        let encoder = request.field("jobs");
        encoder.array(count);
        encoder.append(&jobs);
        let request = request.trace(span.context());
        let pushed = async { self.ask(request).await?.within("data", "jobs") }.await;
        span.end(pushed.as_ref().map(|_: &Vec<Job>| None));
        pushed
    }
}

impl JobHandle {
    /// The results of those of its children that are done, by `queue:id`; nil for those without one. They stay as long as
    /// the job does.
    pub async fn children_values(&self) -> Result<BTreeMap<String, Raw>, Error> {
        self.client().ask(self.reading("GetChildrenValues")).await?.within("data", "values")
    }

    /// Why children failed that [let it go on](crate::OnChildFailure::ContinueParent), by `queue:id`.
    pub async fn failed_children(&self) -> Result<BTreeMap<String, String>, Error> {
        self.client().ask(self.reading("GetFailedChildrenValues")).await?.read("values")
    }

    /// Why children failed that it [does not mind](crate::OnChildFailure::Ignore), by `queue:id`.
    pub async fn ignored_children(&self) -> Result<BTreeMap<String, String>, Error> {
        self.client().ask(self.reading("GetIgnoredChildrenFailures")).await?.read("values")
    }

    /// Makes it a child of another job, which then waits for it.
    pub async fn set_parent(&self, parent: &str) -> Result<(), Error> {
        let request = Request::new("UpdateParent").str("childId", self.id());
        self.client().done(request.str("parentId", parent)).await
    }

    /// Makes it no child any more; says whether its parent waited for it.
    pub async fn leave_parent(&self) -> Result<bool, Error> {
        self.client().ask(self.changing("RemoveChildDependency")).await?.read("removed")
    }

    /// Removes those of its children that wait or are delayed; it waits for them no longer.
    pub async fn remove_unprocessed_children(&self) -> Result<(), Error> {
        self.client().done(self.changing("RemoveUnprocessedChildren")).await
    }
}

impl Pulled {
    /// Gives it back until its children are done, its attempts as they were. False if they all are: it stays with its
    /// worker then.
    pub async fn wait_for_children(&self) -> Result<bool, Error> {
        let request = Request::new("MoveToWaitingChildren").str("id", &self.id);
        let request = request.str("token", self.token());
        self.client().ask(request).await?.within("data", "moved")
    }
}
