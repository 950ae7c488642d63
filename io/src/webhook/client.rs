//! Posts an event to a webhook: the HTTP client, its limits, and what counts as success.

use super::deliveries::Outcome;
use super::event::{Hook, Notice};
use super::resolve::{Guarded, Lookup};
use std::io::{Read, sink};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, Error, Timeout};

/// Of an answer only its status counts. What follows is read so far, for the sake of the connection.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;
/// And for so long.
const ANSWER_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Head of an answer.
const ANSWER_HEAD_BYTES_MAX: usize = 32 * 1024;

/// In milliseconds since the epoch.
pub(super) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Settings that all clients share.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) timeout: Duration,
    pub(crate) allow_private: bool,
    pub(crate) lookup: Option<Lookup>,
    pub(crate) roots: Arc<Vec<Certificate<'static>>>,
}

/// The certificates that the system trusts, and what was wrong with the others.
pub(crate) fn system_roots() -> (Vec<Certificate<'static>>, Vec<String>) {
    let found = rustls_native_certs::load_native_certs();
    let certs = found.certs.iter().map(|cert| Certificate::from_der(cert).to_owned());
    (certs.collect(), found.errors.iter().map(ToString::to_string).collect())
}

/// A client of HTTP within the limits of all posts.
pub(crate) fn agent(settings: &Settings) -> Agent {
    let crypto = Arc::new(rustls::crypto::ring::default_provider());
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::Specific(Arc::clone(&settings.roots)))
        .unversioned_rustls_crypto_provider(crypto)
        .build();
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        // A proxy of the environment would connect to where it likes.
        .proxy(None)
        .tls_config(tls)
        .timeout_global(Some(settings.timeout))
        .timeout_recv_body(Some(ANSWER_PAUSE_MAX))
        .max_response_header_size(ANSWER_HEAD_BYTES_MAX)
        .max_idle_connections(1)
        .user_agent(concat!("corq/", env!("CARGO_PKG_VERSION")))
        .build();
    let guarded =
        Guarded { allow_private: settings.allow_private, lookup: settings.lookup.clone() };
    Agent::with_parts(config, DefaultConnector::default(), guarded)
}

/// Why a post failed, for people.
pub(crate) fn reason(error: &Error, timeout: Duration) -> String {
    match error {
        Error::Timeout(Timeout::Resolve) => "its address could not be found in time".into(),
        Error::Timeout(Timeout::Connect) => "it could not be connected to in time".into(),
        Error::Timeout(_) => {
            format!("it did not answer within {} ms", timeout.as_millis())
        }
        Error::HostNotFound => "its host is not known".into(),
        other => other.to_string(),
    }
}

/// The client of one webhook. It keeps the connection for the next post.
#[derive(Clone, Debug)]
pub(super) struct Client {
    agent: Agent,
    timeout: Duration,
}

impl Client {
    pub(super) fn new(settings: &Settings) -> Self {
        Self { agent: agent(settings), timeout: settings.timeout }
    }

    /// Posts once.
    pub(super) fn post(&self, hook: &Hook, notice: &Notice, body: &[u8]) -> Outcome {
        let (at_ms, began) = (now_ms(), Instant::now());
        let (status, failure) = match self.send(hook, notice, body) {
            Ok((status, failure)) => (Some(status), failure),
            Err(reason) => (None, Some(reason)),
        };
        let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Outcome { at_ms, took_ms, status, failure }
    }

    /// The status of the answer, and why it counts as failed, if it does.
    fn send(
        &self,
        hook: &Hook,
        notice: &Notice,
        body: &[u8],
    ) -> Result<(u16, Option<String>), String> {
        let mut request = self
            .agent
            .post(hook.target().url())
            .header("Content-Type", "application/json")
            .header("X-Webhook-Event", notice.event())
            .header("X-Webhook-Timestamp", notice.at_ms().to_string());
        for (name, value) in notice.headers() {
            request = request.header(*name, &**value);
        }
        if let Some(signature) = hook.signature(body) {
            request = request.header("X-Webhook-Signature", signature);
        }
        let mut answer = request.send(body).map_err(|error| reason(&error, self.timeout))?;
        let status = answer.status();
        // If it does not end, the connection is not used again: the status stands all the same.
        let rest = answer.body_mut().as_reader();
        let _ = std::io::copy(&mut rest.take(ANSWER_BYTES_MAX), &mut sink());
        let failure = match status.as_u16() {
            200..300 => None,
            300..400 => Some(format!("it answered {status}, and redirects are not followed")),
            _ => Some(format!("it answered {status}")),
        };
        Ok((status.as_u16(), failure))
    }

    /// Breaks off what is under way. The client is of no use afterwards.
    pub(super) fn break_off(self) {
        self.agent.shutdown();
    }
}
