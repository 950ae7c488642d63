//! Sorted pages of the queues of all shards, as they are put together: each shard hands in the best rows of some of its queues
//! at a time, and of all rows as many are kept as the page has.
//!
//! A ground type: of the server it imports the envelope only.

use crate::api::access::Scope;
use crate::api::listing::{QUEUE_SHOWN, QueuePage, QueueSort, queue_cursor};
use crate::protocol::msgpack::writer::MapWriter;
use crate::server::shard_mail::envelope::{Origin, Step};
use corq_shards::Shard;
use corq_shards::job::State;
use corq_shards::queue::Queue;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Minutes whose ended jobs tell how fast a queue goes.
const RATE_MINUTES: u64 = 5;

/// The request for a page: which queues, their order, how many and what of each.
#[derive(Debug)]
pub struct QueueSpec {
    prefix: Box<str>,
    /// The queues that there are for the client.
    scope: Scope,
    sort: QueueSort,
    descending: bool,
    pub limit: usize,
    after: Option<RowKey>,
    fields: u32,
    /// See [`QueuePage::cursor_front`].
    cursor_front: Box<str>,
}

/// Where a queue stands in the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowKey {
    figure: u64,
    name: Box<str>,
    by_name: bool,
    descending: bool,
}

impl RowKey {
    /// How the place compares with that of a queue, whose name stays where it is: most queues are looked at for nothing.
    fn cmp_with(&self, figure: u64, name: &str) -> Ordering {
        let directed = |order: Ordering| if self.descending { order.reverse() } else { order };
        if self.by_name {
            return directed((*self.name).cmp(name));
        }
        // Equal figures go by their names, whatever comes first.
        directed(self.figure.cmp(&figure)).then_with(|| (*self.name).cmp(name))
    }
}

impl Ord for RowKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.cmp_with(other.figure, &other.name)
    }
}

impl PartialOrd for RowKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Rows by their places, as many as are wanted at most.
#[derive(Debug, Default)]
pub struct QueueRows {
    best: BTreeMap<RowKey, Vec<u8>>,
    /// The place from which on no row is wanted, as the page is full without.
    below: Option<RowKey>,
}

impl QueueRows {
    /// No rows yet, and only those before a place are wanted.
    pub fn before(below: Option<RowKey>) -> Self {
        Self { below, ..Self::default() }
    }

    /// The place of the last row, if there are as many as are wanted.
    pub fn full_from(&self, most: usize) -> Option<RowKey> {
        let last = self.best.last_key_value().filter(|_| self.best.len() >= most);
        last.map(|(last, _)| last.clone())
    }

    /// Adds a row, unless there are `most` before it.
    pub fn add(&mut self, key: RowKey, row: Vec<u8>, most: usize) {
        self.best.insert(key, row);
        if self.best.len() > most {
            self.best.pop_last();
        }
    }

    /// Whether a row there would be among the first `most`.
    fn has_room(&self, (figure, name): (u64, &str), most: usize) -> bool {
        let last = self.best.last_key_value().filter(|_| self.best.len() >= most);
        let bounds = [self.below.as_ref(), last.map(|(last, _)| last)];
        bounds.into_iter().flatten().all(|bound| bound.cmp_with(figure, name).is_gt())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.best.len()
    }

    /// All of them.
    pub fn into_rows(self) -> impl Iterator<Item = (RowKey, Vec<u8>)> {
        self.best.into_iter()
    }
}

/// A page that is being put together.
#[derive(Debug)]
pub struct QueueTask {
    pub(super) origin: Origin,
    pub(super) req_id: Option<Box<[u8]>>,
    pub(super) spec: Arc<QueueSpec>,
    /// Shards that have not handed in all.
    pub(super) left: usize,
    pub(super) rows: QueueRows,
}

/// Messages between shards about pages of queues.
#[derive(Debug)]
pub enum QueueMessage {
    /// Asks for the best of some queues of the receiver, from this index on.
    Ask {
        /// Who waits.
        step: Step,
        spec: Arc<QueueSpec>,
        from: u32,
        /// The place from which on rows are not wanted.
        below: Option<Box<RowKey>>,
    },
    /// The answer, and where the next begins if there are more.
    Page {
        /// Who waits.
        step: Step,
        from: u16,
        rows: Vec<(RowKey, Vec<u8>)>,
        next: Option<u32>,
    },
}

impl QueueSpec {
    /// The request that a command makes of each shard.
    pub fn of(page: &QueuePage<'_>, scope: Scope) -> Self {
        let mut spec = Self {
            scope,
            prefix: page.prefix.unwrap_or_default().into(),
            sort: page.sort,
            descending: page.descending,
            limit: page.limit as usize,
            after: None,
            fields: page.fields.unwrap_or(u32::MAX),
            cursor_front: page.cursor_front().into(),
        };
        spec.after = page.behind().map(|(figure, name)| spec.key(figure, name));
        spec
    }

    fn key(&self, figure: u64, name: &str) -> RowKey {
        let by_name = self.sort == QueueSort::Name;
        RowKey { figure, name: name.into(), by_name, descending: self.descending }
    }

    /// The figure of a queue that the rows are sorted by.
    fn figure(&self, shard: &Shard, queue: &Queue, now_ms: u64) -> u64 {
        match self.sort {
            QueueSort::Name => 0,
            QueueSort::Waiting => queue.count(State::Waiting),
            QueueSort::Delayed => queue.count(State::Delayed),
            QueueSort::Active => queue.count(State::Active),
            QueueSort::Completed => queue.count(State::Completed),
            QueueSort::Failed => queue.count(State::Failed),
            QueueSort::Total => queue.total(),
            QueueSort::Rate => (per_minute(queue, now_ms, 0) * 1000.0) as u64,
            // The earlier it was due, the longer it waits. Bounded, so that it is a number of JSON as well.
            QueueSort::Oldest => {
                let due_ms = shard.oldest_due_ms(queue);
                due_ms.map_or(0, |due_ms| (1 << 50) - due_ms.min((1 << 50) - 1))
            }
        }
    }

    /// Adds a queue to the rows, if it is one of the page so far.
    pub fn add(&self, shard: &Shard, queue: &Queue, now_ms: u64, rows: &mut QueueRows) {
        let is_there = self.scope.is_none_or(|own| own.cover(&queue.name));
        if !is_there || !queue.name.starts_with(&*self.prefix) {
            return;
        }
        let place = (self.figure(shard, queue, now_ms), &*queue.name);
        let after = self.after.as_ref();
        let is_behind = after.is_none_or(|after| after.cmp_with(place.0, place.1).is_lt());
        if is_behind && rows.has_room(place, self.limit + 1) {
            let mut row = Vec::new();
            self.write(&mut row, shard, queue, now_ms);
            rows.add(self.key(place.0, place.1), row, self.limit + 1);
        }
    }

    fn has(&self, name: &str) -> bool {
        let place = QUEUE_SHOWN.iter().position(|shown| *shown == name);
        place.is_some_and(|place| self.fields >> place & 1 == 1)
    }

    fn write(&self, out: &mut Vec<u8>, shard: &Shard, queue: &Queue, now_ms: u64) {
        let mut row = MapWriter::begin(out);
        row.key("name").str(&queue.name);
        for state in State::ALL {
            if self.has(state.name()) {
                row.key(state.name()).uint(queue.count(state));
            }
        }
        if self.has("total") {
            row.key("total").uint(queue.total());
        }
        if self.has("paused") {
            row.key("paused").bool(queue.is_paused());
        }
        for (kind, name) in ["completedPerMinute", "failedPerMinute"].into_iter().enumerate() {
            if self.has(name) {
                let rate = per_minute(queue, now_ms, kind);
                row.key(name).number((rate * 1000.0).round() / 1000.0);
            }
        }
        if self.has("oldestWaiting") {
            row.key("oldestWaiting").uint_or_nil(shard.oldest_due_ms(queue));
        }
        if self.has("waitP99") {
            let edge_ms = queue.waits.as_deref().and_then(|waits| waits.percentile_edge_ms(99));
            row.key("waitP99").uint_or_nil(edge_ms.filter(|&edge_ms| edge_ms < u64::MAX));
        }
        let limits = queue.limits.as_deref();
        if self.has("rateLimit") {
            match limits.and_then(corq_shards::Limits::rate) {
                None => row.key("rateLimit").nil(),
                Some(rate) => {
                    let mut limit = row.map("rateLimit");
                    limit.key("max").uint(u64::from(rate.jobs));
                    limit.key("duration").uint(u64::from(rate.span_ms));
                }
            }
        }
        if self.has("concurrencyLimit") {
            let most = limits.and_then(corq_shards::Limits::active_max);
            row.key("concurrencyLimit").uint_or_nil(most.map(u64::from));
        }
        if self.has("groups") {
            row.key("groups").uint(queue.groups_count());
        }
    }
}

/// Jobs that were completed, or attempts that failed, in a minute of the last ones.
fn per_minute(queue: &Queue, now_ms: u64, kind: usize) -> f64 {
    let lately = queue.done[kind].lately(now_ms, RATE_MINUTES);
    lately.map_or(0.0, |(jobs, ms)| jobs as f64 * 60_000.0 / ms as f64)
}

impl QueueTask {
    /// The fields of the reply: the rows, and the cursor behind the last of them if there are more.
    pub(super) fn write(self, reply: &mut MapWriter<'_>) {
        let limit = self.spec.limit;
        let has_more = self.rows.count() > limit;
        let mut queues = reply.key("queues");
        queues.array(self.rows.count().min(limit));
        let mut last = None;
        for (key, row) in self.rows.into_rows().take(limit) {
            queues.raw(&row);
            last = Some(key);
        }
        let cursor = |row: RowKey| queue_cursor(&self.spec.cursor_front, row.figure, &row.name);
        let next = last.filter(|_| has_more).map(cursor);
        reply.key("next").str_or_nil(next.as_deref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(sort: QueueSort, descending: bool) -> QueueSpec {
        let page =
            QueuePage { prefix: None, sort, descending, limit: 2, after: None, fields: None };
        QueueSpec::of(&page, None)
    }

    #[test]
    fn rows_go_by_figure_then_by_name_and_the_best_of_them_stay() {
        let by = spec(QueueSort::Waiting, true);
        let mut rows = QueueRows::default();
        for (figure, name) in [(5, "b"), (9, "c"), (5, "a"), (1, "d")] {
            let key = by.key(figure, name);
            if rows.has_room((figure, name), 3) {
                rows.add(key, Vec::new(), 3);
            }
        }
        let last = rows.full_from(3);
        assert_eq!((&last, rows.full_from(4)), (&Some(by.key(5, "b")), None));
        let others = QueueRows::before(last);
        assert!(others.has_room((5, "a"), 3) && !others.has_room((5, "b"), 3));
        let names: Vec<_> = rows.into_rows().map(|(key, _)| key.name).collect();
        assert_eq!(names, ["c".into(), "a".into(), "b".into()] as [Box<str>; 3]);
        let back = spec(QueueSort::Name, true);
        assert!(back.key(0, "b") < back.key(0, "a"));
        let forth = spec(QueueSort::Failed, false);
        assert!(forth.key(1, "z") < forth.key(2, "a"));
    }
}
