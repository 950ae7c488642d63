//! The dispatcher's thread, and its end.

use super::config::Config;
use super::dispatch::Dispatcher;
use super::feed::{FED_MAX, Feed, Input, Load};
use crossbeam_channel::{Receiver, bounded};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// The threads.
pub struct Pool {
    feed: Feed,
    ended: Receiver<()>,
}

impl Pool {
    /// Starts the dispatcher; threads that post come when they are needed.
    pub fn start(config: Config) -> io::Result<Self> {
        let load = Arc::new(Load::default());
        let (inputs, taken) = bounded(FED_MAX);
        let (end, ended) = bounded(1);
        let dispatcher = Dispatcher::new(config, Arc::clone(&load), taken);
        std::thread::Builder::new().name("webhooks".into()).spawn(move || {
            dispatcher.run();
            // The stopping thread may have given up.
            let _ = end.send(());
        })?;
        Ok(Self { feed: Feed { inputs, load }, ended })
    }

    /// The way in.
    pub fn feed(&self) -> Feed {
        self.feed.clone()
    }

    /// Lets what can be delivered be delivered until `deadline`: posts under way end, and what waits
    /// for webhooks that are well is posted. Returns how many events are lost.
    pub fn stop(self, deadline: Instant) -> u64 {
        let load = &self.feed.load;
        let sent = self.feed.inputs.send_deadline(Input::Stop, deadline);
        let ended = sent.is_ok() && self.ended.recv_deadline(deadline).is_ok();
        let left = if ended { 0 } else { load.backlog.load(Relaxed) };
        left + load.undone.load(Relaxed)
    }
}
