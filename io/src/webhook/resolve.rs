//! From the host of a URL to addresses, with the rules applied to what was found: the client connects
//! to these addresses and looks nothing up a second time, so what is checked is what is connected to.

use super::address::{check_address, check_name};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

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

/// See the module.
#[derive(Debug)]
pub(super) struct Guarded {
    pub(super) allow_private: bool,
    /// In place of the system's.
    pub(super) lookup: Option<Lookup>,
    pub(super) system: DefaultResolver,
}

impl Resolver for Guarded {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let host = uri.host().unwrap_or_default();
        if !self.allow_private
            && let Some(rule) = check_name(&host.to_ascii_lowercase())
        {
            return Err(refused(format!("{host} is {}", rule.0)));
        }
        let found = match &self.lookup {
            None => self.system.resolve(uri, config, timeout)?,
            Some(lookup) => {
                let secure = uri.scheme_str() == Some("https");
                let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
                let mut found = self.empty();
                for address in (lookup.0)(host, port)?.into_iter().take(16) {
                    found.push(address);
                }
                found
            }
        };
        if found.is_empty() {
            return Err(Error::HostNotFound);
        }
        // One address that is not allowed condemns all: which one is connected to is not up to chance.
        for address in found.iter().filter(|_| !self.allow_private) {
            if let Some(rule) = check_address(address.ip()) {
                return Err(refused(format!("{host} has {}: {}", rule.0, address.ip())));
            }
        }
        Ok(found)
    }
}

fn refused(why: String) -> Error {
    Error::Io(io::Error::new(io::ErrorKind::PermissionDenied, why))
}
