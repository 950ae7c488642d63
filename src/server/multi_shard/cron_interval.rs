//! How often schedules and repeated jobs may run (`CRON_MIN_INTERVAL_MS`), judged before a command is carried out.

use crate::api::error::Error;
use crate::api::limits::INTEGER_MAX;
use crate::api::request::{Body, Cadence, Cron, Request};
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::job::new_job::NewJob;

impl ShardServer {
    /// Refuses a command for a schedule or repeated jobs that would run more often than they may.
    #[inline]
    pub(crate) fn runs_too_often(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        request: &Request<'_>,
    ) -> bool {
        let repeats = |job: &NewJob<'_>| job.repeat.map(|repeat| repeat.every_ms);
        let least_ms = self.engine.shard.interval_min_ms();
        let is_below = |every_ms: Option<u64>| every_ms.is_some_and(|every_ms| every_ms < least_ms);
        let field = match &request.body {
            Body::Push { job, .. } if is_below(repeats(job)) => "repeat.every",
            Body::PushBatch { jobs, .. } => {
                let Some(error) = self.too_often(jobs, 0) else { return false };
                self.refuse(conns, origin, request.req_id, &error);
                return true;
            }
            Body::Cron { cron: Cron { every: Cadence::Interval(every_ms), .. } }
                if is_below(Some(*every_ms)) =>
            {
                "repeatEvery"
            }
            Body::CronPreview { every_ms, .. } if is_below(*every_ms) => "repeatEvery",
            _ => return false,
        };
        self.refuse(conns, origin, request.req_id, &below(field, least_ms));
        true
    }

    /// Which of these jobs of a push, the first of which has the place `base` in it, would run too often, if one would.
    pub(crate) fn too_often(&self, jobs: &[NewJob<'_>], base: usize) -> Option<Error> {
        let least_ms = self.engine.shard.interval_min_ms();
        let is_below = |job: &NewJob<'_>| job.repeat.is_some_and(|it| it.every_ms < least_ms);
        let place = base + jobs.iter().position(is_below)?;
        Some(below("repeat.every", least_ms).in_job(place))
    }
}

fn below(field: &str, least_ms: u64) -> Error {
    Error::must_be(field, format_args!("between {least_ms} and {INTEGER_MAX}"))
}
