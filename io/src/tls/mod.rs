//! Certificates and keys: read from files, checked before they are used, exchanged while the server runs. What is
//! done with them on a connection is in [`crate::net`]; who may connect is decided where tokens are read.

mod client;
mod files;
mod keeper;

pub use client::{ClientFiles, client_config};
pub use keeper::{Acceptor, Identity, Keeper, ServerFiles, Standing};
