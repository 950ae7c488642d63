//! Replies beside the server's own table of errors, in programs that are built with the server (feature `codes`).

use serde_json::Value as Json;

/// Beside every `error` of a reply stands a code. A text that is always the same has the code of the table.
#[cfg(feature = "codes")]
pub(crate) fn check_code(reply: &Json) {
    use corq::api::error::{Code, ErrorKind};

    let Some(error) = reply.get("error").filter(|_| reply["ok"] == false) else { return };
    let code = reply["code"].as_str().and_then(Code::named);
    let code = code.unwrap_or_else(|| panic!("no code that is known: {reply}"));
    let mut same = ErrorKind::ALL.iter().filter(|kind| *error == kind.text()).peekable();
    assert!(same.peek().is_none() || same.any(|kind| kind.code() == code), "{reply}");
}

#[cfg(not(feature = "codes"))]
pub(crate) fn check_code(reply: &Json) {
    let is_refused = reply["ok"] == false && reply.get("error").is_some();
    assert!(!is_refused || reply["code"].is_string(), "{reply}");
}

/// The HTTP status is that of the code. A server that is not ready answers with 503, whatever the reason is.
pub(crate) fn check_status(status: u16, reply: &Json) {
    #[cfg(feature = "codes")]
    if reply.get("ready").is_none() {
        let code = reply["code"].as_str().and_then(corq::api::error::Code::named);
        assert!(code.is_none_or(|code| code.status() == status), "{status}: {reply}");
    }
    #[cfg(not(feature = "codes"))]
    let _ = (status, reply);
}
