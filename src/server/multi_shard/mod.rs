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
//! | `cron_asks` | a schedule is shown, run now, enabled, previewed |
//! | `cron_backlog` | commands on schedules that wait for another on the same |
//! | `cron_interval` | how often schedules may run |
//! | `cron_names` | which schedules there are, and where |
//! | `cron_view` | a schedule as clients see it |
//! | `custom_ids` | claims custom ids before a push |
//! | `dependencies` | looks up what jobs of a push depend on |
//! | `flow` | two-phase commit of jobs that come together |
//! | `flow_view` | the jobs of a flow as its answer shows them |
//! | `job_looks` | asks the shards of jobs what they know of them: GetFlow, dependencies in Explain |
//! | `large_command` | commands of more bytes than a turn may look through: checked in slices, then begun as any other |
//! | `large_commands` | which connections have one, and which go on next |
//! | `looks` | what is known of jobs of other shards, and the tree of a flow: data only |
//! | `messages` | what shards say to each other about all this: data only |
//! | `parent_links` | a parent for a child that is there |
//! | `pushed_links` | pushed children whose parents are there, and wait for them |
//! | `queue_pages` | sorted pages of the queues of all shards |
//! | `queue_rows` | these as they are put together: data only |
//! | `row_lists` | lists over all shards as they are put together: data only |
//! | `row_pages` | lists over all shards, a page at a time |
//! | `scatter_gather` | asks all shards and merges their answers |
//! | `shard_rows` | the pages of one shard for them |
//! | `task` | the state of a command in several steps |
//! | `waiting_claims` | pushes and commands that wait for a custom id which a push has claimed |

pub(super) mod backup_point;
pub(super) mod batch;
pub(super) mod child_patches;
pub(super) mod child_results;
pub(super) mod child_values;
pub(super) mod cron;
mod cron_asks;
pub(super) mod cron_backlog;
pub(super) mod cron_interval;
pub(super) mod cron_names;
pub(super) mod cron_view;
pub(super) mod custom_ids;
pub(super) mod dependencies;
pub(super) mod flow;
pub(super) mod flow_view;
pub(super) mod job_looks;
pub(super) mod large_command;
pub(super) mod large_commands;
pub(super) mod looks;
pub(super) mod messages;
pub(super) mod parent_links;
pub(super) mod pushed_links;
pub(super) mod queue_pages;
pub(super) mod queue_rows;
pub(super) mod row_lists;
mod row_pages;
pub(super) mod scatter_gather;
mod shard_rows;
pub(super) mod task;
pub(super) mod waiting_claims;
