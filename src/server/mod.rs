//! The server: starts the shards, waits for the end, ends them.
//!
//! ```text
//! turn     the loop of one shard: events -> core -> log -> release -> sleep
//! core     connections     respond  replies     session  what is remembered of each
//! dispatch which shard carries a command out     route, message, post, inbox: between shards
//! execute  commands of this shard      query    questions to it      here  what any shard answers
//! groups   groups of jobs: what is set for them and what they have
//! limited  what limits a queue and what it has done
//! list     pages of jobs  show   jobs in full     change   one job, in any state
//! notes    progress and logs      wait   for the end of a job     chore  long commands, in slices
//! names    custom ids     crons    schedules
//! webhooks who is told by HTTP     triggers  of what, and when     deliveries  by whom
//! many     commands on many jobs     all    questions to all shards
//! needs    what jobs of a push depend on
//! door     who answers over HTTP before the shards do
//! reclaim  what of the log is still needed is written again, so that its beginning can go
//! workers  who works here     metrics   numbers for people and Prometheus
//! backup   where the logs of all shards can be cut at once
//! partial  what requests take in memory before they are whole
//! moving   connections that follow their queue
//! http     the HTTP port     figures   what only HTTP asks for
//! events   where they happen     streams, lane  where clients listen     websocket  those who also ask
//! engine   the state machine and its log     hole  replies that wait for the disk
//! end      of a shard     recover  its beginning     reshard  another number of them
//! ```

mod all;
mod auth;
mod backup;
mod book;
mod change;
mod chore;
mod core;
mod crons;
mod deliveries;
mod dispatch;
mod door;
mod end;
mod engine;
mod events;
mod execute;
mod figures;
mod groups;
mod here;
mod hole;
mod http;
mod inbox;
mod job_map;
mod lane;
mod limited;
mod list;
mod many;
mod message;
mod metrics;
mod moving;
mod names;
mod needs;
mod notes;
mod pace;
mod partial;
mod post;
mod query;
mod reclaim;
mod recover;
mod reshard;
mod respond;
mod route;
mod session;
mod show;
mod start;
mod streams;
mod task;
mod triggers;
mod turn;
mod wait;
mod webhooks;
mod websocket;
mod workers;

pub use start::{StartError, serve};
