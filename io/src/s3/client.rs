//! Requests to the storage, their limits and repetitions.

use super::bucket::Bucket;
use super::encoding::{encode, hex};
use super::fault::S3Fault;
use super::listing::{Listed, page};
use super::sign::{Signed, now_s};
use crate::webhook::system_roots;
use ring::digest::{Context, SHA256};
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body, Error, SendBody, http};

/// How often a request is made before it counts as failed.
const ATTEMPTS_MAX: u32 = 4;
/// The pause before the second attempt; it doubles.
const PAUSE: Duration = Duration::from_millis(500);
/// How often a pause looks whether the end is wanted.
const PAUSE_SLICE: Duration = Duration::from_millis(50);
/// An object may take the time that it takes at this rate, besides the time in which the storage answers.
const BYTES_PER_SECOND_MIN: u64 = 64 << 10;
/// Largest answer that is kept in memory: a page of a list, or the description of an error.
const ANSWER_BYTES_MAX: u64 = 4 << 20;
const ANSWER_HEAD_BYTES_MAX: usize = 64 * 1024;
/// Pages of a list, of a thousand objects each.
const PAGES_MAX: u32 = 10_000;
/// Longest word of the storage for where a list goes on: it becomes a part of a path.
const TOKEN_BYTES_MAX: usize = 4096;
/// Bytes that are read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Whether the end of the work is wanted. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Wants it.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it is wanted.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Content of an object to be put: `bytes` bytes with this SHA-256, from a reader that can be opened again.
pub struct Content<'a> {
    /// Their number.
    pub bytes: u64,
    /// Their SHA-256, in hex.
    pub sha256: &'a str,
    /// Begins to read them.
    pub open: &'a dyn Fn() -> io::Result<Box<dyn Read>>,
}

/// The client of one bucket.
#[derive(Debug)]
pub struct Client {
    bucket: Bucket,
    agent: Agent,
    stop: Stop,
    /// The pause before the second attempt; it doubles.
    pause: Duration,
}

/// A reader that ends with an error once the end is wanted.
struct Breakable<'a> {
    inner: &'a mut dyn Read,
    stop: &'a Stop,
}

impl Read for Breakable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.is_set() {
            return Err(io::Error::other("the end was wanted"));
        }
        let most = buffer.len().min(CHUNK_BYTES);
        self.inner.read(&mut buffer[..most])
    }
}

impl Client {
    /// A client that ends what it does once `stop` is set.
    pub fn new(bucket: Bucket, stop: Stop) -> Self {
        let crypto = Arc::new(rustls::crypto::ring::default_provider());
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::Specific(Arc::new(system_roots().0)))
            .unversioned_rustls_crypto_provider(crypto)
            .build();
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            // A proxy of the environment would see the data.
            .proxy(None)
            // Follow no redirect: the signature is for one host.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .tls_config(tls)
            .timeout_connect(Some(bucket.timeout))
            .timeout_recv_response(Some(bucket.timeout))
            .max_response_header_size(ANSWER_HEAD_BYTES_MAX)
            .max_idle_connections(1)
            .user_agent(concat!("corq/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        Self { bucket, agent, stop, pause: PAUSE }
    }

    /// The bucket that it is for.
    pub fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    /// Puts an object in place, whole or not at all: the storage compares what has come with its SHA-256.
    pub fn put(&self, key: &str, content: &Content<'_>) -> Result<(), S3Fault> {
        self.repeat(|| {
            let mut source = (content.open)().map_err(S3Fault::Local)?.take(content.bytes);
            let mut source = Breakable { inner: &mut source, stop: &self.stop };
            let request = self.request("PUT", key, "", content.sha256);
            let request = request.header("content-length", content.bytes.to_string());
            let body = (content.bytes > 0).then_some(&mut source as &mut dyn Read);
            self.send(request, content.bytes, body).map(drop)
        })
    }

    /// Reads an object of `bytes` bytes. `into` gets a reader of it, anew for each attempt, and has to read it to its end.
    /// Fails if it is not what has this SHA-256; whatever `into` made of it then is void.
    pub fn get(
        &self,
        key: &str,
        (bytes, sha256): (u64, &str),
        into: &mut dyn FnMut(&mut dyn Read) -> io::Result<()>,
    ) -> Result<(), S3Fault> {
        self.repeat(|| {
            let mut answer = self.send(self.request("GET", key, "", EMPTY_SHA256), bytes, None)?;
            let mut counted = Counted {
                inner: answer.body_mut().as_reader().take(bytes.saturating_add(1)),
                count: 0,
                digest: Context::new(&SHA256),
                broken: None,
            };
            let mut source = Breakable { inner: &mut counted, stop: &self.stop };
            if let Err(error) = into(&mut source) {
                // Which side of the copy it was decides whether it may pass.
                return Err(match counted.broken.take() {
                    _ if self.stop.is_set() => S3Fault::Stopped,
                    Some(why) => S3Fault::Unanswered(why),
                    None => S3Fault::Local(error),
                });
            }
            if counted.count == bytes && hex(counted.digest.finish().as_ref()) == sha256 {
                return Ok(());
            }
            Err(S3Fault::Corrupt(format!("{key} is not what was put there: its SHA-256 differs")))
        })
    }

    /// Reads an object of at most `bytes_max` bytes into memory.
    pub fn get_small(&self, key: &str, bytes_max: u64) -> Result<Vec<u8>, S3Fault> {
        self.repeat(|| {
            let mut answer =
                self.send(self.request("GET", key, "", EMPTY_SHA256), bytes_max, None)?;
            let mut read = Vec::new();
            let body = answer.body_mut().as_reader();
            let taken = body.take(bytes_max.saturating_add(1)).read_to_end(&mut read);
            taken.map_err(|error| S3Fault::Unanswered(error.to_string()))?;
            if read.len() as u64 > bytes_max {
                let error = format!("{key} has more than {bytes_max} bytes");
                return Err(S3Fault::Local(io::Error::other(error)));
            }
            Ok(read)
        })
    }

    /// Removes an object, if it is there.
    pub fn delete(&self, key: &str) -> Result<(), S3Fault> {
        let gone = self
            .repeat(|| self.send(self.request("DELETE", key, "", EMPTY_SHA256), 0, None).map(drop));
        match gone {
            Err(fault) if fault.is_missing() => Ok(()),
            gone => gone,
        }
    }

    /// Lists what begins with `prefix`, with a delimiter only up to that. `seen` gets it page by page, so that no more than a
    /// page is in memory; what begins with something else was not asked for and is left out.
    pub fn list(
        &self,
        prefix: &str,
        delimiter: &str,
        seen: &mut dyn FnMut(Listed) -> Result<(), S3Fault>,
    ) -> Result<(), S3Fault> {
        let mut next: Option<String> = None;
        for _ in 0..PAGES_MAX {
            // Sorted by names, as signatures need them.
            let mut query = String::new();
            if let Some(token) = &next {
                query = format!("continuation-token={}&", encode(token));
            }
            if !delimiter.is_empty() {
                query = format!("{query}delimiter={}&", encode(delimiter));
            }
            let query = format!("{query}encoding-type=url&list-type=2&prefix={}", encode(prefix));
            let (mut listed, more) = self.repeat(|| {
                let request = self.request("GET", "", &query, EMPTY_SHA256);
                let mut answer = self.send(request, 0, None)?;
                let body =
                    text(&mut answer).map_err(|error| S3Fault::Unanswered(error.to_string()))?;
                page(&body).ok_or_else(|| S3Fault::Unanswered("its list cannot be read".into()))
            })?;
            listed.objects.retain(|object| object.key.starts_with(prefix));
            listed.prefixes.retain(|it| it.starts_with(prefix));
            seen(listed)?;
            let Some(more) = more else { return Ok(()) };
            if more.len() > TOKEN_BYTES_MAX || next.as_ref() == Some(&more) {
                return Err(S3Fault::Unanswered("its list does not go on".into()));
            }
            next = Some(more);
        }
        let error = format!("more than {PAGES_MAX} pages of objects begin with {prefix}");
        Err(S3Fault::Local(io::Error::other(error)))
    }

    /// Makes a request until it succeeds, fails for good, or has failed often enough.
    fn repeat<T>(&self, mut request: impl FnMut() -> Result<T, S3Fault>) -> Result<T, S3Fault> {
        let mut pause = self.pause;
        for attempt in 1.. {
            if self.stop.is_set() {
                break;
            }
            match request() {
                _ if self.stop.is_set() => break,
                Err(fault) if fault.may_pass() && attempt < ATTEMPTS_MAX => {}
                outcome => return outcome,
            }
            self.wait(pause);
            pause *= 2;
        }
        Err(S3Fault::Stopped)
    }

    fn wait(&self, pause: Duration) {
        let slices = pause.as_millis() / PAUSE_SLICE.as_millis();
        for _ in (0..slices).take_while(|_| !self.stop.is_set()) {
            std::thread::sleep(PAUSE_SLICE);
        }
    }

    fn request(
        &self,
        method: &str,
        key: &str,
        query: &str,
        sha256: &str,
    ) -> http::request::Builder {
        let path = self.bucket.path(key);
        let signed = Signed { method, path: &path, query, sha256, at_s: now_s() };
        let origin = self.bucket.origin();
        let mark = if query.is_empty() { "" } else { "?" };
        let mut request =
            http::Request::builder().method(method).uri(format!("{origin}{path}{mark}{query}"));
        for (name, value) in signed.headers(&self.bucket) {
            request = request.header(name, value);
        }
        request
    }

    /// Sends a request of whose object `bytes` bytes go one way or the other.
    fn send(
        &self,
        request: http::request::Builder,
        bytes: u64,
        body: Option<&mut dyn Read>,
    ) -> Result<http::Response<Body>, S3Fault> {
        match body {
            Some(reader) => self.run(request, bytes, SendBody::from_reader(reader)),
            None => self.run(request, bytes, SendBody::none()),
        }
    }

    fn run(
        &self,
        request: http::request::Builder,
        bytes: u64,
        body: SendBody<'_>,
    ) -> Result<http::Response<Body>, S3Fault> {
        let request = request.body(body).map_err(|error| {
            // Such as a token with a line break.
            S3Fault::Local(io::Error::other(format!("the request cannot be written: {error}")))
        })?;
        let most = self.bucket.timeout + Duration::from_secs(bytes / BYTES_PER_SECOND_MIN);
        let request = self.agent.configure_request(request).timeout_global(Some(most)).build();
        let mut answer = self.agent.run(request).map_err(|error| self.fault(&error))?;
        let status = answer.status().as_u16();
        if (200..300).contains(&status) {
            return Ok(answer);
        }
        // The storage may explain nothing, or repeat secrets that it was sent.
        let mut said = text(&mut answer).unwrap_or_default();
        let credentials = &self.bucket.credentials;
        let secrets = [Some(&credentials.secret), credentials.session_token.as_ref()];
        for secret in secrets.into_iter().flatten().filter(|it| !it.is_empty()) {
            said = said.replace(&**secret, "...");
        }
        Err(S3Fault::of_answer(status, &said))
    }

    fn fault(&self, error: &Error) -> S3Fault {
        if self.stop.is_set() {
            return S3Fault::Stopped;
        }
        S3Fault::Unanswered(match error {
            Error::Timeout(_) => format!("{} took too long", self.bucket.origin()),
            Error::HostNotFound => format!("the host of {} is not known", self.bucket.origin()),
            other => format!("{}: {other}", self.bucket.origin()),
        })
    }
}

/// SHA-256 of nothing, in hex.
const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn text(answer: &mut http::Response<Body>) -> io::Result<String> {
    let mut bytes = Vec::new();
    answer.body_mut().as_reader().take(ANSWER_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Counts and digests what passes, and keeps why it broke off.
struct Counted<R> {
    inner: R,
    count: u64,
    digest: Context,
    broken: Option<String>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer);
        match &read {
            Ok(read) => {
                self.count += *read as u64;
                self.digest.update(&buffer[..*read]);
            }
            Err(error) => self.broken = Some(error.to_string()),
        }
        read
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::bucket::Credentials;
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::sync::mpsc::{Receiver, channel};
    use std::thread;

    const OK: &str = "200 OK";
    /// SHA-256 of `abc`.
    const OF_ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    /// A storage that gives these answers to one request after the other, and then closes each connection unanswered. Also what
    /// was asked of it.
    fn storage(answers: Vec<(&'static str, String)>) -> (Client, Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (say, asked) = channel();
        thread::spawn(move || {
            let mut answers = answers.into_iter();
            for stream in listener.incoming().map_while(Result::ok) {
                let mut reader = BufReader::new(stream);
                let (mut first, mut length) = (String::new(), 0);
                reader.read_line(&mut first).unwrap();
                loop {
                    let mut line = String::new();
                    if reader.read_line(&mut line).unwrap() <= 2 {
                        break;
                    }
                    if let Some(it) = line.to_lowercase().strip_prefix("content-length: ") {
                        length = it.trim().parse().unwrap();
                    }
                }
                io::copy(&mut reader.by_ref().take(length), &mut io::sink()).unwrap();
                if say.send(first).is_err() {
                    return;
                }
                let Some((status, body)) = answers.next() else { continue };
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
                );
                reader.get_mut().write_all((head + &body).as_bytes()).unwrap();
            }
        });
        let credentials = Credentials {
            key_id: "key-id".into(),
            secret: "s3cret".into(),
            session_token: Some("t0ken".into()),
        };
        let endpoint = format!("http://127.0.0.1:{port}");
        let wait = Duration::from_mins(1);
        let bucket = Bucket::new("jobs", Some(&endpoint), "eu-west-1", credentials, wait).unwrap();
        (Client { pause: Duration::ZERO, ..Client::new(bucket, Stop::default()) }, asked)
    }

    fn put(client: &Client) -> Result<(), S3Fault> {
        let open = || -> io::Result<Box<dyn Read>> { Ok(Box::new(&b"abc"[..])) };
        client.put("k", &Content { bytes: 3, sha256: OF_ABC, open: &open })
    }

    fn get(client: &Client) -> Result<Vec<u8>, S3Fault> {
        let mut got = Vec::new();
        client.get("k", (3, OF_ABC), &mut |reader| {
            got.clear();
            reader.read_to_end(&mut got).map(drop)
        })?;
        Ok(got)
    }

    fn list(entries: &str) -> (&'static str, String) {
        (OK, format!("<ListBucketResult>{entries}</ListBucketResult>"))
    }

    #[test]
    fn a_request_that_may_succeed_the_next_time_is_made_again_and_no_other() {
        let busy = || ("503 Slow Down", String::new());
        let (client, asked) = storage(vec![busy(), busy(), busy(), (OK, String::new())]);
        put(&client).unwrap();
        assert_eq!(asked.try_iter().count(), 4);
        let (client, asked) = storage((0..9).map(|_| busy()).collect());
        assert!(matches!(put(&client), Err(S3Fault::Answered { status: 503, .. })));
        assert_eq!(asked.try_iter().count(), 4);
        let (client, asked) = storage(vec![("403 Forbidden", String::new()), (OK, String::new())]);
        assert!(matches!(put(&client), Err(S3Fault::Answered { status: 403, .. })));
        assert_eq!(asked.try_iter().count(), 1);
        // Closed without an answer.
        let (client, asked) = storage(Vec::new());
        assert!(matches!(put(&client), Err(S3Fault::Unanswered(_))));
        assert_eq!(asked.try_iter().count(), 4);
    }

    #[test]
    fn an_object_that_was_changed_cut_or_made_longer_is_not_taken() {
        let (client, _asked) = storage(vec![(OK, "abX".into()), (OK, "abc".into())]);
        assert_eq!(get(&client).unwrap(), b"abc", "the second attempt had it");
        for wrong in ["abX", "ab", "abcd", ""] {
            let (client, _asked) = storage((0..4).map(|_| (OK, wrong.into())).collect());
            assert!(matches!(get(&client), Err(S3Fault::Corrupt(_))), "{wrong}");
        }
    }

    #[test]
    fn a_list_is_read_to_its_end_without_what_was_not_asked_for() {
        let cut = "<IsTruncated>true</IsTruncated><NextContinuationToken>n</NextContinuationToken>";
        let object = |key: &str| format!("<Contents><Key>{key}</Key><Size>1</Size></Contents>");
        let pages = [
            list(&(object("p/a") + &object("other/b") + cut)),
            list(&(object("p/c") + "<CommonPrefixes><Prefix>q/</Prefix></CommonPrefixes>")),
        ];
        let (client, asked) = storage(pages.into());
        let mut seen = Vec::new();
        let mut keep = |listed: Listed| {
            seen.extend(listed.objects.into_iter().map(|it| it.key));
            seen.extend(listed.prefixes);
            Ok(())
        };
        client.list("p/", "/", &mut keep).unwrap();
        assert_eq!(seen, ["p/a", "p/c"]);
        assert!(asked.iter().nth(1).unwrap().contains("?continuation-token=n&delimiter=%2F&"));
        let (client, _asked) = storage((0..3).map(|_| list(cut)).collect());
        let fault = client.list("p/", "", &mut |_| Ok(())).unwrap_err();
        assert!(fault.to_string().contains("does not go on"), "{fault}");
    }

    #[test]
    fn what_the_storage_says_is_shown_without_keys_and_control_characters() {
        let body =
            "<Error><Code>Odd</Code><Message>you sent t0ken\u{1b}[2J and s3cret</Message></Error>";
        let (client, _asked) = storage(vec![("400 Bad Request", body.into())]);
        let said = put(&client).unwrap_err().to_string();
        assert_eq!(said, "the storage answered 400 Odd you sent ...[2J and ...");
    }
}
