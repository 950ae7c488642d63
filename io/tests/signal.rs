//! Guards that a signal reaches the thread that waits for it, and no other. A program of its
//! own, since the mask must be set before there is a second thread.
#![allow(missing_docs, clippy::unwrap_used)]
#![allow(unsafe_code)] // Raising a signal is a system call.

use corq_io::signal::{Signal, Signals, request_stop};
use std::time::Duration;

fn main() {
    let signals = Signals::block().unwrap();
    each_signal_is_told_apart(&signals);
    a_failed_shard_can_ask_for_the_end(&signals);
    a_wait_with_a_limit_ends(&signals);
    each_has_a_name();
    println!("signals: ok");
}

fn each_signal_is_told_apart(signals: &Signals) {
    for (number, signal) in [
        (libc::SIGTERM, Signal::Terminate),
        (libc::SIGINT, Signal::Interrupt),
        (libc::SIGHUP, Signal::Hangup),
        (libc::SIGQUIT, Signal::Quit),
        (libc::SIGPWR, Signal::Power),
        (libc::SIGUSR1, Signal::Other(libc::SIGUSR1)),
        (libc::SIGXFSZ, Signal::Other(libc::SIGXFSZ)),
        (libc::SIGRTMIN(), Signal::Other(libc::SIGRTMIN())),
        (libc::SIGRTMAX(), Signal::Other(libc::SIGRTMAX())),
    ] {
        // SAFETY: no memory is involved; the signal is blocked in this thread, to which it goes.
        assert_eq!(unsafe { libc::raise(number) }, 0);
        assert_eq!(signals.wait().unwrap(), signal);
    }
    // SAFETY: as above, but ignored: the process must survive it.
    assert_eq!(unsafe { libc::raise(libc::SIGPIPE) }, 0);
}

fn a_failed_shard_can_ask_for_the_end(signals: &Signals) {
    std::thread::spawn(request_stop).join().unwrap();
    assert_eq!(signals.wait().unwrap(), Signal::Terminate);
}

fn a_wait_with_a_limit_ends(signals: &Signals) {
    assert_eq!(signals.wait_for(Duration::from_millis(1)).unwrap(), None);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::raise(libc::SIGINT) }, 0);
    assert_eq!(signals.wait_for(Duration::ZERO).unwrap(), Some(Signal::Interrupt));
    assert_eq!(signals.wait_for(Duration::ZERO).unwrap(), None);
}

fn each_has_a_name() {
    let name = |signal: Signal| signal.to_string();
    assert_eq!(name(Signal::Terminate), "SIGTERM");
    assert_eq!(name(Signal::Other(libc::SIGALRM)), "SIGALRM");
    assert_eq!(name(Signal::Other(libc::SIGRTMIN() + 3)), "SIGRTMIN+3");
}
