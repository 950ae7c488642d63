//! Leases and waits of clients, by the id of the client.
//!
//! The client that was looked for last is at hand: the commands of a connection come one behind the other, and in a life
//! of a job its client is looked for four times.

use crate::caller::{Activity, ClientId};
use crate::collections::hash_key::HashKey;
use crate::collections::slab::{List, Slab};
use crate::collections::table::Map;

/// The list of leases or waits of one client.
pub(crate) struct OfClient;

/// Leases and waits of one client.
#[derive(Default)]
pub(crate) struct Client {
    pub(crate) leases: List<OfClient>,
    pub(crate) waiters: List<OfClient>,
    pub(crate) end_waiters: List<OfClient>,
    /// Jobs it pulled, wherever they are renewed from: those it holds, and what became of others.
    pub(crate) activity: Activity,
    /// The connection has ended: the client is forgotten with the last of its jobs.
    pub(crate) gone: bool,
}

impl Client {
    /// Whether there is nothing to remember of it.
    pub(crate) fn is_idle(&self) -> bool {
        let Activity { active, processed, failed } = self.activity;
        self.leases.is_empty()
            && self.waiters.is_empty()
            && self.end_waiters.is_empty()
            && active == 0
            && (self.gone || processed + failed == 0)
    }
}

/// Clients by id.
pub(crate) struct Clients {
    places: Map<ClientId, u32>,
    slab: Slab<Client>,
    /// The client that was looked for last, and its place.
    last: Option<(ClientId, u32)>,
}

impl Clients {
    pub(crate) fn new(key: HashKey) -> Self {
        Self { places: Map::new(key), slab: Slab::new(), last: None }
    }

    fn at_hand(&self, id: ClientId) -> Option<u32> {
        self.last.filter(|(last, _)| *last == id).map(|(_, place)| place)
    }

    pub(crate) fn get(&self, id: ClientId) -> Option<&Client> {
        let place = self.at_hand(id).or_else(|| self.places.get(id).copied())?;
        Some(&self.slab[place])
    }

    pub(crate) fn get_mut(&mut self, id: ClientId) -> Option<&mut Client> {
        let place = match self.at_hand(id) {
            Some(place) => place,
            None => *self.places.get(id)?,
        };
        self.last = Some((id, place));
        Some(&mut self.slab[place])
    }

    /// A client, which is remembered from now on.
    pub(crate) fn remember(&mut self, id: ClientId) -> &mut Client {
        let known = self.at_hand(id).or_else(|| self.places.get(id).copied());
        let place = known.unwrap_or_else(|| {
            let place = self.slab.insert(Client::default());
            self.places.insert(id, place);
            place
        });
        self.last = Some((id, place));
        &mut self.slab[place]
    }

    pub(crate) fn forget(&mut self, id: ClientId) {
        if let Some(place) = self.places.remove(id) {
            self.slab.remove(place);
            self.last = None;
        }
    }

    /// In no order that may decide anything.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ClientId, &Client)> {
        self.places.iter().map(|(id, &place)| (id, &self.slab[place]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards against a client that gets what another held in its place.
    #[test]
    fn a_client_is_found_whichever_was_looked_for_before() {
        let mut clients = Clients::new(HashKey::new(3));
        for round in 0..3 {
            for id in (0..100).map(ClientId) {
                assert!(clients.get_mut(id).is_none() && clients.get(id).is_none());
                clients.remember(id).activity.processed = id.0 + round;
            }
            for id in (0..100).map(|n| ClientId(n * 7 % 100)) {
                assert_eq!(clients.get(id).map(|held| held.activity.processed), Some(id.0 + round));
                let held = clients.get_mut(id).map(|held| held.activity.processed);
                assert_eq!(held, Some(id.0 + round));
                assert_eq!(clients.remember(id).activity.processed, id.0 + round);
            }
            assert_eq!(clients.iter().count(), 100);
            for id in (0..100).map(ClientId) {
                clients.forget(id);
                assert!(clients.get(id).is_none() && clients.get_mut(id).is_none());
            }
        }
    }
}
