//! Suites that need the machine, or this process, for themselves: their tests run one at a time.
#![allow(clippy::unwrap_used)]

mod hang;
mod hostile;
mod support;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held by the test that runs.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
