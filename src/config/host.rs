//! The values of `HOST`: an address, or `localhost`. Other names are refused, since their address may change between
//! two starts, and a start would wait for a name server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where the server listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListenHost {
    /// At one address, which may stand for all.
    Address(IpAddr),
    /// At the loopback addresses of both families, as far as the machine has them.
    Localhost,
}

impl ListenHost {
    /// The first must be there; a machine may lack the others.
    pub fn addresses(self) -> Vec<IpAddr> {
        match self {
            Self::Address(address) => vec![address],
            Self::Localhost => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
        }
    }
}

pub(super) fn listen_host(text: &str) -> Result<ListenHost, String> {
    if text.eq_ignore_ascii_case("localhost") {
        return Ok(ListenHost::Localhost);
    }
    // As URLs write addresses of IPv6.
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().map(ListenHost::Address);
    address.map_err(|_| "it must be an IP address or localhost".into())
}

/// Whether a text is the platform that a compiler builds for, as conda and other tools for builds keep it in `HOST`.
pub(super) fn is_platform(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let fits = |part: &&str| {
        !part.is_empty() && part.bytes().all(|it| it.is_ascii_alphanumeric() || b"_.".contains(&it))
    };
    let names_system = |part: &&str| {
        ["linux", "darwin", "apple", "windows", "w64", "musl", "gnu"]
            .iter()
            .any(|name| part.starts_with(name))
    };
    parts.len() >= 3 && parts.iter().all(fits) && parts[1..].iter().any(names_system)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn localhost_is_both_families_and_no_other_name_is_taken() {
        let both = listen_host("LocalHost").unwrap().addresses();
        assert_eq!(both, ["127.0.0.1".parse::<IpAddr>().unwrap(), "::1".parse().unwrap()]);
        assert_eq!(listen_host("[::]").unwrap(), listen_host("::").unwrap());
        for wrong in ["queue.example", "", "127.0.0.1:6789", "[::1", "localhost.", "10.0.0"] {
            assert!(listen_host(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_platform_is_told_from_the_name_of_a_machine() {
        for platform in
            ["x86_64-conda-linux-gnu", "aarch64-conda-linux-gnu", "x86_64-apple-darwin13.4.0"]
        {
            assert!(is_platform(platform), "{platform}");
        }
        for other in ["web-1", "my-host-name", "linux", "a-linux", "0.0.0.0", "a--linux-gnu", ""] {
            assert!(!is_platform(other), "{other}");
        }
    }
}
