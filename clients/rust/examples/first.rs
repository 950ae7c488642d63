//! The first job, as the dashboard of an empty server shows it: a test compares the two.
//!
//! ```sh
//! corq serve --memory &
//! cargo run -p corq-client --example first
//! ```

use corq_client::{Client, Error};
use serde::Serialize;

#[derive(Serialize)]
struct Email {
    to: String,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = Client::connect("tcp://127.0.0.1:6789").await?;
    let id = client.queue("emails").push(&Email { to: "ada@example.org".into() }).await?;
    println!("pushed {id}");
    Ok(())
}
