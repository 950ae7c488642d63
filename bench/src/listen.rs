//! Clients that listen to the events of what the others do, over server-sent events: what they cost the server and
//! how much of it reaches them. Knows no more of HTTP than the head of one answer.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};

use crate::options::Options;
use crate::socket::{Ender, Socket};

/// Longest time until a stream has begun.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sums over all listeners.
#[derive(Default)]
struct Heard {
    events: AtomicU64,
    bytes: AtomicU64,
}

/// Listeners at work.
pub(crate) struct Listeners {
    enders: Vec<Ender>,
    threads: Vec<JoinHandle<()>>,
    heard: Arc<Heard>,
}

impl Listeners {
    /// Opens as many streams as are asked for; all of them have begun when this returns.
    pub(crate) fn open(options: &Options, queues: &[String]) -> Result<Self, String> {
        let heard = Arc::<Heard>::default();
        let mut listeners = Self { enders: Vec::new(), threads: Vec::new(), heard };
        for index in 0..options.listeners as usize {
            let path = if options.listen_to_one {
                format!("/events/queues/{}", queues[index % queues.len()])
            } else {
                "/events".to_owned()
            };
            let socket = begin(options, &path).map_err(|error| {
                format!("cannot listen on port {}: {error}", options.target.http_port)
            })?;
            let ender = socket.ender().map_err(|error| error.to_string())?;
            let heard = Arc::clone(&listeners.heard);
            listeners.enders.push(ender);
            listeners.threads.push(thread::spawn(move || listen(socket, &heard)));
        }
        Ok(listeners)
    }

    /// Ends all streams; says what was heard on them.
    pub(crate) fn close(self) -> Value {
        let ended_early = self.threads.iter().filter(|thread| thread.is_finished()).count();
        self.enders.iter().for_each(Ender::end);
        let count = self.threads.len();
        for thread in self.threads {
            // Ignore the result: a listener does nothing that could panic.
            let _ = thread.join();
        }
        json!({
            "count": count,
            "ended_early": ended_early,
            "events": self.heard.events.load(Ordering::Relaxed),
            "bytes": self.heard.bytes.load(Ordering::Relaxed),
        })
    }
}

/// Asks for a stream and waits for its first message.
fn begin(options: &Options, path: &str) -> std::io::Result<Socket> {
    let mut socket = Socket::http(&options.target).map_err(std::io::Error::other)?;
    socket.set_patience(Some(PATIENCE))?;
    let token = options.target.token.as_ref();
    let token =
        token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    let host = &options.target.host;
    socket.write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{token}\r\n").as_bytes())?;
    let mut text = Vec::new();
    while !text.ends_with(b"}\n\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte)?;
        text.push(byte[0]);
        if text.len() > 4096 || text.len() == 12 && !text.ends_with(b" 200") {
            let said = String::from_utf8_lossy(&text).into_owned();
            return Err(std::io::Error::new(ErrorKind::InvalidData, said));
        }
    }
    socket.set_patience(None)?;
    Ok(socket)
}

/// Counts messages until the stream ends.
fn listen(mut socket: Socket, heard: &Heard) {
    let mut buffer = vec![0; 256 * 1024];
    let mut line_begins = true;
    while let Ok(bytes @ 1..) = socket.read(&mut buffer) {
        let mut events = 0;
        for &byte in &buffer[..bytes] {
            // Each message is one `data:` line.
            events += u64::from(line_begins && byte == b'd');
            line_begins = byte == b'\n';
        }
        heard.events.fetch_add(events, Ordering::Relaxed);
        heard.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
