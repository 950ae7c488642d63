//! From the host of a URL to addresses, with the rules applied to what was found: the client connects
//! to these addresses and looks nothing up a second time, so what is checked is what is connected to.

use super::address::{check_address, check_name};
use crossbeam_channel::bounded;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// Addresses of a host that are tried; the client takes no more.
const ADDRESSES_MAX: usize = 16;

/// From host and port to the host's addresses, each with the port.
type LookUp = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// How names become addresses, for tests that have names of their own.
#[derive(Clone)]
pub struct Lookup(pub Arc<LookUp>);

impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lookup")
    }
}

/// Looks names up and lets no address through that webhooks may not reach.
#[derive(Debug)]
pub(super) struct Guarded {
    pub(super) allow_private: bool,
    /// In place of the system's.
    pub(super) lookup: Option<Lookup>,
}

impl Resolver for Guarded {
    fn resolve(
        &self,
        uri: &Uri,
        _: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let host = uri.host().unwrap_or_default();
        if !self.allow_private
            && let Some(rule) = check_name(&host.to_ascii_lowercase())
        {
            return Err(refused(format!("{host} is {}", rule.0)));
        }
        let secure = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let all = match &self.lookup {
            Some(lookup) => (lookup.0)(host, port)?,
            None => ask_system(host, port, &timeout)?,
        };
        let mut found = self.empty();
        all.into_iter().take(ADDRESSES_MAX).for_each(|address| found.push(address));
        if found.is_empty() {
            return Err(Error::HostNotFound);
        }
        // Refuse a host if any of its addresses is not allowed: which one is connected to must not be up to chance.
        for address in found.iter().filter(|_| !self.allow_private) {
            if let Some(rule) = check_address(address.ip()) {
                return Err(refused(format!("{host} has {}: {}", rule.0, address.ip())));
            }
        }
        Ok(found)
    }
}

/// Asks the system, which may take its time: on a thread that is left behind at the time limit. The
/// system itself ends it, so there are a few for each thread that posts.
fn ask_system(host: &str, port: u16, timeout: &NextTimeout) -> Result<Vec<SocketAddr>, Error> {
    if let Ok(address) = host.trim_start_matches('[').trim_end_matches(']').parse() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let (say, said) = bounded(1);
    let host = host.to_owned();
    std::thread::Builder::new().name("webhook-name".into()).spawn(move || {
        let found = (host, port).to_socket_addrs().map(Iterator::collect);
        // The asking thread may have given up.
        let _ = say.send(found);
    })?;
    match said.recv_timeout(*timeout.after) {
        Ok(found) => Ok(found?),
        Err(_) => Err(Error::Timeout(timeout.reason)),
    }
}

fn refused(why: String) -> Error {
    Error::Io(io::Error::new(io::ErrorKind::PermissionDenied, why))
}
