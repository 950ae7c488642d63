//! The URL of a webhook, understood once: what is checked is what is connected to, however an address
//! was spelled.

use super::address::{check_address, check_name};
use std::fmt;
use std::net::IpAddr;
// Named so that `url` takes its tables of names from the version that the manifest chooses.
use idna_adapter as _;
use url::{Host, Url};

/// A URL that may be posted to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    url: Box<str>,
    origin: Box<str>,
}

/// Why a URL may not be posted to, as the client reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal(pub String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Target {
    /// Reads a URL that is given now. With `allow_private` it may point anywhere. Addresses of names are not looked up
    /// here: that is done at each connection.
    pub fn parse(text: &str, allow_private: bool) -> Result<Self, Refusal> {
        let target = Self::read(text, allow_private)?;
        if !names_host(text) {
            return Err(Refusal("url must name a host".into()));
        }
        Ok(target)
    }

    /// Reads the URL of a webhook that was accepted before, under the rules of that time.
    pub fn known(text: &str) -> Result<Self, Refusal> {
        Self::read(text, true)
    }

    fn read(text: &str, allow_private: bool) -> Result<Self, Refusal> {
        let refuse = |why: &str| Err(Refusal(format!("url must {why}")));
        // The parser drops some of them, and what is listed should be what is called.
        if text.chars().any(char::is_control) {
            return refuse("contain no control characters");
        }
        let Ok(mut url) = Url::parse(text) else {
            return refuse("be an absolute URL");
        };
        if !matches!(url.scheme(), "http" | "https") {
            return refuse("begin with http:// or https://");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return refuse("contain no user name or password");
        }
        let Some(host) = url.host() else {
            return refuse("name a host");
        };
        if !allow_private && let Some(why) = check_host(&host) {
            return Err(Refusal(why));
        }
        if url.port() == Some(0) {
            return refuse("name a port other than 0");
        }
        url.set_fragment(None);
        // Refuse what the HTTP client cannot parse: it could not be posted to.
        if ureq::http::Uri::try_from(url.as_str()).is_err() {
            return refuse("be an absolute URL");
        }
        let origin = url.origin().ascii_serialization().into();
        Ok(Self { url: String::from(url).into(), origin })
    }

    /// The whole URL in its one normal form.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether it is posted to by HTTPS.
    pub fn is_secure(&self) -> bool {
        self.url.starts_with("https:")
    }

    /// Scheme, host and port: what may be written to logs, since the rest often is a secret.
    pub fn origin(&self) -> &str {
        &self.origin
    }
}

/// Whether a host stands where it should, behind two slashes. The parser finds one behind any number of them, so that a
/// part of the path of a URL without a host would be posted to.
fn names_host(text: &str) -> bool {
    let is_slash = |byte: &u8| matches!(byte, b'/' | b'\\');
    let Some((_, behind)) = text.split_once(':') else { return false };
    let (Some(slashes), Some(host)) = (behind.as_bytes().get(..2), behind.get(2..)) else {
        return false;
    };
    let host = host.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    slashes.iter().all(is_slash) && !host.chars().all(|char| char == '.')
}

fn check_host(host: &Host<&str>) -> Option<String> {
    let address: IpAddr = match host {
        Host::Domain(name) => {
            let rule = check_name(name)?;
            return Some(format!("url must not point to {}: {name}", rule.0));
        }
        Host::Ipv4(address) => (*address).into(),
        Host::Ipv6(address) => (*address).into(),
    };
    let rule = check_address(address)?;
    Some(format!("url must not point to {}: {address}", rule.0))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        Target::parse(url, false).expect_err(url).0
    }

    #[test]
    fn an_address_is_refused_however_it_is_spelled() {
        let loopback = "url must not point to a loopback address: 127.0.0.1";
        for host in [
            "127.0.0.1",
            "127.0.0.1.",
            "127.1",
            "127.0.1",
            "2130706433",
            "017700000001",
            "0x7f000001",
            "0x7f.1",
            "0177.0.0.1",
            "127.0.0.1:8080",
            "0X7F.0x0.00.0x1",
            "%31%32%37.0.0.1",
            "\u{ff11}27.0.0.1",
            "\u{2460}27.0.0.1",
            "127\u{3002}0.0.1",
        ] {
            assert_eq!(refused(&format!("http://{host}/x")), loopback, "{host}");
        }
        for (host, said) in [
            ("[::1]", "a loopback address: ::1"),
            ("[0:0:0:0:0:0:0:1]", "a loopback address: ::1"),
            ("[::ffff:127.0.0.1]", "a loopback address: ::ffff:127.0.0.1"),
            ("[::ffff:7f00:1]", "a loopback address: ::ffff:127.0.0.1"),
            ("[::ffff:a9fe:a9fe]", "a cloud metadata host: ::ffff:169.254.169.254"),
            ("[fd12:3456::1]", "a private address: fd12:3456::1"),
            ("0", "an unspecified address: 0.0.0.0"),
            ("0.0.0.0", "an unspecified address: 0.0.0.0"),
            ("3232235777", "a private address: 192.168.1.1"),
            ("0xa9fea9fe", "a cloud metadata host: 169.254.169.254"),
            ("100.64.1.1", "an address of a carrier's network (100.64.0.0/10): 100.64.1.1"),
            ("LOCALHOST", "this machine (localhost): localhost"),
            ("localhost.", "this machine (localhost): localhost."),
            ("\u{24db}ocalhost", "this machine (localhost): localhost"),
            ("Metadata.Google.Internal", "a cloud metadata host: metadata.google.internal"),
            ("db.internal.", "an internal host (*.internal): db.internal."),
        ] {
            let expected = format!("url must not point to {said}");
            assert_eq!(refused(&format!("https://{host}/")), expected, "{host}");
        }
    }

    #[test]
    fn a_url_that_is_none_of_ours_is_refused_saying_why() {
        for (url, said) in [
            ("", "url must be an absolute URL"),
            ("example.com/hook", "url must be an absolute URL"),
            ("/hook", "url must be an absolute URL"),
            ("http://", "url must be an absolute URL"),
            ("http://[::1", "url must be an absolute URL"),
            ("http:///hook", "url must name a host"),
            ("https:////example.com/", "url must name a host"),
            ("http:\\\\\\hook", "url must name a host"),
            ("http:example.com", "url must name a host"),
            ("http:/example.com", "url must name a host"),
            ("http://./hook", "url must name a host"),
            ("http://../", "url must name a host"),
            ("http://?hook", "url must be an absolute URL"),
            ("http://256.1.1.1/", "url must be an absolute URL"),
            ("http://1.2.3.4.5/", "url must be an absolute URL"),
            ("ftp://example.com/", "url must begin with http:// or https://"),
            ("file:///etc/passwd", "url must begin with http:// or https://"),
            ("gopher://example.com", "url must begin with http:// or https://"),
            ("http://a@example.com/", "url must contain no user name or password"),
            ("http://example.com@127.0.0.1/", "url must contain no user name or password"),
            ("http://:b@example.com/", "url must contain no user name or password"),
            ("http://example.com:0/", "url must name a port other than 0"),
        ] {
            assert_eq!(refused(url), said, "{url}");
        }
    }

    #[test]
    fn a_public_url_is_taken_in_its_normal_form() {
        for (url, normal, origin) in [
            ("https://Example.com", "https://example.com/", "https://example.com"),
            ("http://example.com:80/a?b=c#d", "http://example.com/a?b=c", "http://example.com"),
            ("https://1.1:8443/\u{e4}", "https://1.0.0.1:8443/%C3%A4", "https://1.0.0.1:8443"),
            ("http:\\\\example.com\\x", "http://example.com/x", "http://example.com"),
        ] {
            let target = Target::parse(url, false).unwrap();
            assert_eq!((target.url(), target.origin()), (normal, origin));
        }
    }

    #[test]
    fn where_it_is_allowed_private_addresses_are_taken_and_nothing_else_is_lifted() {
        for url in ["http://127.0.0.1:9/x", "https://localhost/", "http://a.internal/"] {
            assert!(Target::parse(url, true).is_ok(), "{url}");
        }
        for url in ["http://a:b@127.0.0.1/", "ftp://127.0.0.1/", "127.0.0.1"] {
            assert!(Target::parse(url, true).is_err(), "{url}");
        }
    }
}
