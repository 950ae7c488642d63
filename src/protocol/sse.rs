//! Server-sent events: what a response looks like that does not end. What the events say is not known
//! here.

/// A comment, which clients pass over: it keeps what stands between from thinking the connection dead.
pub const KEEP_ALIVE: &[u8] = b":\n\n";

/// Begins the response. `headers` are the header lines that every answer carries, each with its CRLF.
///
/// The body ends with the connection, so that clients of HTTP/1.0 can read it, too.
pub fn begin(out: &mut Vec<u8>, headers: &str) {
    out.extend_from_slice(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
          X-Accel-Buffering: no\r\nConnection: close\r\n",
    );
    out.extend_from_slice(headers.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends one message. `text` is on one line, as JSON without white space is.
pub fn message(out: &mut Vec<u8>, text: &[u8]) {
    debug_assert!(!text.contains(&b'\n') && !text.contains(&b'\r'), "a message is one line");
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(text);
    out.extend_from_slice(b"\n\n");
}
