//! The client for the job queue server corq: push, pull and work on jobs.
//!
//! ```no_run
//! use corq_client::{ActiveJob, Client, Failure, Worker};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Email {
//!     to: String,
//! }
//!
//! # async fn example() -> Result<(), corq_client::Error> {
//! let client = Client::connect("tcp://127.0.0.1:6789").await?;
//!
//! let email = Email { to: "ada@example.org".into() };
//! let id = client.queue("emails").push(&email).await?;
//!
//! let worker = Worker::builder(&client, "emails").concurrency(50).start(
//!     async |job: ActiveJob| {
//!         let email: Email = job.data()?;
//!         Ok::<_, Failure>(format!("sent to {}", email.to))
//!     },
//! )?;
//! // ... and when the process is to end:
//! worker.drain().await;
//! # Ok(())
//! # }
//! ```
//!
//! # The map
//!
//! | what | where |
//! |---|---|
//! | a server: schedules, webhooks, figures, any command | [`Client`] |
//! | a queue: pushing, pulling, looking, limits, rules, dead letters | [`Queue`], [`JobOptions`] |
//! | fair turns between groups of its jobs | [`Group`], [`GroupOptions`] |
//! | jobs that wait for others, pushed as a whole | [`FlowJob`] |
//! | many jobs at a time | [`JobBatch`]; those that come one by one: [`Batcher`]; those that are there: [`Bulk`] |
//! | one job: state, result, progress, log, waiting for its end | [`JobHandle`] |
//! | working on jobs | [`Worker`], [`ActiveJob`]; by hand: [`Queue::pull`] |
//! | pages of queues, jobs and workers; searches | [`QueueListing`], [`JobFilter`], [`Search`] |
//! | why a job does not run, all about it, its flow | [`JobHandle::explain`], [`JobHandle::detail`], [`JobHandle::flow`] |
//! | what happens, as it happens | [`Events`] |
//! | figures: of the last day, of now, for a dashboard | [`History`], [`Samples`], [`Overview`] |
//! | what went wrong, and what to make of it | [`Error`] |
//! | payloads: any serde type, or bytes passed through | [`Payload`], [`Raw`] |
//! | the same for threads | the module `blocking` |
//!
//! # Features
//!
//! - `tokio` (default): everything but the three below. Without it there are the types and no client.
//! - `blocking`: the client for threads, without a thread of its own.
//! - `tls`: `tls://` addresses, by rustls.
//! - `opentelemetry`: a span for each push, whose context goes along with the job, and one around each handler, by the API of
//!   OpenTelemetry: names and attributes are those of its conventions for messaging.
#![warn(missing_docs)]
#![forbid(unsafe_code)]
// Without a client there are its types only, for crates that name them and send nothing.
#![cfg_attr(not(feature = "tokio"), allow(dead_code))]

#[cfg(feature = "tokio")]
mod batcher;
#[cfg(feature = "blocking")]
pub mod blocking;
#[cfg(feature = "tokio")]
mod bulk;
#[cfg(feature = "tokio")]
mod client;
mod error;
#[cfg(feature = "tokio")]
mod event_choice;
#[cfg(feature = "tokio")]
mod events;
#[cfg(feature = "tokio")]
mod family;
mod fields;
#[cfg(feature = "tokio")]
mod group;
#[cfg(feature = "tokio")]
mod handle;
mod job_state;
#[cfg(feature = "tokio")]
mod looks;
#[cfg(feature = "tokio")]
mod net;
mod options;
#[cfg(feature = "tokio")]
mod pulled;
#[cfg(feature = "tokio")]
mod queue;
mod raw;
mod records;
mod refusal;
#[cfg(feature = "tokio")]
mod rules;
#[cfg(feature = "tokio")]
mod selection;
#[cfg(feature = "tokio")]
mod telemetry;
mod views;
mod wire;
#[cfg(feature = "tokio")]
mod worker;

#[cfg(feature = "tokio")]
pub use batcher::{Batcher, BatcherOptions, Flushed, Receipt};
#[cfg(feature = "tokio")]
pub use bulk::{Action, Bulk};
#[cfg(feature = "tokio")]
pub use client::{Client, ClientBuilder, CronOptions, Every};
pub use error::Error;
#[cfg(feature = "tokio")]
pub use event_choice::{EventChoice, EventType, Missed};
#[cfg(feature = "tokio")]
pub use events::{Events, Samples};
#[cfg(feature = "tokio")]
pub use family::FlowJob;
#[cfg(feature = "tokio")]
pub use group::Group;
#[cfg(feature = "tokio")]
pub use handle::{Ending, JobHandle, LogLevel};
#[cfg(feature = "tokio")]
pub use net::dial::ServerInfo;
#[cfg(feature = "tls")]
pub use net::tls::Tls;
pub use options::{Backoff, Dedup, JobOptions, OnChildFailure, Repeat};
#[cfg(feature = "tokio")]
pub use pulled::{Applied, Failure, GroupOptions, Hold, PullOptions, Pulled};
#[cfg(feature = "tokio")]
pub use queue::{JobBatch, Listing, Queue};
pub use raw::{Payload, Raw};
pub use records::{
    CountsPerPriority, Cron, CronRun, DlqRules, DlqStats, ErrorGroup, ErrorGroups, Event,
    GroupInfo, Job, JobCounts, JobState, LogLine, Metrics, Progress, QueueInfo, QueueLimits, Rate,
    RepeatState, Skipped, StallRules, Stats, Step, Task, Webhook, WebhookDelivery, WorkerInfo,
};
pub use refusal::{Code, Refusal};
#[cfg(feature = "tokio")]
pub use rules::{DlqConfig, StallConfig};
#[cfg(feature = "tokio")]
pub use selection::{JobFilter, QueueListing, QueueSort, Search, Shown, Span, Watching};
pub use views::{
    Attempt, AuditEntry, AuditPage, BusyQueue, Children, Covered, Explanation, Finding, FlowNode,
    FlowView, Found, Heatmap, HeldJob, History, JobDetail, JobPage, JobRow, JobTile, Latency,
    LetterPreview, Memory, NamedJob, Overview, Quantiles, QueueBoard, QueuePage, QueueRow,
    QueueTile, Reason, Sample, Series, ServerStats, Setting, ShardHistory, ShardInfo, ShardLog,
    ShardMail, StorageStatus, Throughput, Turn, Whoami, WorkerOverview, WorkerPage, WorkerRow,
};
pub use wire::reply::Reply;
#[cfg(feature = "tokio")]
pub use worker::{ActiveJob, Summary, Worker, WorkerBuilder, WorkerEvent};
