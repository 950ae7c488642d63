//! `GetSettings`: what the server runs with by now, and where each setting comes from. A secret is never part of it.

use crate::protocol::reply;
use crate::server::connection::reply_writer::framed;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;

impl ShardServer {
    /// Answers `GetSettings`.
    pub(crate) fn get_settings(&mut self, conns: &mut Connections, ctx: RequestContext<'_>) {
        let settings = self.settings.config().settings();
        self.meter.note(settings.len());
        self.respond(conns, ctx.origin, |_, sink| {
            framed(sink, ctx.req_id, |sink| {
                let mut reply = reply::begin(sink.out, true, ctx.req_id);
                let mut data = reply.map("data");
                let mut rows = data.key("settings");
                rows.array(settings.len());
                for setting in &settings {
                    let mut row = rows.begin_map();
                    row.key("name").str(&setting.name);
                    row.key("value").str_or_nil(setting.value.as_deref());
                    row.key("source").str(setting.source.name());
                    row.key("place").str_or_nil(setting.place.as_deref());
                    row.key("default").str_or_nil(setting.default.as_deref());
                    row.key("unit").str_or_nil(setting.unit);
                }
            });
        });
    }
}
