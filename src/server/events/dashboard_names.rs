//! The names of events that dashboards use, `job:completed` and `queue:paused`, and the patterns by which they ask for
//! them: a name, a family (`job:*`), or all (`*`).

use super::kinds::Kinds;
use crate::api::objects::EVENT_TYPES;
use corq_shards::event::Extra;

/// Kinds of events: the types, and what has a name of dashboards only.
pub const KINDS: usize = EVENT_TYPES.len() + 18;

const _: () = assert!(KINDS < 64, "a bit for each");

/// The name of each kind of event: of the types by their places in [`EVENT_TYPES`], then of the others.
const NAMES: [&str; KINDS] = [
    "job:pushed",
    "job:active",
    "job:completed",
    "job:failed",
    "job:progress",
    "job:stalled",
    "job:removed",
    "job:delayed",
    "job:deduplicated",
    "job:retried",
    "job:waiting-children",
    "queue:drained",
    "queue:paused",
    "queue:resumed",
    "job:promoted",
    "job:discarded",
    "job:priority-changed",
    "job:data-updated",
    "job:delay-changed",
    "queue:cleaned",
    "queue:obliterated",
    "dlq:added",
    "dlq:retried",
    "dlq:retry-all",
    "dlq:purged",
    "ratelimit:set",
    "ratelimit:cleared",
    "concurrency:set",
    "concurrency:cleared",
    "cron:created",
    "cron:updated",
    "cron:deleted",
];

/// Figures of the server, every five seconds.
pub const SNAPSHOT: &str = "stats:snapshot";

/// Names of dashboards for what is no event here. Asking for one is allowed, and the answer says that it never comes.
const FOREIGN: &[&str] = &[
    "job:timeout",
    "job:lock-expired",
    "job:dependencies-resolved",
    "job:moved-to-delayed",
    "job:expired",
    "queue:created",
    "queue:removed",
    "queue:counts",
    "queue:idle",
    "queue:threshold",
    "dlq:auto-retried",
    "dlq:expired",
    "flow:completed",
    "flow:failed",
    "cron:fired",
    "cron:missed",
    "cron:skipped",
    "worker:connected",
    "worker:disconnected",
    "worker:heartbeat",
    "worker:idle",
    "worker:removed-stale",
    "worker:overloaded",
    "worker:error",
    "ratelimit:hit",
    "ratelimit:rejected",
    "concurrency:rejected",
    "webhook:added",
    "webhook:removed",
    "webhook:fired",
    "webhook:failed",
    "webhook:enabled",
    "webhook:disabled",
    "batch:pushed",
    "batch:pulled",
    "client:connected",
    "client:disconnected",
    "auth:failed",
    "cleanup:orphans-removed",
    "cleanup:stale-deps-removed",
    "health:status",
    "storage:status",
    "storage:backup-started",
    "storage:backup-completed",
    "storage:backup-failed",
    "storage:size-warning",
    "server:started",
    "server:shutdown",
    "server:recovered",
    "server:memory-warning",
    "memory:compacted",
    "config:stall-changed",
    "config:dlq-changed",
];

/// Events that a name or pattern asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Meaning {
    pub kinds: Kinds,
    pub snapshots: bool,
}

impl Meaning {
    /// Whether nothing of it ever happens here.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// The name of a type, by its place.
pub fn name_of(kind: u8) -> &'static str {
    NAMES[usize::from(kind)]
}

/// The kind of what has a name of dashboards only, by its place in [`NAMES`].
pub fn kind_of_extra(extra: Extra) -> u8 {
    let place = match extra {
        Extra::Promoted => 0,
        Extra::Discarded => 1,
        Extra::Prioritized { .. } => 2,
        Extra::Updated => 3,
        Extra::DelayChanged { .. } => 4,
        Extra::Cleaned { .. } => 5,
        Extra::Obliterated => 6,
        Extra::Buried => 7,
        Extra::DlqRetried => 8,
        Extra::DlqRetriedAll { .. } => 9,
        Extra::DlqPurged { .. } => 10,
        Extra::RateLimited { .. } => 11,
        Extra::RateCleared => 12,
        Extra::ConcurrencyLimited { .. } => 13,
        Extra::ConcurrencyCleared => 14,
        Extra::CronCreated => 15,
        Extra::CronUpdated => 16,
        Extra::CronDeleted => 17,
    };
    EVENT_TYPES.len() as u8 + place
}

/// The events that a name or pattern asks for; `None` if it is neither.
pub fn meaning(asked: &str) -> Option<Meaning> {
    if asked == "*" {
        return Some(Meaning { kinds: Kinds::ALL_NAMES, snapshots: true });
    }
    let family = asked.strip_suffix('*').filter(|family| family.ends_with(':'));
    let is_meant = |name: &str| match family {
        Some(family) => name.starts_with(family),
        None => name == asked,
    };
    let of_kind = |kind: &usize| {
        // A repeated push has had both names.
        is_meant(NAMES[*kind]) || NAMES[*kind] == "job:deduplicated" && asked == "job:duplicated"
    };
    let bits = (0..NAMES.len()).filter(of_kind).fold(0, |bits, kind| bits | 1 << kind);
    let meaning = Meaning { kinds: Kinds(bits), snapshots: is_meant(SNAPSHOT) };
    let is_known = !meaning.is_empty() || FOREIGN.iter().any(|name| is_meant(name));
    is_known.then_some(meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(asked: &str) -> Vec<&'static str> {
        meaning(asked).into_iter().flat_map(|meaning| meaning.kinds.names()).collect()
    }

    #[test]
    fn names_and_families_mean_types_and_all_else_is_no_name() {
        assert_eq!(kinds("job:failed"), ["failed"]);
        assert_eq!(kinds("job:duplicated"), kinds("job:deduplicated"));
        assert_eq!(kinds("queue:*"), ["drained", "paused", "resumed"]);
        assert_eq!(kinds("job:*").len() + kinds("queue:*").len(), EVENT_TYPES.len());
        assert_eq!(meaning("*").map(|meaning| meaning.kinds), Some(Kinds::ALL_NAMES));
        assert!(meaning("dlq:*").is_some_and(|meaning| meaning.kinds.each().count() == 4));
        for (place, name) in NAMES.iter().enumerate() {
            assert_eq!(meaning(name).map(|meaning| meaning.kinds), Some(Kinds(1 << place)));
            assert!(!FOREIGN.contains(name), "{name}");
        }
        let (first, last) = (kind_of_extra(Extra::Promoted), kind_of_extra(Extra::CronDeleted));
        assert_eq!((name_of(first), name_of(last)), ("job:promoted", "cron:deleted"));
        for snapshots in ["*", "stats:*", SNAPSHOT] {
            assert!(meaning(snapshots).is_some_and(|meaning| meaning.snapshots), "{snapshots}");
        }
        for foreign in ["dlq:expired", "flow:*", "queue:counts"] {
            assert!(meaning(foreign).is_some_and(Meaning::is_empty), "{foreign}");
        }
        for wrong in ["", "job", "job:", "job:complete", "jobs:*", "j*", "**", "failed", ":*"] {
            assert_eq!(meaning(wrong), None, "{wrong}");
        }
    }
}
