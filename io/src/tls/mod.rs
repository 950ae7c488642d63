//! Certificates and keys: read from files, checked before they are used, exchanged while the server runs. What is
//! done with them on a connection is in [`crate::net`]; who may connect is decided where tokens are read.

mod certificate_store;
mod client;
mod files;

pub use certificate_store::{Acceptor, CertificateStatus, CertificateStore, Identity, ServerFiles};
pub use client::{ClientFiles, client_config};
