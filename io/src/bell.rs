//! The other way to wait: the executor sleeps and the ring's eventfd wakes it.
//!
//! Knows glommio's files and timers; does not know what the ring carries. An executor of glommio may
//! park although a task could run, so a tick is armed for as long as a bell exists; a wait is never
//! longer than one tick.
#![allow(unsafe_code)] // An eventfd becomes a file of the executor.

use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use glommio::Task;
use glommio::io::BufferedFile;
use glommio::timer::Timer;

use crate::mesh::event_fd;
use crate::ring::Ring;

/// The longest that a stuck executor can stay stuck.
const TICK: Duration = Duration::from_millis(10);

/// An eventfd that the ring rings and the executor awaits.
pub(crate) struct Bell {
    file: Rc<BufferedFile>,
    /// The read under way. It outlives a wait that ended by time: a cancelled read could swallow
    /// the ring that its successor waits for.
    read: Option<Pin<Box<dyn Future<Output = ()>>>>,
    _tick: Task<()>,
}

impl Bell {
    /// Hangs the bell on `ring`. Must be called on a thread that runs an executor.
    pub(crate) fn new(ring: &Ring) -> io::Result<Self> {
        let fd = event_fd()?;
        ring.submitter().register_eventfd(fd.as_raw_fd())?;
        // SAFETY: the descriptor is open and from here on owned by the file alone.
        let file = unsafe { BufferedFile::from_raw_fd(fd.into_raw_fd()) };
        let tick = glommio::spawn_local(async {
            loop {
                Timer::new(TICK).await;
            }
        });
        Ok(Self { file: Rc::new(file), read: None, _tick: tick })
    }

    /// Lets other tasks of the executor run if their turn has come.
    pub(crate) async fn give_way(&self) {
        glommio::executor().yield_if_needed().await;
    }

    /// Sleeps until the ring has a completion, `deadline`, or a tick; the caller looks what it was.
    pub(crate) async fn wait(&mut self, deadline: Option<Instant>) {
        let now = Instant::now();
        let timeout = deadline.map_or(TICK, |at| at.saturating_duration_since(now).min(TICK));
        let mut timer = pin!(Timer::new(timeout));
        poll_fn(|context| {
            let read = self.read.get_or_insert_with(|| {
                let file = Rc::clone(&self.file);
                Box::pin(async move {
                    // A failed read is as good as a ring: the caller looks into its queue, and the
                    // tick bounds how often it does.
                    let _ = file.read_at(0, 8).await;
                })
            });
            if read.as_mut().poll(context).is_ready() {
                self.read = None;
                return Poll::Ready(());
            }
            timer.as_mut().poll(context).map(drop)
        })
        .await;
    }
}
