//! Guards that a termination signal reaches whoever waits for it, and nobody else.
#![allow(missing_docs, clippy::unwrap_used)]
#![allow(unsafe_code)] // Raising a signal is a system call.

mod support;

use corq_io::signal::{Signal, Signals, request_stop};
use support::child;

#[test]
fn each_signal_is_told_apart() {
    let signals = Signals::block().unwrap();
    for (number, signal) in [(libc::SIGTERM, Signal::Terminate), (libc::SIGINT, Signal::Interrupt)]
    {
        // SAFETY: no memory is involved; the signal is blocked in this thread, to which it goes.
        assert_eq!(unsafe { libc::raise(number) }, 0);
        assert_eq!(signals.wait().unwrap(), signal);
    }
    // SAFETY: as above, but ignored: the process must survive it.
    assert_eq!(unsafe { libc::raise(libc::SIGPIPE) }, 0);
}

#[test]
#[ignore = "run by the next test in a process of its own"]
fn child_is_asked_to_stop() {
    // The only thread, so that the mask holds for the process; a thread started later inherits it.
    let signals = Signals::block().unwrap();
    std::thread::spawn(request_stop).join().unwrap();
    assert_eq!(signals.wait().unwrap(), Signal::Terminate);
}

#[test]
fn a_failed_shard_can_ask_for_the_end() {
    child::run("child_is_asked_to_stop");
}
