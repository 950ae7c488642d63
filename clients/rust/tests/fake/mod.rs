//! A server of the protocol that does what a test tells it: for what the real one does not do on demand.
#![allow(dead_code)]

pub(crate) mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rmpv::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// How long a condition may take. Long, because a loaded machine is not a broken client.
pub(crate) const DEADLINE: Duration = Duration::from_mins(5);

pub(crate) async fn until(what: &str, mut met: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !met() {
        assert!(begun.elapsed() < DEADLINE, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub(crate) fn map(fields: &[(&str, Value)]) -> Value {
    Value::Map(fields.iter().map(|(key, value)| (Value::from(*key), value.clone())).collect())
}

/// A request, with the means to answer it.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) cmd: String,
    pub(crate) fields: Value,
}

impl Asked {
    /// The reply: `ok`, the number of the request, and these fields.
    pub(crate) fn reply(&self, ok: bool, fields: &[(&str, Value)]) -> Value {
        let mut reply =
            vec![("ok".into(), ok.into()), ("reqId".into(), self.fields["reqId"].clone())];
        reply.extend(fields.iter().map(|(key, value)| (Value::from(*key), value.clone())));
        Value::Map(reply)
    }
}

/// A connection as the server has it.
pub(crate) struct Peer<S> {
    pub(crate) stream: S,
    /// Which connection it is, from 0.
    pub(crate) number: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    /// The next request; greetings are answered here. `None` at the end of the connection.
    pub(crate) async fn next(&mut self) -> Option<Asked> {
        loop {
            let asked = self.read().await?;
            match asked.cmd.as_str() {
                "Hello" => {
                    let fields = [
                        ("server", "fake".into()),
                        ("version", "0".into()),
                        ("protocolVersion", 3.into()),
                    ];
                    self.write(&asked.reply(true, &fields)).await;
                }
                "Auth" => {
                    let ok = asked.fields["token"].as_str() == Some("right");
                    let error = [("error", "Invalid token".into())];
                    self.write(&asked.reply(ok, if ok { &[] } else { &error })).await;
                }
                "RegisterWorker" => {
                    let data = Value::Map(vec![("workerId".into(), "w".into())]);
                    self.write(&asked.reply(true, &[("data", data)])).await;
                }
                _ => return Some(asked),
            }
        }
    }

    async fn read(&mut self) -> Option<Asked> {
        let length = self.stream.read_u32().await.ok()?;
        let mut frame = vec![0; length as usize];
        self.stream.read_exact(&mut frame).await.ok()?;
        let fields = rmpv::decode::read_value(&mut &frame[..]).unwrap();
        Some(Asked { cmd: fields["cmd"].as_str().unwrap().to_owned(), fields })
    }

    pub(crate) async fn write(&mut self, value: &Value) {
        let mut frame = vec![0; 4];
        rmpv::encode::write_value(&mut frame, value).unwrap();
        let length = u32::try_from(frame.len() - 4).unwrap();
        frame[..4].copy_from_slice(&length.to_be_bytes());
        // A client that is gone is what some tests are about.
        let _ = self.stream.write_all(&frame).await;
    }

    pub(crate) async fn ok(&mut self, asked: &Asked, fields: &[(&str, Value)]) {
        self.write(&asked.reply(true, fields)).await;
    }

    pub(crate) async fn refuse(&mut self, asked: &Asked, words: &str) {
        self.write(&asked.reply(false, &[("error", words.into())])).await;
    }
}

/// Where it listens, and how many connections there have been.
pub(crate) struct Fake {
    pub(crate) address: String,
    pub(crate) connections: Arc<AtomicUsize>,
}

/// Starts one that treats each connection as `serve` says.
pub(crate) async fn start<F, Fut>(serve: F) -> Fake
where
    F: Fn(Peer<TcpStream>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).unwrap();
            let number = counted.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(serve(Peer { stream, number }));
        }
    });
    Fake { address, connections }
}
