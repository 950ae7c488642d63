//! `DashboardQueue`: reads the oldest dead letters of a queue, has its jobs looked for in slices, as `GetJobs` does, and
//! answers with its page. Nothing of the server imports this.

use super::queue_page::{Counts, JOBS_MAX, QueuePage, SECTIONS};
use crate::protocol::msgpack::writer::{MapWriter, Writer};
use crate::protocol::reply;
use crate::server::commands::job_record_list::{JobListing, Then};
use crate::server::commands::job_view::{progress_of, write_id};
use crate::server::connection::reply_writer::framed;
use crate::server::operations::operation::Operation;
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use crate::server::storage::engine::{Absent, Engine, Fetched, Records};
use corq_io::net::Connections;
use corq_shards::job::id::JobId;
use corq_shards::log_record::location::LogRef;
use corq_shards::query::JobView;
use corq_shards::queue::Queue;
use corq_shards::queue::listing::Listing;

/// Dead letters that are shown.
const LETTERS_MAX: usize = 10;

/// The longest payload of a dead letter that is shown, in MessagePack.
const DATA_BYTES_MAX: u32 = 64 << 10;

impl ShardServer {
    /// Begins the page of a queue.
    pub(crate) fn dashboard_queue(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        queue: &str,
        with_jobs: bool,
        limit: u32,
    ) {
        let failed: Vec<u32> = self.engine.shard.failed(queue).take(LETTERS_MAX).collect();
        let missing = missing_of(&self.engine, &failed, ctx.fetched);
        if !missing.is_empty() {
            self.read_then_ask(ctx, &missing);
            return;
        }
        let letters = letters_of(&self.engine, &failed, ctx.fetched);
        let limit = limit.min(JOBS_MAX) as usize;
        let page = QueuePage { queue: queue.into(), letters, jobs: Vec::new(), limit };
        let Some(listing) = self.next_of_page(&page).filter(|_| with_jobs) else {
            self.write_queue_page(conns, ctx.origin, ctx.req_id, &page);
            return;
        };
        let (origin, req_id) = (ctx.origin, ctx.req_id.map(Into::into));
        let then = Then::QueuePage(Box::new(page));
        let looking = JobListing { origin, req_id, listing, then };
        self.begin_operation(conns, Operation::Listing(Box::new(looking)));
    }

    /// The listing that a page goes on with; none if it is complete.
    pub(crate) fn next_of_page(&mut self, page: &QueuePage) -> Option<Listing> {
        let is_paused = self.engine.shard.queue(&page.queue).is_some_and(Queue::is_paused);
        page.next(is_paused)
    }

    /// Answers with a page that is complete.
    pub(crate) fn write_queue_page(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        req_id: Option<&[u8]>,
        page: &QueuePage,
    ) {
        let now_ms = self.now_ms;
        let counts = Counts::of(self.engine.shard.queue(&page.queue));
        self.meter.note(counts.priorities.len() + SECTIONS.len() * page.limit);
        self.respond(conns, origin, |engine, sink| {
            framed(sink, req_id, |sink| {
                let mut reply = reply::begin(sink.out, true, req_id);
                let mut data = reply.map("data");
                data.key("name").str(&page.queue);
                counts.write(&mut data);
                data.key("dlqPreview").raw(&page.letters);
                if !page.jobs.is_empty() {
                    write_jobs(data.map("jobs"), engine, &page.jobs);
                }
                data.key("timestamp").uint(now_ms);
            });
        });
    }
}

/// The records of dead letters that have to be read first.
fn missing_of(engine: &Engine, failed: &[u32], fetched: &[Fetched]) -> Vec<LogRef> {
    let records = Records::new(&engine.journal, fetched);
    let shown = failed.iter().map(|&job| engine.shard.view(job).data).filter(is_shown);
    shown.filter(|stored| records.record(stored) == Err(Absent::Cold)).collect()
}

fn is_shown(data: &LogRef) -> bool {
    data.payload_bytes <= DATA_BYTES_MAX
}

fn letters_of(engine: &Engine, failed: &[u32], fetched: &[Fetched]) -> Vec<u8> {
    let records = Records::new(&engine.journal, fetched);
    let mut letters = Vec::new();
    let mut writer = Writer::new(&mut letters);
    writer.array(failed.len());
    for &job in failed {
        let view = engine.shard.view(job);
        let data = Some(view.data).filter(is_shown);
        let data = data.and_then(|data| records.payload(&data).ok());
        let mut letter = writer.begin_map();
        write_id(&mut letter.key("id"), &view);
        letter.key("data").raw_or_nil(data.unwrap_or_default());
        letter.key("attempts").uint(u64::from(view.job.attempts));
        letter.key("createdAt").uint(view.created_at_ms());
    }
    letters
}

fn write_jobs(mut map: MapWriter<'_>, engine: &Engine, jobs: &[(&'static str, Vec<JobId>)]) {
    for (listed, ids) in jobs {
        let found = ids.iter().filter_map(|&id| engine.shard.find(id));
        let found: Vec<u32> = found.collect();
        let mut writer = map.key(listed);
        writer.array(found.len());
        for job in found {
            write_summary(writer.begin_map(), &engine.shard.view(job));
        }
    }
}

fn write_summary(mut job: MapWriter<'_>, view: &JobView<'_>) {
    write_id(&mut job.key("id"), view);
    job.key("priority").int(i64::from(view.job.priority));
    job.key("createdAt").uint(view.created_at_ms());
    job.key("runAt").uint(view.run_at_ms());
    job.key("attempts").uint(u64::from(view.job.attempts));
    job.key("progress").number(progress_of(view));
}
