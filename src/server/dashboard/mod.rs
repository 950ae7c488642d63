//! Answers for dashboards: the server on one page, all queues with their counts, one queue with what is in it.
//!
//! | file | responsibility |
//! |---|---|
//! | `overview` | the server on one page, put together of what all shards have |
//! | `queue` | `DashboardQueue` |
//! | `queue_page` | a queue as one of all, and by itself |

pub(super) mod overview;
mod queue;
pub(super) mod queue_page;
