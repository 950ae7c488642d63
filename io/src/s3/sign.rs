//! Signatures of version 4: what is signed, by which key, and how times are written for it.

use super::bucket::Bucket;
use super::encoding::hex;
use ring::hmac::{self, HMAC_SHA256};
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// The service that the signature is for, and what ends its scope.
const SERVICE: &str = "s3/aws4_request";

/// The parts of a request that its signature covers.
#[derive(Debug)]
pub(super) struct Signed<'a> {
    pub(super) method: &'a str,
    /// Percent-encoded already.
    pub(super) path: &'a str,
    /// Encoded and sorted.
    pub(super) query: &'a str,
    /// SHA-256 of the body, in hex.
    pub(super) sha256: &'a str,
    /// Seconds since the epoch.
    pub(super) at_s: u64,
}

impl Signed<'_> {
    /// The headers that the request needs, besides the host's.
    pub(super) fn headers(&self, bucket: &Bucket) -> Vec<(&'static str, String)> {
        let time = stamp(self.at_s);
        let mut headers =
            vec![("x-amz-content-sha256", self.sha256.to_owned()), ("x-amz-date", time.clone())];
        let token = bucket.credentials.session_token.clone();
        headers.extend(token.map(|token| ("x-amz-security-token", token)));
        let mut named = format!("host:{}\n", bucket.authority());
        let mut names = String::from("host");
        for (name, value) in &headers {
            // Writing to a text cannot fail.
            let _ = writeln!(named, "{name}:{value}");
            let _ = write!(names, ";{name}");
        }
        let Self { method, path, query, sha256, .. } = self;
        let request = format!("{method}\n{path}\n{query}\n{named}\n{names}\n{sha256}");
        let date = &time[..8];
        let scope = format!("{date}/{}/{SERVICE}", bucket.region);
        let digest = ring::digest::digest(&ring::digest::SHA256, request.as_bytes());
        let text = format!("{ALGORITHM}\n{time}\n{scope}\n{}", hex(digest.as_ref()));
        let mut key = format!("AWS4{}", bucket.credentials.secret).into_bytes();
        for part in [date, &bucket.region, "s3", "aws4_request"] {
            key = mac(&key, part).as_ref().to_vec();
        }
        let signature = hex(mac(&key, &text).as_ref());
        let id = &bucket.credentials.key_id;
        let value = format!(
            "{ALGORITHM} Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}"
        );
        headers.push(("authorization", value));
        headers
    }
}

fn mac(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(HMAC_SHA256, key), text.as_bytes())
}

pub(super) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// A time as signatures write it: `20130524T000000Z`.
fn stamp(at_s: u64) -> String {
    let (days, second) = (at_s / 86_400, at_s % 86_400);
    // Years that begin in March, of four centuries each time (the calendar repeats after 146,097 days).
    let since = days + 719_468;
    let (era, of_era) = (since / 146_097, since % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{:02}Z", second % 60)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::bucket::Credentials;
    use super::*;
    use std::time::Duration;

    /// The examples of Amazon's documentation.
    #[test]
    fn signatures_are_those_of_the_documentation() {
        let credentials = Credentials {
            key_id: "AKIAIOSFODNN7EXAMPLE".into(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            session_token: None,
        };
        let endpoint = Some("https://{bucket}.s3.amazonaws.com");
        let bucket =
            Bucket::new("examplebucket", endpoint, "us-east-1", credentials, Duration::ZERO);
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let request = Signed {
            method: "GET",
            path: "/",
            query: "max-keys=2&prefix=J",
            sha256: empty,
            at_s: 1_369_353_600,
        };
        let headers = request.headers(&bucket.unwrap());
        assert_eq!(headers[1].1, "20130524T000000Z");
        let (_, authorization) = headers.last().unwrap();
        assert!(
            authorization
                .ends_with("34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
            "{authorization}"
        );
    }

    #[test]
    fn times_are_written_as_the_calendar_has_them() {
        let known = [
            (0, "19700101T000000Z"),
            (951_827_696, "20000229T123456Z"),
            (1_709_164_799, "20240228T235959Z"),
            (1_709_164_800, "20240229T000000Z"),
            (4_107_542_400, "21000301T000000Z"),
        ];
        for (at_s, text) in known {
            assert_eq!(stamp(at_s), text);
        }
    }
}
