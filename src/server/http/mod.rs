//! The HTTP port. A request becomes the frame that a client over TCP would send, goes the way of all
//! frames, and its reply becomes JSON on the connection's own shard. What only HTTP has (health,
//! memory, readiness) is asked of all shards.
//!
//! One request of a connection is under way at a time: the next is read once the answer is written.
//!
//! | file | responsibility |
//! |---|---|
//! | `aliases` | routes that are no more than commands |
//! | `connection` | bytes become requests, and requests are carried out |
//! | `credentials` | what a request has shown |
//! | `cross_origin` | what a web page may ask without tokens |
//! | `health` | `/health`, `/ready`, `/stats`, `/heapstats` |
//! | `health_share` | what a shard counts for these |
//! | `login` | sessions of browsers begin and end |
//! | `page` | the dashboard |
//! | `query` | a query becomes fields |
//! | `rate_limit` | the sliding window of one client |
//! | `rate_limit_check` | asks the shard that counts a client |
//! | `request` | an HTTP request becomes a frame |
//! | `response` | a reply becomes an HTTP response |
//! | `route` | what a route is |
//! | `routes` | methods and paths |
//! | `timeouts` | how long a client is waited for |
//! | `trace_headers` | the trace that the headers of a push name |

mod aliases;
mod connection;
mod credentials;
mod cross_origin;
pub(super) mod health;
mod health_share;
mod login;
mod page;
mod query;
pub(super) mod rate_limit;
mod rate_limit_check;
mod request;
mod response;
mod route;
mod routes;
mod timeouts;
mod trace_headers;

use super::ui;
use crate::protocol::http1::answer::Standing;
pub use connection::HttpConnection;
pub use cross_origin::Rules;
pub use rate_limit::{Limiter, Rule, Window};
pub use response::date_of;
use std::sync::Arc;
use timeouts::Alarms;
pub use timeouts::Phase;

/// Scratch memory beyond this is given back after the request that needed it.
const SCRATCH_BYTES_MAX: usize = 256 * 1024;

/// The settings of HTTP, as every shard gets them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whose pages may ask and read answers.
    pub rules: Rules,
    /// Longest time a request may take to come.
    pub request_timeout_ms: u64,
    /// Longest time between requests.
    pub idle_timeout_ms: u64,
    /// How often a client may come.
    pub client_rule: Option<Rule>,
    /// How often clients that do not come are forgotten.
    pub cleanup_ms: u64,
    /// How often a connection may send a frame.
    pub frame_rule: Option<Rule>,
    /// How often a WebSocket connection may send a message.
    pub message_rule: Option<Rule>,
    /// Longest time until a connection of frames has shown a token.
    pub auth_timeout_ms: u64,
    /// Longest time that a frame or message may take to come.
    pub frame_timeout_ms: u64,
    /// Whether the text for Prometheus needs a token.
    pub metrics_are_guarded: bool,
    /// The second prefix of the names in it.
    pub metrics_prefix: Option<Arc<str>>,
    /// The dashboard, if there is to be one.
    pub ui: Option<Arc<ui::settings::Settings>>,
}

/// Counts of the work so far, for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct HttpCounters {
    /// Requests whose head was understood.
    pub requests: u64,
    /// Requests that were cut off because they did not come in time.
    pub timeouts: u64,
    /// Requests and frames refused because there were too many.
    pub limited: u64,
    /// Requests refused because a web page that may not ask seems to have made them.
    pub cross_origin: u64,
    /// Handshakes of TLS where it is not spoken, also at the port for frames.
    pub handshakes: u64,
}

/// State of a shard for its HTTP connections, beside their sessions.
pub struct HttpState {
    pub settings: Settings,
    pub counters: HttpCounters,
    /// Who of the clients that this shard keeps has come how often.
    pub limiter: Option<Limiter>,
    standing: Standing,
    date: String,
    date_of_s: u64,
    pub(crate) alarms: Alarms,
    frame: Vec<u8>,
    reply: Vec<u8>,
    json: Vec<u8>,
}

impl HttpState {
    /// Before the first connection.
    pub fn new(settings: Settings) -> Self {
        Self {
            standing: settings.rules.standing(),
            limiter: limiter(&settings),
            counters: HttpCounters::default(),
            date: String::new(),
            date_of_s: u64::MAX,
            alarms: Alarms::default(),
            frame: Vec::new(),
            reply: Vec::new(),
            json: Vec::new(),
            settings,
        }
    }

    /// Takes over other settings. Counts of clients begin anew only where those of the limit are others.
    pub fn renew(&mut self, settings: Settings) {
        let of_limit = |it: &Settings| (it.client_rule, it.cleanup_ms);
        if of_limit(&settings) != of_limit(&self.settings) {
            self.limiter = limiter(&settings);
        }
        self.standing = settings.rules.standing();
        self.settings = settings;
    }

    /// Where to write a reply that becomes an answer.
    pub fn take_reply(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.reply)
    }

    /// The reply has become one.
    pub fn keep_reply(&mut self, mut reply: Vec<u8>) {
        reply.clear();
        self.reply = slimmed(reply);
    }
}

fn limiter(settings: &Settings) -> Option<Limiter> {
    let new = |rule| Limiter::new(rule, settings.cleanup_ms, crate::secret::hash_key());
    settings.client_rule.map(new)
}

/// Scratch memory for the next request.
fn slimmed(scratch: Vec<u8>) -> Vec<u8> {
    if scratch.capacity() > SCRATCH_BYTES_MAX { Vec::new() } else { scratch }
}
