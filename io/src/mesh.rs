//! How shards talk: one inbox per shard, one batch per destination and turn.
//!
//! Knows queues and wake-ups; does not know what a batch holds. A receiver that is awake is never
//! woken, one that sleeps is woken once.
#![allow(unsafe_code)] // Eventfds are made and written by system calls.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use crossbeam_channel::{Receiver, Sender, TrySendError};

/// Batches that an inbox holds before its senders keep theirs.
pub const INBOX_BATCHES: usize = 1024;

/// Why a batch was not taken. It comes back unharmed.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused<M> {
    /// The inbox is full: keep the batch, add to it, try again next turn.
    Full(M),
    /// The shard has ended.
    Gone(M),
}

/// Wakes a sleeping shard. Alone in its cache line: each shard writes to its own twice for every sleep.
#[derive(Debug)]
#[repr(align(64))]
pub struct Wakeup {
    fd: OwnedFd,
    asleep: AtomicBool,
}

impl Wakeup {
    fn new() -> io::Result<Self> {
        Ok(Self { fd: event_fd()?, asleep: AtomicBool::new(false) })
    }

    fn signal(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: eight bytes are read from a live array and the descriptor is open. The counter
        // cannot fill up (2^64 - 2 wake-ups), and one that is already there serves as well.
        unsafe { libc::write(self.fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }
}

impl AsRawFd for Wakeup {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// A closed-on-exec eventfd at zero. Blocking, since the ring reads it by polling.
fn event_fd() -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved, and a descriptor that is returned is ours alone.
    unsafe {
        match libc::eventfd(0, libc::EFD_CLOEXEC) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Wakes one shard from any thread, whether it sleeps or not.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Wakeup>);

impl Waker {
    /// The shard's current or next wait ends with `Event::Woken`.
    pub fn wake(&self) {
        self.0.signal();
    }
}

/// Makes the endpoints of a fixed number of shards.
pub struct Mesh<M>(std::marker::PhantomData<M>);

impl<M> Mesh<M> {
    /// Makes an endpoint per shard, in the order of the shards, with inboxes of [`INBOX_BATCHES`].
    #[expect(clippy::new_ret_no_self, reason = "a mesh is nothing but its endpoints")]
    pub fn new(shards: usize) -> io::Result<Vec<Endpoint<M>>> {
        Self::with_capacity(shards, INBOX_BATCHES)
    }

    /// Makes an endpoint per shard, in the order of the shards, with inboxes of `inbox_batches`.
    pub fn with_capacity(shards: usize, inbox_batches: usize) -> io::Result<Vec<Endpoint<M>>> {
        let wakeups: Vec<Arc<Wakeup>> =
            (0..shards).map(|_| Wakeup::new().map(Arc::new)).collect::<io::Result<_>>()?;
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..shards).map(|_| crossbeam_channel::bounded(inbox_batches)).unzip();
        let endpoints = receivers.into_iter().enumerate().map(|(shard, inbox)| Endpoint {
            shard,
            inbox,
            outboxes: senders.clone(),
            wakeups: wakeups.clone(),
            to_wake: vec![false; shards],
            any_to_wake: false,
            wakeups_sent: 0,
        });
        Ok(endpoints.collect())
    }
}

/// A shard's place in the mesh.
pub struct Endpoint<M> {
    shard: usize,
    inbox: Receiver<M>,
    outboxes: Vec<Sender<M>>,
    wakeups: Vec<Arc<Wakeup>>,
    /// Destinations that got a batch since the last flush.
    to_wake: Vec<bool>,
    any_to_wake: bool,
    /// Wake-ups written so far.
    pub wakeups_sent: u64,
}

impl<M> Endpoint<M> {
    /// Own number.
    pub fn shard(&self) -> usize {
        self.shard
    }

    /// Puts a batch into a shard's inbox. The receiver hears of it at the next [`Self::flush`].
    pub fn send(&mut self, dest: usize, batch: M) -> Result<(), Refused<M>> {
        match self.outboxes[dest].try_send(batch) {
            Ok(()) => {
                self.to_wake[dest] = true;
                self.any_to_wake = true;
                Ok(())
            }
            Err(TrySendError::Full(batch)) => Err(Refused::Full(batch)),
            Err(TrySendError::Disconnected(batch)) => Err(Refused::Gone(batch)),
        }
    }

    /// Wakes the sleepers among those that got a batch. Once per turn, before the wait.
    pub fn flush(&mut self) {
        if !std::mem::take(&mut self.any_to_wake) {
            return;
        }
        // The sender stores a batch, then loads `asleep`; the receiver stores `asleep`, then loads
        // the inbox. Each has a SeqCst fence between its two steps, and these fences have one order
        // for all threads. If ours is the first, the receiver's look into the inbox comes after it
        // and finds the batch. If theirs is the first, our load comes after it and finds `asleep`.
        // So at least one of us sees the other, and no batch waits for a sleeper.
        fence(Ordering::SeqCst);
        for (wakeup, to_wake) in self.wakeups.iter().zip(&mut self.to_wake) {
            if std::mem::take(to_wake)
                && wakeup.asleep.load(Ordering::Relaxed)
                // A single wake-up is enough; the thread that turns the flag off sends it.
                && wakeup.asleep.swap(false, Ordering::Relaxed)
            {
                wakeup.signal();
                self.wakeups_sent += 1;
            }
        }
    }

    /// The next batch, if there is one. Batches of one sender come in their order.
    pub fn receive(&mut self) -> Option<M> {
        // Empty or disconnected: nothing, either way.
        self.inbox.try_recv().ok()
    }

    /// Announces that this shard is about to sleep. False: the inbox has something, do not sleep.
    /// [`Self::awake`] must follow the wait.
    #[must_use = "a shard that sleeps on false misses a batch"]
    pub fn prepare_to_sleep(&self) -> bool {
        let asleep = &self.wakeups[self.shard].asleep;
        asleep.store(true, Ordering::Relaxed);
        // See `flush` for why this fence, and why the inbox is looked at only after it.
        fence(Ordering::SeqCst);
        let empty = self.inbox.is_empty();
        if !empty {
            asleep.store(false, Ordering::Relaxed);
        }
        empty
    }

    /// Says that this shard looks into its inbox by itself again, so that no sender wakes it.
    pub fn awake(&self) {
        // A wake-up between this and the end of the wait is one wake-up too many, and harmless.
        self.wakeups[self.shard].asleep.store(false, Ordering::Relaxed);
    }

    /// The wake-up that the shard's reactor listens to.
    pub fn wakeup(&self) -> Arc<Wakeup> {
        Arc::clone(&self.wakeups[self.shard])
    }

    /// A handle that wakes this shard from any thread.
    pub fn waker(&self) -> Waker {
        Waker(self.wakeup())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    fn is_signalled(endpoint: &Endpoint<u32>) -> bool {
        let mut poll = libc::pollfd { fd: endpoint.wakeup().as_raw_fd(), events: 1, revents: 0 };
        // SAFETY: one live pollfd, no waiting.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    #[test]
    fn a_full_inbox_gives_the_batch_back() {
        let mut mesh = Mesh::<u32>::with_capacity(2, 2).unwrap();
        assert_eq!(mesh[0].send(1, 7), Ok(()));
        assert_eq!(mesh[0].send(1, 8), Ok(()));
        assert_eq!(mesh[0].send(1, 9), Err(Refused::Full(9)));
        assert_eq!(mesh[1].receive(), Some(7));
        assert_eq!(mesh[0].send(1, 9), Ok(()));
        assert_eq!((mesh[1].receive(), mesh[1].receive()), (Some(8), Some(9)));
        assert_eq!(mesh[1].receive(), None);
    }

    #[test]
    fn an_ended_shard_gives_the_batch_back() {
        let mut mesh = Mesh::<u32>::new(2).unwrap();
        // Each endpoint can send to itself, so only the receiver's end counts.
        drop(mesh.pop());
        assert_eq!(mesh[0].send(1, 7), Err(Refused::Gone(7)));
        mesh[0].flush();
    }

    #[test]
    fn only_a_sleeper_is_rung_and_only_once() {
        let mut mesh = Mesh::<u32>::new(2).unwrap();
        mesh[0].send(1, 1).unwrap();
        mesh[0].flush();
        assert!(!is_signalled(&mesh[1]), "awake, but is_signalled");
        assert!(!mesh[1].prepare_to_sleep(), "slept over a batch");
        assert_eq!(mesh[1].receive(), Some(1));
        assert!(mesh[1].prepare_to_sleep());
        mesh[0].send(1, 2).unwrap();
        assert!(!is_signalled(&mesh[1]), "is_signalled before the flush");
        mesh[0].flush();
        assert!(is_signalled(&mesh[1]), "not is_signalled");
        mesh[0].send(1, 3).unwrap();
        mesh[0].flush();
        assert_eq!(mesh[0].wakeups_sent, 1);
        mesh[1].awake();
        assert_eq!((mesh[1].receive(), mesh[1].receive()), (Some(2), Some(3)));
    }

    #[test]
    fn a_waker_rings_from_another_thread() {
        let mesh = Mesh::<u32>::new(1).unwrap();
        let waker = mesh[0].waker();
        std::thread::spawn(move || waker.wake()).join().unwrap();
        assert!(is_signalled(&mesh[0]));
    }

    /// Spins until `counter` is at `value`; now and then the core is left to others.
    fn wait_for(counter: &AtomicU32, value: u32) {
        let mut spins = 0_u32;
        while counter.load(Ordering::Acquire) != value {
            spins += 1;
            if spins.is_multiple_of(2000) {
                std::thread::yield_now();
            }
        }
    }

    /// The one case that must not be: the receiver found nothing and sleeps, the sender found it
    /// awake and did not signal. Both step at the same moment, each on its core, again and again for
    /// a second; that they really meet is up to the machine.
    #[test]
    fn a_batch_sent_while_falling_asleep_is_seen_or_rung_for() {
        let cpus = crate::host::allowed_cpus().unwrap();
        let gates = Arc::new((AtomicU32::new(0), AtomicU32::new(0)));
        let mesh = Mesh::<u32>::new(2).unwrap();
        let shards = crate::runtime::spawn_shards(
            &cpus,
            crate::placement::Placement::Pinned,
            mesh,
            move |shard, mut endpoint| {
                let gates = Arc::clone(&gates);
                async move {
                    let (go, done) = &*gates;
                    if shard == 0 {
                        for round in 1.. {
                            wait_for(go, round);
                            if endpoint.send(1, round) != Ok(()) {
                                break;
                            }
                            endpoint.flush();
                            done.store(round, Ordering::Release);
                        }
                        return Ok(());
                    }
                    let begin = std::time::Instant::now();
                    let (mut round, mut slept, mut lost) = (0, 0, None);
                    while begin.elapsed().as_millis() < 1000 {
                        round += 1;
                        go.store(round, Ordering::Release);
                        for _ in 0..round % 512 {
                            std::hint::black_box(round);
                        }
                        let sleeps = endpoint.prepare_to_sleep();
                        wait_for(done, round);
                        // A sender turns the flag off before it wakes.
                        if sleeps && endpoint.wakeups[1].asleep.load(Ordering::Acquire) {
                            lost = Some(format!("round {round}: asleep over a batch"));
                            break;
                        }
                        slept += u32::from(sleeps);
                        endpoint.awake();
                        assert_eq!(endpoint.receive(), Some(round));
                    }
                    println!("asleep in {slept} of {round} rounds");
                    drop(endpoint);
                    go.store(round + 1, Ordering::Release);
                    lost.map_or(Ok(()), Err)
                }
            },
        );
        shards.unwrap().join().unwrap();
    }
}
