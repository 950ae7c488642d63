//! What can be asked for over HTTP: method and path to endpoint (`docs/protocol.md`, "HTTP").

use crate::api::commands::Op;
use crate::protocol::http1::body::Limit;
use crate::protocol::http1::head::Method;
use crate::protocol::http1::target;
use std::borrow::Cow;

/// One row of the table of endpoints.
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
}

/// Why a request leads to no endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Miss {
    /// There is nothing of this method and path.
    Unknown,
    /// There would be, but for an escape in the path that is none.
    BadPath,
}

/// One row of the table of routes.
#[derive(Debug)]
struct Route {
    method: Method,
    /// The segments of the path. One that begins with a colon stands for the name of a queue or job.
    path: &'static [&'static str],
    endpoint: Endpoint,
}

const fn route(method: Method, path: &'static [&'static str], endpoint: Endpoint) -> Route {
    Route { method, path, endpoint }
}

const fn stream(upgrade: bool, of_queue: bool) -> Endpoint {
    Endpoint::Stream { upgrade, of_queue }
}

/// Every route, the busiest first, since one is found by walking down the table. HEAD is taken where GET is, but
/// for the streams, which have no end to leave out; where it means something else, its row comes first.
const ROUTES: &[Route] = &[
    route(Method::Post, &["queues", ":queue", "jobs"], Endpoint::Push),
    route(Method::Head, &["queues", ":queue", "jobs"], Endpoint::PeekPull),
    route(Method::Get, &["queues", ":queue", "jobs"], Endpoint::Pull),
    route(Method::Post, &["jobs", ":id", "ack"], Endpoint::Ack),
    route(Method::Post, &["jobs", ":id", "fail"], Endpoint::Fail),
    route(Method::Get, &["jobs", ":id"], Endpoint::Get),
    route(Method::Delete, &["jobs", ":id"], Endpoint::Cancel),
    route(Method::Get, &["health"], Endpoint::Health),
    route(Method::Get, &["healthz"], Endpoint::Alive),
    route(Method::Get, &["live"], Endpoint::Alive),
    route(Method::Get, &["ready"], Endpoint::Ready),
    route(Method::Get, &["stats"], Endpoint::Stats),
    route(Method::Get, &["metrics"], Endpoint::Metrics),
    route(Method::Get, &["prometheus"], Endpoint::Prometheus),
    route(Method::Post, &["gc"], Endpoint::Gc),
    route(Method::Get, &["heapstats"], Endpoint::Heap),
    route(Method::Get, &["events"], stream(false, false)),
    route(Method::Get, &["events", "queues", ":queue"], stream(false, true)),
    route(Method::Get, &["ws"], stream(true, false)),
    route(Method::Get, &["ws", "queues", ":queue"], stream(true, true)),
];

/// Most segments of a path.
const SEGMENTS_MAX: usize = 3;

impl Route {
    /// Whether a request is meant; if so, the name in its path.
    fn fits<'a>(&self, method: Method, segments: &[&'a str]) -> Option<&'a str> {
        let is_stream = matches!(self.endpoint, Endpoint::Stream { .. });
        let by_head = method == Method::Head && self.method == Method::Get && !is_stream;
        if self.path.len() != segments.len() || !(self.method == method || by_head) {
            return None;
        }
        let mut name = "";
        for (own, given) in self.path.iter().zip(segments) {
            if own.starts_with(':') {
                name = given;
            } else if own != given {
                return None;
            }
        }
        Some(name)
    }
}

/// The endpoint of a method and path, with the queue or job in the path.
pub fn find(method: Method, path: &str) -> Result<(Endpoint, Cow<'_, str>), Miss> {
    if method == Method::Options {
        return Ok((Endpoint::Preflight, Cow::Borrowed("")));
    }
    let mut segments = [""; SEGMENTS_MAX];
    let mut count = 0;
    for segment in path.strip_prefix('/').ok_or(Miss::Unknown)?.split('/') {
        *segments.get_mut(count).ok_or(Miss::Unknown)? = segment;
        count += 1;
    }
    let found = ROUTES.iter().find_map(|route| {
        route.fits(method, &segments[..count]).map(|name| (route.endpoint, name))
    });
    let (endpoint, name) = found.ok_or(Miss::Unknown)?;
    Ok((endpoint, target::segment(name).map_err(|_| Miss::BadPath)?))
}

/// What an endpoint asks of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asks {
    /// A command whose first field the path names, and the body the others. An empty body may stand for none.
    Body {
        op: Op,
        /// Whether the body may be left out.
        may_lack: bool,
    },
    /// A command whose first field the path names.
    Path(Op),
    /// A command without fields.
    Plain(Op),
    /// Something that is no command.
    Nothing,
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
    asks: Asks,
    guard: Guard,
    /// Whether it counts against a client's limit. What supervisors and browsers ask on their own does not.
    limited: bool,
    /// Whether it tells how the server is: answered whatever the load.
    vital: bool,
    /// Whether its answer tells nothing of any job.
    needs_no_record: bool,
}

/// Most endpoints: guarded, limited, and about jobs.
const USUAL: Traits = Traits {
    asks: Asks::Nothing,
    guard: Guard::Always,
    limited: true,
    vital: false,
    needs_no_record: false,
};

const fn asks(asks: Asks) -> Traits {
    Traits { asks, ..USUAL }
}

impl Endpoint {
    /// A new endpoint says here what it is.
    const fn traits(self) -> Traits {
        let open = Traits { guard: Guard::Never, ..USUAL };
        match self {
            Self::Push => asks(Asks::Body { op: Op::Push, may_lack: false }),
            Self::Ack => asks(Asks::Body { op: Op::Ack, may_lack: true }),
            Self::Fail => asks(Asks::Body { op: Op::Fail, may_lack: true }),
            Self::Pull => asks(Asks::Path(Op::Pull)),
            Self::PeekPull => asks(Asks::Path(Op::IsPaused)),
            Self::Get => asks(Asks::Path(Op::GetJob)),
            Self::Cancel => asks(Asks::Path(Op::Cancel)),
            Self::Metrics => asks(Asks::Plain(Op::Metrics)),
            Self::Prometheus => {
                Traits { guard: Guard::AsMetrics, ..asks(Asks::Plain(Op::Prometheus)) }
            }
            Self::Stats | Self::Stream { .. } => USUAL,
            Self::Gc | Self::Heap => open,
            Self::Health => Traits { vital: true, ..open },
            Self::Alive | Self::Ready => {
                Traits { limited: false, vital: true, needs_no_record: true, ..open }
            }
            Self::Preflight => Traits { limited: false, ..open },
        }
    }

    /// What it asks of the server.
    pub fn asks(self) -> Asks {
        self.traits().asks
    }

    /// Whether a request needs a token, where there are tokens.
    pub fn is_guarded(self, metrics_are: bool) -> bool {
        match self.traits().guard {
            Guard::Always => true,
            Guard::Never => false,
            Guard::AsMetrics => metrics_are,
        }
    }

    /// Whether its body says anything. The bodies of others are read past: who may ask without a token gets no memory to
    /// fill.
    pub fn has_body(self) -> bool {
        matches!(self.asks(), Asks::Body { .. })
    }

    /// How long its body may be.
    pub fn body_limit(self) -> Limit {
        if self.has_body() { Limit::COMMAND } else { Limit::UNREAD }
    }

    /// Whether its answer tells nothing of any job.
    pub fn needs_no_record(self) -> bool {
        self.traits().needs_no_record
    }

    /// Whether it tells how the server is: answered whatever the load.
    pub fn is_vital(self) -> bool {
        self.traits().vital
    }

    /// Whether it counts against a client's limit.
    pub fn is_limited(self) -> bool {
        self.traits().limited
    }
}

/// The field of a command that a path names: the first, which it is refused without.
pub fn path_field(op: Op) -> &'static str {
    op.spec().fields.first().map_or("", |field| field.name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::protocol::decode::beginning::JSON_EXPANSION;
    use serde_json::Value;
    use std::collections::BTreeSet;

    const OPENAPI: &str = include_str!("../../../docs/openapi.yaml");
    const PAGE: &str = include_str!("../../../docs/protocol.md");

    /// Method, path as the page writes it, whether it needs a token: of all routes but HEAD, which has no
    /// rows in documents, and the preflight.
    fn routes() -> BTreeSet<(&'static str, String, &'static str)> {
        let rows = ROUTES.iter().filter(|route| route.method != Method::Head).map(|route| {
            let method = match route.method {
                Method::Get => "GET",
                Method::Post => "POST",
                Method::Delete => "DELETE",
                other => panic!("no name for {other:?}"),
            };
            let [open, guarded] = [false, true].map(|metrics| route.endpoint.is_guarded(metrics));
            let token = match (open, guarded) {
                (true, true) => "yes",
                (false, false) => "no",
                _ => "if the setting says so",
            };
            (method, format!("/{}", route.path.join("/")), token)
        });
        rows.collect()
    }

    #[test]
    fn the_page_has_every_route_and_no_other() {
        let (_, below) = PAGE.split_once("\n| method and path |").unwrap();
        let (table, _) = below.split_once("\n\n").unwrap();
        let mut on_page = BTreeSet::new();
        for line in table.lines().skip(2) {
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            for route in cells[0].split('`').skip(1).step_by(2) {
                let Some((method, path)) = route.split_once(' ') else {
                    assert_eq!((route, cells[1]), ("OPTIONS", "no"));
                    continue;
                };
                on_page.insert((method, path.to_owned(), cells[1]));
            }
        }
        assert_eq!(on_page, routes());
    }

    #[test]
    fn the_openapi_document_has_every_route_and_no_other() {
        let document: Value = serde_saphyr::from_str(OPENAPI).unwrap();
        assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
        let usual = &document["security"];
        let mut in_document = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let security = operation.get("security").unwrap_or(usual).as_array().unwrap();
                let method = match method.as_str() {
                    "get" => "GET",
                    "post" => "POST",
                    "delete" => "DELETE",
                    "options" => {
                        assert_eq!((path.as_str(), security.len()), ("/{path}", 0));
                        continue;
                    }
                    "parameters" => continue,
                    other => panic!("{other} {path}"),
                };
                let path = path.replace('{', ":").replace('}', "");
                let token = ["no", "yes", "if the setting says so"][security.len()];
                in_document.insert((method, path, token));
            }
        }
        assert_eq!(in_document, routes());
    }

    #[test]
    fn no_body_may_be_longer_than_its_command_can_need_as_text() {
        for route in ROUTES {
            let limit = route.endpoint.body_limit();
            let Asks::Body { op, .. } = route.endpoint.asks() else {
                assert_eq!(limit, Limit::UNREAD, "{route:?}");
                continue;
            };
            let spec = op.spec();
            assert!(limit.bytes() <= spec.bytes_max * JSON_EXPANSION, "{}", spec.name);
        }
    }

    #[test]
    fn a_path_names_the_field_that_its_command_needs() {
        for route in ROUTES {
            let named = route.path.iter().find_map(|segment| segment.strip_prefix(':'));
            match route.endpoint.asks() {
                Asks::Body { op, .. } | Asks::Path(op) => {
                    assert_eq!(named, Some(path_field(op)), "{route:?}");
                    assert!(op.spec().fields[0].required, "{route:?}");
                }
                Asks::Plain(_) => assert_eq!(named, None, "{route:?}"),
                Asks::Nothing => {}
            }
        }
    }

    #[test]
    fn every_route_is_found_by_its_path_and_head_where_get_is() {
        for route in ROUTES {
            let path = format!("/{}", route.path.join("/"));
            let name = route.path.iter().find(|segment| segment.starts_with(':')).unwrap_or(&"");
            let expected = Ok((route.endpoint, Cow::Borrowed(*name)));
            assert_eq!(find(route.method, &path), expected);
            assert_eq!(find(Method::Other, &path), Err(Miss::Unknown));
            assert_eq!(find(route.method, &format!("{path}/more")), Err(Miss::Unknown));
            let by_head = find(Method::Head, &path).map(|(endpoint, _)| endpoint);
            match route.endpoint {
                Endpoint::Pull => assert_eq!(by_head, Ok(Endpoint::PeekPull)),
                Endpoint::Stream { .. } => assert_eq!(by_head, Err(Miss::Unknown)),
                endpoint if route.method == Method::Get => assert_eq!(by_head, Ok(endpoint)),
                _ => {}
            }
        }
    }
}
