//! The server: starts the shards, waits for the end, ends them.
//!
//! ```text
//! turn     the loop of one shard: events -> core -> log -> release -> sleep
//! core     connections     respond  replies     session  what is remembered of each
//! dispatch which shard carries a command out     route, message, post, inbox: between shards
//! execute  commands of this shard      query    questions to it      here  what any shard answers
//! groups   groups of jobs: what is set for them and what they have
//! limited  what limits a queue and what it has done
//! letters  dead letters, and the rules of queues
//! list     pages of jobs  show   jobs in full     change   one job, in any state     counts   of each priority
//! notes    progress and logs      wait   for the end of a job     chore  long commands, in slices
//! names    custom ids     crons    schedules     interval   how often they may run
//! webhooks who is told by HTTP     triggers  of what, and when     deliveries  by whom
//! many     commands on many jobs     all    questions to all shards     rows   lists of what all have
//! lengthy  long ones, in slices      long_push, long_jobs    of which kind
//! needs    what jobs of a push depend on     family  what parents learn of their children     values  and answer
//! flow     jobs of several queues that come together
//! kin      a parent for a child that is there
//! door     who answers over HTTP before the shards do     ears   signals     certificate  of TLS
//! reclaim  what of the log is still needed is written again, so that its beginning can go
//! room     how much room what must leave     strain  what waits while there is too little
//! ground, vigil   whether the files of the log are still there     descriptors  who may have how many files open
//! warnings what settings and files let others do
//! workers  who works here     metrics, metric_families   numbers for people and Prometheus     meter  how long turns are, and why
//! backup   where the logs of all shards can be cut at once
//! aside    requests that wait because their answers may be large
//! parked   commands that are answered later     partial  what requests take in memory before they are whole
//! moving   connections that follow their queue, or are seated     ports    where they come from
//! http     the HTTP port     figures   what only HTTP asks for
//! translate    JSON that is too long for one turn     owed, owed_values   answers that many get
//! events   where they happen     streams, lane  where clients listen     websocket, subscribe  those who also ask
//! entries  what is kept by number
//! engine   the state machine and its log     hole  replies that wait for the disk
//! end      of a shard     recover  its beginning     reshard  another number of them
//! ```

mod commands;
mod connection;
mod event_loop;
mod events;
mod http;
mod lifecycle;
mod metrics;
mod multi_shard;
mod numbered;
mod overload;
mod shard_mail;
mod shard_server;
mod storage;
mod webhooks;

pub use lifecycle::start::{StartError, serve};
