//! Commands that take several steps on several shards.
//!
//! | file | responsibility |
//! |---|---|
//! | `backup_point` | where the logs of all shards can be cut at once |
//! | `batch` | commands on many jobs: check all, then act |
//! | `child_patches` | parents that are written into the data of children, some per turn |
//! | `child_results` | tells the shard of a parent how its children ended |
//! | `child_values` | the results of many children, written slice by slice |
//! | `cron` | schedules |
//! | `cron_backlog` | commands on schedules that wait for another on the same |
//! | `cron_interval` | how often schedules may run |
//! | `cron_view` | a schedule as clients see it |
//! | `custom_ids` | claims custom ids before a push |
//! | `dependencies` | looks up what jobs of a push depend on |
//! | `flow` | two-phase commit of jobs that come together |
//! | `flow_view` | the jobs of a flow as its answer shows them |
//! | `long_ack` | long ACKB, JobHeartbeatB, ExtendLocks |
//! | `long_batch` | batches that are longer than a turn, in slices |
//! | `long_flow` | long PUSHF, in slices |
//! | `long_push` | long PUSHB to one queue |
//! | `messages` | what shards say to each other about all this: data only |
//! | `parent_links` | a parent for a child that is there |
//! | `reservations` | log space and places in groups that are kept for long commands |
//! | `row_pages` | lists over all shards, a page at a time |
//! | `scatter_gather` | asks all shards and merges their answers |
//! | `task` | the state of a command in several steps |

pub(super) mod backup_point;
pub(super) mod batch;
pub(super) mod child_patches;
pub(super) mod child_results;
pub(super) mod child_values;
pub(super) mod cron;
pub(super) mod cron_backlog;
pub(super) mod cron_interval;
pub(super) mod cron_view;
pub(super) mod custom_ids;
pub(super) mod dependencies;
pub(super) mod flow;
pub(super) mod flow_view;
pub(super) mod long_ack;
pub(super) mod long_batch;
pub(super) mod long_flow;
pub(super) mod long_push;
pub(super) mod messages;
pub(super) mod parent_links;
pub(super) mod reservations;
pub(super) mod row_pages;
pub(super) mod scatter_gather;
pub(super) mod task;
