//! Commands that change one job of this shard, in whatever state it may be.

use super::job_view::pushed_of;
use super::refusal::refusal_error;
use crate::api::error::{Error, ErrorKind};
use crate::api::request::{Answer, JobRef};
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use crate::server::storage::engine::{Absent, Records};
use corq_io::net::Connections;
use corq_shards::command::Command;
use corq_shards::effect::Refusal;
use corq_shards::job::change::Change;
use corq_shards::job::new_job::NewJob;

impl ShardServer {
    /// Gives a job another payload. What else its record holds goes into the new one, so the old one
    /// has to be at hand.
    pub(crate) fn update(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        job: JobRef<'_>,
        data: &[u8],
    ) {
        if self.try_as_name(conns, ctx, job) {
            return;
        }
        let found = ctx.id_of(job).and_then(|id| self.engine.shard.find(id));
        let open = found.map(|index| self.engine.shard.view(index));
        let Some(about) = open.filter(|view| !view.job.state.is_end()) else {
            let error = refusal_error(Refusal::Ended, job);
            self.refuse(conns, ctx.origin, ctx.req_id, &error);
            return;
        };
        let (id, stored) = (about.job.id, about.data);
        let most = found.and_then(|index| self.engine.shard.data_bytes_max(index)).unwrap_or(0);
        if data.len() > most {
            let error = Error::data_beside_children(most);
            self.refuse(conns, ctx.origin, ctx.req_id, &error);
            return;
        }
        let options = match Records::new(&self.engine.journal, ctx.fetched).record(&stored) {
            Err(Absent::Cold) => {
                self.read_then_ask(ctx, &[stored]);
                return;
            }
            // Without its payload, which is its end.
            Ok(record) => {
                let parted = stored.parted(record).ok_or(Absent::Damaged);
                parted.map(|(options, _)| options.to_vec())
            }
            Err(Absent::Damaged) => Err(Absent::Damaged),
        };
        let options = options.as_deref().map_err(|absent| *absent);
        let Ok(pushed) = options.and_then(pushed_of) else {
            self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::Damaged);
            return;
        };
        let size_limit = pushed.job.extras.as_ref().and_then(|extras| extras.size_limit);
        if let Some(most) = size_limit.filter(|&most| data.len() > most as usize) {
            self.refuse(conns, ctx.origin, ctx.req_id, &Error::over_size_limit(most));
            return;
        }
        let new = NewJob { data, ..pushed.job.into_own() };
        let change = Change::Update { job: &new };
        self.apply(conns, Self::caller(&ctx), &Command::Change { job: id, change });
        self.answer_on_job(conns, ctx, job, Answer::Ok);
    }
}
