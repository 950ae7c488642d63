//! Commands that any shard can answer.

use super::core::Core;
use super::dispatch::Asked;
use super::execute::{framed, write_alive};
use crate::api::request::{Body, RegisterWorker};
use crate::protocol::reply;
use corq_io::net::Connections;

/// The version of the protocol spoken here.
const PROTOCOL_VERSION: u64 = 2;

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
            Body::RegisterWorker(worker) => self.register(conns, asked, *worker),
            Body::UnregisterWorker(id) => self.unregister(conns, asked, id),
            Body::Heartbeat { worker_id } => {
                if self.workers.seen(worker_id, self.now_ms) {
                    self.respond(conns, asked.origin, |_, pen| {
                        write_alive(pen, asked.req_id, None);
                    });
                } else {
                    self.refuse(conns, asked.origin, asked.req_id, "Worker not found");
                }
            }
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

    fn register(&mut self, conns: &mut Connections, asked: Asked<'_>, worker: RegisterWorker<'_>) {
        let chosen = uuid::Uuid::new_v4().to_string();
        let id = worker.worker_id.unwrap_or(&chosen);
        self.workers.register(id, asked.origin.conn, self.now_ms);
        let now_ms = self.now_ms;
        self.respond(conns, asked.origin, |_, pen| {
            framed(pen, asked.req_id, |pen| {
                let mut writer = reply::head(pen.out, true, asked.req_id, 1);
                writer.str("data");
                writer.map(4);
                writer.str("workerId");
                writer.str(id);
                writer.str("name");
                writer.str(worker.name);
                writer.str("queues");
                writer.raw(worker.queues.raw());
                writer.str("registeredAt");
                writer.uint(now_ms);
            });
        });
    }

    fn unregister(&mut self, conns: &mut Connections, asked: Asked<'_>, id: &str) {
        if !self.workers.unregister(id) {
            self.refuse(conns, asked.origin, asked.req_id, "Worker not found");
            return;
        }
        self.respond(conns, asked.origin, |_, pen| {
            framed(pen, asked.req_id, |pen| {
                let mut writer = reply::head(pen.out, true, asked.req_id, 1);
                writer.str("data");
                writer.map(1);
                writer.str("removed");
                writer.bool(true);
            });
        });
    }
}
