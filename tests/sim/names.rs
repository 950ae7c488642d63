//! Commands in several steps, as the server takes them: custom ids claimed from one owner shard after the other before a
//! push; acks checked on every shard before any is carried out.

use super::flows::FlowTask;
use super::needs::Needs;
use super::ops::ack::{Ack, Checking, One};
use super::ops::family::Adoption;
use super::ops::push::Push;
use super::world::{Mail, World};
use corq_shards::job::id::fnv1a;
use std::collections::{BTreeMap, BTreeSet};

/// A push that claims its custom ids.
#[derive(Debug)]
pub struct Claims {
    client: u64,
    push: Push,
    /// Owner shards still to be asked, the next one last, each with the places of its jobs.
    owners: Vec<(usize, Vec<usize>)>,
    taken: Vec<bool>,
}

/// A command that goes on.
#[derive(Debug)]
pub enum Task {
    Needs(Needs),
    Adoption(Adoption),
    Claims(Claims),
    Checking(Checking),
    Flow(FlowTask),
}

impl World {
    /// The shard whose directory keeps a name.
    #[allow(clippy::disallowed_methods)] // As the server does.
    pub fn owner_of_name(&self, name: &str) -> usize {
        (fnv1a(name.as_bytes()) >> 17) as usize % self.nodes.len()
    }

    /// Sends a push, once it has its names.
    pub fn claim(&mut self, client: u64, push: Push) {
        let owner = self.shard_of_queue(&push.queue);
        if push.jobs.iter().all(|job| job.custom_id.is_none()) {
            self.send_as(client, owner, push);
            return;
        }
        let mut seen = BTreeSet::new();
        let mut taken = vec![false; push.jobs.len()];
        let mut owners: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (place, job) in push.jobs.iter().enumerate() {
            let Some(name) = &job.custom_id else { continue };
            if seen.insert(name) {
                owners.entry(self.owner_of_name(name)).or_default().push(place);
            } else {
                taken[place] = true;
            }
        }
        let owners = owners.into_iter().rev().collect();
        let task = self.new_request();
        self.tasks.insert(task, Task::Claims(Claims { client, push, owners, taken }));
        self.ask_next_owner(task);
    }

    fn ask_next_owner(&mut self, task: u64) {
        let Some(Task::Claims(claims)) = self.tasks.get(&task) else { return };
        let Some((owner, places)) = claims.owners.last() else { return };
        let name = |&place: &usize| claims.push.jobs[place].custom_id.clone().unwrap_or_default();
        let names = places.iter().map(name).collect();
        let (client, owner) = (claims.client, *owner);
        self.post((false, client, owner), Mail::Claim { task, names });
    }

    /// The owner shard of some names has answered.
    pub fn claimed(&mut self, task: u64, taken: &[bool]) {
        if let Some(Task::Flow(_)) = self.tasks.get(&task) {
            self.flow_claimed(task, taken);
            return;
        }
        let Some(Task::Claims(claims)) = self.tasks.get_mut(&task) else { return };
        let Some((_, places)) = claims.owners.pop() else { return };
        for (place, &is_taken) in places.into_iter().zip(taken) {
            claims.taken[place] = is_taken;
        }
        if !claims.owners.is_empty() {
            self.ask_next_owner(task);
            return;
        }
        let Some(Task::Claims(claims)) = self.tasks.remove(&task) else { return };
        let Claims { client, mut push, taken, .. } = claims;
        let mut taken = taken.into_iter();
        push.jobs.retain(|_| taken.next() == Some(false));
        let owner = self.shard_of_queue(&push.queue);
        self.send_as(client, owner, push);
    }

    /// Asks every shard concerned whether it could carry out its part.
    pub fn check_everywhere(&mut self, client: usize, acks: Vec<One>) {
        let client = self.clients[client].id;
        let task = self.new_request();
        let parts = by_shard(&acks);
        let left = parts.len();
        self.tasks.insert(task, Task::Checking(Checking { client, acks, left, refused: false }));
        for (shard, acks) in parts {
            self.send_as(client, shard, Ack { acks, check_for: Some(task) });
        }
    }

    /// A shard has said whether it could.
    pub fn checked(&mut self, task: u64, could: bool) {
        let Some(Task::Checking(checking)) = self.tasks.get_mut(&task) else { return };
        checking.left -= 1;
        checking.refused |= !could;
        if checking.left > 0 {
            return;
        }
        if let Some(Task::Checking(checking)) = self.tasks.remove(&task)
            && !checking.refused
        {
            for (shard, acks) in by_shard(&checking.acks) {
                self.send_as(checking.client, shard, Ack { acks, check_for: None });
            }
        }
    }
}

fn by_shard(acks: &[One]) -> BTreeMap<usize, Vec<One>> {
    let mut parts: BTreeMap<usize, Vec<One>> = BTreeMap::new();
    for ack in acks {
        parts.entry(ack.shard).or_default().push(*ack);
    }
    parts
}
