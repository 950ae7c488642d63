//! A shard takes over settings that were read again. Connections stay, and have the new ones from their next request on.

use super::http_settings::http_settings;
use crate::server::shard_server::ShardServer;
use corq_shards::traced::Sampling;

impl ShardServer {
    /// Takes over what has changed. Returns how long a stop may take by now, if anything has.
    pub(crate) fn follow_settings(&mut self) -> Option<u64> {
        let config = self.settings.news()?;
        self.http.renew(http_settings(&config));
        self.access.let_pages_look_on(config.ui_read_only);
        self.unwritten_bytes_max = config.log_waiting_mb << 20;
        self.subscribers.keep_alive(config.stream_keep_alive_ms);
        self.sessions.presume(config.protocol_default);
        if self.spans.are_made() {
            self.engine.shard.trace(Some(Sampling::of(config.otlp_sample.0)));
            self.spans.set_headers(config.otlp_headers());
        }
        Some(config.shutdown_timeout_ms)
    }
}
