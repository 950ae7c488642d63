//! What can be asked for over HTTP: method and path to endpoint (`interface.md` 4.1).

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

/// The endpoint of a method and path, with the queue or job in the path.
pub fn find(method: Method, path: &str) -> Result<(Endpoint, Cow<'_, str>), Miss> {
    if method == Method::Options {
        return Ok((Endpoint::Preflight, Cow::Borrowed("")));
    }
    let mut segments = [""; 4];
    let mut count = 0;
    for segment in path.strip_prefix('/').ok_or(Miss::Unknown)?.split('/') {
        *segments.get_mut(count).ok_or(Miss::Unknown)? = segment;
        count += 1;
    }
    let get = matches!(method, Method::Get | Method::Head);
    let (endpoint, name) = match (method, &segments[..count]) {
        (Method::Post, ["queues", queue, "jobs"]) => (Endpoint::Push, *queue),
        (Method::Get, ["queues", queue, "jobs"]) => (Endpoint::Pull, *queue),
        (Method::Head, ["queues", queue, "jobs"]) => (Endpoint::PeekPull, *queue),
        (Method::Delete, ["jobs", id]) => (Endpoint::Cancel, *id),
        (Method::Post, ["jobs", id, "ack"]) => (Endpoint::Ack, *id),
        (Method::Post, ["jobs", id, "fail"]) => (Endpoint::Fail, *id),
        (_, ["jobs", id]) if get => (Endpoint::Get, *id),
        (_, ["health"]) if get => (Endpoint::Health, ""),
        (_, ["healthz" | "live"]) if get => (Endpoint::Alive, ""),
        (_, ["ready"]) if get => (Endpoint::Ready, ""),
        (_, ["stats"]) if get => (Endpoint::Stats, ""),
        (_, ["metrics"]) if get => (Endpoint::Metrics, ""),
        (_, ["prometheus"]) if get => (Endpoint::Prometheus, ""),
        (_, ["heapstats"]) if get => (Endpoint::Heap, ""),
        (Method::Get, [stream @ ("events" | "ws")]) => {
            (Endpoint::Stream { upgrade: *stream == "ws", of_queue: false }, "")
        }
        (Method::Get, [stream @ ("events" | "ws"), "queues", queue]) => {
            (Endpoint::Stream { upgrade: *stream == "ws", of_queue: true }, *queue)
        }
        (Method::Post, ["gc"]) => (Endpoint::Gc, ""),
        _ => return Err(Miss::Unknown),
    };
    Ok((endpoint, target::segment(name).map_err(|_| Miss::BadPath)?))
}

impl Endpoint {
    /// Whether a request needs a token, where there are tokens.
    pub fn is_guarded(self, metrics_are: bool) -> bool {
        match self {
            Self::Health | Self::Alive | Self::Ready | Self::Gc | Self::Heap | Self::Preflight => {
                false
            }
            Self::Prometheus => metrics_are,
            _ => true,
        }
    }

    /// Whether it tells how the server is: answered whatever the load.
    pub fn is_vital(self) -> bool {
        matches!(self, Self::Alive | Self::Ready | Self::Health)
    }

    /// Whether it counts against a client's limit. What supervisors and browsers ask on their own does
    /// not.
    pub fn is_limited(self) -> bool {
        !matches!(self, Self::Alive | Self::Ready | Self::Preflight)
    }
}
