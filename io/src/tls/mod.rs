//! Certificates and keys: read from files, checked before they are used, exchanged while the server runs. What is
//! done with them on a connection is in [`crate::net`]; who may connect is decided where tokens are read.
//!
//! | file | responsibility |
//! |---|---|
//! | `certificate_store` | the certificate and key of the server, exchanged without a stop |
//! | `client` | what a client of ours believes and shows |
//! | `files` | PEM files |

mod certificate_store;
mod client;
mod files;

pub use certificate_store::{Acceptor, CertificateStatus, CertificateStore, Identity, ServerFiles};
pub use client::{ClientFiles, client_config};
