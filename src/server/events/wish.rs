//! A client's request to subscribe: the fields of a command or of a query, and what they mean.
//!
//! A ground type: of the server it imports what is said about choices only.

use super::choice::{Choice, is_pattern};
use super::dashboard_names::{Meaning, meaning};
use super::kinds::Kinds;
use super::shared_buffer::{Carrier, Form};
use crate::api::error::{Error, ErrorKind};
use crate::api::objects::EVENT_TYPES;
use crate::api::request::{Body, StateFilter};
use crate::protocol::msgpack::{Reader, Texts};

const _: () = assert!(EVENT_TYPES.len() <= 32, "a bit for each");

/// A client's request for events, understood.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Whatever it may hear.
    pub choice: Choice,
    pub named: bool,
    pub data: bool,
    pub ids: bool,
    /// Whether it has asked for something of its own.
    pub chosen: bool,
    /// The names of dashboards by which it asked.
    pub names: Vec<Box<str>>,
    /// The names among these whose events never come.
    pub never: Vec<Box<str>>,
    pub snapshots: bool,
    /// The last id that it has had.
    pub last_id: Option<Box<str>>,
    /// The queue in the address of its stream.
    pub address: Option<Box<str>>,
}

impl Asked {
    /// All events of a queue, or of all, in the form of those who choose nothing.
    pub fn plain(queue: Option<&str>) -> Self {
        Self {
            choice: Choice::of_queue(queue),
            named: false,
            data: true,
            ids: false,
            chosen: false,
            names: Vec::new(),
            never: Vec::new(),
            snapshots: false,
            last_id: None,
            address: None,
        }
    }

    pub(super) fn form(&self, carrier: Carrier) -> Form {
        let Self { named, data, ids, chosen, .. } = *self;
        Form { carrier, named, data, ids, chosen }
    }
}

/// The fields of `Subscribe`, and of the query of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    pub queues: Texts<'a>,
    pub types: Option<StateFilter>,
    pub events: Texts<'a>,
    pub jobs: Texts<'a>,
    pub sample: u32,
    pub data: Option<bool>,
    pub named: bool,
    pub ids: bool,
    pub last_id: Option<&'a str>,
}

impl<'a> Wish<'a> {
    /// The fields of a command, if it is `Subscribe`.
    pub fn of(body: &Body<'a>) -> Option<Self> {
        let Body::Subscribe { queues, types, events, jobs, sample, data, named, ids, last_id } =
            *body
        else {
            return None;
        };
        Some(Self { queues, types, events, jobs, sample, data, named, ids, last_id })
    }

    /// Understands the fields for this carrier; refuses what makes no sense.
    pub fn read(&self, carrier: Carrier) -> Result<Asked, Error> {
        let by_names = !self.events.is_empty();
        if by_names && self.types.is_some() {
            return Err(ErrorKind::TypesAndEvents.into());
        }
        if let Some(index) = self.queues.iter().position(|queue| !is_pattern(queue)) {
            return Err(Error::event_queue(index));
        }
        let names: Vec<Box<str>> = self.events.iter().map(Into::into).collect();
        let meaning = meaning_of(&names)?;
        let kinds = match (by_names, self.types) {
            (true, _) => meaning.kinds,
            (false, Some(StateFilter(types))) => Kinds(types.into()),
            (false, None) => Kinds::ALL,
        };
        let mut choice = Choice::all();
        (choice.kinds, choice.sample) = (kinds, self.sample);
        let named = self.named || by_names;
        // Dashboards know their events without data.
        let data = self.data.unwrap_or(!named || carrier == Carrier::Sse);
        Ok(Asked {
            choice: choice.of_queues(self.queues.iter()).of_jobs(self.jobs.iter()),
            named,
            data,
            ids: self.ids,
            chosen: true,
            never: never_among(&names),
            names,
            snapshots: meaning.snapshots,
            last_id: self.last_id.map(Into::into),
            address: None,
        })
    }
}

/// A list of `Subscribe` that is empty. Where lists are optional such a one counts as absent, but who names nothing does not
/// mean everything.
pub(super) fn empty_list(frame: &[u8]) -> Option<Error> {
    let mut reader = Reader::new(frame);
    for _ in 0..reader.map().ok()?? {
        let key = reader.key().ok()?;
        let mut ahead = reader;
        let is_empty = ahead.array() == Ok(Some(0));
        match key {
            b"events" if is_empty => return Some(ErrorKind::EventsEmpty.into()),
            b"queues" if is_empty => return Some(Error::empty("queues")),
            _ => reader.pass().ok()?,
        }
    }
    None
}

/// The meaning of several names together.
pub(super) fn meaning_of(names: &[Box<str>]) -> Result<Meaning, Error> {
    let mut all = Meaning::default();
    let mut wrong = Vec::new();
    for name in names {
        match meaning(name) {
            Some(one) => {
                all.kinds = all.kinds.with(one.kinds);
                all.snapshots |= one.snapshots;
            }
            None => wrong.push(&**name),
        }
    }
    if wrong.is_empty() { Ok(all) } else { Err(Error::event_names(&wrong.join(", "))) }
}

/// Names for what never comes.
pub(super) fn never_among(names: &[Box<str>]) -> Vec<Box<str>> {
    let never = names.iter().filter(|name| meaning(name).is_some_and(Meaning::is_empty));
    never.cloned().collect()
}
