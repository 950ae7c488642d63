//! Answers of the server for pages and programs that display it. Times are milliseconds since the Unix epoch.

mod audit;
mod dashboard;
mod figures;
mod job;
mod lists;

pub use audit::{AuditEntry, AuditPage};
pub use dashboard::{
    Finding, JobTile, Latency, LetterPreview, Memory, Overview, Quantiles, QueueBoard, QueueTile,
    Setting, StorageStatus, Throughput, Whoami, WorkerOverview,
};
pub use figures::{
    BusyQueue, Heatmap, History, Sample, Series, ServerStats, ShardHistory, ShardInfo, ShardLog,
    ShardMail, Turn,
};
pub use job::{Attempt, Children, Explanation, FlowNode, FlowView, JobDetail, NamedJob, Reason};
pub use lists::{
    Covered, Found, HeldJob, JobPage, JobRow, QueuePage, QueueRow, WorkerPage, WorkerRow,
};
