//! `GetJobs`: looks through a queue slice by slice, a slice a turn, and shows what it has found.

use super::job_record_list::{JobListing, Show, Then, Wanted};
use crate::api::commands::STATES;
use crate::api::request::StateFilter;
use crate::server::event_loop::turn_meter::BYTES_PER_STEP;
use crate::server::operations::operation::{Operation, Sliced};
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::job::State;
use corq_shards::queue::listing::{Listing, States, Views};

impl ShardServer {
    /// Goes on with a listing.
    pub(crate) fn list_on(
        &mut self,
        conns: &mut Connections,
        mut looking: Box<JobListing>,
    ) -> Sliced {
        let before = self.steps();
        let is_done = self.engine.shard.look_for(&mut looking.listing);
        // Looks count like bytes of large answers: however many connections ask in a turn, it begins a few listings only.
        self.large_replies.note_written((self.steps() - before) as usize * BYTES_PER_STEP);
        if !is_done {
            return Sliced::More(Operation::Listing(looking));
        }
        let JobListing { origin, req_id, listing, then } = *looking;
        match then {
            Then::Show => {
                let (jobs, wanted) = (listing.found(), Wanted::Jobs);
                self.show(conns, Show { origin, req_id, jobs, wanted, begun: None }, Vec::new())
            }
            Then::QueuePage(mut page) => {
                page.note(listing.found());
                let Some(listing) = self.next_of_page(&page) else {
                    self.write_queue_page(conns, origin, req_id.as_deref(), &page);
                    return Sliced::Done;
                };
                let then = Then::QueuePage(page);
                let looking = JobListing { origin, req_id, listing, then };
                Sliced::More(Operation::Listing(Box::new(looking)))
            }
        }
    }
}

/// The listing that `GetJobs` asks for.
pub(crate) fn listing_of(
    queue: &str,
    states: Option<StateFilter>,
    (offset, limit): (u64, u32),
    oldest_first: Option<bool>,
) -> Listing {
    let listing = Listing::new(queue, states_of(states), offset, limit as usize);
    let views = states.map_or(Views::default(), StateFilter::views);
    listing.with(views).newest_first(oldest_first == Some(false))
}

/// The states that a filter names; all if there is none.
pub(crate) fn states_of(filter: Option<StateFilter>) -> States {
    let Some(filter) = filter else { return States::all() };
    let named = |state: &State| {
        let at = STATES.iter().position(|name| *name == state.name());
        at.is_some_and(|at| filter.has(1 << at))
    };
    State::ALL.into_iter().filter(named).collect()
}
