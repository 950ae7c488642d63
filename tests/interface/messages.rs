//! Messages over WebSocket: each is answered to its `reqId`, whatever that is and however long the message.

use serde_json::json;

use crate::support::Start;
use crate::support::stream::WebSocket;

#[test]
fn a_long_message_is_answered_to_its_req_id_whatever_kind_that_is_and_whatever_is_wrong() {
    let server = Start::new().start();
    let mut socket = WebSocket::open(server.http, "/ws");
    let start = Start::new().env("RATE_LIMIT_WINDOW_MS", 600_000).env("RATE_LIMIT_MAX_REQUESTS", 1);
    let limited = start.start();
    let mut late = WebSocket::open(limited.http, "/ws");
    late.ok("Ping", json!({}));
    let ids =
        [json!("7"), json!(7), json!(-7.5), json!(1_u64 << 60), json!("a\\\"b"), json!([1, null])];
    for bytes in [10, 100_000, 600_000] {
        let data = "x".repeat(bytes);
        for req_id in &ids {
            let told = |rest: &str| {
                format!(r#"{{"cmd":"PUSH","reqId":{req_id},"queue":"q","data":"{data}"{rest}"#)
            };
            for (rest, code) in [(r#","priority":"x"}"#, "invalid_field"), ("", "invalid_request")]
            {
                socket.send_text(&told(rest));
                let refused = socket.recv();
                assert_eq!(
                    (&refused["reqId"], &refused["code"]),
                    (req_id, &json!(code)),
                    "{bytes}"
                );
            }
            late.send_text(&told("}"));
            let refused = late.recv();
            assert_eq!((&refused["reqId"], &refused["code"]), (req_id, &json!("rate_limited")));
        }
    }
    socket.send_text(r#"{"cmd":"Count","reqId":null,"queue":"#);
    assert_eq!(socket.recv().get("reqId"), None);
}
