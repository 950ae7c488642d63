//! Routes by method and path (`docs/protocol.md`, "HTTP"). The routes that are no more than commands are in
//! [`super::aliases`], and each command has one by its name.

use super::aliases::ALIASES;
use super::route::{Asks, Endpoint, Input, Route, Values, command, route};
use crate::api::commands::{COMMANDS, Op};
use crate::protocol::http1::head::Method;
use crate::protocol::http1::target;
use std::fmt::Write;

/// Why a request leads to no endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Miss {
    /// There is nothing of this path.
    Unknown,
    /// There is something of this path, by another method.
    Method,
    /// There would be, but for an escape in the path that is none.
    BadPath,
    /// There is no command of this name.
    Command,
    /// The command is about a connection.
    Connection,
}

const fn stream(upgrade: bool, of_queue: bool) -> Endpoint {
    Endpoint::Stream { upgrade, of_queue }
}

/// Every route that is more than a command, the busiest first, since one is found by walking down the tables. HEAD is
/// taken where GET is, but for the streams, which have no end to leave out; where it means something else, its row
/// comes first.
const ROUTES: &[Route] = &[
    command(
        Method::Post,
        &["queues", ":queue", "jobs"],
        Endpoint::Push,
        Asks::of(Op::Push, Input::Body),
    ),
    command(
        Method::Head,
        &["queues", ":queue", "jobs"],
        Endpoint::PeekPull,
        Asks::of(Op::IsPaused, Input::Nothing),
    ),
    command(
        Method::Get,
        &["queues", ":queue", "jobs"],
        Endpoint::Pull,
        Asks::of(Op::Pull, Input::Query).as_http_worker(),
    ),
    command(
        Method::Post,
        &["jobs", ":id", "ack"],
        Endpoint::Ack,
        Asks::of(Op::Ack, Input::MaybeBody),
    ),
    command(
        Method::Post,
        &["jobs", ":id", "fail"],
        Endpoint::Fail,
        Asks::of(Op::Fail, Input::MaybeBody),
    ),
    command(Method::Get, &["jobs", ":id"], Endpoint::Get, Asks::of(Op::GetJob, Input::Nothing)),
    command(
        Method::Delete,
        &["jobs", ":id"],
        Endpoint::Cancel,
        Asks::of(Op::Cancel, Input::Nothing),
    ),
    route(Method::Get, &["health"], Endpoint::Health),
    route(Method::Get, &["healthz"], Endpoint::Alive),
    route(Method::Get, &["live"], Endpoint::Alive),
    route(Method::Get, &["ready"], Endpoint::Ready),
    route(Method::Get, &["stats"], Endpoint::Stats),
    command(Method::Get, &["metrics"], Endpoint::Metrics, Asks::of(Op::Metrics, Input::Nothing)),
    command(
        Method::Get,
        &["prometheus"],
        Endpoint::Prometheus,
        Asks::of(Op::Prometheus, Input::Query),
    ),
    route(Method::Post, &["ui", "login"], Endpoint::Login),
    route(Method::Post, &["ui", "logout"], Endpoint::Logout),
    route(Method::Post, &["gc"], Endpoint::Gc),
    route(Method::Get, &["heapstats"], Endpoint::Heap),
    route(Method::Get, &["events"], stream(false, false)),
    route(Method::Get, &["events", "queues", ":queue"], stream(false, true)),
    route(Method::Get, &["ws"], stream(true, false)),
    route(Method::Get, &["ws", "queues", ":queue"], stream(true, true)),
];

/// The first segment of the path of a command by its name.
const NAMED: &str = "v1";

static NAMED_PATHS: [[&str; 2]; COMMANDS.len()] = {
    let mut paths = [[NAMED, ""]; COMMANDS.len()];
    let mut at = 0;
    while at < COMMANDS.len() {
        paths[at][1] = COMMANDS[at].name;
        at += 1;
    }
    paths
};

/// Every command by its name, in the order of [`COMMANDS`]: the body has its fields.
static BY_NAME: [Route; COMMANDS.len()] = {
    let mut routes = [route(Method::Post, &[], Endpoint::Command); COMMANDS.len()];
    let mut at = 0;
    while at < COMMANDS.len() {
        let asks = Asks::of(COMMANDS[at].op, Input::MaybeBody);
        let asks = match asks.op {
            Op::Pull | Op::PullBatch => asks.as_http_worker(),
            _ => asks,
        };
        routes[at] = command(Method::Post, &NAMED_PATHS[at], Endpoint::Command, asks);
        at += 1;
    }
    routes
};

/// Whether a command is about the connection that it comes by, so that a request cannot give it.
fn is_of_connection(op: Op) -> bool {
    matches!(
        op,
        Op::Hello
            | Op::Auth
            | Op::Watch
            | Op::Unwatch
            | Op::SubscribeEvents
            | Op::UnsubscribeEvents
            | Op::Subscribe
            | Op::Unsubscribe
    )
}

fn find_by_name(method: Method, name: &str) -> Result<(&'static Route, Values<'_>), Miss> {
    let name = target::segment(name).map_err(|_| Miss::BadPath)?;
    let route = BY_NAME.iter().find(|route| route.path[1] == name).ok_or(Miss::Command)?;
    if route.asks.is_some_and(|asks| is_of_connection(asks.op)) {
        return Err(Miss::Connection);
    }
    if route.takes(method) { Ok((route, Values::default())) } else { Err(Miss::Method) }
}

/// `OPTIONS` on any path.
static PREFLIGHT: Route = route(Method::Options, &[], Endpoint::Preflight);

/// Most segments of a path.
const SEGMENTS_MAX: usize = 5;

fn all() -> impl Iterator<Item = &'static Route> {
    ROUTES.iter().chain(ALIASES)
}

/// The segments of a path.
fn segments(path: &str) -> Option<([&str; SEGMENTS_MAX], usize)> {
    let (mut segments, mut count) = ([""; SEGMENTS_MAX], 0);
    for segment in path.strip_prefix('/')?.split('/') {
        *segments.get_mut(count)? = segment;
        count += 1;
    }
    Some((segments, count))
}

/// The route of a method and path, with the values in the path.
pub fn find(method: Method, path: &str) -> Result<(&'static Route, Values<'_>), Miss> {
    if method == Method::Options {
        return Ok((&PREFLIGHT, Values::default()));
    }
    let (segments, count) = segments(path).ok_or(Miss::Unknown)?;
    let segments = &segments[..count];
    if let [NAMED, name] = segments {
        return find_by_name(method, name);
    }
    let mut miss = Miss::Unknown;
    for route in all() {
        let Some(values) = route.fits(segments) else { continue };
        if !route.takes(method) {
            miss = Miss::Method;
            continue;
        }
        let [one, other] = values.map(|value| target::segment(value).map_err(|_| Miss::BadPath));
        return Ok((route, [one?, other?]));
    }
    Err(miss)
}

/// The methods that a path has, as the header `Allow`, with the end of its line.
pub fn allowed(path: &str) -> String {
    let mut line = "Allow: ".to_owned();
    let Some((segments, count)) = segments(path) else { return String::new() };
    let methods = [
        (Method::Get, "GET"),
        (Method::Head, "HEAD"),
        (Method::Post, "POST"),
        (Method::Put, "PUT"),
        (Method::Delete, "DELETE"),
    ];
    for (method, name) in methods {
        let mut fitting =
            all().chain(&BY_NAME).filter(|route| route.fits(&segments[..count]).is_some());
        if fitting.any(|route| route.takes(method)) {
            // Writing to a string cannot fail.
            let _ = write!(line, "{name}, ");
        }
    }
    line.push_str("OPTIONS\r\n");
    line
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::route::VALUES_MAX;
    use super::*;
    use crate::protocol::decode::beginning::JSON_EXPANSION;
    use crate::protocol::http1::body::Limit;
    use serde_json::{Value, json};
    use std::borrow::Cow;
    use std::collections::BTreeSet;

    const OPENAPI: &str = include_str!("../../../docs/openapi.yaml");
    const PAGE: &str = include_str!("../../../docs/protocol.md");

    /// Method, path as the page writes it, whether it needs a token: of all routes but HEAD, which has no
    /// rows in documents, and the preflight.
    fn routes() -> BTreeSet<(&'static str, String, &'static str)> {
        let rows = all().filter(|route| route.method != Method::Head).map(|route| {
            let [open, guarded] = [false, true].map(|metrics| route.endpoint.is_guarded(metrics));
            let token = match (open, guarded) {
                (true, true) => "yes",
                (false, false) => "no",
                _ => "if the setting says so",
            };
            (name_of(route.method), format!("/{}", route.path.join("/")), token)
        });
        rows.collect()
    }

    fn name_of(method: Method) -> &'static str {
        match method {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
            other => panic!("no name for {other:?}"),
        }
    }

    /// The operations of the document but the preflight: method, path as in the table, and what is said of it.
    fn operations(document: &Value) -> Vec<(String, String, &Value, &Value)> {
        let mut operations = Vec::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                if method == "options" {
                    assert_eq!((path.as_str(), &operation["security"]), ("/{path}", &json!([])));
                } else if path == "/v1/{command}" {
                    let by_name = COMMANDS.iter().filter(|spec| !is_of_connection(spec.op));
                    let names: Vec<&str> = by_name.map(|spec| spec.name).collect();
                    let parameter = &operation["parameters"][0];
                    assert_eq!(parameter["schema"]["enum"], json!(names), "every command");
                } else if method != "parameters" {
                    let path = path.replace('{', ":").replace('}', "");
                    operations.push((method.to_uppercase(), path, operation, item));
                }
            }
        }
        operations
    }

    #[test]
    fn the_page_has_every_route_and_no_other() {
        let mut on_page = BTreeSet::new();
        for below in PAGE.split("\n| method and path |").skip(1) {
            let (table, _) = below.split_once("\n\n").unwrap();
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
        }
        assert_eq!(on_page, routes());
    }

    /// The rows of the table of aliases say which command a route is.
    #[test]
    fn the_page_names_the_command_of_every_alias() {
        let (_, below) = PAGE.split_once("\n| method and path | token | command |").unwrap();
        let (table, _) = below.split_once("\n\n").unwrap();
        let mut on_page = BTreeSet::new();
        for line in table.lines().skip(2) {
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            for route in cells[0].split('`').skip(1).step_by(2) {
                on_page.insert((route.to_owned(), cells[2].trim_matches('`').to_owned()));
            }
        }
        let aliases = ALIASES.iter().map(|route| {
            let name = format!("{} /{}", name_of(route.method), route.path.join("/"));
            (name, route.asks.unwrap().op.spec().name.to_owned())
        });
        assert_eq!(on_page, aliases.collect());
    }

    /// Commands that no route stands for, each with the reason. A new command has a route, or a row here.
    const WITHOUT_ROUTE: &[(Op, &str)] = &[
        (Op::Hello, "about a connection; over HTTP the shapes are those of version 2"),
        (Op::Auth, "about a connection; a request has its token with it"),
        (Op::Watch, "needs a connection to which samples can be sent"),
        (Op::Unwatch, "as Watch"),
        (Op::SubscribeEvents, "GET /events and GET /ws are streams of events"),
        (Op::UnsubscribeEvents, "as SubscribeEvents; a stream ends with its connection"),
        (Op::Subscribe, "the query of GET /events and GET /ws says the same"),
        (Op::Unsubscribe, "as UnsubscribeEvents"),
        (Op::Stats, "GET /stats has it, with memory and collections beside"),
        (Op::TrimEvents, "does nothing: no event is stored"),
        (Op::BackupPoint, "is of use to a program on this machine that copies files: corq backup"),
    ];

    #[test]
    fn every_command_has_a_route_or_a_reason_to_have_none_and_the_page_says_so() {
        let (_, below) = PAGE.split_once("\nThese commands have no route of that kind: ").unwrap();
        let (told, _) = below.split_once("\n\n").unwrap();
        for command in COMMANDS {
            let is_routed = all().any(|route| route.asks.is_some_and(|asks| asks.op == command.op));
            let reason = WITHOUT_ROUTE.iter().find(|(op, _)| *op == command.op);
            assert!(
                is_routed != reason.is_some(),
                "{}: give it a row in aliases.rs, or a reason to have none ({reason:?})",
                command.name
            );
            let is_told = told.contains(&format!("`{}`", command.name));
            assert_eq!(is_told, reason.is_some(), "{}", command.name);
        }
        assert!(WITHOUT_ROUTE.iter().all(|(_, reason)| reason.len() > 5));
    }

    #[test]
    fn every_command_that_is_not_about_a_connection_has_a_path_by_its_name() {
        for spec in COMMANDS {
            let path = format!("/v1/{}", spec.name);
            let found = find(Method::Post, &path).map(|(route, _)| route.asks.unwrap().op);
            let expected =
                if is_of_connection(spec.op) { Err(Miss::Connection) } else { Ok(spec.op) };
            assert_eq!(found, expected, "{path}");
            if expected.is_ok() {
                assert_eq!(find(Method::Get, &path).map(|_| ()), Err(Miss::Method));
                assert_eq!(allowed(&path), "Allow: POST, OPTIONS\r\n");
            }
        }
        assert_eq!(find(Method::Post, "/v1/Pushh").map(|_| ()), Err(Miss::Command));
        assert_eq!(find(Method::Post, "/v1").map(|_| ()), Err(Miss::Unknown));
    }

    #[test]
    fn the_openapi_document_has_every_route_and_no_other() {
        let document: Value = serde_saphyr::from_str(OPENAPI).unwrap();
        assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
        let in_document: BTreeSet<(String, String, &str)> = operations(&document)
            .into_iter()
            .map(|(method, path, operation, _)| {
                let security = operation.get("security").unwrap_or(&document["security"]);
                let token = ["no", "yes", "if the setting says so"];
                (method, path, token[security.as_array().unwrap().len()])
            })
            .collect();
        let routes =
            routes().into_iter().map(|(method, path, token)| (method.to_owned(), path, token));
        assert_eq!(in_document, routes.collect());
    }

    /// The fields of an alias, by their own names, and the command: `tests/protocol` holds their bounds against the table
    /// of commands.
    #[test]
    fn the_openapi_document_gives_every_alias_its_command_and_fields() {
        let document: Value = serde_saphyr::from_str(OPENAPI).unwrap();
        let operations = operations(&document);
        for route in ALIASES {
            let path = format!("/{}", route.path.join("/"));
            let is_meant = |(method, at, ..): &&(String, String, &Value, &Value)| {
                method == name_of(route.method) && *at == path
            };
            let (_, _, operation, item) = operations.iter().find(is_meant).unwrap();
            let asks = route.asks.unwrap();
            assert_eq!(operation["x-command"], asks.op.spec().name, "{path}");
            let lists = [&item["parameters"], &operation["parameters"]];
            let parameters = lists.into_iter().filter_map(Value::as_array).flatten();
            let resolved = parameters.map(|parameter| match parameter["$ref"].as_str() {
                Some(path) => document.pointer(&path[1..]).unwrap(),
                None => parameter,
            });
            let (mut in_path, mut in_query) = (BTreeSet::new(), BTreeSet::new());
            for parameter in resolved {
                let name = parameter["name"].as_str().unwrap();
                let is_in_path = parameter["in"] == "path";
                if is_in_path {
                    in_path.insert(name)
                } else {
                    in_query.insert(name)
                };
            }
            assert_eq!(in_path, route.path_fields().collect(), "{path}");
            let fields: BTreeSet<&str> = route.open_fields().map(|field| field.name).collect();
            let body = &operation["requestBody"];
            if asks.input.is_body() && !fields.is_empty() {
                assert!(in_query.is_empty(), "{path}");
                let schema = &body["content"]["application/json"]["schema"];
                let properties = schema["properties"].as_object().unwrap();
                let names: BTreeSet<&str> = properties.keys().map(String::as_str).collect();
                assert_eq!(names, fields, "{path}");
                assert_eq!(body["required"] == true, !asks.body_may_lack(route), "{path}");
            } else {
                assert_eq!((in_query, body), (fields, &Value::Null), "{path}");
            }
        }
    }

    #[test]
    fn no_body_may_be_longer_than_its_command_can_need_as_text() {
        for route in all() {
            let limit = route.body_limit();
            let Some(asks) = route.asks.filter(|asks| asks.input.is_body()) else {
                assert_eq!(limit, Limit::UNREAD, "{route:?}");
                continue;
            };
            let spec = asks.op.spec();
            assert!(limit.bytes() <= spec.bytes_max * JSON_EXPANSION, "{}", spec.name);
        }
    }

    #[test]
    fn what_a_row_names_is_a_field_of_its_command() {
        for route in all() {
            let Some(asks) = route.asks else {
                assert!(route.endpoint != Endpoint::Command, "{route:?}");
                continue;
            };
            let fields = asks.op.spec().fields;
            let is_field = |name: &str| fields.iter().any(|field| field.name == name);
            for name in route.path_fields() {
                assert!(is_field(name), "{route:?}: {name}");
            }
            let given = asks.fixed.iter().chain(asks.presets);
            for (name, _) in given {
                assert!(is_field(name), "{route:?}: {name}");
            }
            for (name, field) in asks.synonyms {
                assert!(is_field(field) && !is_field(name), "{route:?}: {name}");
            }
            if let Input::QueryInto(name) | Input::BodyOf(name) = asks.input {
                assert!(is_field(name), "{route:?}: {name}");
            }
            let reaches = asks.input != Input::Nothing;
            let in_path = |name: &str| route.path_fields().any(|field| field == name);
            for field in fields.iter().filter(|field| field.required) {
                assert!(reaches || in_path(field.name), "{route:?} lacks {}", field.name);
            }
        }
    }

    #[test]
    fn every_route_is_found_by_its_path_and_head_where_get_is() {
        for route in all() {
            let path = format!("/{}", route.path.join("/"));
            let found = |method, path: &str| match find(method, path) {
                Ok((route, values)) => Ok((std::ptr::from_ref(route), values.map(Cow::into_owned))),
                Err(miss) => Err(miss),
            };
            let mut values = <[String; VALUES_MAX]>::default();
            for (value, name) in values.iter_mut().zip(route.path_fields()) {
                *value = format!(":{name}");
            }
            assert_eq!(found(route.method, &path), Ok((std::ptr::from_ref(route), values)));
            assert_eq!(found(Method::Other, &path), Err(Miss::Method));
            assert_eq!(found(route.method, &format!("{path}/more/and/more")), Err(Miss::Unknown));
            let by_head = find(Method::Head, &path).map(|(route, _)| route.endpoint);
            match route.endpoint {
                Endpoint::Pull => assert_eq!(by_head, Ok(Endpoint::PeekPull)),
                Endpoint::Stream { .. } => assert_eq!(by_head, Err(Miss::Method)),
                endpoint if route.method == Method::Get => assert_eq!(by_head, Ok(endpoint)),
                _ => {}
            }
        }
    }

    #[test]
    fn a_path_tells_its_methods() {
        for (path, methods) in [
            ("/queues/q/jobs", "GET, HEAD, POST, OPTIONS"),
            ("/queues/q/rate-limit", "PUT, DELETE, OPTIONS"),
            ("/ws", "GET, OPTIONS"),
        ] {
            assert_eq!(allowed(path), format!("Allow: {methods}\r\n"));
        }
    }
}
