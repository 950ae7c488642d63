//! The engine: every rule of a shard, tried by commands and time, without disk or network.

#![allow(clippy::unwrap_used)]

mod bulk;
mod change;
mod clock;
mod cron;
mod cron_again;
mod cron_rules;
mod dedup;
mod dependency;
mod events;
mod exact;
mod explain;
mod flow;
mod groups;
mod history;
mod leaps;
mod life;
mod limits;
mod newer;
mod reclaim;
mod repeat;
mod replay;
mod reshard;
mod retention;
mod retried_flow;
mod rules;
mod scan;
mod schedule;
mod slices;
mod space_forecast;
mod support;
mod tokens;
mod traced;
