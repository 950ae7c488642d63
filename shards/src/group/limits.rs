//! Settings of groups: limits, weights, pauses, and the time that ends them.

use crate::command::GroupLimit;
use crate::effect::{Refusal, Reply};
use crate::flow::Staged;
use crate::group::scheduler::groups_after;
use crate::group::{GROUP_SETTINGS_MAX, GroupRate, GroupSettings, Own, Window};
use crate::log_record::location::LogRef;
use crate::log_record::settings::Grouped;
use crate::log_record::{Journal, Record};
use crate::shard::{Caller, FULL, Out, SETTING_BYTES, Shard};
use std::collections::BTreeMap;

/// A group, as clients see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupView<'a> {
    /// Name of the group.
    pub name: &'a str,
    /// Jobs that wait or are delayed.
    pub pending: u64,
    /// Jobs that workers have.
    pub active: u64,
    /// Limits, weight and pause of the group.
    pub settings: GroupSettings,
}

impl GroupLimit {
    /// Whether less is set with it.
    fn takes_back(self) -> bool {
        matches!(
            self,
            Self::Rate(None) | Self::Active(None) | Self::Weight(1) | Self::Paused(false)
        )
    }
}

impl GroupSettings {
    /// With one thing changed.
    fn with(self, now_ms: u64, limit: GroupLimit) -> Self {
        match limit {
            GroupLimit::Rate(rate) => Self { rate, ..self },
            GroupLimit::Active(active_max) => Self { active_max, ..self },
            GroupLimit::Weight(weight) => Self { weight, ..self },
            GroupLimit::Paused(paused) => Self { paused, ..self },
            GroupLimit::Hold(span_ms) => {
                Self { held_until_ms: now_ms.saturating_add(span_ms), ..self }
            }
        }
    }
}

impl Shard {
    pub(crate) fn limit_group<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        (queue, group): (&str, &str),
        limit: GroupLimit,
        out: &mut Out<'_, J>,
    ) {
        let known = self.queues.find(queue).and_then(|index| self.groups.find(index, group));
        let own = known.and_then(|group| self.groups.slab[group].own.as_deref());
        let before = own.map_or_else(GroupSettings::default, |own| own.settings);
        let settings = before.with(now_ms, limit);
        let reply = if settings == before {
            Reply::Count(0)
        } else if own.is_none() && self.groups.with_settings >= GROUP_SETTINGS_MAX {
            Reply::Refused { place: 0, refusal: Refusal::GroupSettings }
        } else if !limit.takes_back()
            && !out
                .journal
                .can_append_text(SETTING_BYTES + (queue.len() + group.len()) as u64, || {
                    self.space_forecast()
                })
        {
            FULL
        } else {
            if settings.held_until_ms > 0 {
                self.tell_clock(now_ms, out.journal);
            }
            let grouped = Grouped { queue, group, settings };
            let stored = out.journal.append(&Record::Grouped(grouped));
            self.set_group(&grouped, stored);
            Reply::Count(1)
        };
        out.effects.replies.push((caller.request, reply));
    }

    /// Applies [`Record::Grouped`].
    pub(crate) fn set_group(&mut self, grouped: &Grouped<'_>, stored: LogRef) {
        let queue = self.queues.find_or_insert(grouped.queue);
        let group = self.find_or_insert_group(queue, grouped.group);
        let settings = grouped.settings;
        let about = &mut self.groups.slab[group];
        let before = about.own.take();
        // A rate that is said again is no new span of time.
        let same = before.as_deref().filter(|own| own.settings.rate == settings.rate);
        let window = same.map_or_else(Window::default, |own| own.window);
        let set = settings != GroupSettings::default();
        about.own = set.then(|| Box::new(Own { settings, set_in: stored, window }));
        about.credit = about.credit.min(settings.weight);
        self.live.replace(before.as_deref().map(|own| own.set_in), set.then_some(stored));
        self.list_settings(queue, group, before.is_some(), set);
        self.refresh_group(group);
        self.drop_group_if_idle(group);
    }

    fn list_settings(&mut self, queue: u32, group: u32, before: bool, after: bool) {
        let Some(rotation) = self.queues[queue].groups.as_deref_mut() else { return };
        match (before, after) {
            (false, true) => {
                rotation.with_settings.push_back(&mut self.groups.slab, group);
                rotation.set += 1;
                self.groups.with_settings += 1;
            }
            (true, false) => {
                rotation.with_settings.remove(&mut self.groups.slab, group);
                rotation.set -= 1;
                self.groups.with_settings -= 1;
            }
            _ => {}
        }
    }

    /// [`Record::GroupsCleared`]. A step per group with settings.
    pub(crate) fn clear_groups(&mut self, name: &str) {
        let Some(queue) = self.queues.find(name) else { return };
        while let Some(group) = self.first_with_settings(queue) {
            self.clear_group(queue, group);
        }
    }

    /// A slice of what [`Record::GroupsCleared`] says of queues that have lost their names since they had many groups with
    /// settings. Its record is in the log, so a start does the same at once. True if nothing is left to do: before that, compaction
    /// gives up no segment, as the records of these settings still count as needed there.
    pub fn clear_detached_groups(&mut self) -> bool {
        for _ in 0..self.config.bulk_slice {
            let Some(&queue) = self.groups.to_clear.last() else { return true };
            self.steps += 1;
            match self.first_with_settings(queue) {
                Some(group) => self.clear_group(queue, group),
                None => drop(self.groups.to_clear.pop()),
            }
        }
        self.groups.to_clear.is_empty()
    }

    fn first_with_settings(&self, queue: u32) -> Option<u32> {
        self.queues[queue].groups.as_deref()?.with_settings.front()
    }

    fn clear_group(&mut self, queue: u32, group: u32) {
        if let Some(own) = self.groups.slab[group].own.take() {
            self.live.sub(&own.set_in);
        }
        self.list_settings(queue, group, true, false);
        self.refresh_group(group);
        self.drop_group_if_idle(group);
    }

    /// Settings of a group, if it has any.
    pub(crate) fn group_settings(&mut self, queue: &str, group: &str) -> Option<GroupSettings> {
        let group = self.groups.find(self.queues.find(queue)?, group)?;
        self.groups.slab[group].own.as_deref().map(|own| own.settings)
    }

    /// The record that says what is set for a group, if anything is.
    pub(crate) fn group_set_in(&mut self, queue: &str, group: &str) -> Option<LogRef> {
        let group = self.groups.find(self.queues.find(queue)?, group)?;
        self.groups.slab[group].own.as_deref().map(|own| own.set_in)
    }

    /// Groups that gave no jobs until now may do so again, as many as there may be between two steps of time, whatever asks for it.
    pub(crate) fn wake_groups<J: Journal>(&mut self, now_ms: u64, out: &mut Out<'_, J>) {
        while self.allowance.wakes > 0 {
            let Some(group) = self.groups.timers.due(now_ms) else { return };
            self.allowance.wakes -= 1;
            self.steps += 1;
            let about = &self.groups.slab[group];
            let (queue, timer) = (about.queue, about.timer);
            self.groups.timers.remove(timer, &mut self.groups.slab);
            if let Some(rotation) = self.queues[queue].groups.as_deref() {
                self.groups.end_windows(rotation, now_ms, group);
            }
            let about = &self.groups.slab[group];
            let settings = about.settings();
            let over = settings.held_until_ms > 0 && settings.held_until_ms <= now_ms;
            if over && self.queues[queue].detached {
                // The log has said already that it has no settings.
                self.clear_group(queue, group);
            } else if over {
                let (queue, group) = (self.queues[queue].name.clone(), about.name.clone());
                let settings = GroupSettings { held_until_ms: 0, ..settings };
                let grouped = Grouped { queue: &queue, group: &group, settings };
                let stored = out.journal.append(&Record::Grouped(grouped));
                self.set_group(&grouped, stored);
            } else {
                self.refresh_group(group);
                self.drop_group_if_idle(group);
            }
        }
    }

    /// Which job of a part of a flow, if any, would make its group larger than it lets it be. Those that wait for others do
    /// not count, and no others are counted that are staged.
    pub(crate) fn find_overfull_part(
        &mut self,
        records: &[&[u8]],
        group_max: &[u32],
    ) -> Option<usize> {
        if group_max.iter().all(|&max| max == 0) {
            return None;
        }
        let mut taken = BTreeMap::<(&str, &str), u64>::new();
        for (place, bytes) in records.iter().enumerate() {
            let Ok(Record::Staged(Staged { pushed, .. })) = Record::decode(bytes) else { continue };
            let Some(group) = pushed.job.group_id else { continue };
            let open = pushed.job.family.as_deref().is_some_and(|family| !family.open.is_empty());
            if open || !pushed.job.unmet.is_empty() {
                continue;
            }
            let here = taken
                .entry((pushed.queue, group))
                .or_insert_with(|| self.pending_in(pushed.queue, group));
            let max = group_max.get(place).copied().unwrap_or(0);
            if max > 0 && *here >= u64::from(max) {
                return Some(place);
            }
            *here += 1;
        }
        None
    }

    /// A group, if it is known.
    pub fn group(&mut self, queue: &str, group: &str) -> Option<GroupView<'_>> {
        let group = self.groups.find(self.queues.find(queue)?, group)?;
        Some(self.group_view(group))
    }

    fn group_view(&self, group: u32) -> GroupView<'_> {
        let about = &self.groups.slab[group];
        GroupView {
            name: &about.name,
            pending: u64::from(about.pending),
            active: u64::from(about.active),
            settings: about.settings(),
        }
    }

    /// Groups of a queue in the order in which they became known, from behind the one called `after` on.
    /// None if there is no group of that name.
    pub fn groups_of(
        &mut self,
        queue: &str,
        after: Option<&str>,
    ) -> Option<impl Iterator<Item = GroupView<'_>>> {
        let known = self.queues.find(queue);
        let after = match (known, after) {
            (_, None) => None,
            (Some(queue), Some(after)) => Some(self.groups.find(queue, after)?),
            (None, Some(_)) => return None,
        };
        let this = &*self;
        let rotation = known.and_then(|queue| this.queues[queue].groups.as_deref());
        let groups = rotation
            .into_iter()
            .flat_map(move |rotation| groups_after(&this.groups.slab, rotation, after));
        Some(groups.map(|group| this.group_view(group)))
    }

    /// Limits for groups that pulls of a queue have said last, as far as they are remembered.
    pub fn limits_of_pulls(&self, queue: &str) -> (Option<u64>, Option<GroupRate>) {
        let known = self.queues.lookup(queue);
        let limits = known.map(|queue| self.queues[queue].limits_of_pulls()).unwrap_or_default();
        (limits.active_max, limits.rate)
    }

    /// For how long from now on a group gives no jobs, as far as is known: while it is held, or else until
    /// the span of time ends in which they are counted, unless fewer than `jobs` have left in it. None if
    /// neither is so.
    pub fn group_wait_ms(
        &mut self,
        now_ms: u64,
        (queue, group): (&str, &str),
        jobs: Option<u64>,
    ) -> Option<u64> {
        let queue = self.queues.find(queue)?;
        let group = self.groups.find(queue, group)?;
        let held_until_ms = self.groups.slab[group].settings().held_until_ms;
        if held_until_ms > now_ms {
            return Some(held_until_ms - now_ms);
        }
        let rotation = self.queues[queue].groups.as_deref()?;
        self.groups.window_left_ms(rotation, now_ms, group, jobs)
    }

    /// Settings of groups, as text. Of a queue that is detached, the log says already that there are none.
    pub(crate) fn facts_of_groups(&self) -> impl Iterator<Item = String> {
        self.groups.indices().filter_map(|group| {
            let about = &self.groups.slab[group];
            let own = about.own.as_deref().filter(|_| !self.queues[about.queue].detached)?;
            let queue = &self.queues[about.queue].name;
            Some(format!("group {} of {queue}: {:?}", about.name, own.settings))
        })
    }
}
