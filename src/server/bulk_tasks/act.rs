//! Acts on one job of this shard by the call that the command on a single job makes, so that recovery replays exactly
//! what was applied here.

use super::tasks::Skip;
use crate::api::bulk::Action;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::Caller;
use corq_shards::command::Command;
use corq_shards::effect::Reply;
use corq_shards::job::State;
use corq_shards::job::id::JobId;

impl ShardServer {
    /// Does it, or says why not. In a dry run only that it could be done.
    pub(super) fn act_on_job(
        &mut self,
        conns: &mut Connections,
        job: JobId,
        action: Action,
        dry_run: bool,
    ) -> Result<(), Skip> {
        let shard = &self.engine.shard;
        let found = shard.find(job).filter(|_| !shard.is_obliterated(job));
        let view = shard.view(found.ok_or(Skip::NotFound)?);
        let state = view.job.state;
        if state == State::Active {
            return Err(Skip::Active);
        }
        if !action.fits(state) {
            return Err(Skip::State);
        }
        if dry_run {
            return Ok(());
        }
        // Nobody waits for what the engine says: it is looked at here.
        let caller = Caller::default();
        match action.change() {
            Some(change) => self.apply(conns, caller, &Command::Change { job, change }),
            None => {
                let queue = Box::<str>::from(view.queue);
                let (queue, job, count) = (&*queue, Some(job), 1);
                let retry = if state == State::Failed {
                    Command::RetryFailed { queue, job, count }
                } else {
                    Command::RetryCompleted { queue, job, count, until_ms: u64::MAX }
                };
                self.apply(conns, caller, &retry);
            }
        }
        match self.own_reply() {
            Some(Reply::Refused { .. } | Reply::Count(0)) => Err(Skip::State),
            _ => Ok(()),
        }
    }
}
