//! Lookups of jobs on all shards, and the tree of a flow that is put together from the answers: level by level, so that
//! no flow is too deep for it, and no further than was asked for.
//!
//! A ground type: of the server it imports the envelope and the messages only.

use super::messages::LIST_RESERVE_BYTES;
use crate::api::access::Scope;
use crate::api::request::JobRef;
use crate::protocol::msgpack::Reader;
use crate::protocol::msgpack::writer::{MapWriter, Writer};
use crate::server::shard_mail::envelope::{Origin, Step};
use corq_shards::family::Family;
use corq_shards::job::State;
use corq_shards::job::id::JobId;
use corq_shards::query::JobView;

/// A job as its shard describes it to another.
#[derive(Clone, Debug, Default)]
pub struct JobLook {
    /// Custom id of the job, or its id; none if the job is gone.
    pub known_as: Option<Box<str>>,
    pub queue: Box<str>,
    pub name: Option<Box<str>>,
    pub state: State,
    pub progress: f64,
    pub attempts: u16,
    pub max_attempts: u16,
    pub priority: i32,
    pub created_at_ms: u64,
    pub started_at_ms: Option<u64>,
    pub finished_at_ms: Option<u64>,
    /// First children, under the names that the client gave.
    pub children: Vec<Box<str>>,
    /// How many there are, and how many of them were completed.
    pub children_count: usize,
    pub children_completed: usize,
    /// Whether there is nothing to be said of it, as its queue is none for the client who asks.
    pub is_hidden: bool,
}

impl JobLook {
    /// Describes a job in memory, with at most `children_max` of its children.
    pub fn of(view: &JobView<'_>, children_max: usize) -> Self {
        let family = view.options.and_then(|options| options.family.as_deref());
        let mut names = Reader::new(family.map_or(&[][..], |family| family.children.bytes()));
        let children = (0..children_max).map_while(|_| names.text().ok().flatten());
        let children = children.map(Into::into).collect();
        let started_at_ms = match (view.lease, view.outcome) {
            (Some(lease), _) => lease.started_at_ms,
            (None, Some(outcome)) => outcome.started_at_ms,
            (None, None) => 0,
        };
        let custom_id = view.options.and_then(|options| options.custom_id.as_deref());
        let notes = view.options.and_then(|options| options.notes.as_deref());
        Self {
            known_as: Some(custom_id.map_or_else(|| view.job.id.to_string().into(), Into::into)),
            queue: view.queue.into(),
            name: view.name.map(Into::into),
            state: view.job.state,
            progress: notes.map_or(0.0, |notes| notes.progress),
            attempts: view.job.attempts,
            max_attempts: view.job.max_attempts,
            priority: view.job.priority,
            created_at_ms: view.created_at_ms(),
            started_at_ms: (started_at_ms > 0).then_some(started_at_ms),
            finished_at_ms: view.outcome.map(|outcome| outcome.finished_at_ms),
            children,
            children_count: family.map_or(0, |family| family.children.len()),
            children_completed: family.map_or(0, Family::completed),
            is_hidden: false,
        }
    }

    /// A job of which the client may know no more than that it is there.
    pub fn hidden() -> Self {
        Self { is_hidden: true, ..Self::default() }
    }

    /// A job that was completed, and of which no more is known.
    pub fn gone() -> Self {
        Self { state: State::Completed, ..Self::default() }
    }
}

/// Messages between shards about lookups of jobs.
#[derive(Debug)]
pub enum LookMessage {
    /// Asks for jobs of the receiver, each with its place in the question.
    Ask {
        /// Who waits.
        step: Step,
        jobs: Vec<(usize, JobId)>,
        /// The queues that there are for the client who asks.
        scope: Scope,
        /// Most children that are named, of all jobs together.
        children_max: usize,
    },
    /// The answer, by place.
    Found {
        /// Who waits.
        step: Step,
        looks: Vec<(usize, Option<JobLook>)>,
    },
}

/// A command that waits for it.
#[derive(Debug)]
pub struct LookTask {
    pub(super) origin: Origin,
    pub(super) req_id: Option<Box<[u8]>>,
    /// Answers that are still to come.
    pub(super) left: usize,
    pub(super) then: Then,
}

/// The answer that the lookups are for.
#[derive(Debug)]
pub enum Then {
    /// A job is explained that waits for these.
    Explain { job: JobId, looks: Looks },
    /// A flow is shown.
    Flow(Box<FlowTree>),
    /// A job is shown with its children.
    Detail(Box<FlowTree>),
}

impl Then {
    /// Reply bytes that the answer counts as from the beginning on, before its jobs are known.
    pub fn reserve_bytes(&self) -> usize {
        match self {
            Self::Explain { .. } => 0,
            Self::Flow(_) | Self::Detail(_) => LIST_RESERVE_BYTES,
        }
    }

    /// The tree that grows.
    pub fn tree(&mut self) -> Option<&mut FlowTree> {
        match self {
            Self::Explain { .. } => None,
            Self::Flow(tree) | Self::Detail(tree) => Some(tree),
        }
    }
}

/// A job that is shown with all that is known of it, once its records are there.
#[derive(Debug)]
pub struct JobDetail {
    pub origin: Origin,
    pub req_id: Option<Box<[u8]>>,
    pub job: JobId,
    /// The job and its children, if it has any.
    pub children: Option<Box<FlowTree>>,
}

/// Jobs, and what is known of each.
pub type Looks = Vec<(JobId, Option<JobLook>)>;

/// A job of a flow.
#[derive(Debug)]
struct Node {
    /// As the job above it, or the client who asks, calls it.
    text: Box<str>,
    id: Option<JobId>,
    /// The place of the job above it.
    parent: Option<usize>,
    depth: u32,
    look: Option<JobLook>,
}

impl Node {
    /// As its own client knows it.
    fn name(&self) -> &str {
        let known_as = self.look.as_ref().and_then(|look| look.known_as.as_deref());
        known_as.unwrap_or(&self.text)
    }
}

/// A flow, from one of its jobs downwards: each job behind those of the levels above it.
#[derive(Debug)]
pub struct FlowTree {
    nodes: Vec<Node>,
    /// The first node of the level that is being asked for.
    level: usize,
    depth_max: u32,
    nodes_max: usize,
    /// Whether the names of the level are known, or asked for.
    is_named: bool,
    /// Whether there are jobs that are not shown.
    is_cut: bool,
    /// Whether its client is not to learn which jobs there are that it may not see.
    hides_unknown: bool,
}

impl FlowTree {
    /// A tree with nothing but its root, for a client of these queues.
    pub fn new(root: JobId, depth_max: u32, nodes_max: usize, scope: Scope) -> Self {
        let text = root.to_string().into();
        let root = Node { text, id: Some(root), parent: None, depth: 0, look: None };
        let (level, is_named, is_cut, hides_unknown) = (0, false, false, scope.is_some());
        Self { nodes: vec![root], level, depth_max, nodes_max, is_named, is_cut, hides_unknown }
    }

    /// Jobs of the level whose names have to be looked up, by place.
    pub fn unnamed(&self) -> impl Iterator<Item = (usize, &str)> {
        let level = self.nodes.iter().enumerate().skip(self.level);
        level.filter(|(_, node)| node.id.is_none()).map(|(place, node)| (place, &*node.text))
    }

    /// Jobs of the level that are to be looked at, by place.
    pub fn unseen(&self) -> impl Iterator<Item = (usize, JobId)> {
        let level = self.nodes.iter().enumerate().skip(self.level);
        level.filter_map(|(place, node)| Some((place, node.id?)))
    }

    /// How many children may still be shown.
    pub fn room(&self) -> usize {
        self.nodes_max - self.nodes.len()
    }

    /// Whether the names of the level are known, or asked for.
    pub fn is_named(&self) -> bool {
        self.is_named
    }

    /// The names of the level are asked for, or the next level begins.
    pub fn note_named(&mut self, is_named: bool) {
        self.is_named = is_named;
    }

    /// A name was looked up.
    pub fn named(&mut self, place: usize, id: Option<JobId>) {
        self.nodes[place].id = id;
    }

    /// A job was looked at.
    pub fn found(&mut self, place: usize, look: Option<JobLook>) {
        self.nodes[place].look = look;
    }

    /// Whether its root is there.
    pub fn is_there(&self) -> bool {
        self.nodes[0].look.as_ref().is_some_and(|look| !look.is_hidden)
    }

    /// Goes on with the children of the level; false if there are none that are to be shown.
    pub fn descend(&mut self) -> bool {
        let level = self.level..self.nodes.len();
        self.level = level.end;
        for place in level {
            let Some(look) = &mut self.nodes[place].look else { continue };
            let (children, depth) =
                (std::mem::take(&mut look.children), self.nodes[place].depth + 1);
            let there = self.nodes[place].look.as_ref().map_or(0, |look| look.children_count);
            let room = if depth > self.depth_max { 0 } else { self.room() };
            self.is_cut |= there > room.min(children.len());
            for text in children.into_iter().take(room) {
                let id = match JobRef::of(&text) {
                    JobRef::Id(id) => Some(id),
                    JobRef::Custom(_) => None,
                };
                self.nodes.push(Node { text, id, parent: Some(place), depth, look: None });
            }
        }
        self.level < self.nodes.len()
    }

    /// How many jobs it has.
    pub fn jobs(&self) -> usize {
        self.nodes.len()
    }

    /// Id of the flow's first job.
    pub fn root(&self) -> Option<JobId> {
        self.nodes[0].id
    }

    /// Writes its jobs but for the first `skipped`, and whether there are more.
    pub fn write(&self, data: &mut MapWriter<'_>, skipped: usize) {
        data.key("truncated").bool(self.is_cut);
        let mut jobs = data.key("jobs");
        jobs.array(self.nodes.len() - skipped);
        for node in self.nodes.iter().skip(skipped) {
            self.write_node(jobs.begin_map(), node);
        }
    }

    fn write_node(&self, mut map: MapWriter<'_>, node: &Node) {
        let is_hidden = is_hidden(node.look.as_ref(), self.hides_unknown);
        if !is_hidden {
            map.key("id").str(node.name());
        }
        map.key("depth").uint(u64::from(node.depth));
        let parent = node.parent.map(|place| self.nodes[place].name());
        map.key("parentId").str_or_nil(parent);
        if is_hidden {
            map.key("state").str(HIDDEN);
            return;
        }
        let look = node.look.as_ref();
        map.key("state").str(look.map_or(State::Vacant, |look| look.state).name());
        if let Some(look) = look.filter(|look| look.known_as.is_some()) {
            write_look(&mut map, look);
        }
    }
}

/// State shown for a job of which the client is to know nothing.
const HIDDEN: &str = "hidden";

/// Whether nothing is said of a job. One that is not there at all looks the same, or the difference would tell.
fn is_hidden(look: Option<&JobLook>, hides_unknown: bool) -> bool {
    look.map_or(hides_unknown, |look| look.is_hidden)
}

/// Writes a job's figures, without its id and its state.
fn write_look(map: &mut MapWriter<'_>, look: &JobLook) {
    map.key("queue").str(&look.queue);
    if let Some(name) = &look.name {
        map.key("name").str(name);
    }
    map.key("priority").int(i64::from(look.priority));
    map.key("progress").number(look.progress);
    map.key("attempts").uint(u64::from(look.attempts));
    map.key("maxAttempts").uint(u64::from(look.max_attempts));
    map.key("createdAt").uint(look.created_at_ms);
    map.key("startedAt").uint_or_nil(look.started_at_ms);
    map.key("finishedAt").uint_or_nil(look.finished_at_ms);
    map.key("children").uint(look.children_count as u64);
    map.key("childrenCompleted").uint(look.children_completed as u64);
}

/// A job that another one waits for: its id, and what is known of it. Its client may be one that is not to learn which jobs
/// there are that it may not see.
pub fn write_dependency(
    writer: &mut Writer<'_>,
    id: JobId,
    look: Option<&JobLook>,
    child: bool,
    hides_unknown: bool,
) {
    let mut map = writer.begin_map();
    if is_hidden(look, hides_unknown) {
        map.key("state").str(HIDDEN);
        map.key("child").bool(child);
        return;
    }
    match look.and_then(|look| look.known_as.as_deref()) {
        Some(known_as) => map.key("id").str(known_as),
        None => map.key("id").uuid(id.0),
    }
    map.key("state").str(look.map_or(State::Vacant, |look| look.state).name());
    if let Some(look) = look.filter(|look| look.known_as.is_some()) {
        map.key("queue").str(&look.queue);
    }
    map.key("child").bool(child);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(children: &[&str], count: usize) -> JobLook {
        let children = children.iter().map(|&text| text.into()).collect();
        JobLook {
            known_as: Some("x".into()),
            children,
            children_count: count,
            ..JobLook::default()
        }
    }

    fn texts(tree: &FlowTree) -> Vec<&str> {
        tree.nodes.iter().skip(1).map(|node| &*node.text).collect()
    }

    #[test]
    fn a_tree_grows_level_by_level_as_deep_and_as_large_as_it_may() {
        let mut tree = FlowTree::new(JobId(7), 2, 5, None);
        assert!(!tree.is_there() && tree.unnamed().count() == 0);
        tree.found(0, Some(look(&["a", "b"], 2)));
        assert!(tree.descend() && tree.is_there());
        assert_eq!(tree.unnamed().collect::<Vec<_>>(), [(1, "a"), (2, "b")]);
        tree.named(1, Some(JobId(8)));
        tree.named(2, None);
        assert_eq!(tree.unseen().collect::<Vec<_>>(), [(1, JobId(8))]);
        tree.found(1, Some(look(&["c", "d", "e"], 9)));
        assert!(tree.descend() && tree.is_cut, "there is room for two of nine");
        assert_eq!(texts(&tree), ["a", "b", "c", "d"]);
        assert_eq!(tree.room(), 0);
        tree.found(3, Some(look(&["f"], 1)));
        assert!(!tree.descend());
        let mut deep = FlowTree::new(JobId(7), 1, 9, None);
        deep.found(0, Some(look(&["a"], 1)));
        assert!(deep.descend() && !deep.is_cut);
        deep.found(1, Some(look(&["b"], 1)));
        assert!(!deep.descend() && deep.is_cut && deep.jobs() == 2);
    }
}
