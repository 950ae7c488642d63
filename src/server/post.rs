//! The shard's outgoing mail: one batch per destination and turn, of two kinds. What only asks goes
//! at the end of the turn; what tells of the shard's state goes once the log has that state.

use super::message::Batch;
use corq_io::mesh::{Endpoint, Refused};
use std::collections::VecDeque;

/// See the module.
pub struct Post {
    endpoint: Endpoint<Batch>,
    asks: Vec<Batch>,
    tells: Vec<Batch>,
    /// Batches that found the destination's inbox full, oldest first.
    stuck: VecDeque<(usize, Batch)>,
    /// Mail to this shard itself, read in the same turn.
    own: VecDeque<Batch>,
}

impl Post {
    /// Mail through `endpoint` among `shards` shards.
    pub fn new(endpoint: Endpoint<Batch>, shards: usize) -> Self {
        let batches = || (0..shards).map(|_| Batch::default()).collect();
        Self {
            endpoint,
            asks: batches(),
            tells: batches(),
            stuck: VecDeque::new(),
            own: VecDeque::new(),
        }
    }

    /// The batch for questions and commands to `dest`.
    pub fn ask(&mut self, dest: usize) -> &mut Batch {
        &mut self.asks[dest]
    }

    /// The batch for answers and news to `dest`.
    pub fn tell(&mut self, dest: usize) -> &mut Batch {
        &mut self.tells[dest]
    }

    /// Takes this turn's answers and news, to be kept until the log has what they tell of.
    pub fn take_tells(&mut self) -> Vec<(usize, Batch)> {
        let mut taken = Vec::new();
        for (dest, batch) in self.tells.iter_mut().enumerate() {
            if !batch.messages.is_empty() {
                taken.push((dest, std::mem::take(batch)));
            }
        }
        taken
    }

    /// Sends this turn's answers and news at once.
    pub fn send_tells(&mut self) {
        for dest in 0..self.tells.len() {
            if !self.tells[dest].messages.is_empty() {
                let batch = std::mem::take(&mut self.tells[dest]);
                self.send(dest, batch);
            }
        }
    }

    /// Sends the questions and commands of this turn.
    pub fn send_asks(&mut self) {
        for dest in 0..self.asks.len() {
            if !self.asks[dest].messages.is_empty() {
                let batch = std::mem::take(&mut self.asks[dest]);
                self.send(dest, batch);
            }
        }
    }

    /// Sends a batch, after those that are stuck on the same way.
    pub fn send(&mut self, dest: usize, batch: Batch) {
        if dest == self.endpoint.shard() {
            self.own.push_back(batch);
            return;
        }
        if self.stuck.iter().any(|(other, _)| *other == dest) {
            self.stuck.push_back((dest, batch));
            return;
        }
        match self.endpoint.send(dest, batch) {
            Err(Refused::Full(batch)) => self.stuck.push_back((dest, batch)),
            // If the other shard is gone, the process is about to follow.
            Ok(()) | Err(Refused::Gone(_)) => {}
        }
    }

    /// Tries the stuck batches again and wakes whoever got mail. True if some are still stuck.
    pub fn flush(&mut self) -> bool {
        for _ in 0..self.stuck.len() {
            if let Some((dest, batch)) = self.stuck.pop_front() {
                self.send(dest, batch);
            }
        }
        self.endpoint.flush();
        !self.stuck.is_empty()
    }

    /// The next batch for this shard.
    pub fn receive(&mut self) -> Option<Batch> {
        self.own.pop_front().or_else(|| self.endpoint.receive())
    }

    /// Whether there is mail to this shard from itself.
    pub fn has_own(&self) -> bool {
        !self.own.is_empty()
    }

    /// Announces sleep; false if there is mail.
    pub fn prepare_to_sleep(&self) -> bool {
        self.own.is_empty() && self.endpoint.prepare_to_sleep()
    }

    /// Ends what [`Post::prepare_to_sleep`] announced.
    pub fn awake(&self) {
        self.endpoint.awake();
    }
}
