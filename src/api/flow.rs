//! The shape of a flow: which of its jobs waits for which, checked as a whole before anything is done.
//!
//! Knows the jobs as they were asked for, by their places in the command; no shard, no queue.

use crate::protocol::msgpack::Texts;
use corq_shards::job::new_job::NewJob;
use std::collections::{HashMap, HashSet};

/// One job of a flow.
#[derive(Clone, Debug)]
pub struct FlowJob<'a> {
    /// Its id, which its client has chosen.
    pub id: &'a str,
    /// Its queue.
    pub queue: &'a str,
    /// What it is pushed with.
    pub job: NewJob<'a>,
}

/// What one job of a flow has to do with the others, by place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ties {
    /// Those it depends on, and whether each is a child of it.
    pub dependencies: Vec<(usize, bool)>,
}

/// Checks a flow as a whole, in a step per job and edge. The text for the client says what is wrong.
pub fn ties(jobs: &[FlowJob<'_>]) -> Result<Vec<Ties>, String> {
    let mut places = HashMap::with_capacity(jobs.len());
    for (place, one) in jobs.iter().enumerate() {
        if places.insert(one.id, place).is_some() {
            return Err(format!("jobs[{place}]: id {} is given twice", one.id));
        }
        check_alone(one).map_err(|text| format!("jobs[{place}]: {text}"))?;
    }
    let mut all = Vec::with_capacity(jobs.len());
    for (place, one) in jobs.iter().enumerate() {
        let ties = ties_of(one, place, &places).map_err(|text| format!("jobs[{place}]: {text}"))?;
        all.push(ties);
    }
    check_parents(jobs, &all, &places)?;
    if !is_acyclic(&all) {
        return Err("jobs must not depend on each other in a circle".into());
    }
    Ok(all)
}

fn check_alone(one: &FlowJob<'_>) -> Result<(), String> {
    let job = &one.job;
    if job.custom_id.is_some_and(|custom_id| custom_id != one.id) {
        return Err("customId must be the id".into());
    }
    if job.repeat.is_some() {
        return Err("repeat is not for jobs of a flow".into());
    }
    if job.unique_key.is_some() {
        return Err("uniqueKey and debounceId are not for jobs of a flow".into());
    }
    let family = job.family.as_deref();
    if family.is_some_and(|family| family.policy.is_some() && family.parent.is_none()) {
        return Err("what a failure means for a parent needs a parentId".into());
    }
    Ok(())
}

fn ties_of(one: &FlowJob<'_>, place: usize, places: &HashMap<&str, usize>) -> Result<Ties, String> {
    let family = one.job.family.as_deref();
    let children = family.map_or(&[][..], |family| family.children);
    let names: HashSet<&str> = Texts::new(children).iter().collect();
    if names.len() != Texts::new(children).len() {
        return Err("childrenIds must not name a job twice".into());
    }
    let mut seen = HashSet::new();
    let mut dependencies = Vec::new();
    for name in Texts::new(one.job.depends_on).iter() {
        match places.get(name) {
            None => return Err(format!("Dependency job not found: {name}")),
            Some(&other) if other == place => {
                return Err("dependsOn must not name the job itself".into());
            }
            Some(&other) if seen.insert(other) => dependencies.push((other, names.contains(name))),
            Some(_) => return Err("dependsOn must not name a job twice".into()),
        }
    }
    match names.into_iter().find(|&name| places.get(name).is_none_or(|at| !seen.contains(at))) {
        Some(name) => Err(format!("childrenIds names {name}, which dependsOn does not")),
        None => Ok(Ties { dependencies }),
    }
}

/// Parents name their children, and children their parents.
fn check_parents(
    jobs: &[FlowJob<'_>],
    all: &[Ties],
    places: &HashMap<&str, usize>,
) -> Result<(), String> {
    let parent_of =
        |place: usize| jobs[place].job.family.as_deref().and_then(|family| family.parent);
    let mut claimed = vec![false; jobs.len()];
    for (place, ties) in all.iter().enumerate() {
        for &(child, _) in ties.dependencies.iter().filter(|(_, is_child)| *is_child) {
            if parent_of(child) != Some(jobs[place].id) {
                let (parent, child_id) = (jobs[place].id, jobs[child].id);
                return Err(format!(
                    "jobs[{child}]: {child_id} is a child of {parent}, which its parentId must say"
                ));
            }
            claimed[child] = true;
        }
    }
    for place in (0..jobs.len()).filter(|&place| !claimed[place]) {
        if let Some(parent) = parent_of(place) {
            let text = match places.get(parent) {
                None => format!("Parent job not found: {parent}"),
                Some(_) => format!("parentId names {parent}, whose childrenIds do not name it"),
            };
            return Err(format!("jobs[{place}]: {text}"));
        }
    }
    Ok(())
}

fn is_acyclic(all: &[Ties]) -> bool {
    let mut left: Vec<usize> = all.iter().map(|ties| ties.dependencies.len()).collect();
    let mut dependents = vec![Vec::new(); all.len()];
    for (place, ties) in all.iter().enumerate() {
        ties.dependencies.iter().for_each(|&(other, _)| dependents[other].push(place));
    }
    let mut ready: Vec<usize> = (0..all.len()).filter(|&place| left[place] == 0).collect();
    let mut visited = 0;
    while let Some(place) = ready.pop() {
        visited += 1;
        for &dependent in &dependents[place] {
            left[dependent] -= 1;
            if left[dependent] == 0 {
                ready.push(dependent);
            }
        }
    }
    visited == all.len()
}
