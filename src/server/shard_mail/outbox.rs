//! The outbox of a shard: one batch per destination and turn, of two kinds. Messages that depend on no record are sent
//! immediately, at the end of the turn; those that reveal state are sent after the commit, through the durability gate.

use super::message::Batch;
use corq_io::mesh::{Endpoint, Refused};
use std::collections::VecDeque;

/// Messages to other shards: sent at once, or after the durability gate.
pub struct Outbox {
    endpoint: Endpoint<Batch>,
    immediate: Vec<Batch>,
    after_commit: Vec<Batch>,
    /// Batches that found the destination's inbox full, oldest first.
    stuck: VecDeque<(usize, Batch)>,
    /// Messages to this shard itself, read in the same turn.
    own: VecDeque<Batch>,
}

impl Outbox {
    /// Messages through `endpoint` among `shards` shards.
    pub fn new(endpoint: Endpoint<Batch>, shards: usize) -> Self {
        let batches = || (0..shards).map(|_| Batch::default()).collect();
        Self {
            endpoint,
            immediate: batches(),
            after_commit: batches(),
            stuck: VecDeque::new(),
            own: VecDeque::new(),
        }
    }

    /// The batch for `dest` that is sent immediately: questions and forwarded commands.
    pub fn immediate(&mut self, dest: usize) -> &mut Batch {
        &mut self.immediate[dest]
    }

    /// The batch for `dest` that passes the durability gate: answers and news.
    pub fn after_commit(&mut self, dest: usize) -> &mut Batch {
        &mut self.after_commit[dest]
    }

    /// Takes this turn's answers and news, to be kept until the log has what they tell of.
    pub fn take_after_commit(&mut self) -> Vec<(usize, Batch)> {
        let mut taken = Vec::new();
        for (dest, batch) in self.after_commit.iter_mut().enumerate() {
            if !batch.messages.is_empty() {
                taken.push((dest, std::mem::take(batch)));
            }
        }
        taken
    }

    /// Sends this turn's answers and news at once.
    pub fn send_after_commit(&mut self) {
        for dest in 0..self.after_commit.len() {
            if !self.after_commit[dest].messages.is_empty() {
                let batch = std::mem::take(&mut self.after_commit[dest]);
                self.send(dest, batch);
            }
        }
    }

    /// Sends the questions and commands of this turn.
    pub fn send_immediate(&mut self) {
        for dest in 0..self.immediate.len() {
            if !self.immediate[dest].messages.is_empty() {
                let batch = std::mem::take(&mut self.immediate[dest]);
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

    /// Tries the stuck batches again and wakes the shards that got messages. True if some are still stuck.
    pub fn flush(&mut self) -> bool {
        // Taken out first: a batch must queue behind those that found no room again, not behind those
        // that have yet to be tried.
        for (dest, batch) in std::mem::take(&mut self.stuck) {
            self.send(dest, batch);
        }
        self.endpoint.flush();
        !self.stuck.is_empty()
    }

    /// The next batch for this shard.
    pub fn receive(&mut self) -> Option<Batch> {
        self.own.pop_front().or_else(|| self.endpoint.receive())
    }

    /// Batches that found the destination's inbox full.
    pub fn stuck(&self) -> usize {
        self.stuck.len()
    }

    /// Whether there are messages that this turn has not dealt with: to this shard from itself, or
    /// questions asked too late in the turn to be sent with it.
    pub fn has_left(&self) -> bool {
        !self.own.is_empty() || self.immediate.iter().any(|batch| !batch.messages.is_empty())
    }

    /// Announces sleep; false if there are messages.
    pub fn prepare_to_sleep(&self) -> bool {
        self.own.is_empty() && self.endpoint.prepare_to_sleep()
    }

    /// Ends what [`Outbox::prepare_to_sleep`] announced.
    pub fn awake(&self) {
        self.endpoint.awake();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::server::shard_mail::message::Message;
    use corq_io::mesh::Mesh;

    fn numbered(number: u8) -> Batch {
        Batch { messages: vec![Message::Open], bytes: vec![number] }
    }

    /// The fear: a shard that was slow for a moment never again hears from those whose messages piled up.
    #[test]
    fn batches_that_found_a_full_inbox_arrive_later_and_in_order() {
        let mut mesh = Mesh::<Batch>::with_capacity(2, 2).unwrap();
        let mut receiver = mesh.pop().unwrap();
        let mut outbox = Outbox::new(mesh.pop().unwrap(), 2);
        (0..7).for_each(|number| outbox.send(1, numbered(number)));
        let mut got = Vec::new();
        for _ in 0..10 {
            outbox.flush();
            got.extend(std::iter::from_fn(|| receiver.receive()).map(|batch| batch.bytes[0]));
        }
        assert_eq!(got, [0, 1, 2, 3, 4, 5, 6]);
        assert!(!outbox.flush());
    }
}
