//! Which requests are let in on behalf of web pages while no token guards the server, and for which of them the cookie of
//! a session counts where tokens do.
//!
//! A browser carries out what a page asks for from where its user is: behind the firewall, on loopback. The page need
//! not be allowed to read the answer to push a job, to take one, or to hold a WebSocket. What gives a page away stands
//! in headers that it cannot choose: `Origin` is where it comes from, `Sec-Fetch-Site` how that stands to the server,
//! and `Host` the name by which the browser has found the server. The last tells a page whose own name has been
//! pointed to this server's address, which is of the same origin for the browser.
//!
//! Programs send none of these but `Host`, and notice nothing as long as they use an address. With tokens a page is judged
//! only where the browser shows for it what it does not know itself: a cookie. Knows heads of requests, no sockets.

use super::route::Endpoint;
use super::routes;
use crate::api::error::ErrorKind;
use crate::protocol::http1::answer::Standing;
use crate::protocol::http1::head::Head;
use crate::protocol::http1::target::Target;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Settings for requests from web pages.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Whether there are tokens, so that nothing is judged here.
    pub has_tokens: bool,
    /// Origins that are let in, as they are written in `Origin`; `*` for all. Empty if the setting is not there.
    pub origins: Vec<String>,
    /// Names for `Host`, in lower case, without port; `*` for all.
    pub hosts: Vec<String>,
}

impl Rules {
    /// Whether a request goes on whose body is not waited for.
    pub fn judge_early(&self, head: &Head<'_>, through_path: bool) -> Result<(), ErrorKind> {
        let path = Target::of(head.target).path;
        let endpoint = routes::find(head.method, path).ok().map(|(route, _)| route.endpoint);
        self.judge(head, endpoint, through_path)
    }

    /// The headers of answers: without a setting they may be read by all.
    pub fn standing(&self) -> Standing {
        if self.origins.is_empty() {
            Standing::new(&["*".into()])
        } else if self.has_tokens {
            Standing::with_cookies(&self.origins)
        } else {
            Standing::new(&self.origins)
        }
    }

    /// Whether every web page is let in.
    pub fn lets_all_in(&self) -> bool {
        !self.has_tokens && is_any(&self.origins)
    }

    /// Whether every name of this server is taken for its own.
    pub fn knows_all_hosts(&self) -> bool {
        !self.has_tokens && is_any(&self.hosts)
    }

    /// The place of a request's origin among the listed ones; the first for any other.
    pub fn place_of(&self, head: &Head<'_>) -> u8 {
        let listed = |origin: &[u8]| self.origins.iter().position(|own| own.as_bytes() == origin);
        head.origin.and_then(listed).unwrap_or(0) as u8
    }

    /// Whether a request goes on; if not, why. `endpoint` is what it asks for, `through_path`
    /// whether it came through a unix socket, which no page can reach by a name of its own.
    pub fn judge(
        &self,
        head: &Head<'_>,
        endpoint: Option<Endpoint>,
        through_path: bool,
    ) -> Result<(), ErrorKind> {
        // A preflight tells nothing, and the request that follows is judged by itself.
        if self.has_tokens || endpoint == Some(Endpoint::Preflight) {
            return Ok(());
        }
        let says_nothing = matches!(endpoint, Some(Endpoint::Alive | Endpoint::Ready));
        if !through_path && !says_nothing && !self.knows_host(head.host.unwrap_or_default()) {
            return Err(ErrorKind::OtherHost);
        }
        // A link on another page leads to the dashboard, whose files tell nothing. What it asks for is judged by itself.
        if is_any(&self.origins) || endpoint == Some(Endpoint::Page) {
            return Ok(());
        }
        match (head.origin, head.fetch_site) {
            (Some(origin), _) if self.lists(origin) => Ok(()),
            (Some(origin), _) if is_own(origin, head.host.unwrap_or_default()) => Ok(()),
            (Some(_), _) => Err(ErrorKind::OtherOrigin),
            // Browsers say nothing at all with some requests to a server without TLS. Of those that a page may make
            // without a word, only this one changes anything.
            (None, None) if endpoint == Some(Endpoint::Pull) && is_browser(head) => {
                Err(ErrorKind::SecretPage)
            }
            (None, None | Some(b"none" | b"same-origin")) => Ok(()),
            // None of these has said which origin it is of, as for an image: it cannot be in the list.
            (None, Some(_)) => Err(ErrorKind::OtherSite),
        }
    }

    /// Whether a page may use the session of its browser, or begin one: it is this server's own, or of a listed origin.
    /// That all origins are listed is no word for any of them. By its name no other server can be meant, because a browser
    /// keeps the cookies of each name apart.
    pub fn judge_page(&self, head: &Head<'_>, endpoint: Option<Endpoint>) -> Result<(), ErrorKind> {
        match (head.origin, head.fetch_site) {
            (Some(origin), _) if self.lists(origin) => Ok(()),
            // The scheme is not compared, since a proxy may speak TLS for this server; the browser knows whether it differs.
            (Some(origin), None | Some(b"same-origin"))
                if is_own(origin, head.host.unwrap_or_default()) =>
            {
                Ok(())
            }
            (Some(_), _) => Err(ErrorKind::OtherOrigin),
            // A link in a mail would take a job: browsers send the cookie along with it.
            (None, None | Some(b"none")) if endpoint == Some(Endpoint::Pull) => {
                Err(ErrorKind::SecretPage)
            }
            (None, None | Some(b"none" | b"same-origin")) => Ok(()),
            (None, Some(_)) => Err(ErrorKind::OtherSite),
        }
    }

    fn lists(&self, origin: &[u8]) -> bool {
        self.origins.iter().any(|own| own.as_bytes() == origin)
    }

    /// Whether a `Host` is one that a page cannot have made point here. A browser always sends one.
    fn knows_host(&self, host: &[u8]) -> bool {
        let Ok(host) = std::str::from_utf8(host) else { return false };
        if host.is_empty() || is_any(&self.hosts) || is_address(host) {
            return true;
        }
        let Some(name) = without_port(host) else { return false };
        let name = name.strip_suffix('.').unwrap_or(name);
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        is("localhost") || self.hosts.iter().any(|known| is(known))
    }
}

fn is_any(list: &[String]) -> bool {
    list.iter().any(|item| item == "*")
}

/// Whether a host is an IP address, with or without a port. Other ways to write an IPv4 address are none: browsers write
/// them anew.
fn is_address(host: &str) -> bool {
    if let Some((inside, behind)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let address = inside.split_once('%').map_or(inside, |(address, _)| address);
        return address.parse::<Ipv6Addr>().is_ok() && without_port(behind) == Some("");
    }
    let is_v4 = without_port(host).is_some_and(|name| name.parse::<Ipv4Addr>().is_ok());
    is_v4 || host.parse::<Ipv6Addr>().is_ok()
}

/// A host without the port behind it; nothing if something else is there.
fn without_port(host: &str) -> Option<&str> {
    let (name, port) = host.split_once(':').unwrap_or((host, ""));
    port.bytes().all(|byte| byte.is_ascii_digit()).then_some(name)
}

/// Whether an origin is that of the host that was asked. Its scheme may be another, as behind a proxy that ends TLS, but
/// its port must be the same, be it said or meant.
fn is_own(origin: &[u8], host: &[u8]) -> bool {
    let (authority, port): (&[u8], &[u8]) = if let Some(rest) = origin.strip_prefix(b"https://") {
        (rest, b":443")
    } else if let Some(rest) = origin.strip_prefix(b"http://") {
        (rest, b":80")
    } else {
        return false;
    };
    let bare = |whole| <[u8]>::strip_suffix(whole, port).unwrap_or(whole);
    let own = bare(authority);
    !own.is_empty() && own.eq_ignore_ascii_case(bare(host))
}

fn is_browser(head: &Head<'_>) -> bool {
    head.user_agent.is_some_and(|agent| agent.starts_with(b"Mozilla/"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::protocol::http1::head;

    fn rules(origins: &[&str], hosts: &[&str]) -> Rules {
        let owned = |list: &[&str]| list.iter().map(ToString::to_string).collect();
        Rules { has_tokens: false, origins: owned(origins), hosts: owned(hosts) }
    }

    /// The judgement of a request to `endpoint` with these header lines, over a port.
    fn judged(rules: &Rules, endpoint: Endpoint, lines: &[&str]) -> Result<(), ErrorKind> {
        let text = format!("GET / HTTP/1.1\r\n{}\r\n\r\n", lines.join("\r\n"));
        let head = head::read(text.as_bytes(), &mut 0).unwrap().unwrap();
        rules.judge(&head, Some(endpoint), false)
    }

    #[test]
    fn a_host_is_known_if_no_page_can_have_made_it_point_here() {
        let rules = rules(&[], &["queue.example", "corq"]);
        let known = |host: &str| rules.knows_host(host.as_bytes());
        for host in [
            "127.0.0.1",
            "127.0.0.1:6790",
            "192.168.1.5:80",
            "[::1]",
            "[::1]:6790",
            "[fe80::1%eth0]:6790",
            "::1",
            "localhost",
            "LocalHost:6790",
            "localhost.:6790",
            "corq",
            "corq:6790",
            "Queue.Example:443",
            "queue.example.",
            "",
        ] {
            assert!(known(host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:6790",
            "localhost.evil.example",
            "evil.localhost",
            "127.0.0.1.evil.example",
            "127.1",
            "0x7f000001",
            "[evil]",
            "[::1",
            "[::1].evil.example",
            "[::1]6790",
            "127.0.0.1:evil.example",
            "localhost:evil.example",
            "queue.example.evil",
            "xcorq",
            ":6790",
            ".",
        ] {
            assert!(!known(host), "{host}");
        }
        assert!(super::Rules { hosts: vec!["*".into()], ..Rules::default() }.knows_host(b"any"));
    }

    #[test]
    fn an_origin_is_the_servers_own_if_its_host_and_port_are_those_that_were_asked() {
        for (origin, host) in [
            ("http://127.0.0.1:6790", "127.0.0.1:6790"),
            ("http://localhost", "localhost"),
            ("http://localhost", "localhost:80"),
            ("https://queue.example", "queue.example"),
            ("https://queue.example", "queue.example:443"),
            ("https://Queue.example:8443", "queue.example:8443"),
            ("http://[::1]:6790", "[::1]:6790"),
        ] {
            assert!(is_own(origin.as_bytes(), host.as_bytes()), "{origin} of {host}");
        }
        for (origin, host) in [
            ("null", "localhost"),
            ("", ""),
            ("http://", ""),
            ("http://:80", ""),
            ("http://localhost:3000", "localhost:6790"),
            ("http://localhost", "localhost:443"),
            ("http://localhost", "localhost:6790"),
            ("ftp://localhost:6790", "localhost:6790"),
            ("http://evil.example", "localhost"),
            ("http://evil.example#localhost", "localhost"),
        ] {
            assert!(!is_own(origin.as_bytes(), host.as_bytes()), "{origin} of {host}");
        }
    }

    #[test]
    fn pages_of_other_origins_are_refused_unless_they_are_listed_and_programs_are_not() {
        let local = "Host: localhost:6790";
        let unset = rules(&[], &[]);
        let listed = rules(&["https://a.example", "http://b.example:1"], &[]);
        let all = rules(&["*"], &[]);
        let chrome = "User-Agent: Mozilla/5.0 (X11) Chrome/1";
        for (lines, verdicts) in [
            (&[][..], [Ok(()); 3]),
            (&["User-Agent: curl/8"], [Ok(()); 3]),
            (&["Origin: http://localhost:6790"], [Ok(()); 3]),
            (&["Sec-Fetch-Site: same-origin", chrome], [Ok(()); 3]),
            (&["Sec-Fetch-Site: none", chrome], [Ok(()); 3]),
            (&[chrome], [Err(ErrorKind::SecretPage), Err(ErrorKind::SecretPage), Ok(())]),
            (&["Origin: https://a.example"], [Err(ErrorKind::OtherOrigin), Ok(()), Ok(())]),
            (
                &["Origin: https://a.example", "Sec-Fetch-Site: cross-site"],
                [Err(ErrorKind::OtherOrigin), Ok(()), Ok(())],
            ),
            (
                &["Origin: https://c.example"],
                [Err(ErrorKind::OtherOrigin), Err(ErrorKind::OtherOrigin), Ok(())],
            ),
            (&["Origin: null"], [Err(ErrorKind::OtherOrigin), Err(ErrorKind::OtherOrigin), Ok(())]),
            (&["Origin:"], [Err(ErrorKind::OtherOrigin), Err(ErrorKind::OtherOrigin), Ok(())]),
            (
                &["Origin: http://localhost:6790", "Origin: http://localhost:6790"],
                [Err(ErrorKind::OtherOrigin), Err(ErrorKind::OtherOrigin), Ok(())],
            ),
            (
                &["Sec-Fetch-Site: cross-site"],
                [Err(ErrorKind::OtherSite), Err(ErrorKind::OtherSite), Ok(())],
            ),
            (
                &["Sec-Fetch-Site: same-site"],
                [Err(ErrorKind::OtherSite), Err(ErrorKind::OtherSite), Ok(())],
            ),
            (
                &["Sec-Fetch-Site: Cross-Site"],
                [Err(ErrorKind::OtherSite), Err(ErrorKind::OtherSite), Ok(())],
            ),
        ] {
            let lines = [&[local], lines].concat();
            let found = [&unset, &listed, &all].map(|rules| judged(rules, Endpoint::Pull, &lines));
            assert_eq!(found, verdicts, "{lines:?}");
            assert_eq!(judged(&unset, Endpoint::Preflight, &lines), Ok(()));
            let guarded = Rules { has_tokens: true, ..Rules::default() };
            assert_eq!(judged(&guarded, Endpoint::Pull, &lines), Ok(()));
        }
        assert_eq!(judged(&unset, Endpoint::Get, &[local, chrome]), Ok(()), "it takes nothing");
    }

    #[test]
    fn a_name_that_was_pointed_here_asks_for_nothing_but_whether_the_server_lives() {
        let rebound = ["Host: evil.example:6790", "Origin: http://evil.example:6790"];
        let unset = rules(&[], &[]);
        for endpoint in [Endpoint::Health, Endpoint::Prometheus, Endpoint::Push, Endpoint::Gc] {
            assert_eq!(judged(&unset, endpoint, &rebound), Err(ErrorKind::OtherHost));
            assert_eq!(judged(&rules(&["*"], &[]), endpoint, &rebound), Err(ErrorKind::OtherHost));
            assert_eq!(judged(&rules(&[], &["evil.example"]), endpoint, &rebound), Ok(()));
        }
        for endpoint in [Endpoint::Alive, Endpoint::Ready] {
            assert_eq!(judged(&unset, endpoint, &rebound[..1]), Ok(()));
        }
        let text = "GET / HTTP/1.1\r\nHost: whatever\r\n\r\n";
        let head = head::read(text.as_bytes(), &mut 0).unwrap().unwrap();
        assert_eq!(unset.judge(&head, Some(Endpoint::Push), true), Ok(()), "through a path");
    }
}
