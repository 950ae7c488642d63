//! Numbers and names of the kinds of records, for ever: see the recipe in [`crate::log_record`].

use crate::log_record::cron::kind as cron;
use crate::log_record::failed::kind as buried;
use crate::log_record::group::kind as group;
use crate::log_record::job_change::kind as changed;
use crate::log_record::rule::kind as rule;
use crate::log_record::snapshot::kind as kept;

pub(crate) const PUSHED: u8 = 1;
pub(crate) const LEASED: u8 = 2;
pub(crate) const COMPLETED: u8 = 3;
pub(crate) const RETRIED: u8 = 4;
pub(crate) const STALLED: u8 = 6;
pub(crate) const RELEASED: u8 = 7;
pub(crate) const REVIVED: u8 = 8;
pub(crate) const REMOVED: u8 = 9;
pub(crate) const PAUSED: u8 = 10;
/// [`REVIVED`] by the rule of a queue.
pub(crate) const REVIVED_BY_ITSELF: u8 = 12;
/// [`COMPLETED`], and nothing was forgotten for it.
pub(crate) const DONE: u8 = 13;
/// [`COMPLETED`], and what was forgotten for it.
pub(crate) const DONE_FOR: u8 = 14;
pub(crate) const RATE_LIMITED: u8 = 40;
pub(crate) const ACTIVE_LIMITED: u8 = 41;
/// [`RATE_LIMITED`] with a span of its own, or an end.
pub(crate) const RATE_LIMITED_FOR: u8 = 42;
pub(crate) const CRON_RAN: u8 = 81;
pub(crate) const CRON_MISSED: u8 = 82;
pub(crate) const CRON_REMOVED: u8 = 83;
pub(crate) const MET: u8 = 60;
pub(crate) const REPEATED: u8 = 61;
pub(crate) const CHILD_ENDED: u8 = 62;
pub(crate) const SETTLED: u8 = 63;
pub(crate) const ADOPTED: u8 = 64;
pub(crate) const BLOCKED: u8 = 65;
pub(crate) const STAGED: u8 = 66;
pub(crate) const FLOW: u8 = 67;
/// [`REPEATED`], and what was forgotten for it.
pub(crate) const RUN_DONE: u8 = 68;
pub(crate) const WEBHOOK_ADDED: u8 = 84;
pub(crate) const WEBHOOK_REMOVED: u8 = 85;

/// Every kind there is or was: its number and its name, for people and tools.
pub const KINDS: &[(u8, &str)] = &[
    (PUSHED, "pushed"),
    (LEASED, "leased"),
    (COMPLETED, "completed"),
    (RETRIED, "retried"),
    (buried::BURIED, "buried"),
    (STALLED, "stalled"),
    (RELEASED, "released"),
    (REVIVED, "revived"),
    (REMOVED, "removed"),
    (PAUSED, "paused"),
    (buried::FOR, "buried-for"),
    (REVIVED_BY_ITSELF, "revived-by-itself"),
    (DONE, "done"),
    (DONE_FOR, "done-for"),
    (changed::PRIORITIZED, "prioritized"),
    (changed::PROMOTED, "promoted"),
    (changed::PUT_OFF, "put-off"),
    (changed::PROGRESSED, "progressed"),
    (changed::LOGGED, "logged"),
    (changed::FLAGGED, "flagged"),
    (changed::LOG_CUT, "log-cut"),
    (changed::KEY_FREED, "key-freed"),
    (changed::KEY_EXTENDED, "key-extended"),
    (changed::PRIORITIZED_AS, "prioritized-as"),
    (changed::RENEWED, "renewed"),
    (buried::AT, "buried-at"),
    (RATE_LIMITED, "rate-limited"),
    (RATE_LIMITED_FOR, "rate-limited-for"),
    (ACTIVE_LIMITED, "active-limited"),
    (rule::DLQ, "dlq-ruled"),
    (rule::STALL, "stall-ruled"),
    (group::GROUPED, "grouped"),
    (group::CLEARED, "groups-cleared"),
    (MET, "met"),
    (REPEATED, "repeated"),
    (CHILD_ENDED, "child-ended"),
    (SETTLED, "settled"),
    (ADOPTED, "adopted"),
    (BLOCKED, "blocked"),
    (STAGED, "staged"),
    (FLOW, "flow"),
    (RUN_DONE, "run-done"),
    (cron::SET, "cron-set"),
    (cron::SET_WITH, "cron-set-with"),
    (cron::SET_BY, "cron-set-by"),
    (CRON_RAN, "cron-ran"),
    (CRON_MISSED, "cron-missed"),
    (CRON_REMOVED, "cron-removed"),
    (WEBHOOK_ADDED, "webhook-added"),
    (WEBHOOK_REMOVED, "webhook-removed"),
    (kept::JOB, "kept-job"),
    (kept::MOVED, "moved"),
    (kept::EVICTED, "evicted"),
    (kept::IDS, "ids"),
    (kept::PAST, "past"),
    (kept::REMAINS, "remains"),
    (kept::GIVEN_UP, "given-up"),
];
