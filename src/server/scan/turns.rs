//! `GetJobs` by a cursor, and `Search`: a slice a turn. A slice looks at so many jobs in memory, and at so many bytes of their
//! records; those that lie on the disk are read first, after which it goes on.

use super::matching::{SEARCHED_BYTES_MAX, Sought};
use super::page::{Covered, JobScan};
use super::row::{RowForm, write_row};
use crate::api::error::ErrorKind;
use crate::api::listing::{DataForm, JobPage, ScanCursor, Search};
use crate::api::request::StateFilter;
use crate::protocol::msgpack::writer::Writer;
use crate::server::commands::job_list::{listing_of, states_of};
use crate::server::commands::job_record_list::{JobListing, Then};
use crate::server::commands::job_view::{buried_of, pushed_of, records_of, write_job};
use crate::server::operations::operation::{Operation, Sliced};
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use crate::server::storage::engine::{Absent, Engine, Fetched, Records};
use corq_io::net::Connections;
use corq_shards::job::id::JobId;
use corq_shards::log_record::location::LogRef;
use corq_shards::query::{JobView, LOOKS_PER_STEP};
use corq_shards::queue::listing::Views;
use corq_shards::queue::scan::{Found, Range, Scan, Wanted};
use std::collections::VecDeque;

/// Jobs that one slice looks at in memory.
pub(crate) const SLICE_LOOKS: usize = 8192;

/// Jobs that one slice finds.
pub(crate) const SLICE_JOBS: usize = 100;

/// Bytes of records after which a slice ends.
const SLICE_BYTES: usize = SEARCHED_BYTES_MAX;

/// Bytes of rows after which a page ends, full or not.
const PAGE_BYTES_MAX: usize = 8 << 20;

/// How long `GetJobs` goes on before it answers with what it has.
const PAGE_BUDGET_MS: u64 = 1000;

impl ShardServer {
    /// Answers `GetJobs`: by a cursor if it says anything of that.
    pub(crate) fn list_jobs(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        (queue, states): (&str, Option<StateFilter>),
        (offset, limit): (u64, u32),
        oldest_first: Option<bool>,
        page: Option<&JobPage<'_>>,
    ) {
        let Some(page) = page else {
            let listing = listing_of(queue, states, (offset, limit), oldest_first);
            let (origin, req_id) = (ctx.origin, ctx.req_id.map(Into::into));
            let looking = JobListing { origin, req_id, listing, then: Then::Show };
            self.begin_operation(conns, Operation::Listing(Box::new(looking)));
            return;
        };
        if offset > 0 {
            self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::OffsetAndCursor);
            return;
        }
        let Ok(after) = place_of(page) else {
            self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::UnknownCursor);
            return;
        };
        let range = Range::Queue { name: queue.into(), newest_first: page.newest_first, after };
        let sought = Sought::new(page.tag, None, None);
        let scan = Scan { wanted: wanted(states, page), range };
        let budget = (limit as usize, PAGE_BUDGET_MS);
        self.begin_scan(ctx, scan, sought, (page.fields, page.data), budget, false);
    }

    /// Answers `Search`.
    pub(crate) fn search(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        search: &Search<'_>,
    ) {
        let page = &search.page;
        if search.path.is_none() && !search.value.is_empty() {
            self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::ValueWithoutPath);
            return;
        }
        let Some(range) = self.range_of(search) else {
            self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::UnknownCursor);
            return;
        };
        let path = search.path.map(|path| (path, search.value));
        let sought = Sought::new(page.tag, search.text, path);
        let scan = Scan { wanted: wanted(search.states.map(StateFilter), page), range };
        let budget = (search.limit as usize, search.budget_ms);
        self.begin_scan(ctx, scan, sought, (page.fields, page.data), budget, true);
    }

    /// Where a search begins; `None` if its cursor is none of it.
    fn range_of(&self, search: &Search<'_>) -> Option<Range> {
        let page = &search.page;
        if let Some(queue) = search.queue {
            let (newest_first, after) = (page.newest_first, place_of(page).ok()?);
            return Some(Range::Queue { name: queue.into(), newest_first, after });
        }
        match page.after.map(ScanCursor::parse) {
            None => Some(Range::All { next: 0 }),
            Some(Some(ScanCursor::At { shard, from })) if shard == self.me => {
                // Places mean something while the process lives that gave them.
                let is_known = from.is_none_or(|(started_ms, _)| started_ms == self.started_at_ms);
                is_known.then(|| Range::All { next: from.map_or(0, |(_, place)| place) })
            }
            Some(_) => None,
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of two commands")]
    fn begin_scan(
        &mut self,
        ctx: RequestContext<'_>,
        scan: Scan,
        sought: Sought,
        (fields, data): (Option<u32>, DataForm),
        (limit, budget_ms): (usize, u64),
        is_search: bool,
    ) {
        let page = JobScan {
            origin: ctx.origin,
            req_id: ctx.req_id.map(Into::into),
            resume: scan.range.clone(),
            scan,
            sought,
            form: RowForm::new(fields, data),
            limit,
            until_ms: self.now_ms.saturating_add(budget_ms),
            pending: VecDeque::new(),
            slice_looked: 0,
            slice_covered: 0,
            is_done: false,
            rows: Vec::new(),
            count: 0,
            bytes: 0,
            covered: Covered::default(),
            is_search,
        };
        // The first slice has its turn as others have: many may come in one turn.
        self.queue_operation(Operation::Scan(Box::new(page)));
    }

    /// Goes on with a page. `fetched` holds records that had to be read for it first.
    pub(crate) fn scan_on(
        &mut self,
        conns: &mut Connections,
        mut page: Box<JobScan>,
        fetched: Vec<Fetched>,
    ) -> Sliced {
        if page.pending.is_empty() && !page.is_done && page.count < page.limit {
            page.resume = page.scan.range.clone();
            // Without a look at records all that is found is shown.
            let left = page.limit - page.count;
            let most = if page.sought.is_none() { left.min(SLICE_JOBS) } else { SLICE_JOBS };
            let slice = self.engine.shard.scan_jobs(&mut page.scan, most, SLICE_LOOKS);
            self.meter.note((slice.looked / LOOKS_PER_STEP) as usize + slice.found.len());
            (page.slice_looked, page.slice_covered) = (slice.looked, 0);
            page.is_done = slice.is_done;
            page.pending = slice.found.into();
        }
        let (jobs, missing) = self.next_at_hand(&page.pending, &fetched, |view, needs| {
            let push = (page.form.needs_push() || !page.sought.is_none()).then_some(view.data);
            let end = view.outcome.filter(|_| page.form.needs_end(view.job.state));
            needs.extend(push.into_iter().chain(end.map(|end| end.stored)));
            if page.form.whole {
                needs.extend(records_of(view));
            }
        });
        if !missing.is_empty() {
            return Sliced::Reads(Operation::Scan(page), missing, fetched);
        }
        let mut rows = Vec::new();
        for found in jobs {
            if page.count == page.limit || page.bytes + rows.len() >= PAGE_BYTES_MAX {
                break;
            }
            page.pending.pop_front();
            page.passed(found);
            judge(&self.engine, &mut page, found, &fetched, &mut rows);
        }
        if page.pending.is_empty() {
            page.cover(page.slice_looked);
        }
        page.bytes += rows.len();
        if !rows.is_empty() {
            page.rows.push(rows);
        }
        let is_full = page.count == page.limit || page.bytes >= PAGE_BYTES_MAX;
        let is_done = page.is_done && page.pending.is_empty();
        if !is_full && !is_done && self.now_ms < page.until_ms {
            return Sliced::More(Operation::Scan(page));
        }
        let pieces = page.framed((self.me, self.slots.shards(), self.started_at_ms));
        self.send_pieces(conns, page.origin, page.req_id.as_deref(), pieces);
        Sliced::Done
    }

    /// The next jobs of those that were found that a slice may look at, and which of the records that each needs have to be
    /// read first.
    pub(crate) fn next_at_hand(
        &mut self,
        pending: &VecDeque<Found>,
        fetched: &[Fetched],
        needs: impl Fn(&JobView<'_>, &mut Vec<LogRef>),
    ) -> (Vec<Found>, Vec<LogRef>) {
        let shard = &self.engine.shard;
        let records = Records::new(&self.engine.journal, fetched);
        let (mut jobs, mut missing, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut needed = Vec::new();
        for &found in pending {
            if bytes >= SLICE_BYTES {
                break;
            }
            jobs.push(found);
            let Some(index) = shard.find(found.id) else { continue };
            needs(&shard.view(index), &mut needed);
            for stored in needed.drain(..) {
                bytes += stored.record_bytes as usize;
                if records.record(&stored) == Err(Absent::Cold) {
                    missing.push(stored);
                }
            }
        }
        missing.sort_unstable_by_key(|stored| stored.position);
        missing.dedup_by_key(|stored| stored.position);
        self.meter.note_bytes(bytes);
        (jobs, missing)
    }
}

/// Looks at a job, whose records are at hand, and writes its row if it is one that is meant.
fn judge(
    engine: &Engine,
    page: &mut JobScan,
    found: Found,
    fetched: &[Fetched],
    rows: &mut Vec<u8>,
) {
    let shard = &engine.shard;
    // The job may have gone while records were read.
    let Some(index) = shard.find(found.id) else { return };
    let view = shard.view(index);
    let records = Records::new(&engine.journal, fetched);
    let reads = page.form.needs_push() || !page.sought.is_none();
    let pushed = if reads { Some(records.record(&view.data).and_then(pushed_of)) } else { None };
    if let Some(pushed) = &pushed {
        page.covered.records += 1;
        page.covered.damaged += u64::from(pushed.is_err());
    }
    let pushed = pushed.and_then(Result::ok);
    if !page.sought.is_none() {
        let judged = pushed.as_ref().map(|pushed| page.sought.judge(pushed)).unwrap_or_default();
        page.covered.partly += u64::from(judged.partly);
        if !judged.fits {
            return;
        }
    }
    page.count += 1;
    let start = rows.len();
    let mut writer = Writer::new(rows);
    if page.form.whole && write_job(&mut writer, &view, &records).is_ok() {
        return;
    }
    rows.truncate(start);
    let ended = view.outcome.filter(|_| page.form.needs_end(view.job.state));
    let buried = ended.and_then(|end| records.record(&end.stored).and_then(buried_of).ok());
    let mut writer = Writer::new(rows);
    write_row(&mut writer, (shard, &view), page.form, pushed.as_ref(), buried.as_ref());
}

/// The job behind which a page of a queue begins, if that is said.
fn place_of(page: &JobPage<'_>) -> Result<Option<JobId>, ErrorKind> {
    match page.after.map(ScanCursor::parse) {
        None => Ok(None),
        Some(Some(ScanCursor::Behind(id))) => Ok(Some(id)),
        Some(_) => Err(ErrorKind::UnknownCursor),
    }
}

/// Which jobs a page is about, as far as memory tells.
fn wanted(states: Option<StateFilter>, page: &JobPage<'_>) -> Wanted {
    Wanted {
        states: states_of(states),
        views: states.map_or(Views::default(), StateFilter::views),
        name: page.name.map(Into::into),
        group: page.group.map(Into::into),
        from_ms: page.from_ms.unwrap_or(0),
        to_ms: page.to_ms.unwrap_or(u64::MAX),
    }
}
