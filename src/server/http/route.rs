//! Routes: a method and a path, and what they ask for: a command, with where its fields come from, or something that
//! only HTTP has.

use crate::api::commands::{FieldSpec, Kind, Op};
use crate::api::spelling;
use crate::protocol::decode::beginning::JSON_EXPANSION;
use crate::protocol::http1::body::Limit;
use crate::protocol::http1::head::Method;
use crate::protocol::json::{FieldFate, FieldNames};
use std::borrow::Cow;

/// A row of the table of endpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Endpoint {
    /// `POST /queues/:queue/jobs`.
    Push,
    /// `GET /queues/:queue/jobs`.
    Pull,
    /// `HEAD /queues/:queue/jobs`: takes no job, as asking for no answer must not cost one.
    PeekPull,
    /// `GET /jobs/:id`.
    Get,
    /// `DELETE /jobs/:id`.
    Cancel,
    /// `POST /jobs/:id/ack`.
    Ack,
    /// `POST /jobs/:id/fail`.
    Fail,
    /// `GET /health`.
    Health,
    /// `GET /healthz`, `GET /live`.
    Alive,
    /// `GET /ready`.
    Ready,
    /// `GET /stats`.
    Stats,
    /// `GET /metrics`.
    Metrics,
    /// `GET /prometheus`.
    Prometheus,
    /// A route that is no more than a command.
    Command,
    /// `POST /ui/login`.
    Login,
    /// `POST /ui/logout`.
    Logout,
    /// `POST /gc`.
    Gc,
    /// `GET /heapstats`.
    Heap,
    /// `GET /events`, `/ws`, and the same under `/queues/:queue`.
    Stream {
        /// Over WebSocket.
        upgrade: bool,
        /// Of one queue rather than of all.
        of_queue: bool,
    },
    /// `OPTIONS` on any path.
    Preflight,
    /// The dashboard: its page and its files.
    Page,
    /// The WebSocket of the dashboard, which gives commands and gets no events.
    PageSocket,
}

/// A row of a table of routes.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub(super) method: Method,
    /// The segments of the path. One that begins with a colon stands for the value of that field.
    pub(super) path: &'static [&'static str],
    pub(super) endpoint: Endpoint,
    /// The command that the route stands for.
    pub(super) asks: Option<Asks>,
}

/// Most values in one path.
pub(super) const VALUES_MAX: usize = 2;

/// The values in a path, in its order.
pub type Values<'a> = [Cow<'a, str>; VALUES_MAX];

pub(super) const fn route(
    method: Method,
    path: &'static [&'static str],
    endpoint: Endpoint,
) -> Route {
    Route { method, path, endpoint, asks: None }
}

/// A route that is a command.
pub(super) const fn command(
    method: Method,
    path: &'static [&'static str],
    endpoint: Endpoint,
    asks: Asks,
) -> Route {
    Route { method, path, endpoint, asks: Some(asks) }
}

impl Route {
    /// Whether a request of this method is meant. HEAD is where GET is, but for streams.
    pub(super) fn takes(&self, method: Method) -> bool {
        let is_stream = matches!(self.endpoint, Endpoint::Stream { .. });
        self.method == method || method == Method::Head && self.method == Method::Get && !is_stream
    }

    /// Whether a path is meant; if so, the values in it.
    pub(super) fn fits<'a>(&self, segments: &[&'a str]) -> Option<[&'a str; VALUES_MAX]> {
        if self.path.len() != segments.len() {
            return None;
        }
        let (mut values, mut count) = ([""; VALUES_MAX], 0);
        for (own, given) in self.path.iter().zip(segments) {
            if own.starts_with(':') {
                *values.get_mut(count)? = given;
                count += 1;
            } else if own != given {
                return None;
            }
        }
        Some(values)
    }

    /// The fields whose values are in the path, in its order.
    pub(super) fn path_fields(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.path.iter().filter_map(|segment| segment.strip_prefix(':'))
    }

    /// Whether its body says anything. The bodies of others are read past: who may ask without a token gets no memory to
    /// fill.
    pub fn has_body(&self) -> bool {
        self.asks.is_some_and(|asks| asks.input.is_body()) || self.endpoint == Endpoint::Login
    }

    /// How long its body may be.
    pub fn body_limit(&self) -> Limit {
        match self.asks {
            Some(asks) if asks.input.is_body() => asks.body_limit(),
            _ => Limit::UNREAD,
        }
    }
}

/// The owner of all jobs that are pulled over HTTP: with one they come with a token.
const OWNER: &str = "http";

/// Where the fields of a command come from that neither the path nor the row says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// There are none.
    Nothing,
    /// From the query.
    Query,
    /// From the query; those of an object are parameters of their own.
    QueryInto(&'static str),
    /// From the body, which is needed.
    Body,
    /// From the body, if there is one.
    MaybeBody,
    /// The body is the object that this field holds, or has it under its name.
    BodyOf(&'static str),
}

impl Input {
    /// Whether a body says anything.
    pub fn is_body(self) -> bool {
        matches!(self, Self::Body | Self::MaybeBody | Self::BodyOf(_))
    }
}

/// The value of a field that a row gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Given {
    /// A text.
    Text(&'static str),
    /// The boolean true.
    True,
    /// The boolean false.
    False,
    /// A whole number.
    Number(u64),
}

/// Command that a route asks for, and where its fields come from.
#[derive(Clone, Copy, Debug)]
pub struct Asks {
    pub op: Op,
    pub input: Input,
    /// Fields that have these values, whatever a request says.
    pub fixed: &'static [(&'static str, Given)],
    /// Fields that have these values if a request does not say them.
    pub presets: &'static [(&'static str, Given)],
    /// Further names of fields.
    pub synonyms: &'static [(&'static str, &'static str)],
}

/// Values that the path, or the row, gives are the first of a frame. Whatever a request says of the command itself, and of
/// these, is passed over.
const OF_THE_FRAME: [&str; 2] = ["cmd", "reqId"];

impl Asks {
    pub(super) const fn of(op: Op, input: Input) -> Self {
        Self { op, input, fixed: &[], presets: &[], synonyms: &[] }
    }

    /// A pull whose jobs stay with their tokens when the connection goes: over HTTP a connection does not represent a
    /// worker.
    pub(super) const fn as_http_worker(self) -> Self {
        Self { fixed: &[("owner", Given::Text(OWNER)), ("detach", Given::True)], ..self }
    }

    pub(super) const fn with_fixed(self, fixed: &'static [(&'static str, Given)]) -> Self {
        Self { fixed, ..self }
    }

    pub(super) const fn with_presets(self, presets: &'static [(&'static str, Given)]) -> Self {
        Self { presets, ..self }
    }

    pub(super) const fn also(self, synonyms: &'static [(&'static str, &'static str)]) -> Self {
        Self { synonyms, ..self }
    }

    /// How long a body may be: as long as the command can need, in steps.
    pub fn body_limit(&self) -> Limit {
        let needs = self.op.spec().bytes_max * JSON_EXPANSION;
        if needs < Limit::COMMAND.bytes() { Limit::SHORT } else { Limit::COMMAND }
    }

    /// Whether a request may come without a body: no field is needed that only a body can say.
    #[cfg(test)]
    pub(super) fn body_may_lack(&self, route: &Route) -> bool {
        let has_preset = |name| self.presets.iter().any(|(field, _)| *field == name);
        self.input == Input::MaybeBody
            && route.open_fields().all(|field| !field.required || has_preset(field.name))
    }

    fn fields(&self) -> &'static [FieldSpec] {
        self.op.spec().fields
    }
}

impl Route {
    /// Whether the path or the row gives a field its value.
    fn gives(&self, asks: &Asks, name: &str) -> bool {
        self.path_fields().any(|field| field == name)
            || asks.fixed.iter().any(|(field, _)| *field == name)
    }

    /// The fields that a request may say beside its path: in its query or in its body.
    pub(super) fn open_fields(&self) -> impl Iterator<Item = &'static FieldSpec> + '_ {
        let asks = self.asks.iter();
        asks.filter(|asks| asks.input != Input::Nothing).flat_map(move |asks| {
            let outer = asks.fields().iter().filter(move |field| !self.gives(asks, field.name));
            let (hidden, inner) = match asks.input {
                Input::QueryInto(name) => {
                    let kind = asks.fields().iter().find(|field| field.name == name);
                    (name, kind.map_or(&[][..], |field| field.kind.fields()))
                }
                _ => ("", &[][..]),
            };
            outer.filter(move |field| field.name != hidden).chain(inner)
        })
    }

    /// Whether a field is one of the command itself rather than of an object in it.
    pub(super) fn is_of_command(&self, field: &FieldSpec) -> bool {
        self.asks.is_some_and(|asks| asks.fields().iter().any(|one| one.name == field.name))
    }

    /// All names by which a request may say a field.
    fn open_names(&self) -> impl Iterator<Item = &'static str> + '_ {
        let synonyms = self.asks.iter().flat_map(|asks| asks.synonyms);
        self.open_fields().map(|field| field.name).chain(synonyms.map(|(name, _)| *name))
    }

    /// The field that a name stands for: itself, or as a further name.
    pub(super) fn field_of(&self, name: &str) -> Option<&'static FieldSpec> {
        let synonyms = self.asks.iter().flat_map(|asks| asks.synonyms);
        let name = synonyms.clone().find(|(one, _)| *one == name).map_or(name, |(_, field)| field);
        self.open_fields().find(|field| field.name == name)
    }

    /// The name that an unknown one seems to mean.
    pub(super) fn meant_by(&self, name: &str) -> Option<&'static str> {
        spelling::meant(name, self.open_names())
    }
}

impl FieldNames for Route {
    fn fate(&self, name: &[u8]) -> FieldFate {
        let (Some(asks), Ok(name)) = (&self.asks, std::str::from_utf8(name)) else {
            return FieldFate::Keep;
        };
        if OF_THE_FRAME.contains(&name) || self.gives(asks, name) {
            return FieldFate::LeaveOut;
        }
        match self.field_of(name) {
            Some(FieldSpec { kind: Kind::Traceparent | Kind::Tracestate, .. }) => FieldFate::Noted,
            Some(field) if field.name != name => FieldFate::Rename(field.name),
            // An unknown name in it is refused on every transport.
            Some(FieldSpec { kind: Kind::BulkFilter, .. }) => FieldFate::Keep,
            Some(field) if !field.kind.fields().is_empty() => {
                FieldFate::KeepWith(field.kind.fields())
            }
            Some(_) => FieldFate::Keep,
            None => FieldFate::Unknown,
        }
    }

    fn meant(&self, name: &[u8]) -> Option<&'static str> {
        self.meant_by(std::str::from_utf8(name).ok()?)
    }
}

/// When a request needs a token, where there are tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Guard {
    Always,
    Never,
    /// If the setting for metrics says so.
    AsMetrics,
}

/// All there is to know of an endpoint.
#[derive(Clone, Copy, Debug)]
struct Traits {
    guard: Guard,
    /// Whether it counts against a client's limit. What supervisors and browsers ask on their own does not.
    limited: bool,
    /// Whether it tells how the server is: answered whatever the load.
    vital: bool,
    /// Whether its answer tells nothing of any job.
    needs_no_record: bool,
}

/// Most endpoints: guarded, limited, and about jobs.
const USUAL: Traits =
    Traits { guard: Guard::Always, limited: true, vital: false, needs_no_record: false };

impl Endpoint {
    /// A new endpoint says here what it is.
    const fn traits(self) -> Traits {
        let open = Traits { guard: Guard::Never, ..USUAL };
        match self {
            Self::Push
            | Self::Ack
            | Self::Fail
            | Self::Pull
            | Self::PeekPull
            | Self::Get
            | Self::Cancel
            | Self::Metrics
            | Self::Command
            | Self::Stats
            | Self::PageSocket
            | Self::Stream { .. } => USUAL,
            // Leave Prometheus without a limit: a busy server has to be seen above all.
            Self::Prometheus => Traits { guard: Guard::AsMetrics, limited: false, ..USUAL },
            Self::Login | Self::Logout | Self::Gc | Self::Heap => open,
            Self::Health => Traits { vital: true, ..open },
            Self::Alive | Self::Ready => {
                Traits { limited: false, vital: true, needs_no_record: true, ..open }
            }
            Self::Preflight => Traits { limited: false, ..open },
            // Files that are the same for all, to be seen while the server is busy.
            Self::Page => Traits { limited: false, vital: true, needs_no_record: true, ..open },
        }
    }

    /// Whether a request needs a token, where there are tokens.
    pub fn is_guarded(self, metrics_are: bool) -> bool {
        match self.traits().guard {
            Guard::Always => true,
            Guard::Never => false,
            Guard::AsMetrics => metrics_are,
        }
    }

    /// Whether its answer tells nothing of any job.
    pub fn needs_no_record(self) -> bool {
        self.traits().needs_no_record
    }

    /// Whether it tells how the server is: answered whatever the load.
    pub fn is_vital(self) -> bool {
        self.traits().vital
    }

    /// Whether only pages of this server and of listed origins may ask for it.
    pub fn is_for_pages(self) -> bool {
        matches!(self, Self::Login | Self::Logout)
    }

    /// Whether it counts against a client's limit.
    pub fn is_limited(self) -> bool {
        self.traits().limited
    }
}
