//! Without async: pushes sums, works on them in threads, and waits for the results.
//!
//! ```sh
//! corq serve --memory &
//! cargo run -p corq-client --example blocking --features blocking
//! ```

use std::thread;
use std::time::Duration;

use corq_client::blocking::{ActiveJob, Client, Worker};
use corq_client::{Ending, Failure};

#[allow(clippy::needless_pass_by_value)] // A handler gets its job for good.
fn add(job: ActiveJob) -> Result<i64, Failure> {
    let (a, b): (i64, i64) = job.data()?;
    Ok(a + b)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::var("CORQ_ADDRESS").unwrap_or_else(|_| "tcp://127.0.0.1:6789".into());
    let client = Client::connect(&address)?;
    let worker = Worker::builder(&client, "sums").concurrency(4).build(add)?;
    let stopper = worker.stopper();
    let working = thread::spawn(move || worker.run());

    for a in 0..10_i64 {
        let id = client.queue("sums").push(&(a, 100))?;
        match client.job(&id).wait(Duration::from_secs(10))? {
            Some(Ending::Completed(sum)) => println!("{a} + 100 = {}", sum.decode::<i64>()?),
            other => println!("{a} + 100 has no answer: {other:?}"),
        }
    }

    stopper.stop();
    let summary = working.join().map_err(|_| "the worker panicked")?;
    println!("{} done", summary.completed);
    Ok(())
}
