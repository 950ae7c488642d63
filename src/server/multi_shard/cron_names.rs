//! All schedules as the registry shard knows them: their names, where they are, and which of them have ended.

use super::cron_backlog::CronBacklog;
use crate::api::error::Error;
use corq_shards::command::CronStanding;
use std::collections::BTreeMap;

/// Schedules of the server.
pub const CRONS_MAX: usize = 10_000;

/// Payloads of all schedules together: they stay in memory.
pub const CRON_DATA_BYTES_MAX: u64 = 64 << 20;

/// Schedules that their limit has ended and that are remembered, the newest.
const ENDED_CRONS_MAX: usize = 10_000;

/// The place of a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Turn(u64);

/// Names of schedules that their limit has ended, in the order in which they did.
#[derive(Debug, Default)]
struct EndedNames {
    by_turn: BTreeMap<Turn, Box<str>>,
    ended: u64,
}

impl EndedNames {
    /// Takes in a name as the newest.
    fn push(&mut self, name: &str) -> Turn {
        self.ended += 1;
        let turn = Turn(self.ended);
        self.by_turn.insert(turn, name.into());
        turn
    }

    /// Takes a name out.
    fn remove(&mut self, turn: Turn) {
        self.by_turn.remove(&turn);
    }

    /// Takes out the oldest one, if there are too many.
    fn pop_excess(&mut self) -> Option<Box<str>> {
        if self.by_turn.len() <= ENDED_CRONS_MAX {
            return None;
        }
        self.by_turn.pop_first().map(|(_, name)| name)
    }

    /// How many there are.
    fn len(&self) -> usize {
        self.by_turn.len()
    }
}

/// A schedule as the registry shard knows it.
#[derive(Debug)]
struct Entry {
    owner: usize,
    version: u64,
    data_bytes: u64,
    /// A command is at work on it.
    busy: bool,
    /// The schedule ended by itself while a command was at work on it.
    ended: bool,
    /// The limit of the schedule has ended it, and the name is remembered.
    remembered: Option<Turn>,
}

/// Names of all schedules, on the registry shard; empty on all other shards.
#[derive(Debug, Default)]
pub struct CronNames {
    entries: BTreeMap<Box<str>, Entry>,
    /// Payloads of all, those that are being set included.
    data_bytes: u64,
    /// Schedules found twice: the shard of the older, and the name.
    older: Vec<(usize, Box<str>)>,
    /// Names that are only remembered.
    remembered: EndedNames,
    /// Commands that wait for a name that is busy.
    pub backlog: CronBacklog,
}

impl CronNames {
    /// None. Frames of commands that wait may have so many bytes together.
    pub fn new(waiting_bytes_max: usize) -> Self {
        Self { backlog: CronBacklog::new(waiting_bytes_max), ..Self::default() }
    }

    /// Notes a schedule that a shard has found in its log.
    pub fn found(&mut self, owner: usize, name: &str, version: u64, data_bytes: u64) {
        let (busy, ended, remembered) = (false, false, None);
        let entry = Entry { owner, version, data_bytes, busy, ended, remembered };
        match self.entries.get_mut(name) {
            Some(known) if known.version >= version => self.older.push((owner, name.into())),
            Some(known) => {
                self.older.push((known.owner, name.into()));
                self.data_bytes = self.data_bytes - known.data_bytes + data_bytes;
                known.remembered.into_iter().for_each(|turn| self.remembered.remove(turn));
                *known = entry;
            }
            None => {
                self.data_bytes += data_bytes;
                self.entries.insert(name.into(), entry);
            }
        }
    }

    /// Room for a schedule of this name, or why there is none.
    pub fn reserve(&mut self, name: &str, owner: usize, data_bytes: u64) -> Result<(), Error> {
        let known = self.entries.get(name);
        let before = known.map(|entry| entry.data_bytes);
        let runs = known.is_some_and(|entry| entry.remembered.is_none());
        if !runs && self.entries.len() - self.remembered.len() >= CRONS_MAX {
            return Err(Error::too_many_schedules(CRONS_MAX));
        }
        if self.data_bytes - before.unwrap_or(0) + data_bytes > CRON_DATA_BYTES_MAX {
            return Err(Error::schedules_too_large(CRON_DATA_BYTES_MAX));
        }
        self.data_bytes += data_bytes;
        let entry = self.entries.entry(name.into()).or_insert_with(|| Entry {
            owner,
            version: 0,
            data_bytes: 0,
            busy: true,
            ended: false,
            remembered: None,
        });
        entry.busy = true;
        Ok(())
    }

    /// Only remembers a name from now on.
    fn remember(&mut self, name: &str) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        self.data_bytes -= std::mem::take(&mut entry.data_bytes);
        let ended = &mut self.remembered;
        entry.remembered.get_or_insert_with(|| ended.push(name));
    }

    /// Forgets a name.
    fn forget(&mut self, name: &str) {
        let Some(entry) = self.entries.remove(name) else { return };
        self.data_bytes -= entry.data_bytes;
        entry.remembered.into_iter().for_each(|turn| self.remembered.remove(turn));
    }

    /// Forgets the name that has ended first, if too many have, and says where it is. One that a command is at work on
    /// stays a while longer.
    pub fn forget_oldest(&mut self) -> Option<(usize, Box<str>)> {
        let name = self.remembered.pop_excess()?;
        let entry = self.entries.get_mut(&name)?;
        if entry.busy {
            entry.remembered = Some(self.remembered.push(&name));
            return None;
        }
        self.entries.remove(&name).map(|entry| (entry.owner, name))
    }

    /// The shard that has a schedule of this name, or remembers one.
    pub fn owner(&self, name: &str) -> Option<usize> {
        self.entries.get(name).map(|entry| entry.owner)
    }

    /// Schedules found twice, the older ones of them.
    pub fn take_older(&mut self) -> Vec<(usize, Box<str>)> {
        std::mem::take(&mut self.older)
    }

    /// A command is at work on a schedule from now on: where that is. One that is only remembered is for a command that
    /// `deletes`.
    pub fn occupy(&mut self, name: &str, deletes: bool) -> Option<usize> {
        let entry = self.entries.get_mut(name)?;
        if entry.remembered.is_some() && !deletes {
            return None;
        }
        entry.busy = true;
        Some(entry.owner)
    }

    /// Notes what came of setting a schedule, for which room was reserved: how it stands, if it was set.
    pub fn settle(&mut self, name: &str, to: usize, reserved: u64, state: Option<CronStanding>) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        // The space that was reserved is now either the new payload's or free.
        self.data_bytes -= match state {
            Some(standing) => {
                entry.remembered.take().into_iter().for_each(|turn| self.remembered.remove(turn));
                entry.owner = to;
                entry.version = standing.version;
                // Whatever ended before was not this one.
                entry.ended = false;
                std::mem::replace(&mut entry.data_bytes, reserved)
            }
            None => reserved,
        };
    }

    /// The command that was at work on a name is done.
    pub fn release(&mut self, name: &str, is_deleted: bool) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        entry.busy = false;
        if is_deleted || entry.ended || entry.version == 0 {
            self.forget(name);
        }
    }

    /// A schedule of a shard has ended by itself; by its limit, if it is remembered.
    pub fn ended(&mut self, owner: usize, name: &str, is_remembered: bool) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        if is_remembered && entry.owner == owner {
            // A setting that comes meanwhile is said after this.
            self.remember(name);
        } else if entry.busy {
            entry.ended = true;
        } else if entry.owner == owner {
            self.forget(name);
        }
    }

    /// Whether a command is at work on a name.
    pub fn is_busy(&self, name: &str) -> bool {
        self.entries.get(name).is_some_and(|entry| entry.busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_schedules_with_one_name_the_older_goes() {
        let mut names = CronNames::default();
        names.found(1, "c", 4, 10);
        names.found(2, "c", 5, 20);
        names.found(3, "c", 3, 30);
        assert_eq!(names.older, [(1, "c".into()), (3, "c".into())]);
        assert_eq!((names.entries["c"].owner, names.data_bytes), (2, 20));
    }

    fn standing(version: u64) -> CronStanding {
        CronStanding { version, ..CronStanding::default() }
    }

    #[test]
    fn of_schedules_that_have_ended_the_newest_are_remembered_and_take_no_room_of_others() {
        let mut names = CronNames::default();
        for n in 0..=ENDED_CRONS_MAX {
            let name = n.to_string();
            assert_eq!(names.reserve(&name, 1, 7), Ok(()));
            names.settle(&name, 1, 7, Some(standing(1)));
            names.release(&name, false);
            names.ended(1, &name, true);
            let forgotten = (n == ENDED_CRONS_MAX).then(|| (1, "0".into()));
            assert_eq!(names.forget_oldest(), forgotten, "{n}");
        }
        assert_eq!((names.data_bytes, names.owner("0"), names.owner("1")), (0, None, Some(1)));
        assert_eq!(names.occupy("1", false), None, "it is no schedule any more");
        assert_eq!(names.occupy("1", true), Some(1));
        names.release("1", true);
        assert_eq!(names.remembered.len(), ENDED_CRONS_MAX - 1);
        // A name that is set again is one of the others.
        assert_eq!(names.reserve("2", 0, 5), Ok(()));
        names.settle("2", 0, 5, Some(standing(2)));
        names.release("2", false);
        assert_eq!((names.remembered.len(), names.data_bytes), (ENDED_CRONS_MAX - 2, 5));
        assert_eq!(names.occupy("2", false), Some(0));
    }

    #[test]
    fn schedules_and_their_payloads_have_a_limit() {
        let mut names = CronNames::default();
        for n in 0..CRONS_MAX {
            assert_eq!(names.reserve(&n.to_string(), 0, 1), Ok(()));
        }
        let refused = names.reserve("one more", 0, 1).expect_err("no more names");
        assert_eq!(refused.text(), "Too many schedules: at most 10000");
        assert_eq!(names.reserve("7", 0, 1), Ok(()), "what is there can be set anew");
        let text = "data of all schedules together must be at most 67108864 bytes";
        assert_eq!(
            names.reserve("7", 0, CRON_DATA_BYTES_MAX).expect_err("no more data").text(),
            text
        );
    }
}
