//! Opens connections: the way to the server, the token, the greeting; and how long to wait before trying again.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::address::Address;
use super::driver::Driver;
use super::pipe::Pipe;
use super::strays::Returner;
use super::stream::Stream;
use crate::error::Error;
use crate::wire::record::record;
use crate::wire::reply::Reply;
use crate::wire::request::Request;

/// The version of the protocol that is asked for. Version 3 has no more commands and fields, but other replies: lists of
/// queues without their counts, say.
const PROTOCOL_VERSION: u64 = 2;

/// Settings of every connection of a client.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) address: Address,
    pub(crate) token: Option<String>,
    pub(crate) timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) connections: usize,
    pub(crate) backoff_min: Duration,
    pub(crate) backoff_max: Duration,
    #[cfg(feature = "tls")]
    pub(crate) tls: super::tls::Connector,
}

record! {
    /// Name and versions of a server, from its greeting on a new connection.
    ServerInfo {
        /// Name of the server's software.
        server: String = "server",
        /// Version of the server's software.
        version: String = "version",
        /// The version of the protocol that is spoken.
        protocol_version: u64 = "protocolVersion",
    }
}

/// Opens a connection. `events` gets what the server sends unasked, `returner` the jobs of calls that are gone.
pub(crate) async fn dial(
    settings: &Settings,
    events: Option<mpsc::Sender<Reply>>,
    returner: Option<Returner>,
) -> Result<(Arc<Pipe>, ServerInfo), Error> {
    let unreachable = |why: &dyn std::fmt::Display| {
        Error::Unreachable(format!("{}: {why}", settings.address).into())
    };
    let attempt = async {
        let stream = Stream::open(settings).await.map_err(|error| unreachable(&error))?;
        let pipe = Arc::new(Pipe::new(events, returner));
        tokio::spawn(Driver::new(pipe.clone(), stream));
        let mut guard = HangUp(Some(pipe.clone()));
        let info = greet(settings, &pipe).await.map_err(|error| match error {
            // Nothing of the caller's was sent yet.
            Error::Lost(why) => unreachable(&why),
            other => other,
        })?;
        guard.0 = None;
        Ok((pipe, info))
    };
    let late = || format!("no connection within {:?}", settings.connect_timeout);
    timeout(settings.connect_timeout, attempt).await.unwrap_or_else(|_| Err(unreachable(&late())))
}

/// Closes a connection whose greeting is not waited for any more.
struct HangUp(Option<Arc<Pipe>>);

impl Drop for HangUp {
    fn drop(&mut self) {
        if let Some(pipe) = &self.0 {
            pipe.close();
        }
    }
}

async fn greet(settings: &Settings, pipe: &Arc<Pipe>) -> Result<ServerInfo, Error> {
    let gone = || Error::Lost(pipe.why_ended().unwrap_or_else(|| "it was closed".into()));
    let mut auth = None;
    if let Some(token) = &settings.token {
        let request = Request::new("Auth").str("token", token).seal()?;
        auth = Some(pipe.send(&request).await.ok_or_else(gone)?);
    }
    // Right behind the token: one way there and back for both.
    let hello = Request::new("Hello")
        .uint("protocolVersion", PROTOCOL_VERSION)
        .strs("capabilities", ["pipelining", "separate-job-name"].into_iter())
        .seal()?;
    let hello = pipe.send(&hello).await.ok_or_else(gone)?;
    if let Some(auth) = auth {
        auth.await?.accepted()?;
    }
    hello.await?.accepted()?.record()
}

/// How long to wait before the next attempt: twice as long after each that failed, up to a limit, and
/// by chance, so that a thousand clients of a server that was restarted do not come back in step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    pub(crate) fn next(&mut self, settings: &Settings) -> Duration {
        let doubled = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.failures = (self.failures + 1).min(31);
        let whole = settings.backoff_min.saturating_mul(doubled).min(settings.backoff_max);
        let half = whole / 2;
        half + half.mul_f64(chance())
    }

    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

/// A number from 0 to 1. The keys of the standard hasher are random, which is enough for this.
fn chance() -> f64 {
    let number = RandomState::new().build_hasher().finish();
    number as f64 / u64::MAX as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_its_limit_and_never_is_the_same() {
        let ms = Duration::from_millis;
        let settings = Settings {
            address: Address::Unix("x".into()),
            token: None,
            timeout: ms(1),
            connect_timeout: ms(1),
            connections: 1,
            backoff_min: ms(100),
            backoff_max: ms(1000),
            #[cfg(feature = "tls")]
            tls: crate::net::tls::Connector::default(),
        };
        let mut backoff = Backoff::default();
        for whole in [100, 200, 400, 800, 1000, 1000] {
            let wait = backoff.next(&settings);
            assert!(wait >= ms(whole / 2) && wait <= ms(whole), "{wait:?} of {whole}");
        }
        (0..100).for_each(|_| assert!(backoff.next(&settings) <= ms(1000)));
        backoff.reset();
        assert!(backoff.next(&settings) <= ms(100));
        let waits: std::collections::HashSet<_> =
            (0..20).map(|_| Backoff { failures: 3 }.next(&settings)).collect();
        assert!(waits.len() > 10, "{waits:?}");
    }
}
