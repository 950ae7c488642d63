//! Effects of a push on the groups of its queue, foreseen before any of it comes.
//!
//! A long push is judged a piece at a time. The places it will take are set aside as they are found, so that what others
//! push in between finds its groups as if all of it were there; they are given back as its jobs come, or with it.

use crate::job::new_job::NewJob;
use crate::job::{State, flags};
use crate::log_record::{Pushed, Record};
use crate::shard::Shard;
use std::collections::BTreeMap;

/// The fate of a job that is to be pushed.
enum Foreseen {
    /// The job comes beside all others.
    Comes,
    /// Another one goes for it, which counts in this group.
    Replaces(Option<Box<str>>),
    /// The job does not come.
    Duplicate,
}

/// How many jobs a group has.
#[derive(Clone, Copy, Debug)]
struct Filling {
    /// Without the push, but with what others have set aside.
    before: u64,
    /// With what the push brings and takes.
    now: u64,
    /// Of that, what has been set aside.
    aside: u64,
    /// The piece for which `before` was found.
    piece: u64,
}

impl Filling {
    /// Others have pushed and pulled since: what the push brings and takes comes on top of that.
    fn begin_piece(&mut self, piece: u64, before: u64) {
        let now = (self.now + before).saturating_sub(self.before);
        *self = Self { before, now, piece, ..*self };
    }
}

/// How far a push has been judged.
#[derive(Clone, Debug, Default)]
pub struct Foresight {
    groups: BTreeMap<Box<str>, Filling>,
    /// Who holds a key that the push has given away, and in which group it counts.
    holders: BTreeMap<Box<str>, Option<Box<str>>>,
    /// How many pieces of it have been judged.
    pieces: u64,
}

/// Places in groups that are set aside, by queue and group.
#[derive(Debug, Default)]
pub(crate) struct Coming(BTreeMap<Box<str>, BTreeMap<Box<str>, u64>>);

impl Coming {
    pub(crate) fn of(&self, queue: &str, group: &str) -> u64 {
        let places = self.0.get(queue).and_then(|groups| groups.get(group));
        places.copied().unwrap_or(0)
    }

    fn add(&mut self, queue: &str, group: &str, places: u64) {
        if places > 0 {
            let groups = self.0.entry(queue.into()).or_default();
            *groups.entry(group.into()).or_default() += places;
        }
    }

    fn sub(&mut self, queue: &str, group: &str, places: u64) {
        let Some(groups) = self.0.get_mut(queue) else { return };
        if let Some(left) = groups.get_mut(group) {
            *left -= places.min(*left);
            if *left == 0 {
                groups.remove(group);
            }
        }
        if groups.is_empty() {
            self.0.remove(queue);
        }
    }
}

/// Whether a job counts in its group: those that wait for others do not yet.
fn counts(job: &NewJob<'_>) -> bool {
    let open = job.family.as_deref().is_some_and(|family| !family.open.is_empty());
    job.unmet.is_empty() && !open
}

impl Shard {
    /// How many jobs wait in a group, with those that are to come.
    pub(crate) fn pending_in(&mut self, queue: &str, group: &str) -> u64 {
        let coming = self.coming.of(queue, group);
        self.group(queue, group).map_or(0, |group| group.pending) + coming
    }

    /// The place of the first job, if any, that would make its group larger than it lets it be. Goes on with what is
    /// known of the jobs of the same push before these.
    pub(crate) fn find_overfull(
        &mut self,
        now_ms: u64,
        queue: &str,
        jobs: &[NewJob<'_>],
        sight: &mut Foresight,
    ) -> Option<usize> {
        jobs.iter().position(|job| !self.count_in(now_ms, queue, job, sight, true))
    }

    /// Counts what a job brings and takes. False if its group would be larger than it lets it be, and `judges`.
    fn count_in(
        &mut self,
        now_ms: u64,
        queue: &str,
        job: &NewJob<'_>,
        sight: &mut Foresight,
        judges: bool,
    ) -> bool {
        let known = job.unique_key.and_then(|key| sight.holders.get(key));
        let replaced = match self.foresee(now_ms, queue, job, known) {
            Foreseen::Comes => None,
            Foreseen::Replaces(group) => group,
            // A duplicate stands for a job that is there, and takes no room.
            Foreseen::Duplicate => return true,
        };
        if let Some(group) = replaced {
            let here = self.filling(sight, queue, &group);
            here.now = here.now.saturating_sub(1);
        }
        let counts = counts(job);
        if let Some(group) = job.group_id {
            let here = self.filling(sight, queue, group);
            if judges && job.group_max > 0 && here.now >= u64::from(job.group_max) {
                return false;
            }
            here.now += u64::from(counts);
        }
        if let Some(key) = job.unique_key {
            let group = job.group_id.filter(|_| counts);
            sight.holders.insert(key.into(), group.map(Into::into));
        }
        true
    }

    /// Foresees the fate of a job that is to be pushed, as [`Shard::meet_holder`] will have it. If the same push has
    /// given its key away, `known` is the group of the job that has it then.
    fn foresee(
        &mut self,
        now_ms: u64,
        queue: &str,
        job: &NewJob<'_>,
        known: Option<&Option<Box<str>>>,
    ) -> Foreseen {
        let Some(key) = job.unique_key else { return Foreseen::Comes };
        let dedup = job.extras.as_ref().and_then(|extras| extras.dedup).unwrap_or_default();
        if let Some(group) = known {
            let replaces = Foreseen::Replaces(group.clone());
            return if dedup.replace { replaces } else { Foreseen::Duplicate };
        }
        let Some(holder) = self.holder_of(now_ms, queue, key) else { return Foreseen::Comes };
        let about = &self.jobs.slab[holder];
        match about.state {
            // The worker that has it finishes it without the key.
            State::Active if dedup.replace => Foreseen::Comes,
            state if dedup.replace && !about.has(flags::WATCHED) => {
                let counts = matches!(state, State::Waiting | State::Delayed);
                let group = self.group_name_of(holder).filter(|_| counts);
                Foreseen::Replaces(group.map(Into::into))
            }
            _ => Foreseen::Duplicate,
        }
    }

    fn filling<'a>(
        &mut self,
        sight: &'a mut Foresight,
        queue: &str,
        group: &str,
    ) -> &'a mut Filling {
        let piece = sight.pieces;
        let known = sight.groups.get(group).is_some_and(|here| here.piece == piece);
        let all = if known { 0 } else { self.pending_in(queue, group) };
        let here = sight.groups.entry(group.into()).or_insert(Filling {
            before: all,
            now: all,
            aside: 0,
            piece,
        });
        if here.piece != piece {
            here.begin_piece(piece, all.saturating_sub(here.aside));
        }
        here
    }

    /// Judges a piece of a long push, as a push of which it is all would be, and sets the places aside that it will take.
    pub fn foresee_piece(
        &mut self,
        now_ms: u64,
        queue: &str,
        jobs: &[NewJob<'_>],
        sight: &mut Foresight,
    ) -> Option<usize> {
        self.steps += jobs.len() as u64;
        sight.pieces += 1;
        let overfull = self.find_overfull(now_ms, queue, jobs, sight);
        for group in jobs.iter().filter_map(|job| job.group_id) {
            if let Some(here) = sight.groups.get_mut(group) {
                let places = here.now.saturating_sub(here.before);
                self.coming.add(queue, group, places.saturating_sub(here.aside));
                here.aside = here.aside.max(places);
            }
        }
        overfull
    }

    /// Judges a piece of a part of a flow, jobs of any queues, in the same way. `sights` are those of the queues.
    pub fn foresee_part(
        &mut self,
        now_ms: u64,
        records: &[&[u8]],
        group_max: &[u32],
        sights: &mut BTreeMap<Box<str>, Foresight>,
    ) -> Option<usize> {
        let mut queues: BTreeMap<&str, (Vec<usize>, Vec<NewJob<'_>>)> = BTreeMap::new();
        for (place, bytes) in records.iter().enumerate() {
            let Ok(Record::Staged(staged)) = Record::decode(bytes) else { continue };
            let Pushed { queue, job, .. } = staged.pushed;
            let group_max = group_max.get(place).copied().unwrap_or(0);
            let (places, jobs) = queues.entry(queue).or_default();
            places.push(place);
            jobs.push(NewJob { group_max, ..job });
        }
        queues.into_iter().find_map(|(queue, (places, jobs))| {
            let sight = sights.entry(queue.into()).or_default();
            let nth = self.foresee_piece(now_ms, queue, &jobs, sight)?;
            places.get(nth).copied()
        })
    }

    /// A piece that was judged comes now: gives back the places that its jobs take. Those that bring nothing, or replace
    /// another job of their group, take none.
    pub fn note_coming(
        &mut self,
        now_ms: u64,
        queue: &str,
        jobs: &[NewJob<'_>],
        sight: &mut Foresight,
    ) {
        self.steps += jobs.len() as u64;
        let mut piece = Foresight::default();
        for job in jobs {
            self.count_in(now_ms, queue, job, &mut piece, false);
        }
        for (group, brought) in &piece.groups {
            if let Some(here) = sight.groups.get_mut(group) {
                let places = brought.now.saturating_sub(brought.before).min(here.aside);
                here.aside -= places;
                self.coming.sub(queue, group, places);
            }
        }
    }

    /// Gives back the places of some groups of a push that is over. True if there are no more.
    pub fn give_up_places(&mut self, queue: &str, sight: &mut Foresight, most: usize) -> bool {
        for _ in 0..most {
            self.steps += 1;
            if sight.holders.pop_first().is_some() {
                continue;
            }
            let Some((group, here)) = sight.groups.pop_first() else { return true };
            self.coming.sub(queue, &group, here.aside);
        }
        false
    }
}
