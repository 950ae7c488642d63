//! Connections: where they go (`address`), how bytes get there (`stream`, `tls`), requests and replies on one of
//! them (`pipe`, `driver`), how one is opened (`dial`), and several of them (`pool`). What a command means
//! is not known here, but for jobs that come to a call that is gone (`strays`).

pub(crate) mod address;
pub(crate) mod dial;
pub(crate) mod driver;
pub(crate) mod pipe;
pub(crate) mod pool;
pub(crate) mod strays;
pub(crate) mod stream;
#[cfg(feature = "tls")]
pub(crate) mod tls;
