//! The commands: a task begins, is looked at, is cancelled.

use super::messages::BulkMessage;
use super::tasks::{NewTask, TaskState, Work, may, write_rows};
use super::work::{Filtered, Named};
use crate::api::access::{Scope, forbidden};
use crate::api::bulk::{Bulk, TaskId, Which};
use crate::api::error::ErrorKind;
use crate::api::request::StateFilter;
use crate::protocol::reply;
use crate::server::commands::job_list::states_of;
use crate::server::connection::reply_writer::framed;
use crate::server::event_loop::turn_meter::Work as Metered;
use crate::server::operations::operation::Operation;
use crate::server::shard_mail::message::ScatterQuery;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::queue::Queue;

impl ShardServer {
    /// Answers `Bulk`, with the name of the task.
    pub(crate) fn begin_bulk_task(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        bulk: &Bulk<'_>,
    ) {
        let which = match bulk.which() {
            Ok(which) => which,
            Err(error) => return self.refuse(conns, ctx.origin, ctx.req_id, &error),
        };
        let (action, left) = (bulk.action(), bulk.limit.unwrap_or(u64::MAX));
        let (total, work) = match which {
            Which::Ids(ids) => {
                let named = Named::new(ids.iter(), left);
                (named.len() as u64, Work::Named(Box::new(named)))
            }
            Which::Filtered(queue, filter) => {
                let states = filter.states.map(StateFilter);
                let named = states.map(|it| (states_of(Some(it)), it.views()));
                let shard = &mut self.engine.shard;
                let total = shard.queue(queue).map_or(0, Queue::total);
                let newest = shard.newest_id();
                let filtered = Filtered::new(queue, action, &filter, named, newest, left);
                (total, Work::Filtered(Some(Box::new(filtered))))
            }
        };
        let is_named = matches!(work, Work::Named(_));
        let (queue, dry_run, holder) = (bulk.queue, bulk.dry_run, ctx.origin.holder);
        // Tokens may have changed since the command came to another shard; none looks at a task again before the next change.
        let Some(grant) = self.access.by_holder(holder) else {
            return self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::NotAuthenticated);
        };
        let (role, scope) = (grant.role, grant.queues);
        if !may(grant, action, queue) {
            let error = forbidden(action.acts_as(), role);
            return self.refuse(conns, ctx.origin, ctx.req_id, &error);
        }
        let new = NewTask { action, dry_run, queue, role, scope, holder, total, work };
        let Some(number) = self.bulk_tasks.begin(new, self.now_ms) else {
            self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::TooManyTasks);
            return;
        };
        if is_named {
            self.go_on_with_named(number);
        }
        let id = TaskId { shard: self.me, started_ms: self.started_at_ms, number };
        self.respond(conns, ctx.origin, |_, sink| {
            framed(sink, ctx.req_id, |sink| {
                let mut reply = reply::begin(sink.out, true, ctx.req_id);
                reply.key("taskId").str(&id.to_string());
            });
        });
    }

    /// Tokens have changed, and with them what tasks may do that were begun with them.
    pub(crate) fn follow_rights_of_tasks(&mut self) {
        let Self { bulk_tasks, access, now_ms, .. } = self;
        bulk_tasks.follow_rights(*now_ms, |holder| access.by_holder(holder));
    }

    /// Answers `GetTask`.
    pub(crate) fn get_task(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        task: &str,
    ) {
        match self.number_of_task(task, ctx.origin.scope) {
            Ok(number) => self.show_task(conns, ctx, number),
            Err(unknown) => self.refuse(conns, ctx.origin, ctx.req_id, unknown),
        }
    }

    /// Answers `CancelTask`: what the task has done stays done, and nothing more is begun. One that has ended is left as
    /// it is.
    pub(crate) fn cancel_task(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        task: &str,
    ) {
        let number = match self.number_of_task(task, ctx.origin.scope) {
            Ok(number) => number,
            Err(unknown) => return self.refuse(conns, ctx.origin, ctx.req_id, unknown),
        };
        let Some(action) = self.bulk_tasks.get(number).map(|task| task.action) else { return };
        let (op, role) = (action.acts_as(), ctx.origin.role);
        if !op.is_for(role) {
            let error = forbidden(op, role);
            return self.refuse(conns, ctx.origin, ctx.req_id, &error);
        }
        self.bulk_tasks.end(number, TaskState::Cancelled, self.now_ms);
        self.show_task(conns, ctx, number);
    }

    /// Answers `ListTasks`.
    pub(crate) fn list_tasks(&mut self, _: &mut Connections, ctx: RequestContext<'_>) {
        let question = ScatterQuery::Tasks { scope: ctx.origin.scope };
        self.send_scatter_query(ctx.origin, ctx.req_id, question);
    }

    /// The tasks of this shard as entries of a list, for clients of these queues.
    pub(crate) fn rows_of_tasks(&mut self, scope: Scope) -> (Vec<u8>, usize) {
        let (here, stalled) = ((self.me, self.started_at_ms), self.saturated);
        let shown = self.bulk_tasks.newest_first().filter(|task| task.is_shown_to(scope));
        let rows = write_rows(shown, here, stalled);
        self.meter.note(rows.1);
        rows
    }

    /// The number of a task of this shard that is shown to clients of these queues.
    fn number_of_task(&mut self, task: &str, scope: Scope) -> Result<u64, ErrorKind> {
        let (me, started_ms) = (self.me, self.started_at_ms);
        let id = TaskId::parse(task).ok_or(ErrorKind::TaskNotFound)?;
        // Numbers begin anew with each start.
        if id.started_ms < started_ms {
            return Err(ErrorKind::TaskForgotten);
        }
        let is_here = id.shard == me && id.started_ms == started_ms;
        let found = self.bulk_tasks.get(id.number).filter(|task| task.is_shown_to(scope));
        found.filter(|_| is_here).map(|_| id.number).ok_or(ErrorKind::TaskNotFound)
    }

    fn show_task(&mut self, conns: &mut Connections, ctx: RequestContext<'_>, number: u64) {
        let (here, stalled) = ((self.me, self.started_at_ms), self.saturated);
        let mut reply = Vec::new();
        let Some(task) = self.bulk_tasks.get(number) else { return };
        let mut map = reply::begin(&mut reply, true, ctx.req_id);
        task.write(&mut map.map("task"), here, stalled);
        drop(map);
        self.respond(conns, ctx.origin, |_, sink| {
            framed(sink, ctx.req_id, |sink| sink.out.extend_from_slice(&reply));
        });
    }

    /// Does one slice of the next task.
    pub(crate) fn bulk_tasks_in_turn(&mut self, conns: &mut Connections) {
        for entry in self.bulk_tasks.take_ended(self.me, self.started_at_ms) {
            self.audit.note(entry);
        }
        // Slices write records, so they wait as commands do: for room in the log, and while the disk or other shards
        // are behind.
        if !self.bulk_tasks.has_turns() || self.must_stall() {
            return;
        }
        let before = self.meter_work(Metered::of(crate::api::commands::Op::Bulk));
        if let Some((number, filtered)) = self.bulk_tasks.next_turn() {
            self.act_on_slice(conns, number, filtered, &[]);
        }
        self.meter_work(before);
    }

    /// Handles a message of another shard about a task.
    pub(crate) fn read_bulk_message(&mut self, conns: &mut Connections, message: BulkMessage) {
        match message {
            BulkMessage::Find { from, task, names } => self.find_named((from, task), &names),
            BulkMessage::Found { task, jobs, unknown } => self.named_found(task, &jobs, unknown),
            BulkMessage::Act { from, task, part, jobs } => {
                self.act_on_named(conns, (from, task), &part, &jobs);
            }
            BulkMessage::Acted { task, counts, named, data_gone } => {
                self.named_acted(task, counts, &named, data_gone);
            }
            BulkMessage::Groups(scan) => {
                // Where its client is, the command counts from the beginning: it may end without another message.
                self.answered(scan.origin);
                self.queue_operation(Operation::Groups(scan));
            }
            BulkMessage::GroupsEnded => self.release_groups(self.me as u16),
        }
    }
}
