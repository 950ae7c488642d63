//! Pushes jobs: one, one with options, and many that come one by one.
//!
//! ```sh
//! corq serve --memory &
//! cargo run -p corq-client --example push
//! ```

use std::time::Duration;

use corq_client::{BatcherOptions, Client, Error, JobOptions};
use serde::Serialize;

#[derive(Serialize)]
struct Email {
    to: String,
    subject: &'static str,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::var("CORQ_ADDRESS").unwrap_or_else(|_| "tcp://127.0.0.1:6789".into());
    let client = Client::connect(&address).await?;
    let emails = client.queue("emails");

    let welcome = Email { to: "ada@example.org".into(), subject: "Welcome" };
    println!("pushed {}", emails.push(&welcome).await?);

    // With an id of one's own a push may be repeated: there is one job, however often it is sent.
    let reminder = Email { to: "ada@example.org".into(), subject: "Do not forget" };
    let options = JobOptions::new()
        .job_id("reminder-ada")
        .delay(Duration::from_secs(10))
        .max_attempts(5)
        .priority(10);
    println!("pushed {}", emails.push_with(&reminder, &options).await?);

    let batcher = emails.batcher(BatcherOptions::new());
    for number in 0..10_000 {
        let to = format!("user-{number}@example.org");
        batcher.send(&Email { to, subject: "News" }).await?;
    }
    println!("pushed {} more", batcher.flush().await?.all()?);

    let counts = emails.counts().await?;
    println!("{} wait, {} are delayed", counts.waiting, counts.delayed);
    Ok(())
}
