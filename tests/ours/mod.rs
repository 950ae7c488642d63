//! Our own client against the real server, on one shard and on two. The fear: a job or an outcome that is lost, or
//! doubled, when servers are killed and connections cut; a method whose fields the server reads otherwise.

mod blocking;
mod calls;
mod families;
mod faults;
mod ledger;
mod looks;
mod ways;
mod worker;

use std::future::Future;
use std::time::{Duration, Instant};

use corq_client::Client;

use crate::support::{DEADLINE, Server, Start};

fn server(shards: u32) -> Server {
    Start::new().env("SHARDS", shards).start()
}

fn address(server: &Server) -> String {
    format!("tcp://127.0.0.1:{}", server.tcp)
}

async fn client(server: &Server) -> Client {
    // A loaded machine is not a lost server.
    Client::builder(&address(server)).timeout(DEADLINE).connect().await.unwrap()
}

/// Runs a test on a runtime with threads, as programs have one.
fn run<F: Future>(test: F) -> F::Output {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap().block_on(test)
}

/// Waits until `probe` answers something.
async fn until<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(begun.elapsed() < DEADLINE, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
