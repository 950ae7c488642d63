//! The shape of a flow: which of its jobs waits for which, checked as a whole before anything is done.
//!
//! Knows the jobs as they were asked for, by their places in the command; no shard, no queue. All that takes a step per
//! job or dependency can stop and go on, so that a long flow is checked over many turns and a short one in one call.

use crate::api::error::{Error, ErrorKind};
use crate::api::limits::FLOW_DEPENDENCIES_MAX;
use crate::protocol::msgpack::{Reader, Texts};
use corq_shards::job::new_job::NewJob;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// A job of a flow.
#[derive(Clone, Debug)]
pub struct FlowJob<'a> {
    /// The id, chosen by the client.
    pub id: &'a str,
    pub queue: &'a str,
    /// The payload and the options.
    pub job: NewJob<'a>,
}

impl<'a> FlowJob<'a> {
    /// The lists in which the job names other jobs.
    pub fn lists(&self) -> Lists<'a> {
        let family = self.job.family.as_deref();
        let children = family.map_or(&[][..], |family| family.children);
        Lists { depends_on: self.job.depends_on, children }
    }

    fn parent(&self) -> Option<&'a str> {
        self.job.family.as_deref().and_then(|family| family.parent)
    }
}

/// The jobs that one of a flow names, as lists of `MessagePack`.
#[derive(Clone, Copy, Debug)]
pub struct Lists<'a> {
    /// Ids of the jobs that must be completed first.
    pub depends_on: &'a [u8],
    /// Ids of those dependencies that are children of the job.
    pub children: &'a [u8],
}

/// No job.
const NONE: u32 = u32::MAX;

/// Which place a name has. The names lie in blocks that never grow, so that nothing is moved when one more comes.
#[derive(Debug, Default)]
struct Names {
    blocks: Vec<String>,
    /// Of each place, its block, and where in that it begins and ends.
    spans: Vec<(u32, u32, u32)>,
    /// Places by the hashes of their names, the next free entry if that one is taken.
    table: Vec<u32>,
    hasher: RandomState,
}

/// Of a name there are at most 1,024 bytes.
const BLOCK_BYTES: usize = 64 << 10;

impl Names {
    fn with_capacity(count: usize) -> Self {
        let table = vec![NONE; (2 * count).next_power_of_two()];
        Self { table, spans: Vec::with_capacity(count), ..Self::default() }
    }

    fn get(&self, place: usize) -> &str {
        let (block, start, end) = self.spans[place];
        &self.blocks[block as usize][start as usize..end as usize]
    }

    /// The entry of a name, or the one it would have.
    fn entry(&self, name: &str) -> usize {
        let mask = self.table.len() - 1;
        let mut at = self.hasher.hash_one(name) as usize & mask;
        while self.table[at] != NONE && self.get(self.table[at] as usize) != name {
            at = (at + 1) & mask;
        }
        at
    }

    fn find(&self, name: &str) -> Option<usize> {
        let place = self.table[self.entry(name)];
        (place != NONE).then_some(place as usize)
    }

    /// False if there is one already.
    fn add(&mut self, name: &str) -> bool {
        let entry = self.entry(name);
        if self.table[entry] != NONE {
            return false;
        }
        self.table[entry] = self.spans.len() as u32;
        if self.blocks.last().is_none_or(|last| last.len() + name.len() > BLOCK_BYTES) {
            self.blocks.push(String::with_capacity(BLOCK_BYTES.max(name.len())));
        }
        let place = self.blocks.len() - 1;
        let block = &mut self.blocks[place];
        let start = block.len();
        block.push_str(name);
        self.spans.push((place as u32, start as u32, block.len() as u32));
        true
    }

    fn bytes(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES + self.spans.capacity() * 12 + self.table.len() * 4
    }
}

/// Which list of a job is being read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reading {
    Children,
    DependsOn,
    /// The children once more, for one that no dependency is.
    Unmatched,
    End,
}

/// How far the ties of one job have been looked at.
#[derive(Clone, Copy, Debug)]
pub struct Tie {
    place: usize,
    reading: Reading,
    /// Where in the list, and how many follow; at its front if nowhere.
    at: usize,
    left: usize,
    /// Children that no dependency has been yet.
    unmatched: usize,
}

impl Tie {
    /// At the beginning of the job at a place.
    pub fn of(place: usize) -> Self {
        Self { place, reading: Reading::Children, at: 0, left: 0, unmatched: 0 }
    }

    /// The next name of a list.
    fn next<'a>(&mut self, list: &'a [u8]) -> Option<&'a str> {
        if self.at == 0 {
            let mut reader = Reader::new(list);
            self.left = reader.array().ok().flatten().unwrap_or(0);
            self.at = list.len() - reader.rest().len();
        }
        if self.left == 0 {
            self.at = 0;
            return None;
        }
        let mut reader = Reader::new(&list[self.at..]);
        let name = reader.text().ok().flatten();
        (self.at, self.left) = (list.len() - reader.rest().len(), self.left - 1);
        name
    }
}

/// Part of the flow that is being checked.
#[derive(Clone, Copy, Debug)]
enum Check {
    /// Each child that the job at this place lists names the job as its parent.
    Children(usize),
    /// The parent that the job at this place names lists the job as its child.
    Parents(usize),
    /// Nothing is reached again from the jobs behind this place.
    Circles(usize),
    Done,
}

/// Relations between the jobs of a flow.
#[derive(Debug)]
pub struct Shape {
    names: Names,
    /// The parent that a job names.
    parents: Vec<u32>,
    /// The parent that names a job.
    claimed_by: Vec<u32>,
    /// The dependencies of all jobs, those of each behind those of the one before it: a place, and whether it is a child's.
    edges: Vec<(u32, bool)>,
    /// Where those of each job end.
    ends: Vec<u32>,
    /// The last job that has named one as its child, and as a dependency.
    child_of: Vec<u32>,
    needed_by: Vec<u32>,
    check: Check,
    /// A job and all that wait for its walk to end, with their next edges; and how far each job is: not seen, on the
    /// way, or done.
    path: Vec<(u32, u32)>,
    seen: Vec<u8>,
}

const ON_PATH: u8 = 1;
const LEFT: u8 = 2;

impl Shape {
    /// Of a flow of so many jobs, none of which is known yet.
    pub fn with_capacity(count: usize) -> Self {
        Self {
            names: Names::with_capacity(count.max(1)),
            parents: vec![NONE; count],
            claimed_by: vec![NONE; count],
            edges: Vec::new(),
            ends: Vec::with_capacity(count),
            child_of: vec![NONE; count],
            needed_by: vec![NONE; count],
            check: Check::Children(0),
            path: Vec::new(),
            seen: vec![0; count],
        }
    }

    /// The shape of a flow, checked in one go.
    pub fn of(jobs: &[FlowJob<'_>]) -> Result<Self, Error> {
        let mut shape = Self::with_capacity(jobs.len());
        jobs.iter().try_for_each(|one| shape.add(one))?;
        let mut steps = usize::MAX;
        for (place, one) in jobs.iter().enumerate() {
            shape.note_parent(place, one)?;
            shape.tie(&mut Tie::of(place), one.lists(), &mut steps)?;
        }
        shape.check(&mut steps)?;
        Ok(shape)
    }

    /// Memory held.
    pub fn bytes(&self) -> usize {
        self.names.bytes()
            + 21 * self.parents.len()
            + 8 * self.edges.capacity()
            + 8 * self.path.capacity()
    }

    /// How many of its jobs are known.
    pub fn len(&self) -> usize {
        self.names.spans.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The id of the job at a place.
    pub fn id(&self, place: usize) -> &str {
        self.names.get(place)
    }

    /// The places of the jobs that one depends on, and whether each is a child of it.
    pub fn dependencies(&self, place: usize) -> &[(u32, bool)] {
        &self.edges[self.start_of(place)..self.ends[place] as usize]
    }

    fn start_of(&self, place: usize) -> usize {
        place.checked_sub(1).map_or(0, |before| self.ends[before] as usize)
    }

    /// Takes in the next job, by itself.
    pub fn add(&mut self, one: &FlowJob<'_>) -> Result<(), Error> {
        let place = self.len();
        if !self.names.add(one.id) {
            return Err(Error::id_twice(one.id).in_job(place));
        }
        check_alone(one).map_err(|error| Error::from(error).in_job(place))
    }

    /// Notes which parent the job at a place names, once all jobs are known.
    pub fn note_parent(&mut self, place: usize, one: &FlowJob<'_>) -> Result<(), Error> {
        let Some(parent) = one.parent() else { return Ok(()) };
        match self.names.find(parent) {
            Some(found) => self.parents[place] = found as u32,
            None => return Err(Error::parent_not_found(parent).in_job(place)),
        }
        Ok(())
    }

    /// Finds the jobs that one names, for so many names, which are counted down. True once all are found. Jobs are taken
    /// in their order, and those without lists may be left out.
    pub fn tie(
        &mut self,
        tie: &mut Tie,
        lists: Lists<'_>,
        steps: &mut usize,
    ) -> Result<bool, Error> {
        let place = tie.place;
        while self.ends.len() < place {
            self.ends.push(self.edges.len() as u32);
        }
        while *steps > 0 && tie.reading != Reading::End {
            *steps -= 1;
            self.tie_one(tie, lists).map_err(|error| error.in_job(place))?;
        }
        if self.edges.len() > FLOW_DEPENDENCIES_MAX {
            return Err(Error::too_many_dependencies(FLOW_DEPENDENCIES_MAX));
        }
        let is_done = tie.reading == Reading::End;
        if is_done {
            self.ends.push(self.edges.len() as u32);
        }
        Ok(is_done)
    }

    fn tie_one(&mut self, tie: &mut Tie, lists: Lists<'_>) -> Result<(), Error> {
        let of = tie.place as u32;
        match tie.reading {
            Reading::Children => {
                let Some(name) = tie.next(lists.children) else {
                    tie.reading = Reading::DependsOn;
                    return Ok(());
                };
                let Some(child) = self.names.find(name) else {
                    return Err(Error::child_no_dependency(name));
                };
                if std::mem::replace(&mut self.child_of[child], of) == of {
                    return Err(ErrorKind::ChildTwice.into());
                }
                tie.unmatched += 1;
            }
            Reading::DependsOn => {
                let Some(name) = tie.next(lists.depends_on) else {
                    let ends = tie.unmatched == 0;
                    tie.reading = if ends { Reading::End } else { Reading::Unmatched };
                    return Ok(());
                };
                let Some(other) = self.names.find(name) else {
                    return Err(Error::dependency_not_found(name));
                };
                if other == tie.place {
                    return Err(ErrorKind::DependsOnItself.into());
                }
                if std::mem::replace(&mut self.needed_by[other], of) == of {
                    return Err(ErrorKind::DependencyTwice.into());
                }
                let is_child = self.child_of[other] == of;
                tie.unmatched -= usize::from(is_child);
                self.edges.push((other as u32, is_child));
            }
            Reading::Unmatched => {
                let Some(name) = tie.next(lists.children) else {
                    tie.reading = Reading::End;
                    return Ok(());
                };
                if self.names.find(name).is_none_or(|child| self.needed_by[child] != of) {
                    return Err(Error::child_no_dependency(name));
                }
            }
            Reading::End => {}
        }
        Ok(())
    }

    /// Checks what the jobs say of each other, when all are tied, for so many steps, which are counted down. True once
    /// nothing is wrong.
    pub fn check(&mut self, steps: &mut usize) -> Result<bool, Error> {
        while self.ends.len() < self.len() {
            self.ends.push(self.edges.len() as u32);
        }
        while *steps > 0 {
            *steps -= 1;
            match self.check {
                Check::Children(place) if place == self.len() => self.check = Check::Parents(0),
                Check::Children(place) => {
                    let edges = self.start_of(place)..self.ends[place] as usize;
                    *steps = steps.saturating_sub(edges.len());
                    for &(child, _) in self.edges[edges].iter().filter(|(_, is_child)| *is_child) {
                        if self.parents[child as usize] != place as u32 {
                            return Err(self.estranged(child as usize, place));
                        }
                        self.claimed_by[child as usize] = place as u32;
                    }
                    self.check = Check::Children(place + 1);
                }
                Check::Parents(place) if place == self.len() => self.check = Check::Circles(0),
                Check::Parents(place) => {
                    let parent = self.parents[place];
                    if parent != NONE && self.claimed_by[place] != parent {
                        let parent = self.id(parent as usize);
                        return Err(Error::parent_without_child(parent).in_job(place));
                    }
                    self.check = Check::Parents(place + 1);
                }
                Check::Circles(place) => self.walk_on(place)?,
                Check::Done => return Ok(true),
            }
        }
        Ok(matches!(self.check, Check::Done))
    }

    fn estranged(&self, child: usize, parent: usize) -> Error {
        let (child_id, parent) = (self.id(child), self.id(parent));
        Error::child_without_parent(child_id, parent).in_job(child)
    }

    /// Follows an edge further on the walk from the jobs behind `place`.
    fn walk_on(&mut self, place: usize) -> Result<(), Error> {
        let Some(&(of, edge)) = self.path.last() else {
            if place == self.len() {
                self.check = Check::Done;
            } else {
                if self.seen[place] == 0 {
                    self.enter(place);
                }
                self.check = Check::Circles(place + 1);
            }
            return Ok(());
        };
        if edge == self.ends[of as usize] {
            self.seen[of as usize] = LEFT;
            self.path.pop();
            return Ok(());
        }
        if let Some((_, edge)) = self.path.last_mut() {
            *edge += 1;
        }
        let (other, _) = self.edges[edge as usize];
        match self.seen[other as usize] {
            0 => self.enter(other as usize),
            ON_PATH => return Err(ErrorKind::FlowCircle.into()),
            _ => {}
        }
        Ok(())
    }

    fn enter(&mut self, place: usize) {
        self.seen[place] = ON_PATH;
        self.path.push((place as u32, self.start_of(place) as u32));
    }
}

fn check_alone(one: &FlowJob<'_>) -> Result<(), ErrorKind> {
    let job = &one.job;
    if job.custom_id.is_some_and(|custom_id| custom_id != one.id) {
        return Err(ErrorKind::FlowCustomId);
    }
    if job.repeat.is_some() {
        return Err(ErrorKind::FlowRepeat);
    }
    if job.unique_key.is_some() {
        return Err(ErrorKind::FlowUniqueKey);
    }
    let family = job.family.as_deref();
    if family.is_some_and(|family| family.policy.is_some() && family.parent.is_none()) {
        return Err(ErrorKind::FlowPolicy);
    }
    Ok(())
}

/// How many jobs the lists of one name, as they say.
pub fn named(lists: Lists<'_>) -> usize {
    Texts::new(lists.depends_on).len() + Texts::new(lists.children).len()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::api::request::{Body, Request};
    use crate::protocol::decode::decode;
    use crate::protocol::json;

    fn judged(jobs: &[FlowJob<'_>], most: usize) -> Result<Vec<Vec<(u32, bool)>>, Error> {
        let mut shape = Shape::with_capacity(jobs.len());
        jobs.iter().try_for_each(|one| shape.add(one))?;
        for (place, one) in jobs.iter().enumerate() {
            shape.note_parent(place, one)?;
            let mut tie = Tie::of(place);
            // Leave out jobs that name no others, as the reader of pieces does.
            while named(one.lists()) > 0 && !shape.tie(&mut tie, one.lists(), &mut most.clone())? {}
        }
        while !shape.check(&mut most.clone())? {}
        assert!(shape.bytes() > 0 && shape.len() == jobs.len());
        Ok((0..jobs.len()).map(|place| shape.dependencies(place).to_vec()).collect())
    }

    #[test]
    fn a_flow_is_judged_the_same_in_slices_and_in_one_go() {
        let b = r#"{"id":"b","queue":"q","input":{"data":1}}"#;
        let child = r#"{"id":"b","queue":"q","input":{"data":1,"parentId":"a"}}"#;
        let a = |rest: &str| format!(r#"{{"id":"a","queue":"q","input":{{"data":1{rest}}}}}"#);
        let c = r#"{"id":"c","queue":"q","input":{"data":1,"dependsOn":["b"],"parentId":"a"}}"#;
        let family = a(r#","dependsOn":["c","b"],"childrenIds":["c","b"]"#);
        for (jobs, wrong) in [
            (format!("{family},{child},{c}"), None),
            (format!("{},{b}", a(r#","dependsOn":["b"]"#)), None),
            (format!("{b},{b}"), Some("given twice")),
            (a(r#","dependsOn":["x"]"#), Some("Dependency job not found: x")),
            (a(r#","dependsOn":["a"]"#), Some("the job itself")),
            (a(r#","parentId":"x""#), Some("Parent job not found: x")),
            (format!("{},{b}", a(r#","dependsOn":["b","b"]"#)), Some("not name a job twice")),
            (
                format!("{},{child}", a(r#","dependsOn":["b"],"childrenIds":["b","b"]"#)),
                Some("childrenIds must not name a job twice"),
            ),
            (
                format!("{},{child}", a(r#","childrenIds":["b"]"#)),
                Some("childrenIds names b, which dependsOn does not"),
            ),
            (a(r#","childrenIds":["x"]"#), Some("childrenIds names x, which dependsOn does not")),
            (format!("{},{child}", a("")), Some("whose childrenIds do not name it")),
            (
                format!("{},{b}", a(r#","dependsOn":["b"],"childrenIds":["b"]"#)),
                Some("jobs[1]: b is a child of a, which its parentId must say"),
            ),
            (
                format!(
                    "{},{}",
                    a(r#","dependsOn":["c"]"#),
                    r#"{"id":"c","queue":"q","input":{"data":1,"dependsOn":["a"]}}"#
                ),
                Some("in a circle"),
            ),
        ] {
            let text = format!(r#"{{"cmd":"PUSHF","jobs":[{jobs}]}}"#);
            let frame = json::packed(&text);
            let Ok(Request { body: Body::PushFlow { jobs }, .. }) = decode(&frame) else {
                panic!()
            };
            let at_once = judged(&jobs, usize::MAX);
            for most in [1, 2, 7] {
                assert_eq!(judged(&jobs, most), at_once, "{text}");
            }
            match (wrong, &at_once) {
                (None, Ok(_)) => {}
                (Some(wrong), Err(told)) => assert!(told.text().contains(wrong), "{told}"),
                _ => panic!("{text}: {at_once:?}"),
            }
        }
    }

    #[test]
    fn thousands_of_ids_of_all_lengths_are_found_again() {
        let id = |n: usize| format!("{n}-{}", "x".repeat(n % 256));
        let count = 5000;
        let mut names = Names::with_capacity(count);
        assert!((0..count).all(|n| names.add(&id(n))));
        assert!(!names.add(&id(7)));
        assert!((0..count).all(|n| names.find(&id(n)) == Some(n) && names.get(n) == id(n)));
        assert!(names.find("other").is_none() && names.blocks.len() > 5);
    }
}
