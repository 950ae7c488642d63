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

/// How long a browser waits before it connects again, in milliseconds, where a stream says so.
pub const RETRY_MS: u32 = 3000;

/// Appends the fields of a message that stand before its data. Those without a value are left out.
pub fn fields(out: &mut Vec<u8>, fields: &[(&str, Option<&str>)]) {
    for (name, value) in fields {
        let Some(value) = value else { continue };
        for part in [name, ": ", value, "\n"] {
            out.extend_from_slice(part.as_bytes());
        }
    }
}

/// Appends the data of a message, which `write` gives on one line, and ends it.
pub fn data(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(b"data: ");
    let begin = out.len();
    write(out);
    debug_assert!(!out[begin..].iter().any(|byte| matches!(byte, b'\n' | b'\r')), "one line");
    out.extend_from_slice(b"\n\n");
}

/// Appends an id alone: what a client shows when it comes back, without a message.
pub fn place(out: &mut Vec<u8>, id: &str) {
    fields(out, &[("id", Some(id))]);
    out.push(b'\n');
}

/// Appends one message. `text` is on one line, as JSON without white space is.
pub fn message(out: &mut Vec<u8>, text: &[u8]) {
    data(out, |out| out.extend_from_slice(text));
}
