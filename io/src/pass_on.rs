//! Connections of clients that are passed on to another server, byte by byte: TLS and the protocol are matters of its own.

use socket2::SockRef;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy, split};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// How long the other server may take to accept.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Before another attempt to accept when the system lacked something for it.
const PAUSE: Duration = Duration::from_millis(100);

/// A socket from which connections are passed on.
#[derive(Debug)]
pub struct Door {
    /// To accept from.
    pub socket: OwnedFd,
    /// Whether it is one at a path.
    pub is_path: bool,
    /// Port of the other server.
    pub port: u16,
}

/// Passes connections on until it is dropped, which ends them all.
#[derive(Debug)]
pub struct PassOn {
    /// Has one thread, which ends with it.
    runtime: Option<Runtime>,
    /// Second handles of the sockets.
    sockets: Vec<OwnedFd>,
}

impl PassOn {
    /// Passes what comes to the doors on to a host, at most so many connections at a time. Others wait to be accepted.
    pub fn open(doors: Vec<Door>, host: &str, connections_max: usize) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("corq-pass-on")
            .enable_all()
            .build()?;
        let permits = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
        let mut sockets = Vec::with_capacity(doors.len());
        let entered = runtime.enter();
        for Door { socket, is_path, port } in doors {
            sockets.push(socket.try_clone()?);
            SockRef::from(&socket).set_nonblocking(true)?;
            let socket = if is_path {
                Listener::Path(UnixListener::from_std(socket.into())?)
            } else {
                Listener::Port(TcpListener::from_std(socket.into())?)
            };
            runtime.spawn(accept(socket, (host.to_owned(), port), Arc::clone(&permits)));
        }
        drop(entered);
        Ok(Self { runtime: Some(runtime), sockets })
    }
}

impl Drop for PassOn {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A name that is being looked up is not waited for.
            runtime.shutdown_timeout(PAUSE);
        }
        // A ring that accepts from them next wants them to wait.
        for socket in &self.sockets {
            let _ = SockRef::from(socket).set_nonblocking(false);
        }
    }
}

/// The other end of an accepted connection.
trait Client: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Client for T {}

enum Listener {
    Port(TcpListener),
    Path(UnixListener),
}

impl Listener {
    /// The next connection, which has inherited what is set of the socket.
    async fn next(&self) -> io::Result<Box<dyn Client>> {
        Ok(match self {
            Self::Path(socket) => Box::new(socket.accept().await?.0),
            Self::Port(socket) => Box::new(socket.accept().await?.0),
        })
    }
}

/// Accepts connections from one socket.
async fn accept(socket: Listener, target: (String, u16), permits: Arc<Semaphore>) {
    loop {
        match socket.next().await {
            Ok(client) => {
                // A permit that waited for a client would be lacking at another door. They are never closed.
                let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
                let target = target.clone();
                tokio::spawn(async move {
                    // A client learns of an error by the end of its connection, as of any server that is gone.
                    let _ = pass(client, target).await;
                    drop(permit);
                });
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// Passes one connection on until the other server has ended it. A client that only listens from now on still gets all.
async fn pass(client: Box<dyn Client>, target: (String, u16)) -> io::Result<()> {
    let server = timeout(CONNECT_MAX, TcpStream::connect(target)).await??;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_client) = split(client);
    let (mut from_server, mut to_server) = server.into_split();
    let up = tokio::spawn(async move {
        // The server learns of an error by the end, and ends the connection.
        let _ = copy(&mut from_client, &mut to_server).await;
        to_server.shutdown().await
    });
    let down = copy(&mut from_server, &mut to_client).await;
    up.abort();
    down?;
    to_client.shutdown().await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream as Stream};
    use std::thread;

    fn listen() -> (TcpListener, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    #[test]
    fn all_bytes_are_passed_both_ways_and_the_ends_too() {
        let (server, port) = listen();
        let (door, at) = listen();
        let echo = thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut said = Vec::new();
            stream.read_to_end(&mut said).unwrap();
            stream.write_all(&said).unwrap();
        });
        let doors = vec![Door { socket: door.into(), is_path: false, port }];
        let _passes = PassOn::open(doors, "127.0.0.1", 8).unwrap();
        let mut client = Stream::connect(("127.0.0.1", at)).unwrap();
        let said: Vec<u8> = (0..1 << 20).map(|at: u32| (at >> 3) as u8).collect();
        client.write_all(&said).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).unwrap();
        assert!(heard == said);
        echo.join().unwrap();
    }

    #[test]
    fn connections_end_with_it_and_with_the_server() {
        let (server, port) = listen();
        let (door, at) = listen();
        let doors = vec![Door { socket: door.into(), is_path: false, port }];
        let passes = PassOn::open(doors, "127.0.0.1", 8).unwrap();
        let ends = |client: &mut Stream| matches!(client.read(&mut [0]), Ok(0) | Err(_));
        let mut first = Stream::connect(("127.0.0.1", at)).unwrap();
        drop(server.accept().unwrap());
        assert!(ends(&mut first));
        let mut second = Stream::connect(("127.0.0.1", at)).unwrap();
        let _held = server.accept().unwrap();
        drop(passes);
        assert!(ends(&mut second));
        assert!(Stream::connect(("127.0.0.1", at)).is_err());
    }
}
