//! Samples that are posted to webhooks, and who waits for what comes of them: data only.
//!
//! A ground type: of the server it imports the envelope only.

use crate::server::shard_mail::envelope::Origin;
use corq_io::webhook::Trial;

/// Samples under way at a time.
pub const TRIALS_MAX: usize = 16;

/// Samples under way, and who waits for them.
#[derive(Default)]
pub struct Trials(pub(super) Vec<Waiting>);

/// A sample under way, and the client that waits for its outcome.
pub(super) struct Waiting {
    pub(super) origin: Origin,
    pub(super) req_id: Option<Box<[u8]>>,
    pub(super) trial: Trial,
}
