//! Dependencies of a job that are unmet: found by id, and given up one by one at little cost, however many there are.

use crate::collections::count::Count;
use crate::job::id::JobId;

/// A job that another one waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dependency {
    /// The job.
    pub id: JobId,
    /// The name it was given by, if that is not its id and is needed.
    pub name: Option<Box<str>>,
    /// The dependency was made for the job that waits.
    pub child: bool,
}

/// The jobs that one job waits for.
#[derive(Clone, Default)]
pub struct UnmetDependencies {
    /// By id; those that are met stay where they are, and say so.
    all: Vec<(Dependency, bool)>,
    left: usize,
}

impl UnmetDependencies {
    /// Of these, each job once.
    pub fn new(all: impl Iterator<Item = Dependency>) -> Self {
        // Filled in place: there may be as many as a flow has jobs.
        let mut all: Vec<(Dependency, bool)> = all.map(|one| (one, false)).collect();
        all.sort_by_key(|(one, _)| one.id);
        all.dedup_by_key(|(one, _)| one.id);
        Self { left: all.len(), all }
    }

    /// How many are left.
    pub fn len(&self) -> usize {
        self.left
    }

    /// How many are gone through to see all that are left: those that are met are among them.
    pub fn rows(&self) -> usize {
        self.all.len()
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Unmet dependencies, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Dependency> {
        self.all.iter().filter(|(_, met)| !met).map(|(one, _)| one)
    }

    /// The first of them at this place or behind it, and its own place.
    pub fn behind(&self, place: usize) -> Option<(usize, &Dependency)> {
        let mut rows = self.all.iter().enumerate().skip(place);
        rows.find(|(_, (_, met))| !met).map(|(place, (one, _))| (place, one))
    }

    /// All of them, and those that are met, which are marked.
    pub fn into_rows(self) -> std::vec::IntoIter<(Dependency, bool)> {
        self.all.into_iter()
    }

    /// The unmet dependency with this id.
    pub fn find(&self, id: JobId) -> Option<&Dependency> {
        let place = self.all.binary_search_by_key(&id, |(one, _)| one.id).ok()?;
        let (one, met) = &self.all[place];
        (!met).then_some(one)
    }

    /// Marks a dependency as met.
    pub fn meet(&mut self, id: JobId) {
        if let Ok(place) = self.all.binary_search_by_key(&id, |(one, _)| one.id)
            && !std::mem::replace(&mut self.all[place].1, true)
        {
            self.left.take_out(1);
        }
        if self.left == 0 {
            self.all = Vec::new();
        }
    }

    /// All but children are waited for no longer. Returns them.
    pub fn meet_others(&mut self) -> Vec<JobId> {
        let others: Vec<JobId> = self.iter().filter(|one| !one.child).map(|one| one.id).collect();
        for &id in &others {
            self.meet(id);
        }
        others
    }

    /// Adds an unmet dependency. Returns how many it has moved: all with a higher id.
    pub fn add(&mut self, one: Dependency) -> usize {
        match self.all.binary_search_by_key(&one.id, |(known, _)| known.id) {
            Ok(place) => {
                if std::mem::replace(&mut self.all[place], (one, false)).1 {
                    self.left += 1;
                }
                0
            }
            Err(place) => {
                self.all.insert(place, (one, false));
                self.left += 1;
                self.all.len() - 1 - place
            }
        }
    }

    /// Nothing is waited for.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Shows what is left: what is met is no fact.
impl std::fmt::Debug for UnmetDependencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(id: u128, child: bool) -> Dependency {
        Dependency { id: JobId(id), name: None, child }
    }

    fn left(unmet_dependencies: &UnmetDependencies) -> Vec<u128> {
        unmet_dependencies.iter().map(|one| one.id.0).collect()
    }

    #[test]
    fn each_is_met_once_and_may_come_again() {
        let mut unmet_dependencies =
            UnmetDependencies::new([one(3, false), one(1, true), one(3, false)].into_iter());
        assert_eq!((left(&unmet_dependencies), unmet_dependencies.len()), (vec![1, 3], 2));
        assert_eq!(unmet_dependencies.add(one(2, true)), 1, "it stands before one");
        assert_eq!(unmet_dependencies.add(one(2, true)), 0, "it is there");
        unmet_dependencies.meet(JobId(1));
        unmet_dependencies.meet(JobId(1));
        unmet_dependencies.meet(JobId(9));
        assert_eq!((left(&unmet_dependencies), unmet_dependencies.len()), (vec![2, 3], 2));
        assert!(
            unmet_dependencies.find(JobId(1)).is_none()
                && unmet_dependencies.find(JobId(2)).is_some()
        );
        unmet_dependencies.add(one(1, true));
        assert_eq!(unmet_dependencies.meet_others(), [JobId(3)]);
        assert_eq!(
            format!("{unmet_dependencies:?}"),
            format!("{:?}", [one(1, true), one(2, true)])
        );
        unmet_dependencies.meet(JobId(1));
        unmet_dependencies.meet(JobId(2));
        assert!(unmet_dependencies.is_empty() && unmet_dependencies.all.is_empty());
    }
}
