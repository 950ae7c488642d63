//! Messages between shards about webhooks, and the command that waits for them: data only.

use crate::server::shard_mail::envelope::{Origin, Step};
use corq_io::webhook::Hook;
use std::sync::Arc;

/// Messages between shards about webhooks.
#[derive(Debug)]
pub enum WebhookMessage {
    /// There is a webhook.
    Known {
        /// Who waits until the receiver knows it; `None` after a restart.
        step: Option<Step>,
        /// Where and how it is posted to.
        hook: Arc<Hook>,
        /// Only of events of this queue.
        queue: Option<Box<str>>,
        /// Whether it gets events.
        enabled: bool,
    },
    /// A webhook is disabled, or enabled again.
    Enabled {
        /// Who waits until the receiver knows it.
        step: Step,
        id: u128,
        /// Whether it gets events.
        enabled: bool,
    },
    /// A webhook is gone.
    Gone {
        /// Who waits until the receiver knows it.
        step: Step,
        id: u128,
    },
    /// The sender knows it.
    Noted {
        /// Who waits.
        step: Step,
    },
}

/// A change of the webhooks that not all shards know yet.
#[derive(Debug)]
pub struct WebhookTask {
    pub(super) origin: Origin,
    pub(super) frame: Box<[u8]>,
    /// Shards that have not said that they know.
    pub(super) left: usize,
}
