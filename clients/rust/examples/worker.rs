//! Works on the jobs that the example `push` pushes, until Ctrl-C; then finishes what it has begun and gives back the
//! rest.
//!
//! ```sh
//! cargo run -p corq-client --example worker
//! ```

use corq_client::{ActiveJob, Client, Failure, LogLevel, Worker};
use serde::Deserialize;

#[derive(Deserialize)]
struct Email {
    to: String,
    subject: String,
}

async fn send(job: ActiveJob) -> Result<String, Failure> {
    let email: Email = job.data()?;
    if !email.to.contains('@') {
        // Trying again would not help.
        return Err(Failure::new(format!("{} is no address", email.to)).unrecoverable());
    }
    job.log(LogLevel::Info, &format!("sending \"{}\"", email.subject)).await?;
    Ok(format!("sent to {}", email.to))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::var("CORQ_ADDRESS").unwrap_or_else(|_| "tcp://127.0.0.1:6789".into());
    let client = Client::connect(&address).await?;
    let worker = Worker::builder(&client, "emails")
        .concurrency(50)
        .on_event(|event| eprintln!("{event}"))
        .start(send)?;

    tokio::signal::ctrl_c().await?;
    let summary = worker.drain().await;
    println!(
        "{} done, {} failed, {} given back",
        summary.completed, summary.failed, summary.given_back
    );
    Ok(())
}
