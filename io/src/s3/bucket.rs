//! Where a bucket is, and who asks.

use super::encoding::encode;
use std::fmt;
use std::time::Duration;
use url::{Host, Url};

/// In an endpoint, the place of the bucket's name.
const PLACE: &str = "{bucket}";

/// Who asks. The secret is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The name of the key.
    pub key_id: String,
    /// The key.
    pub secret: String,
    /// The session token that belongs to temporary keys.
    pub session_token: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

/// A bucket and how it is reached.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// The name of the bucket.
    pub name: String,
    /// The region that signatures name.
    pub region: String,
    /// Who asks.
    pub credentials: Credentials,
    /// How long the storage may be silent. The bytes of an object have time of their own besides.
    pub timeout: Duration,
    /// Scheme and authority.
    origin: String,
    /// The host that requests and signatures name.
    authority: String,
    /// The path before keys, with a slash at each end.
    root: String,
}

impl Bucket {
    /// A bucket of the storage at `endpoint`; of Amazon's, if there is none. The endpoint is `https://host`, where the bucket's
    /// name becomes the beginning of the path, or has `{bucket}` in its host.
    pub fn new(
        name: &str,
        endpoint: Option<&str>,
        region: &str,
        credentials: Credentials,
        timeout: Duration,
    ) -> Result<Self, String> {
        check_name(name)?;
        let amazon = format!("https://s3.{region}.amazonaws.com");
        let endpoint = endpoint.unwrap_or(&amazon);
        let url = check_endpoint(&endpoint.replace(PLACE, name))?;
        let authority = match (url.host_str(), url.port()) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            (host, _) => host.unwrap_or_default().to_owned(),
        };
        let root =
            if endpoint.contains(PLACE) { "/".into() } else { format!("/{}/", encode(name)) };
        let origin = format!("{}://{authority}", url.scheme());
        let region = region.to_owned();
        Ok(Self { name: name.into(), region, credentials, timeout, origin, authority, root })
    }

    /// Scheme and authority.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    /// The path of an object, or of the bucket without a key.
    pub(super) fn path(&self, key: &str) -> String {
        let key: Vec<String> = key.split('/').map(encode).collect();
        format!("{}{}", self.root, key.join("/"))
    }
}

/// Checks the name of a bucket, which goes into hosts and paths as it is.
fn check_name(name: &str) -> Result<(), String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if (3..=63).contains(&name.len()) && name.bytes().all(fits) && !name.starts_with('.') {
        return Ok(());
    }
    Err("the name of a bucket must have 3 to 63 letters, digits and -._".into())
}

/// Reads an endpoint whose place for the bucket is filled.
pub fn check_endpoint(endpoint: &str) -> Result<Url, String> {
    let wrong = || "it must be a URL without a path, such as https://s3.example.com".to_owned();
    let url = Url::parse(endpoint).map_err(|_| wrong())?;
    let is_plain =
        matches!(url.path(), "" | "/") && url.query().is_none() && url.fragment().is_none();
    let is_open = url.username().is_empty() && url.password().is_none();
    let has_host = !matches!(url.host(), None | Some(Host::Domain("")));
    if matches!(url.scheme(), "http" | "https") && is_plain && is_open && has_host {
        Ok(url)
    } else {
        Err(wrong())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn bucket(name: &str, endpoint: Option<&str>) -> Result<Bucket, String> {
        let credentials =
            Credentials { key_id: "k".into(), secret: "s3cret".into(), session_token: None };
        Bucket::new(name, endpoint, "eu-west-1", credentials, Duration::from_secs(1))
    }

    #[test]
    fn a_bucket_is_in_the_path_unless_the_endpoint_has_a_place_for_it() {
        let amazon = bucket("jobs", None).unwrap();
        assert_eq!(amazon.origin(), "https://s3.eu-west-1.amazonaws.com");
        assert_eq!(amazon.path("a b/c"), "/jobs/a%20b/c");
        let near = bucket("jobs", Some("http://127.0.0.1:9000/")).unwrap();
        assert_eq!((near.origin(), near.authority()), ("http://127.0.0.1:9000", "127.0.0.1:9000"));
        let own = bucket("jobs", Some("https://{bucket}.s3.example.com")).unwrap();
        assert_eq!((own.authority(), &*own.path("k")), ("jobs.s3.example.com", "/k"));
        for wrong in ["s3.example.com", "ftp://a", "https://a/b", "https://u:p@a", "https://a?b"] {
            assert!(bucket("jobs", Some(wrong)).is_err(), "{wrong}");
        }
        for wrong in ["", "ab", "a/b", "a?b", ".abc", "a b c"] {
            assert!(bucket(wrong, None).is_err(), "{wrong}");
        }
        assert!(!format!("{near:?}").contains("s3cret"));
    }
}
