//! Pushes of jobs that depend on others, as the server takes them: how those jobs stand is asked of
//! their shards first, and what shards tell each other afterwards is carried from one to the other.

use super::check::Check;
use super::model::State;
use super::names::Task;
use super::ops::notice::TakeNotice;
use super::ops::push::Push;
use super::world::{Mail, World};
use corq_shards::dependency::{News as Tidings, Notice, Standing};
use corq_shards::job::id::JobId;
use std::collections::BTreeMap;

/// A push that waits for word of what its jobs depend on.
#[derive(Debug)]
pub struct Needs {
    client: u64,
    push: Push,
    left: usize,
    standings: BTreeMap<JobId, Standing>,
}

impl World {
    /// Sends a push, once it knows what its jobs wait for and has their names.
    pub fn push(&mut self, client: usize, push: Push) {
        let client = self.clients[client].id;
        let mut asks: BTreeMap<usize, Vec<JobId>> = BTreeMap::new();
        for &id in push.jobs.iter().flat_map(|job| &job.depends_on) {
            asks.entry(self.shard_of_job(id)).or_default().push(id);
        }
        if asks.is_empty() {
            self.claim(client, push);
            return;
        }
        let task = self.new_request();
        let needs = Needs { client, push, left: asks.len(), standings: BTreeMap::new() };
        self.tasks.insert(task, Task::Needs(needs));
        for (shard, jobs) in asks {
            self.post((false, client, shard), Mail::Stand { task, jobs });
        }
    }

    /// A shard has said how some jobs stand.
    pub fn stood(&mut self, task: u64, standings: Vec<(JobId, Standing)>) {
        if let Some(Task::Adoption(_)) = self.tasks.get(&task) {
            self.child_stood(task, &standings);
            return;
        }
        let Some(Task::Needs(needs)) = self.tasks.get_mut(&task) else { return };
        needs.standings.extend(standings);
        needs.left -= 1;
        if needs.left > 0 {
            return;
        }
        let Some(Task::Needs(needs)) = self.tasks.remove(&task) else { return };
        let Needs { client, mut push, standings, .. } = needs;
        if standings.values().any(|standing| *standing == Standing::Unknown) {
            // Refused: nothing is pushed.
            return;
        }
        for job in &mut push.jobs {
            // A child that is completed has still to say with what.
            let (children, mut others): (Vec<JobId>, Vec<JobId>) =
                job.depends_on.iter().partition(|id| job.children.contains(id));
            others.retain(|id| standings.get(id) == Some(&Standing::Open));
            job.unmet = others;
            job.ties.wait_for(children);
        }
        self.claim(client, push);
    }

    pub fn shard_of_job(&self, id: JobId) -> usize {
        id.slot().index() % self.nodes.len()
    }

    /// Passes on what a shard has to tell about jobs of another one, or of its own.
    pub fn pass_on(&mut self, from: usize, notice: Notice) {
        let to = self.shard_of_job(notice.addressee());
        self.post((true, from as u64, to), Mail::Notice(notice));
    }

    /// A shard gets a notice about another's job.
    pub fn notify(&mut self, to: usize, notice: Notice) {
        let owner = &self.nodes[self.shard_of_job(notice.dependency)].model;
        let dependency = owner.jobs.get(&notice.dependency);
        let (id, true_news) = match notice.news {
            Tidings::Watch
            | Tidings::WatchChild { .. }
            | Tidings::Unwatch
            | Tidings::UnwatchChild => (notice.dependency, true),
            Tidings::Completed => {
                (notice.dependent, owner.ever_completed.contains(&notice.dependency))
            }
            Tidings::Removed => {
                // A job that an Obliterate has yet to reach is gone for those that come now.
                let gone = dependency
                    .is_none_or(|job| !job.met && (job.state == State::Gone || job.is_detached()));
                (notice.dependent, gone)
            }
        };
        self.checks.must(Check::Dependency, true_news, || {
            format!("{id:?} gets {notice:?} of {dependency:?}")
        });
        self.check_farewell(to, notice);
        self.nodes[to].run(self.now_ms, 0, 0, &TakeNotice(notice));
    }

    /// After a start every dependent asks anew.
    pub fn renew_watches(&mut self) {
        for from in 0..self.nodes.len() {
            let notices: Vec<Notice> = self.nodes[from].shard.watches_to_renew().collect();
            for notice in notices {
                self.pass_on(from, notice);
            }
        }
    }

    /// While no news is on its way, nobody waits in vain, and each shard knows who waits.
    pub fn check_dependencies(&self) {
        let quiet = self.mail.is_empty()
            && self.tasks.is_empty()
            && self.nodes.iter().all(|node| node.held.is_empty() && node.news.is_empty());
        if !quiet {
            return;
        }
        let mut watches = vec![0; self.nodes.len()];
        let jobs = self.nodes.iter().flat_map(|node| node.model.jobs.values());
        for job in jobs.filter(|job| job.state != State::Gone) {
            for &id in &job.unmet {
                let shard = self.shard_of_job(id);
                let dependency = self.nodes[shard].model.jobs.get(&id);
                let open = dependency.is_some_and(|other| !other.met && other.state != State::Gone);
                let is_child = job.family.children.contains(&id);
                let check = if is_child { Check::Family } else { Check::Dependency };
                // A child that has failed has reported to its parent, which waits for it no longer.
                let since_ms = job.family.retried_at_ms;
                let silent =
                    !is_child || dependency.is_none_or(|other| !other.tells_failure(since_ms));
                watches[shard] += usize::from(open);
                self.checks.must(check, open && silent || !job.is_live(), || {
                    format!("{job:?}\n  waits in vain for {dependency:?}")
                });
            }
        }
        for (node, expected) in self.nodes.iter().zip(watches) {
            let found = node.shard.holdings().watches;
            self.checks.must(Check::Dependency, found == expected, || {
                format!("shard {} knows of {found} that wait, not {expected}", node.index)
            });
        }
    }
}
