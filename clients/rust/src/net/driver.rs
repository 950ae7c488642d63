//! The task of one connection: sends what callers have written, cuts what arrives into replies.

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::Sleep;

use super::pipe::{Orders, Pipe};
use crate::wire::frame;
use crate::wire::reply::Incoming;

/// Room for what arrives at a time.
const INPUT_BYTES: usize = 32 << 10;

/// With less room than this, new memory is taken.
const INPUT_BYTES_MIN: usize = 4 << 10;

/// How long a connection that nobody waits on any more is kept for jobs that may still come, to give them back.
const LINGER: Duration = Duration::from_mins(1);

/// Pieces that go out with one call.
const PIECES: usize = 16;

/// Moves the bytes of one connection until it ends; the pipe gets the reason.
pub(crate) struct Driver<S> {
    pipe: Arc<Pipe>,
    stream: S,
    sending: VecDeque<Bytes>,
    unflushed: bool,
    shut: bool,
    input: BytesMut,
    incoming: Vec<Incoming>,
    /// Runs once nobody waits any more, and jobs may still come.
    linger: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Driver<S> {
    pub(crate) fn new(pipe: Arc<Pipe>, stream: S) -> Self {
        Self {
            pipe,
            stream,
            sending: VecDeque::new(),
            unflushed: false,
            shut: false,
            input: BytesMut::new(),
            incoming: Vec::new(),
            linger: None,
        }
    }

    /// Sends until there is nothing left to send.
    fn send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.sending.is_empty() {
            let mut pieces = [IoSlice::new(&[]); PIECES];
            let mut count = 0;
            for (piece, bytes) in pieces.iter_mut().zip(&self.sending) {
                *piece = IoSlice::new(bytes);
                count += 1;
            }
            let stream = Pin::new(&mut self.stream);
            let mut sent = ready!(stream.poll_write_vectored(context, &pieces[..count]))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unflushed = true;
            while let Some(first) = self.sending.front_mut() {
                if sent < first.len() {
                    first.advance(sent);
                    break;
                }
                sent -= first.len();
                self.sending.pop_front();
            }
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(context))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads once and hands out what has come whole. `Ready(false)` at the end of the stream.
    fn receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let missing = frame::missing(&self.input);
        // A new piece of memory for each small read would cost more than the read.
        if self.input.capacity() - self.input.len() < missing.max(INPUT_BYTES_MIN) {
            self.input.reserve(missing.max(INPUT_BYTES));
        }
        let read = pin!(self.stream.read_buf(&mut self.input));
        if ready!(read.poll(context))? == 0 {
            return Poll::Ready(Ok(false));
        }
        let garbled = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        while let Some(frame) = frame::next(&mut self.input)
            .map_err(|frame::TooLarge(bytes)| garbled(format!("a reply of {bytes} bytes")))?
        {
            let incoming = Incoming::read(frame);
            self.incoming.push(incoming.map_err(|malformed| garbled(malformed.0.to_owned()))?);
        }
        if !self.incoming.is_empty() {
            self.pipe.deliver(&mut self.incoming);
        }
        Poll::Ready(Ok(true))
    }

    fn step(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let Orders { closing, awaited, owed, ended } =
                self.pipe.take(&mut self.sending, context.waker());
            if ended {
                return Poll::Ready(Ok(()));
            }
            let mut all_sent = false;
            if let Poll::Ready(sent) = self.send(context) {
                sent?;
                all_sent = true;
            }
            if closing && all_sent {
                if !self.shut {
                    ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
                    self.shut = true;
                }
                if !awaited {
                    if !owed {
                        return Poll::Ready(Ok(()));
                    }
                    let lingers = || Box::pin(tokio::time::sleep(LINGER));
                    let linger = self.linger.get_or_insert_with(lingers);
                    if linger.as_mut().poll(context).is_ready() {
                        return Poll::Ready(Ok(()));
                    }
                }
            }
            match self.receive(context) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) => {
                    return Poll::Ready(Err(io::Error::other("the server has closed it")));
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                // Requests written meanwhile have woken this task already; unsent bytes wake it when the network takes
                // them.
                Poll::Pending if all_sent && self.pipe.has_output() => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Future for Driver<S> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let driver = self.get_mut();
        let done = ready!(driver.step(context));
        let why = match done {
            Ok(()) => "it was closed".into(),
            Err(error) => error.to_string().into(),
        };
        driver.pipe.end(why);
        Poll::Ready(())
    }
}

impl<S> Drop for Driver<S> {
    /// Also when the runtime goes: no caller is left waiting for ever.
    fn drop(&mut self) {
        self.pipe.end("its runtime was shut down".into());
    }
}
