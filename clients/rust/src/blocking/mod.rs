//! A client for threads: every call blocks until its answer is there.
//!
//! No thread runs in the background. A call drives the connections itself, on the calling thread, and carries along the
//! calls of other threads; between calls nothing runs. Only a [`Batcher`], which has to send when time is up, has a
//! thread of its own, and a [`Worker`] has one for each job that it works on.
//!
//! ```no_run
//! use corq_client::blocking::Client;
//!
//! let client = Client::connect("tcp://127.0.0.1:6789")?;
//! let id = client.queue("emails").push("hello")?;
//! println!("{id} is {}", client.job(&id).state()?);
//! # Ok::<(), corq_client::Error>(())
//! ```
//!
//! # Panics
//!
//! Calls must not be made from async code, which must never block: like everything that runs a runtime, they panic
//! there. Use the async client instead, or a thread that may block.

mod batcher;
mod client;
mod group;
mod handle;
mod pulled;
mod queue;
mod runtime;
mod worker;

pub use batcher::{Batcher, Receipt};
pub use client::{Client, ClientBuilder, Events, Samples};
pub use group::Group;
pub use handle::JobHandle;
pub use pulled::Pulled;
pub use queue::Queue;
pub use worker::{ActiveJob, Stopper, Worker, WorkerBuilder};

/// Methods that are those of the async client, waited for.
macro_rules! waits_for {
    ($inner:ty; $($(#[$about:meta])* fn $name:ident $([$($generic:ident),*])? (&self $(, $argument:ident: $kind:ty)*) -> $answer:ty;)*) => {
        $(
            #[doc = concat!("As [`", stringify!($inner), "::", stringify!($name), "`](", stringify!($inner), "::", stringify!($name), ").")]
            $(#[$about])*
            pub fn $name $(<$($generic: crate::Payload + ?Sized),*>)? (&self $(, $argument: $kind)*) -> Result<$answer, crate::Error> {
                self.runtime.wait(self.inner.$name($($argument),*))
            }
        )*
    };
}

use waits_for;
