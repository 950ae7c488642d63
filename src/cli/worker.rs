//! `worker`: who works.

use clap::Subcommand;

use super::context::Context;
use super::failure::Failure;
use super::output::{Cell, Table};
use super::request::Request;
use super::show;
use super::value::Value;
use crate::api::commands::Op;

/// Commands on workers.
#[derive(Subcommand, Debug)]
pub enum Worker {
    /// List the registered workers
    List,
}

/// Carries one out.
pub fn run(context: &mut Context, worker: &Worker) -> Result<(), Failure> {
    let Worker::List = worker;
    context.ask(Request::new(Op::ListWorkers), |out, reply| {
        let table = table(reply.get("data").get("workers"));
        if table.is_empty() { out.line("no worker is registered") } else { out.table(&table) }
    })
}

fn table(workers: Value<'_>) -> Table {
    let heads = ["ID", "NAME", ">ACTIVE", ">PROCESSED", ">FAILED", "SEEN", "QUEUES"];
    let mut table = Table::new(&heads);
    for worker in workers.items() {
        let count = |field: &str| Cell::from(worker.get(field).count().to_string());
        table.row(vec![
            show::text(worker.get("id")),
            show::text(worker.get("name")),
            count("activeJobs"),
            count("processedJobs"),
            count("failedJobs"),
            show::from_now(worker.get("lastSeen")),
            show::texts(worker.get("queues")).into(),
        ]);
    }
    table
}
