//! Commands on a schedule that do not set it: show it, run it now, enable or disable it, preview its runs. The owner of
//! the schedule carries them out; any shard can preview a schedule that is not set.

use super::cron::plan_of;
use super::cron_view::{write_cron, write_whole_cron};
use crate::api::error::{Error, ErrorKind};
use crate::api::request::{Body, Cadence};
use crate::protocol::reply;
use crate::server::commands::job_view::write_pushed;
use crate::server::commands::pending_replies::CURRENT;
use crate::server::connection::reply_writer::framed;
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::Caller;
use corq_shards::command::Command;
use corq_shards::cron::expression::local_text;
use corq_shards::effect::Reply;
use corq_shards::job::new_job::NewJob;

/// Who has asked, and under which name of the request.
type Asker<'a> = (Origin, Option<&'a [u8]>);

/// Reply bytes that the search for one run counts as in a turn: a rare run is years of days away. After some previews a
/// turn therefore has no room for another, which is answered in the next.
const RUN_BYTES: usize = 4096;

/// When a schedule runs, as far as that was asked for.
struct Preview {
    timezone: Option<Box<str>>,
    runs_ms: Vec<u64>,
    /// Name and whether it is enabled, of one that there is.
    known: Option<(Box<str>, bool)>,
}

impl ShardServer {
    /// Answers `CronPreview`: for a schedule that there is, its owner does.
    pub(crate) fn preview_cron(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        name: Option<&str>,
    ) {
        let Body::CronPreview { schedule, every_ms, timezone, count, from_ms, .. } = ctx.body
        else {
            return;
        };
        let given = schedule.is_some() || every_ms.is_some();
        let planned = match name {
            Some(_) if given || timezone.is_some() => Err(ErrorKind::CronTwice.into()),
            Some(name) => return self.begin_cron(conns, ctx, name),
            None => self.plan_of_fields(*schedule, *every_ms, *timezone, (*count, *from_ms)),
        };
        match planned {
            Ok(preview) => self.show_preview(conns, (ctx.origin, ctx.req_id), &preview),
            Err(error) => self.refuse(conns, ctx.origin, ctx.req_id, &error),
        }
    }

    fn plan_of_fields(
        &self,
        schedule: Option<&str>,
        every_ms: Option<u64>,
        timezone: Option<&str>,
        (count, from_ms): (u32, Option<u64>),
    ) -> Result<Preview, Error> {
        let every = match (schedule, every_ms) {
            (Some(expression), None) => Cadence::Expression(expression),
            (None, Some(every_ms)) => Cadence::Interval(every_ms),
            (None, None) => return Err(ErrorKind::CadenceRequired.into()),
            (Some(_), Some(_)) => return Err(ErrorKind::CadenceTwice.into()),
        };
        let from_ms = from_ms.unwrap_or(self.now_ms);
        let plan = plan_of(every, timezone, from_ms)?;
        let first = plan.next(from_ms, from_ms);
        let runs = std::iter::successors(first, |&due_ms| plan.next(due_ms, due_ms));
        let runs_ms = runs.take(count as usize).collect();
        Ok(Preview { timezone: timezone.map(Into::into), runs_ms, known: None })
    }

    /// Carries out a command on a schedule of this shard.
    pub(super) fn answer_about_cron(
        &mut self,
        conns: &mut Connections,
        (origin, req_id): Asker<'_>,
        name: &str,
        body: &Body<'_>,
    ) {
        let Some(cron) = self.engine.shard.cron(name) else {
            self.refuse(conns, origin, req_id, ErrorKind::CronNotFound);
            return;
        };
        let caller = Caller { client: origin.client, request: CURRENT };
        match body {
            Body::CronTrigger { .. } => self.trigger_cron(conns, caller, (origin, req_id), name),
            Body::SetCronEnabled { enabled, .. } => {
                let command = Command::EnableCron { name, enabled: *enabled };
                self.apply(conns, caller, &command);
                match self.own_reply() {
                    Some(Reply::Cron(Some(_))) => {
                        self.show_cron(conns, (origin, req_id), name, false);
                    }
                    Some(Reply::Refused { .. }) => {
                        self.refuse(conns, origin, req_id, self.no_room());
                    }
                    _ => self.refuse(conns, origin, req_id, ErrorKind::NoRunAhead),
                }
            }
            Body::CronPreview { count, from_ms, .. } => {
                let interval_min_ms = self.engine.shard.interval_min_ms();
                let runs = cron.next_runs(self.now_ms, *from_ms, interval_min_ms);
                let runs_ms = runs.take(*count as usize).collect();
                let known = Some((name.into(), cron.is_enabled()));
                let preview = Preview { timezone: cron.timezone.clone(), runs_ms, known };
                self.show_preview(conns, (origin, req_id), &preview);
            }
            _ => self.show_cron(conns, (origin, req_id), name, true),
        }
    }

    /// Pushes the job of a schedule now. It is a push as any other: neither the next run nor the number of runs changes.
    fn trigger_cron(
        &mut self,
        conns: &mut Connections,
        caller: Caller,
        (origin, req_id): Asker<'_>,
        name: &str,
    ) {
        let Some(cron) = self.engine.shard.cron(name) else { return };
        // Copies, since the shard, which keeps the schedule, changes meanwhile.
        let (queue, data) = (cron.queue.clone(), cron.data.clone());
        let (template, priority) = (cron.template().to_vec(), cron.priority);
        let job = NewJob { data: &data, priority, ..corq_shards::cron::job_of(&template) };
        let jobs = std::slice::from_ref(&job);
        self.apply(conns, caller, &Command::Push { queue: &queue, jobs });
        let pushed = match self.own_reply() {
            Some(Reply::Pushed(pushed)) => pushed,
            Some(Reply::Refused { refusal, .. }) => {
                self.refuse_push(conns, origin, req_id, refusal, 1);
                return;
            }
            _ => return,
        };
        let effects = std::mem::take(&mut self.effects);
        self.respond(conns, origin, |_, sink| {
            framed(sink, req_id, |sink| {
                let mut reply = reply::begin(sink.out, true, req_id);
                let mut id = reply.key("id");
                for job in &effects.pushed[pushed] {
                    write_pushed(&mut id, job);
                }
            });
        });
        self.effects = effects;
    }

    /// Answers with a schedule, which is `whole` with the payload of its jobs.
    fn show_cron(
        &mut self,
        conns: &mut Connections,
        (origin, req_id): Asker<'_>,
        name: &str,
        whole: bool,
    ) {
        self.respond(conns, origin, |engine, sink| {
            framed(sink, req_id, |sink| {
                let mut reply = reply::begin(sink.out, true, req_id);
                match engine.shard.cron(name) {
                    Some(cron) if whole => write_whole_cron(&mut reply.key("cron"), cron),
                    Some(cron) => write_cron(&mut reply.key("cron"), cron, true),
                    None => {}
                }
            });
        });
    }

    fn show_preview(
        &mut self,
        conns: &mut Connections,
        (origin, req_id): Asker<'_>,
        preview: &Preview,
    ) {
        // The search has looked for the successor of the last run as well.
        let searched = preview.runs_ms.len() + 1;
        self.meter.note(searched);
        self.large_replies.note_written(searched * RUN_BYTES);
        self.respond(conns, origin, |_, sink| {
            framed(sink, req_id, |sink| {
                let mut reply = reply::begin(sink.out, true, req_id);
                let mut data = reply.map("data");
                if let Some((name, enabled)) = &preview.known {
                    data.key("name").str(name);
                    data.key("enabled").bool(*enabled);
                }
                data.key("timezone").str(preview.timezone.as_deref().unwrap_or("UTC"));
                let mut runs = data.key("runs");
                runs.array(preview.runs_ms.len());
                for &at_ms in &preview.runs_ms {
                    let local = local_text(at_ms, preview.timezone.as_deref());
                    let mut run = runs.begin_map();
                    run.key("at").uint(at_ms);
                    run.key("local").str_or_nil(local.as_deref());
                }
            });
        });
    }
}
