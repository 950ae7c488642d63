//! Remembered posts of webhooks about one job: for `GetJobDetail`. Any shard can answer, since all of them know all
//! webhooks.

use super::looks::write_delivery;
use super::registry::Webhooks;
use crate::protocol::msgpack::writer::Writer;
use corq_io::webhook::Delivery;

/// Webhooks whose last posts are looked through for one job.
pub const HOOKS_LOOKED_AT: usize = 100;

/// Remembered posts of a queue's webhooks about a job.
pub struct Told {
    /// The webhook of each post, newest first of each.
    pub posts: Vec<(u128, Delivery)>,
    /// Whether there are more webhooks than were asked.
    pub truncated: bool,
}

impl Webhooks {
    /// Collects the remembered posts about a job by the webhooks that watch its queue.
    pub fn told(&self, queue: &str, job: &str) -> Told {
        let watches = |watched: &Option<Box<str>>| watched.as_deref().is_none_or(|it| it == queue);
        let mut hooks = self.known.values().filter(|known| watches(&known.queue));
        let mut posts = Vec::new();
        for known in hooks.by_ref().take(HOOKS_LOOKED_AT) {
            let about = known.hook.deliveries_about(job).into_iter();
            posts.extend(about.map(|delivery| (known.hook.id(), delivery)));
        }
        Told { posts, truncated: hooks.next().is_some() }
    }
}

/// Writes posts about a job, each with its webhook.
pub fn write_deliveries(writer: &mut Writer<'_>, told: &Told) {
    writer.array(told.posts.len());
    for (hook, delivery) in &told.posts {
        let mut row = writer.begin_map();
        row.key("webhookId").uuid(*hook);
        write_delivery(&mut row, delivery);
    }
}
