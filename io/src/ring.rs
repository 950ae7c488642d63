//! An `io_uring` and how to wait for it.
//!
//! Knows submission, completion and the kernel's rules about both; does not know what an operation
//! is for. Whatever is pushed is submitted: a full queue, a full completion queue and an interrupted
//! system call are dealt with here and nowhere else.
#![allow(unsafe_code)] // io_uring takes entries whose memory only the caller can vouch for.

use std::collections::VecDeque;
use std::io;
use std::num::NonZero;
use std::time::{Duration, Instant};

use io_uring::types::{CancelBuilder, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, squeue};

/// The end of an enter's wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Enter {
    /// Submit, collect what is ready, return.
    Poll,
    /// Submit, then sleep until a completion or this instant (`None`: no limit).
    Until(Option<Instant>),
    /// Submit, then sleep until a completion or `until`; but a sleep that could end in the first `window` ends only
    /// with `wanted` completions, or at the end of the window.
    Batch { until: Option<Instant>, wanted: NonZero<u32>, window: Duration },
}

/// A ring of one thread.
pub(crate) struct Ring {
    uring: IoUring,
    /// Operations pushed that still owe a completion, so that a drop knows what the kernel may touch.
    in_flight: u64,
    /// Entries that found the submission queue full although it had just been submitted.
    spill: VecDeque<squeue::Entry>,
    wait_flags: EnterFlags,
    /// `io_uring_enter` calls so far.
    pub(crate) enters: u64,
}

impl Ring {
    /// `entries`: depth of the submission queue; the completion queue is sixteen times as deep.
    ///
    /// The ring belongs to the calling thread from here on.
    pub(crate) fn new(entries: u32) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        builder
            .dontfork()
            .setup_clamp()
            .setup_submit_all()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            // Completions are made only inside our own enter: nothing interrupts a turn.
            .setup_defer_taskrun()
            .setup_cqsize(entries.saturating_mul(16));
        let uring = builder.build(entries)?;
        let mut wait_flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        if uring.params().is_feature_no_iowait() {
            // An idle server must not look like a busy disk.
            wait_flags |= EnterFlags::NO_IOWAIT;
        }
        Ok(Self { uring, in_flight: 0, spill: VecDeque::new(), wait_flags, enters: 0 })
    }

    /// Whether the kernel knows [`Enter::Batch`] (6.12).
    pub(crate) fn can_batch_wakeups(&self) -> bool {
        self.uring.params().is_feature_min_timeout()
    }

    /// The rest of the kernel's registration interface.
    pub(crate) fn submitter(&self) -> io_uring::Submitter<'_> {
        self.uring.submitter()
    }

    /// Queues one operation. It is submitted by the next enter at the latest, and never lost.
    ///
    /// # Safety
    ///
    /// The memory and the descriptor that `entry` names stay valid until its last completion.
    pub(crate) unsafe fn push(&mut self, entry: squeue::Entry) {
        self.in_flight += 1;
        if self.spill.is_empty() {
            if Self::try_push(&mut self.uring, &entry) {
                return;
            }
            self.enters += 1;
            // An error here leaves the queue as it is: the entry waits in the spill and the next
            // enter reports what is wrong.
            if self.uring.submit().is_ok() && Self::try_push(&mut self.uring, &entry) {
                return;
            }
        }
        self.spill.push_back(entry);
    }

    /// As `push`, for an operation that is over as soon as it is submitted and completes only if it
    /// fails: a sleep does not end for it. Once nothing waits to be submitted any more
    /// ([`Self::is_submitted`]), those without a completion have succeeded; each is to be told of by
    /// [`Self::succeeded`].
    ///
    /// # Safety
    ///
    /// As for [`Self::push`].
    pub(crate) unsafe fn push_prompt(&mut self, entry: squeue::Entry) {
        // SAFETY: the caller's word.
        unsafe { self.push(entry.flags(squeue::Flags::SKIP_SUCCESS)) };
    }

    /// Whether the kernel has taken everything that was pushed and holds no completion back for want
    /// of room.
    pub(crate) fn is_submitted(&mut self) -> bool {
        let queue = self.uring.submission();
        let told = queue.is_empty() && !queue.cq_overflow();
        drop(queue);
        told && self.spill.is_empty()
    }

    /// A prompt operation has succeeded without a completion.
    pub(crate) fn succeeded(&mut self) {
        self.in_flight -= 1;
    }

    fn try_push(uring: &mut IoUring, entry: &squeue::Entry) -> bool {
        // SAFETY: `push` has its caller's word for the memory that the entry names.
        unsafe { uring.submission().push(entry).is_ok() }
    }

    /// True if a reap would find something without a system call.
    fn has_completions(&mut self) -> bool {
        !self.uring.completion().is_empty()
    }

    /// Submits what is queued and waits as told. Timeouts and interruptions are no errors.
    pub(crate) fn enter(&mut self, how: Enter) -> io::Result<()> {
        loop {
            while let Some(entry) = self.spill.front() {
                if !Self::try_push(&mut self.uring, entry) {
                    break;
                }
                self.spill.pop_front();
            }
            let result = self.enter_once(if self.spill.is_empty() { how } else { Enter::Poll });
            match result {
                Ok(()) => {}
                Err(error) => match error.raw_os_error() {
                    Some(libc::ETIME | libc::EINTR) => {}
                    // The completion queue is full or the kernel is short of memory: what is
                    // complete must be reaped first, the queue keeps the rest.
                    Some(libc::EBUSY | libc::EAGAIN) if self.has_completions() => return Ok(()),
                    Some(libc::EBUSY | libc::EAGAIN) => {
                        std::thread::yield_now();
                        return Ok(());
                    }
                    _ => return Err(error),
                },
            }
            if self.spill.is_empty() {
                return Ok(());
            }
        }
    }

    fn enter_once(&mut self, how: Enter) -> io::Result<()> {
        let (wanted, until, window) = match how {
            Enter::Poll => (0, None, Duration::ZERO),
            Enter::Until(until) => (1, until, Duration::ZERO),
            Enter::Batch { until, wanted, window } => (wanted.get(), until, window),
        };
        let left = until.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // The kernel waits for the window first, whatever comes after it.
        let window = window.min(left.unwrap_or(window));
        let (want, timeout) = match left {
            Some(Duration::ZERO) => (0, None),
            left => (wanted, left.map(Timespec::from)),
        };
        let mut args = SubmitArgs::new().min_wait_usec(window.as_micros() as u32);
        if let Some(timeout) = &timeout {
            args = args.timespec(timeout);
        }
        let to_submit = self.uring.submission().len() as u32;
        self.enters += 1;
        // Always with GETEVENTS: deferred completions are made, and overflown ones brought back,
        // only by an enter that asks for events.
        // SAFETY: the flags say that the argument is a `getevents_arg`, which `SubmitArgs` is, and
        // the timespec in it lives until the end of this function.
        unsafe {
            let submitter = self.uring.submitter();
            submitter.enter(to_submit, want, self.wait_flags.bits(), Some(&args)).map(drop)
        }
    }

    /// Moves all completions there are to the end of `into`.
    pub(crate) fn reap(&mut self, into: &mut Vec<cqueue::Entry>) {
        let before = into.len();
        into.extend(self.uring.completion());
        let last = into[before..].iter().filter(|entry| !cqueue::more(entry.flags())).count();
        self.in_flight -= last as u64;
    }

    /// Cancels everything and waits until the kernel has let go of all memory, at most about
    /// `limit`. What completes meanwhile is added to `reaped`. False if something is still in flight.
    pub(crate) fn cancel_all(&mut self, limit: Duration, reaped: &mut Vec<cqueue::Entry>) -> bool {
        let deadline = Instant::now() + limit;
        while self.in_flight > 0 && Instant::now() < deadline {
            if self.enter(Enter::Poll).is_err() {
                return false;
            }
            // "Nothing found" only means that all of it has completed already.
            let pause = Some(Timespec::from(Duration::from_millis(10)));
            let _ = self.uring.submitter().register_sync_cancel(pause, CancelBuilder::any());
            let tick = Instant::now() + Duration::from_millis(10);
            if self.enter(Enter::Until(Some(tick))).is_err() {
                return false;
            }
            self.reap(reaped);
        }
        self.in_flight == 0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use io_uring::opcode;

    fn collect(ring: &mut Ring, count: usize) -> Vec<u64> {
        let mut reaped = Vec::new();
        let deadline = Instant::now() + Duration::from_mins(5);
        while reaped.len() < count {
            assert!(Instant::now() < deadline, "only {} of {count} completions", reaped.len());
            ring.enter(Enter::Until(Some(deadline))).unwrap();
            ring.reap(&mut reaped);
        }
        reaped.iter().map(cqueue::Entry::user_data).collect()
    }

    #[test]
    fn a_full_submission_queue_loses_nothing() {
        let mut ring = Ring::new(4).unwrap();
        for tag in 0..1000 {
            // SAFETY: a no-op names no memory.
            unsafe { ring.push(opcode::Nop::new().build().user_data(tag)) };
        }
        let mut tags = collect(&mut ring, 1000);
        tags.sort_unstable();
        assert_eq!(tags, (0..1000).collect::<Vec<_>>());
        assert_eq!(ring.in_flight, 0);
    }

    #[test]
    fn an_overflown_completion_queue_loses_nothing() {
        let mut ring = Ring::new(2).unwrap();
        let room = ring.uring.completion().capacity();
        for tag in 0..(room as u64 * 10) {
            // SAFETY: a no-op names no memory.
            unsafe { ring.push(opcode::Nop::new().build().user_data(tag)) };
            ring.enter(Enter::Poll).unwrap();
        }
        assert_eq!(collect(&mut ring, room * 10).len(), room * 10);
    }

    #[test]
    fn a_wait_ends_at_its_deadline() {
        let mut ring = Ring::new(4).unwrap();
        let deadline = Instant::now() + Duration::from_millis(20);
        ring.enter(Enter::Until(Some(deadline))).unwrap();
        assert!(Instant::now() >= deadline);
    }

    #[test]
    fn cancel_all_leaves_the_kernel_nothing() {
        let mut ring = Ring::new(4).unwrap();
        let never = Timespec::new().sec(3600);
        for _ in 0..10 {
            // SAFETY: `never` outlives the ring's last completion, which `cancel_all` awaits.
            unsafe { ring.push(opcode::Timeout::new(&raw const never).build()) };
        }
        assert!(ring.cancel_all(Duration::from_mins(5), &mut Vec::new()));
        assert_eq!(ring.in_flight, 0);
    }
}
