//! The dashboard on the port of HTTP: which requests are for it, and what they get. Knows heads of requests, no sockets.

use super::route::{Endpoint, Route, Values, route};
use super::routes::{self, Miss};
use crate::api::error::ErrorKind;
use crate::protocol::http1::head::{Head, Method};
use crate::server::ui::answer::PageAnswer;
use crate::server::ui::settings::{Place, Settings};

/// The name of no queue: a stream of its events gets none.
pub(super) const NO_QUEUE: &str = "";

/// Where the routes of logins are, wherever the page is.
const OWN_PATH: &str = "/ui";

/// Path below the page for the WebSocket of the page.
const SOCKET: &str = "ws";
const POSTED: [(&str, &str); 2] = [("login", "/ui/login"), ("logout", "/ui/logout")];

/// All of the page that is read.
static PAGE_ROUTE: Route = route(Method::Get, &[], Endpoint::Page);

/// The route of the page's WebSocket.
static SOCKET_ROUTE: Route = route(Method::Get, &[], Endpoint::PageSocket);

type Found<'a> = Result<(&'static Route, Values<'a>), Miss>;

/// The route of a method and path, be it of the page or of the server.
pub(super) fn find<'a>(ui: Option<&Settings>, method: Method, path: &'a str) -> Found<'a> {
    let Some((ui, below)) = ui.and_then(|ui| Some((ui, ui.within(path)?))) else {
        return routes::find(method, path);
    };
    let of_page = |route| Ok((route, Values::default()));
    match (method, below) {
        (Method::Get, Place::Below(SOCKET)) => of_page(&SOCKET_ROUTE),
        (Method::Get | Method::Head, _) => of_page(&PAGE_ROUTE),
        (Method::Post, Place::Below(below)) if ui.path() != OWN_PATH => {
            match POSTED.iter().find(|(name, _)| *name == below) {
                Some((_, path)) => routes::find(method, path),
                None => Err(Miss::Method),
            }
        }
        _ => match routes::find(method, path) {
            Err(Miss::Unknown) => Err(Miss::Method),
            found => found,
        },
    }
}

/// The methods that a path has, as the header `Allow`, with the end of its line.
pub(super) fn allowed(ui: Option<&Settings>, path: &str) -> String {
    let Some(below) = ui.and_then(|ui| ui.within(path)) else { return routes::allowed(path) };
    let is_posted = POSTED.iter().any(|(name, _)| below == Place::Below(name));
    let posted = if is_posted { "POST, " } else { "" };
    format!("Allow: GET, HEAD, {posted}OPTIONS\r\n")
}

/// The answer to a request for the page or a file of it; `None` for any other request.
pub(super) fn answer(
    ui: Option<&Settings>,
    route: &Route,
    path: &str,
    head: &Head<'_>,
) -> Result<Option<Box<PageAnswer>>, ErrorKind> {
    let Some(ui) = ui.filter(|_| route.endpoint == Endpoint::Page) else { return Ok(None) };
    let place = ui.within(path).unwrap_or(Place::Bare);
    let answer = PageAnswer::of(ui, place, head).ok_or(ErrorKind::PathNotFound)?;
    Ok(Some(Box::new(answer)))
}
