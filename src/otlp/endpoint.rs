//! Where spans go, and with which headers, as settings write it.

use corq_io::batch_post::Header;
use corq_io::webhook::Target;

/// Path that is appended to an endpoint, unless it ends so.
const PATH: &str = "/v1/traces";

/// Bytes of the name and of the value of a header.
const HEADER_BYTES_MAX: usize = 4096;

/// Headers that the posts have of their own, or that are about the connection.
const RESERVED: [&str; 6] =
    ["connection", "content-length", "content-type", "host", "transfer-encoding", "upgrade"];

/// The URL of the traces at an endpoint.
pub fn target(endpoint: &str) -> Result<Target, String> {
    let endpoint = endpoint.trim();
    let is_whole = endpoint.trim_end_matches('/').ends_with(PATH) || endpoint.contains(['?', '#']);
    let url = if is_whole {
        endpoint.to_owned()
    } else {
        format!("{}{PATH}", endpoint.trim_end_matches('/'))
    };
    let refusal = |why: String| why.replacen("url must", "it must", 1);
    Target::parse(&url, true).map_err(|refused| refusal(refused.0))
}

/// A header as `OTLP_HEADERS` writes it: a name, an equals sign, a value in which % begins a byte in two hexadecimal digits.
pub fn header(text: &str) -> Result<Header, String> {
    let refused = || "it must be headers such as authorization=Bearer%20abc".to_owned();
    let (name, value) = text.split_once('=').ok_or_else(refused)?;
    let (name, value) = (name.trim(), unescaped(value.trim()).ok_or_else(refused)?);
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_fit = !name.is_empty() && name.bytes().all(is_token) && text.len() <= HEADER_BYTES_MAX;
    if !is_fit || value.bytes().any(|byte| !matches!(byte, b' '..=b'~' | b'\t')) {
        return Err(refused());
    }
    let name = name.to_ascii_lowercase();
    if RESERVED.contains(&&*name) {
        return Err(format!("it must not set {name}"));
    }
    Ok((name.into(), value.into()))
}

fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, behind) = rest.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok()?;
        // A sign is none of its digits.
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        bytes.push(u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?);
        rest = behind;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(endpoint: &str) -> String {
        target(endpoint).map_or_else(|refused| refused, |target| target.url().to_owned())
    }

    #[test]
    fn an_endpoint_is_that_of_a_collector_or_of_its_traces() {
        for whole in ["http://localhost:4318/v1/traces", "http://[::1]:4318/v1/traces"] {
            assert_eq!(url(whole), whole);
            assert_eq!(url(whole.strip_suffix("/v1/traces").unwrap_or(whole)), whole);
        }
        assert_eq!(url("https://o.example/otlp/"), "https://o.example/otlp/v1/traces");
        assert_eq!(url("https://o.example/in?key=1"), "https://o.example/in?key=1");
        assert_eq!(url("localhost:4318"), "it must begin with http:// or https://");
        assert_eq!(url("http://a:b@x/"), "it must contain no user name or password");
        assert_eq!(url(""), "it must be an absolute URL");
    }

    #[test]
    fn headers_are_read_as_other_exporters_read_them() {
        let read = |text| header(text).map(|(name, value)| format!("{name}: {value}"));
        assert_eq!(
            read(" Authorization = Bearer%20abc= "),
            Ok("authorization: Bearer abc=".to_owned())
        );
        assert_eq!(read("x-empty="), Ok("x-empty: ".to_owned()));
        for wrong in ["", "a", "=b", "a b=c", "a=%2", "a=%zz", "a=%+1", "a=%0d%0ax", "a=\u{e4}"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert_eq!(read("Content-Type=x"), Err("it must not set content-type".to_owned()));
    }
}
