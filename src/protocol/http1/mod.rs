//! HTTP/1.1 as far as bytes go: no sockets, no clock, and no path that means anything.
//!
//! [`head`] reads the head of a request, [`body`] what follows it, [`target`] takes its path apart,
//! [`answer`] writes what goes back. Whatever two readers could take for two different requests is
//! refused, and the connection with it.
//!
//! | file | responsibility |
//! |---|---|
//! | `answer` | status line, headers and body |
//! | `body` | the body of a request, by its length or in chunks |
//! | `head` | the request line and the headers |
//! | `target` | path and query |

pub mod answer;
pub mod body;
pub mod head;
pub mod target;

/// Largest head of a request, in bytes: the request line and all headers.
pub const HEAD_BYTES_MAX: usize = 32 * 1024;

/// Most headers of a request.
pub const HEADERS_MAX: usize = 100;

/// Largest body of a request, in bytes.
pub const BODY_BYTES_MAX: usize = 12 * 1024 * 1024;

/// Largest body of a request for a command without a payload, in bytes.
pub const SHORT_BODY_BYTES_MAX: usize = 384 * 1024;

/// Largest body of a request whose body says nothing, in bytes.
pub const UNREAD_BODY_BYTES_MAX: usize = 64 * 1024;
