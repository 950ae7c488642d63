//! Pages of what one shard has, for lists over all shards: queues, schedules, workers, lines of metrics. A page ends by its
//! rows, its bytes, or the places that were looked at.

use super::cron_view::write_cron;
use super::messages::{PAGE_BYTES, PAGE_ROWS};
use super::row_lists::{Kind, Page, Place, RowsMessage};
use crate::api::access::Scope;
use crate::protocol::msgpack::writer::{MapWriter, Writer};
use crate::server::connection::session::Session;
use crate::server::dashboard::queue_page::write_row;
use crate::server::metrics::QueueLines;
use crate::server::metrics::queue_choice::{Longest, QueueChoice};
use crate::server::shard_mail::envelope::Step;
use crate::server::shard_mail::message::Message;
use crate::server::shard_server::ShardServer;
use corq_shards::job::State;
use corq_shards::queue::Queue;

/// Places looked at for one page, whatever is there.
const PAGE_LOOKS: usize = 4000;

/// Looks that find nothing, for each step.
const LOOKS_PER_STEP: usize = corq_shards::query::LOOKS_PER_STEP as usize;

/// Most priorities, and most groups, that are looked at for the oldest job of a queue.
const OLDEST_LOOKS_MAX: usize = 32;

/// How many looks the oldest job of a queue takes, at most.
fn looks_for_oldest(queue: &Queue) -> usize {
    let groups = queue.groups_count().min(OLDEST_LOOKS_MAX as u64);
    queue.priorities_max().min(OLDEST_LOOKS_MAX) + groups as usize
}

impl ShardServer {
    pub(super) fn give_page(&mut self, step: Step, (kind, scope): (Kind, Scope), from: &Place) {
        let dest = usize::from(step.shard);
        let (page, next) = match (kind, from) {
            (Kind::Workers, Place::At(at)) => self.page_of_seen(*at),
            (Kind::Workers, Place::Behind(id)) => self.page_of_workers(id),
            (_, Place::At(at)) => self.page_of_rows(dest, (kind, scope), *at),
            // Only workers go by names.
            (_, Place::Behind(_)) => (Page::Seen(Vec::new()), None),
        };
        self.send_page(step, page, next);
    }

    pub(super) fn send_page(&mut self, step: Step, page: Page, next: Option<Place>) {
        let (dest, from) = (usize::from(step.shard), self.me);
        let message = RowsMessage::Page { step, from, page, next };
        self.outbox.after_commit(dest).messages.push(Message::Rows(message));
    }

    /// Queues or schedules from an index on.
    fn page_of_rows(
        &mut self,
        dest: usize,
        (kind, scope): (Kind, Scope),
        at: u32,
    ) -> (Page, Option<Place>) {
        let is_known = |queue: &str| scope.is_none_or(|queues| queues.cover(queue));
        let shard = &self.engine.shard;
        let bytes = &mut self.outbox.after_commit(dest).bytes;
        let start = bytes.len();
        let (mut looks, mut count, mut next) = (0, 0, None);
        let is_full = |looks: usize, count: usize, bytes: &Vec<u8>| {
            looks >= PAGE_LOOKS || count >= PAGE_ROWS || bytes.len() - start >= PAGE_BYTES
        };
        if kind == Kind::Crons {
            for (index, cron) in shard.crons_from(at) {
                if is_full(looks, count, bytes) {
                    next = Some(Place::At(index));
                    break;
                }
                looks += 1;
                if let Some(cron) = cron.filter(|cron| is_known(&cron.queue)) {
                    count += 1;
                    write_cron(&mut Writer::new(bytes), cron, true);
                }
            }
        } else {
            for (index, queue) in shard.queues_from(at) {
                if is_full(looks, count, bytes) {
                    next = Some(Place::At(index));
                    break;
                }
                looks += 1;
                let Some(queue) = queue.filter(|queue| is_known(&queue.name)) else { continue };
                count += 1;
                if kind == Kind::QueueNames {
                    Writer::new(bytes).str(&queue.name);
                    continue;
                }
                if kind == Kind::Dashboard {
                    write_row(&mut Writer::new(bytes), queue);
                    continue;
                }
                let mut row = MapWriter::begin(bytes);
                row.key("name").str(&queue.name);
                for state in [State::Waiting, State::Delayed, State::Active] {
                    row.key(state.name()).uint(queue.count(state));
                }
                row.key("paused").bool(queue.is_paused());
            }
        }
        let entries = start..bytes.len();
        self.meter.note(count + looks / LOOKS_PER_STEP);
        (Page::Written { entries, count }, next)
    }

    pub(super) fn page_of_lines(
        &mut self,
        at: u32,
        most: usize,
        choice: &QueueChoice,
        has_waits: bool,
    ) -> (Page, Option<Place>) {
        let mut lines = QueueLines::default();
        let (mut looks, mut next) = (0, None);
        for (index, queue) in self.engine.shard.queues_from(at) {
            let is_full = lines.rows() >= most || lines.bytes() >= PAGE_BYTES;
            if looks >= PAGE_LOOKS || is_full {
                next = Some(Place::At(index));
                break;
            }
            looks += 1;
            if let Some(queue) = queue.filter(|queue| choice.takes(&queue.name)) {
                looks += looks_for_oldest(queue);
                lines.write(queue, self.oldest_wait_ms(queue), has_waits);
            }
        }
        self.meter.note(lines.rows() + looks / LOOKS_PER_STEP);
        (Page::Lines(Box::new(lines)), next)
    }

    /// For how long the job of a queue has been due that waits for longest; 0 if none waits.
    fn oldest_wait_ms(&self, queue: &Queue) -> u64 {
        let due_ms = self.engine.shard.oldest_due_ms(queue);
        due_ms.map_or(0, |due_ms| self.now_ms.saturating_sub(due_ms))
    }

    /// The longest of the queues from an index on.
    pub(super) fn page_of_longest(&mut self, at: u32, most: usize) -> (Page, Option<Place>) {
        let mut longest = Longest::default();
        let (mut looks, mut rows, mut next) = (0, 0, None);
        for (index, queue) in self.engine.shard.queues_from(at) {
            if looks >= PAGE_LOOKS || rows >= PAGE_ROWS {
                next = Some(Place::At(index));
                break;
            }
            looks += 1;
            let Some(queue) = queue else { continue };
            let of = |state| queue.count(state);
            let jobs = of(State::Waiting) + of(State::Delayed) + of(State::Active);
            if longest.wants(jobs, &queue.name, most) {
                rows += 1;
                looks += looks_for_oldest(queue);
                let mut lines = QueueLines::default();
                lines.write(queue, self.oldest_wait_ms(queue), true);
                longest.add(jobs, &queue.name, lines, most);
            }
        }
        self.meter.note(rows + looks / LOOKS_PER_STEP);
        (Page::Longest(Box::new(longest)), next)
    }

    /// When connections of this shard that made registrations last said something.
    fn page_of_seen(&mut self, at: u32) -> (Page, Option<Place>) {
        let from = at as usize;
        let some = self.sessions.places(from..from + PAGE_LOOKS);
        self.meter.note(1 + some.len() / LOOKS_PER_STEP);
        let with_workers = some.iter().flatten().filter(|session| session.has_worker);
        let last_seen_ms = |session: &Session| self.workers.since_leap(session.last_seen_ms);
        let seen = with_workers.map(|session| (session.client, last_seen_ms(session))).collect();
        let next = if some.len() < PAGE_LOOKS {
            Place::Behind(Box::default())
        } else {
            Place::At((from + PAGE_LOOKS) as u32)
        };
        (Page::Seen(seen), Some(next))
    }

    fn page_of_workers(&mut self, after: &str) -> (Page, Option<Place>) {
        let (some, more) = self.workers.behind(after, PAGE_ROWS, PAGE_BYTES);
        self.meter.note(1 + some.len());
        let next = some.last().filter(|_| more).map(|(id, _)| Place::Behind(id.clone()));
        (Page::Workers(some), next)
    }
}
