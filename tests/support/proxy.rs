//! A wire between client and server that can be cut, or let nothing through without a word, each way by itself.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use socket2::SockRef;

/// Between two looks at a way that is blocked.
const PAUSE: Duration = Duration::from_millis(5);

/// Bytes that are forwarded at once.
const CHUNK_BYTES: usize = 4096;

/// A direction of a wire.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    ToServer,
    ToClient,
}

/// Forwards connections to a port, until they are cut.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    wire: Arc<Wire>,
}

/// A connection, by its two ends.
struct Link {
    client: TcpStream,
    server: TcpStream,
    /// The server is not to hear that the client is gone.
    is_abandoned: AtomicBool,
}

#[derive(Default)]
struct Wire {
    open: Mutex<Vec<Arc<Link>>>,
    /// Connections of which only the end of the server is left.
    abandoned: Mutex<Vec<Arc<Link>>>,
    /// Ways that let nothing through, in the order of [`Way`].
    blocked: [AtomicBool; 2],
    /// New connections end at once.
    refuses: AtomicBool,
    /// Before a client's bytes with this in them the way to the server is blocked.
    barrier: Mutex<Option<&'static str>>,
}

impl Proxy {
    pub(crate) fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().port();
        let wire = Arc::new(Wire::default());
        let shared = Arc::clone(&wire);
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                // No server listens while it is down.
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let link = Arc::new(Link { client, server, is_abandoned: AtomicBool::new(false) });
                let mut open = shared.open.lock().unwrap();
                // Decided under the lock that a cut takes: none slips through.
                if shared.refuses.load(Ordering::Acquire) {
                    continue;
                }
                open.push(Arc::clone(&link));
                drop(open);
                forward(&shared, &link, Way::ToServer);
                forward(&shared, &link, Way::ToClient);
            }
        });
        Self { port: own, wire }
    }

    /// Resets all connections, whatever is on its way; answers how many.
    pub(crate) fn cut(&self) -> usize {
        let open = std::mem::take(&mut *self.wire.open.lock().unwrap());
        for link in &open {
            reset(&link.client);
            reset(&link.server);
        }
        open.len()
    }

    /// Ends all connections for their clients. The server hears nothing of it, as of a machine that is gone.
    pub(crate) fn abandon(&self) {
        let open = std::mem::take(&mut *self.wire.open.lock().unwrap());
        for link in &open {
            link.is_abandoned.store(true, Ordering::Release);
            reset(&link.client);
        }
        self.wire.abandoned.lock().unwrap().extend(open);
    }

    /// Lets nothing more through this way; what comes meanwhile stays where it is.
    pub(crate) fn block(&self, way: Way) {
        self.wire.blocked[way as usize].store(true, Ordering::Release);
    }

    /// Blocks the way to the server before a client's bytes with this text in them.
    pub(crate) fn block_before(&self, text: &'static str) {
        *self.wire.barrier.lock().unwrap() = Some(text);
    }

    pub(crate) fn is_blocked(&self, way: Way) -> bool {
        self.wire.blocked[way as usize].load(Ordering::Acquire)
    }

    /// Ends new connections at once.
    pub(crate) fn refuse(&self) {
        self.wire.refuses.store(true, Ordering::Release);
    }

    /// Takes all hindrances away; connections that were cut stay so.
    pub(crate) fn mend(&self) {
        let Wire { blocked: [to_server, to_client], refuses, .. } = &*self.wire;
        for hindrance in [to_server, to_client, refuses] {
            hindrance.store(false, Ordering::Release);
        }
    }
}

fn reset(socket: &TcpStream) {
    // Without time to linger, the last close is a reset.
    let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
    let _ = socket.shutdown(Shutdown::Both);
}

fn forward(wire: &Arc<Wire>, link: &Arc<Link>, way: Way) {
    let (wire, link) = (Arc::clone(wire), Arc::clone(link));
    thread::spawn(move || {
        let (mut from, mut to) = match way {
            Way::ToServer => (&link.client, &link.server),
            Way::ToClient => (&link.server, &link.client),
        };
        let mut bytes = [0; CHUNK_BYTES];
        while let Ok(count) = from.read(&mut bytes) {
            if way == Way::ToServer {
                wire.meet(&bytes[..count]);
            }
            while wire.blocked[way as usize].load(Ordering::Acquire) {
                thread::sleep(PAUSE);
            }
            if count == 0 || to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        // A side that says no more may still be told something.
        if !link.is_abandoned.load(Ordering::Acquire) {
            let _ = to.shutdown(Shutdown::Write);
        }
    });
}

impl Wire {
    /// Blocks the way to the server if these are the bytes that it is to be blocked before.
    fn meet(&self, bytes: &[u8]) {
        let mut barrier = self.barrier.lock().unwrap();
        let is_met = |text: &mut &str| bytes.windows(text.len()).any(|it| it == text.as_bytes());
        if barrier.take_if(is_met).is_some() {
            self.blocked[Way::ToServer as usize].store(true, Ordering::Release);
        }
    }
}
