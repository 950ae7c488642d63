//! A wire between client and server that can be cut.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Forwards connections to a port, until they are cut.
pub(super) struct Proxy {
    pub(super) port: u16,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    pub(super) fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().port();
        let open = Arc::new(Mutex::new(Vec::new()));
        let connections = open.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                // No server listens while it is down.
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let copies = [client.try_clone().unwrap(), server.try_clone().unwrap()];
                connections.lock().unwrap().extend(copies);
                forward(client.try_clone().unwrap(), server.try_clone().unwrap());
                forward(server, client);
            }
        });
        Self { port: own, open }
    }

    /// Cuts all connections, whatever is on its way.
    pub(super) fn cut(&self) -> usize {
        let mut open = self.open.lock().unwrap();
        for socket in open.iter() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        open.drain(..).count() / 2
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count) = from.read(&mut bytes) {
            if count == 0 || to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        // A side that says no more may still be told something.
        let _ = to.shutdown(Shutdown::Write);
    });
}
