//! `GetJobs`: looks through a queue slice by slice, a slice a turn, and shows what it has found.

use super::job_record_list::{Show, Wanted};
use crate::api::commands::STATES;
use crate::api::request::StateFilter;
use crate::server::dashboard::queue_page::QueuePage;
use crate::server::event_loop::turn_meter::BYTES_PER_STEP;
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::job::State;
use corq_shards::queue::listing::{Listing, States, Views};
use std::collections::VecDeque;

/// A listing that goes on. One per command, so the connections bound their number.
pub struct JobListing {
    /// Who asked.
    pub origin: Origin,
    pub req_id: Option<Box<[u8]>>,
    pub listing: Listing,
    pub then: Then,
}

/// Use of the jobs that are found.
pub enum Then {
    /// They are shown in full.
    Show,
    /// They are a part of the page of their queue.
    QueuePage(Box<QueuePage>),
}

/// The listings of a shard, each in its turn.
pub type JobListings = VecDeque<JobListing>;

impl ShardServer {
    /// Begins a listing; most are complete with their first slice.
    pub(crate) fn get_jobs(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        listing: Listing,
    ) {
        let req_id = ctx.req_id.map(Into::into);
        let looking = JobListing { origin: ctx.origin, req_id, listing, then: Then::Show };
        self.begin_listing(conns, looking);
    }

    /// Begins to look for jobs.
    pub(crate) fn begin_listing(&mut self, conns: &mut Connections, looking: JobListing) {
        let origin = looking.origin;
        if let Some(looking) = self.list_on(conns, looking) {
            self.deferred(origin);
            self.job_listings.push_back(looking);
        }
    }

    /// Goes on with the listing whose turn it is, by a slice. True if there is more to do.
    pub(crate) fn list_in_turn(&mut self, conns: &mut Connections) -> bool {
        // Each slice is shown when it is found, for which there must be room; answers that have gone wake the shard.
        if self.waits_for_answers_to_go() {
            return false;
        }
        let Some(looking) = self.job_listings.pop_front() else { return false };
        let origin = looking.origin;
        match self.list_on(conns, looking) {
            Some(looking) => self.job_listings.push_back(looking),
            None => self.answered(origin),
        }
        !self.job_listings.is_empty()
    }

    fn list_on(&mut self, conns: &mut Connections, mut looking: JobListing) -> Option<JobListing> {
        let before = self.steps();
        let is_done = self.engine.shard.look_for(&mut looking.listing);
        // Looks count like bytes of large answers: however many connections ask in a turn, it begins a few listings only.
        self.large_replies.note_written((self.steps() - before) as usize * BYTES_PER_STEP);
        if !is_done {
            return Some(looking);
        }
        let JobListing { origin, req_id, listing, then } = looking;
        match then {
            Then::Show => {
                let show =
                    Show { req_id, jobs: listing.found(), wanted: Wanted::Jobs, begun: None };
                self.show(conns, origin, show, Vec::new());
                None
            }
            Then::QueuePage(mut page) => {
                page.note(listing.found());
                let Some(listing) = self.next_of_page(&page) else {
                    self.write_queue_page(conns, origin, req_id.as_deref(), &page);
                    return None;
                };
                Some(JobListing { origin, req_id, listing, then: Then::QueuePage(page) })
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
