//! A receiver of webhooks on loopback that answers as a test tells it: well, badly, slowly, never.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The receiver's answer to a post.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Habit {
    /// A status and nothing else; the connection stays.
    Status(u16),
    /// A status, and the seconds after which to come again.
    Later(u16, u8),
    /// A good status, and as a collector of traces that one span was not taken.
    TakenButOne,
    /// To somewhere else.
    Redirect(u16),
    /// Nothing, for as long as the sender waits.
    Hang,
    /// The end of the connection.
    Close,
    /// An answer that does not come to its end, a byte now and then.
    Drip,
    /// A good head, and then a body that does not come to its end.
    DripBody,
    /// Nothing is read beyond the head, a few bytes now and then.
    ReadSlowly,
}

/// A post as it came.
#[derive(Clone, Debug)]
pub(crate) struct Post {
    /// Number of the connection it came by.
    pub(crate) connection: usize,
    /// The first line.
    pub(crate) line: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// When it was there.
    pub(crate) at: Instant,
}

impl Post {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body is JSON text")
    }
}

type Answers = Arc<dyn Fn(usize, &Post) -> Habit + Send + Sync>;

/// A receiver of webhooks on a thread. It ends with the process.
pub(crate) struct Receiver {
    address: SocketAddr,
    posts: Arc<Mutex<Vec<Post>>>,
}

impl Receiver {
    /// Answers every post in the same way.
    pub(crate) fn always(answer: Habit) -> Self {
        Self::start(move |_, _| answer)
    }

    /// Answers each post as `answers` says, given how many there were before.
    pub(crate) fn start(answers: impl Fn(usize, &Post) -> Habit + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let posts = Arc::new(Mutex::new(Vec::new()));
        let (kept, answers): (_, Answers) = (Arc::clone(&posts), Arc::new(answers));
        thread::spawn(move || {
            for (connection, socket) in listener.incoming().enumerate() {
                let Ok(socket) = socket else { continue };
                let (posts, answers) = (Arc::clone(&kept), Arc::clone(&answers));
                thread::spawn(move || converse(socket, connection, &posts, &answers));
            }
        });
        Self { address, posts }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Posts that have come so far.
    pub(crate) fn posts(&self) -> Vec<Post> {
        self.posts.lock().expect("no receiver has panicked").clone()
    }
}

fn converse(
    mut socket: TcpStream,
    connection: usize,
    posts: &Mutex<Vec<Post>>,
    answers: &Answers,
) -> Option<()> {
    let mut bytes = Vec::new();
    loop {
        let head = loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            read_some(&mut socket, &mut bytes)?;
        };
        let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
        let mut lines = text.lines();
        let line = lines.next()?.to_owned();
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let mut post = Post { connection, line, headers, body: Vec::new(), at: Instant::now() };
        let length: usize = post.header("content-length")?.parse().ok()?;
        let before = posts.lock().ok()?.len();
        if answers(before, &post) == Habit::ReadSlowly {
            posts.lock().ok()?.push(post);
            let mut few = [0; 16];
            while socket.read(&mut few).is_ok_and(|read| read > 0) {
                thread::sleep(Duration::from_millis(20));
            }
            return None;
        }
        while bytes.len() < head + length {
            read_some(&mut socket, &mut bytes)?;
        }
        post.body = bytes[head..head + length].to_vec();
        post.at = Instant::now();
        bytes.drain(..head + length);
        let answer = {
            let mut posts = posts.lock().ok()?;
            let answer = answers(posts.len(), &post);
            posts.push(post);
            answer
        };
        say(&mut socket, answer)?;
    }
}

/// More bytes of the peer; none once it has gone.
fn read_some(socket: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<()> {
    let mut chunk = [0; 16 * 1024];
    let read = socket.read(&mut chunk).ok().filter(|&read| read > 0)?;
    bytes.extend_from_slice(&chunk[..read]);
    Some(())
}

/// Answers; none if that was the end of the connection.
fn say(socket: &mut TcpStream, answer: Habit) -> Option<()> {
    let drip = |socket: &mut TcpStream, text: &str| {
        for byte in text.bytes().chain(std::iter::repeat(b'x')) {
            socket.write_all(&[byte]).ok()?;
            thread::sleep(Duration::from_millis(20));
        }
        None
    };
    match answer {
        Habit::Status(status) => {
            let text = format!("HTTP/1.1 {status} Told\r\nContent-Length: 2\r\n\r\nok");
            socket.write_all(text.as_bytes()).ok()
        }
        Habit::Later(status, seconds) => {
            let text = format!(
                "HTTP/1.1 {status} Later\r\nRetry-After: {seconds}\r\nContent-Length: 0\r\n\r\n"
            );
            socket.write_all(text.as_bytes()).ok()
        }
        Habit::TakenButOne => {
            let head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 9\r\n\r\n";
            socket.write_all(head).ok()?;
            socket.write_all(b"\x0a\x07\x08\x01\x12\x03old").ok()
        }
        Habit::Redirect(port) => {
            let text = format!(
                "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{port}/\r\nContent-Length: 0\r\n\r\n"
            );
            socket.write_all(text.as_bytes()).ok()
        }
        // Until the sender has had enough.
        Habit::Hang => read_some(socket, &mut Vec::new()),
        Habit::Close | Habit::ReadSlowly => None,
        Habit::Drip => drip(socket, "HTTP/1.1 200 OK\r\nX-Long: "),
        Habit::DripBody => {
            socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n").ok()?;
            drip(socket, "")
        }
    }
}
