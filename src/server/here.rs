//! Commands that any shard can answer.

use super::core::Core;
use super::dispatch::Asked;
use super::execute::framed;
use crate::api::PROTOCOL_VERSION;
use crate::api::request::Body;
use crate::protocol::reply;
use corq_io::net::Connections;

impl Core {
    /// Answers at once.
    pub(super) fn answer_here(
        &mut self,
        conns: &mut Connections,
        asked: Asked<'_>,
        body: &Body<'_>,
    ) {
        match body {
            Body::Ping => self.ping(conns, asked),
            Body::RegisterWorker(worker) => self.register_anonymous(conns, asked, *worker),
            _ => self.hello(conns, asked),
        }
    }

    fn hello(&mut self, conns: &mut Connections, asked: Asked<'_>) {
        self.respond(conns, asked.origin, |_, pen| {
            framed(pen, asked.req_id, |pen| {
                let mut writer = reply::head(pen.out, true, asked.req_id, 4);
                writer.str("protocolVersion");
                writer.uint(PROTOCOL_VERSION);
                writer.str("capabilities");
                writer.array(1);
                writer.str("pipelining");
                writer.str("server");
                writer.str("corq");
                writer.str("version");
                writer.str(env!("CARGO_PKG_VERSION"));
            });
        });
    }

    fn ping(&mut self, conns: &mut Connections, asked: Asked<'_>) {
        let now_ms = self.now_ms;
        self.respond(conns, asked.origin, |_, pen| {
            framed(pen, asked.req_id, |pen| {
                let mut writer = reply::head(pen.out, true, asked.req_id, 1);
                writer.str("data");
                writer.map(2);
                writer.str("pong");
                writer.bool(true);
                writer.str("time");
                writer.uint(now_ms);
            });
        });
    }
}
