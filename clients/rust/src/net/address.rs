//! Where a server is.

use std::path::PathBuf;

use crate::error::Error;

/// The port of servers that name none.
const PORT: u16 = 6789;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp { host: String, port: u16 },
    Tls { host: String, port: u16 },
    Unix(PathBuf),
}

impl Address {
    /// A text that is to be an address, fit to be printed: what stands before an `@` may be a secret.
    pub(crate) fn shown(text: &str) -> std::borrow::Cow<'_, str> {
        match text.rsplit_once('@') {
            Some((secret, rest)) => {
                let scheme = secret.split_once("://").map_or("", |(scheme, _)| scheme);
                let slashes = if scheme.is_empty() { "" } else { "://" };
                format!("{scheme}{slashes}...@{rest}").into()
            }
            None => text.into(),
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let shown = Self::shown(text);
        let wrong = |what: &str| Error::Invalid(format!("the address `{shown}` {what}").into());
        let (scheme, rest) = text.split_once("://").unwrap_or(("tcp", text));
        if scheme == "unix" {
            return if rest.is_empty() {
                Err(wrong("names no path"))
            } else {
                Ok(Self::Unix(rest.into()))
            };
        }
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.strip_prefix('[') {
            // An IPv6 address has colons of its own.
            Some(rest) => {
                let (host, behind) =
                    rest.split_once(']').ok_or_else(|| wrong("lacks a closing bracket"))?;
                (host, behind.strip_prefix(':'))
            }
            None => match rest.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (rest, None),
            },
        };
        if host.is_empty() || host.contains(['/', '@', '?', '#']) {
            return Err(wrong("names no host"));
        }
        let port = port.map_or(Ok(PORT), str::parse);
        let port = port.ok().filter(|&port| port > 0).ok_or_else(|| wrong("has no valid port"))?;
        let host = host.to_owned();
        match scheme {
            "tcp" => Ok(Self::Tcp { host, port }),
            "tls" if cfg!(feature = "tls") => Ok(Self::Tls { host, port }),
            "tls" => Err(wrong("needs the feature `tls` of the crate corq-client")),
            _ => Err(wrong("must begin with tcp://, tls:// or unix://")),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp { host, port } => write!(formatter, "tcp://{host}:{port}"),
            Self::Tls { host, port } => write!(formatter, "tls://{host}:{port}"),
            Self::Unix(path) => write!(formatter, "unix://{}", path.display()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn addresses_are_read_with_and_without_scheme_and_port() {
        for (text, address) in [
            ("localhost", tcp("localhost", 6789)),
            ("localhost:7000", tcp("localhost", 7000)),
            ("tcp://10.0.0.1:7000/", tcp("10.0.0.1", 7000)),
            ("tcp://[::1]:7000", tcp("::1", 7000)),
            ("tcp://[::1]", tcp("::1", 6789)),
            ("unix:///run/corq.sock", Address::Unix("/run/corq.sock".into())),
        ] {
            assert_eq!(Address::parse(text).unwrap(), address, "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_in_words_that_name_it() {
        for text in
            ["", "tcp://", "tcp://host:0", "tcp://host:x", "http://host", "unix://", "[::1", "a/b"]
        {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }
}
