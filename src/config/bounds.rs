//! Whether settings fit each other, and what follows from several of them.

use super::declared::{Config, Durability};
use super::host::ListenHost;
use super::values::RequestsMax;
use crate::otlp::endpoint;
use corq_io::batch_post::Header;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

/// Files without which a shard could not work: one being written, two in reserve, and one that has
/// something in it.
const SEGMENTS_MIN: u64 = 5;

/// Most origins that may be listed.
const ORIGINS_MAX: usize = 64;

/// Memory of clients in MB: the least of all shards together, the least of each, and the most of each that is taken unasked.
const CLIENT_MEMORY_MIN_MB: u64 = 128;
const SHARD_MEMORY_MIN_MB: u64 = 64;
const SHARD_MEMORY_MAX_MB: u64 = 1024;

/// Where the log lies if nothing says so.
pub(super) const DATA_PATH: &str = "./corq-data";

/// With [`Durability::Synced`] each wake-up for one client costs a sync; with
/// [`Durability::Written`] waiting costs more than it brings (decision 0025).
const GATHER_SYNCED_US: u32 = 50;

impl Config {
    /// How long a sleep may go on so that several clients are heard together, in microseconds.
    pub fn gather_us(&self) -> u32 {
        let default = if self.durability == Durability::Synced { GATHER_SYNCED_US } else { 0 };
        self.gather_us.unwrap_or(default)
    }

    /// The addresses to listen on: open to the network only if `HOST` says so or tokens are set.
    pub fn listen_hosts(&self) -> Vec<IpAddr> {
        let closed = IpAddr::from([127, 0, 0, 1]);
        let open = IpAddr::from([0, 0, 0, 0]);
        let default = ListenHost::Address(if self.has_tokens() { open } else { closed });
        self.host.unwrap_or(default).addresses()
    }

    /// Whether clients have to show a token. A file of tokens has at least one.
    pub fn has_tokens(&self) -> bool {
        self.auth_tokens_file.is_some() || self.tokens().next().is_some()
    }

    /// The entries of `AUTH_TOKENS`, as far as commas tell. An empty setting is no token.
    fn tokens(&self) -> impl Iterator<Item = &str> {
        self.auth_tokens.iter().map(|token| token.trim()).filter(|token| !token.is_empty())
    }

    /// The names in `ALLOWED_HOSTS`. An empty setting is none.
    pub fn allowed_hosts(&self) -> impl Iterator<Item = &str> {
        self.allowed_hosts.iter().map(|name| &**name).filter(|name| !name.is_empty())
    }

    /// Where spans go, if anywhere. An empty setting is nowhere.
    pub fn otlp_endpoint(&self) -> Option<&str> {
        self.otlp_endpoint.as_deref().filter(|endpoint| !endpoint.is_empty())
    }

    /// The headers of their posts.
    pub fn otlp_headers(&self) -> Vec<Header> {
        self.otlp_headers.iter().filter_map(|text| endpoint::header(text).ok()).collect()
    }

    /// Where the log lies; `None` in memory.
    pub fn data_path(&self) -> Option<PathBuf> {
        if self.memory {
            return None;
        }
        Some(self.data_path.clone().unwrap_or_else(|| DATA_PATH.into()))
    }

    /// Most that the log of one shard may take.
    pub fn data_bytes_max(&self, shards: usize) -> u64 {
        self.data_max_mb.map_or(u64::MAX, |size| (size << 20) / shards as u64)
    }

    /// Most that the records of failed attempts may take of it: an eighth, or so much of a gigabyte as is this shard's.
    pub fn remembered_bytes_max(&self, shards: usize) -> u64 {
        const UNBOUNDED_BYTES: u64 = 1 << 30;
        self.data_max_mb
            .map_or(UNBOUNDED_BYTES / shards as u64, |_| self.data_bytes_max(shards) / 8)
    }

    /// Memory of the clients of so many shards together, in MB.
    pub fn client_memory_mb(&self, shards: usize, memory_mb: u64) -> u64 {
        self.client_memory_mb.unwrap_or_else(|| client_memory_default_mb(shards, memory_mb))
    }

    /// Whether each shard has memory for its clients.
    fn check_client_memory(&self, shards: usize) -> Result<(), String> {
        let least = client_memory_default_mb(shards, 0);
        match self.client_memory_mb {
            Some(size) if size < least => Err(format!(
                "CLIENT_MEMORY_MB: {size} is too little for {shards} shards: it must be at least {least}"
            )),
            _ => Ok(()),
        }
    }

    /// Whether the settings of the sockets fit each other.
    fn check_sockets(&self) -> Result<(), String> {
        let said = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        match (said(&self.tls_cert_file), said(&self.tls_key_file), said(&self.tls_client_ca_file))
        {
            (Some(path), None, _) => {
                return Err(format!("TLS_KEY_FILE: it is missing, and TLS_CERT_FILE is {path}"));
            }
            (None, Some(path), _) => {
                return Err(format!("TLS_CERT_FILE: it is missing, and TLS_KEY_FILE is {path}"));
            }
            (None, None, Some(path)) => {
                return Err(format!(
                    "TLS_CERT_FILE: it is missing, and TLS_CLIENT_CA_FILE is {path}"
                ));
            }
            _ => {}
        }
        match said(&self.tcp_socket_path) {
            Some(path) if self.tcp_socket_path == self.http_socket_path => Err(format!(
                "HTTP_SOCKET_PATH: {path} is the TCP_SOCKET_PATH: each needs a path of its own"
            )),
            _ => Ok(()),
        }
    }

    /// By which schedule the server makes backups, and where they go; nothing without a schedule. An empty setting is none.
    pub fn backup_plan(&self) -> Option<(&str, &str)> {
        let given = |value: &Option<String>| value.as_deref().is_some_and(|it| !it.is_empty());
        if !given(&self.backup_schedule) {
            return None;
        }
        Some((self.backup_schedule.as_deref()?, self.backup_to.as_deref().unwrap_or_default()))
    }

    /// Whether the settings of backups fit each other.
    fn check_backups(&self) -> Result<(), String> {
        match self.backup_plan() {
            Some((schedule, "")) => {
                Err(format!("BACKUP_TO: it is missing, and BACKUP_SCHEDULE is {schedule}"))
            }
            Some((schedule, _)) if self.memory => Err(format!(
                "BACKUP_SCHEDULE: it is {schedule}, and a server in memory has nothing to back up"
            )),
            _ => Ok(()),
        }
    }

    /// The database of the fleet. An empty setting is none.
    pub fn fleet_database(&self) -> Option<&str> {
        self.fleet_database.as_deref().filter(|url| !url.is_empty())
    }

    /// The name of this node.
    pub fn fleet_node(&self) -> String {
        let machine = || fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        self.fleet_node.clone().unwrap_or_else(|| machine().trim().to_owned())
    }

    /// Whether the settings of a fleet fit each other.
    fn check_fleet(&self) -> Result<(), String> {
        match (self.durability, self.fleet_database()) {
            (Durability::Replicated, None) => {
                Err("FLEET_DATABASE: it is missing, and DURABILITY is replicated".into())
            }
            (Durability::Replicated, Some(_)) if self.memory => {
                Err("DURABILITY: it is replicated, and a server in memory has no log".into())
            }
            (Durability::Written | Durability::Synced, Some(_)) => {
                Err("DURABILITY: it must be replicated, as FLEET_DATABASE is set".into())
            }
            _ => Ok(()),
        }
    }

    /// Whether the settings fit each other.
    pub fn check(&self, shards: usize) -> Result<(), String> {
        self.check_sockets()?;
        self.check_backups()?;
        self.check_fleet()?;
        self.check_client_memory(shards)?;
        if self.cors_allow_origin.len() > ORIGINS_MAX {
            return Err(format!(
                "CORS_ALLOW_ORIGIN: it must have at most {ORIGINS_MAX} origins, and has {}",
                self.cors_allow_origin.len()
            ));
        }
        let least = SEGMENTS_MIN * self.segment_mb * shards as u64;
        match self.data_max_mb {
            Some(size) if size < least => Err(format!(
                "DATA_MAX_MB: {size} is too little for {shards} shards with files of {} MB: it must be \
                 at least {least}",
                self.segment_mb
            )),
            // Nothing at all is how a setting is left out in many places; a comma is a token forgotten.
            _ if !self.auth_tokens.concat().is_empty() || self.auth_tokens.len() > 1 => {
                let none =
                    || format!("AUTH_TOKENS: {:?} holds no token", self.auth_tokens.join(","));
                self.tokens().next().map(|_| ()).ok_or_else(none)
            }
            _ => Ok(()),
        }
    }

    /// Commands of one WebSocket connection within the span: it is a connection that gives commands, and a client of HTTP.
    pub fn message_requests_max(&self) -> RequestsMax {
        let both = [self.tcp_rate_limit_max_requests.0, self.rate_limit_max_requests.0];
        RequestsMax(both.into_iter().flatten().min())
    }

    /// Payload memory of one shard.
    pub fn cache_bytes(&self, shards: usize) -> usize {
        (self.payload_cache_mb as usize) * 1024 * 1024 / shards
    }
}

/// Memory of the clients of so many shards together, in MB, where none is set: an eighth of what there is, within bounds. Of
/// nothing that is the least that may be set.
pub fn client_memory_default_mb(shards: usize, memory_mb: u64) -> u64 {
    let shards = shards as u64;
    let least = CLIENT_MEMORY_MIN_MB.max(SHARD_MEMORY_MIN_MB * shards);
    (memory_mb / 8).clamp(least, SHARD_MEMORY_MAX_MB * shards)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use clap::{Args, Command, FromArgMatches};

    fn config(line: &str) -> Config {
        let command = Config::augment_args(Command::new("corq"));
        let words = ["corq"].into_iter().chain(line.split_whitespace());
        Config::from_arg_matches(&command.try_get_matches_from(words).unwrap()).unwrap()
    }

    #[test]
    fn the_memory_of_clients_is_an_eighth_of_what_there_is_within_bounds_of_all_and_of_each_shard()
    {
        for (shards, memory_mb, expected) in
            [(2, 8000, 1000), (2, 24_012, 2048), (4, 24_012, 3001), (1, 0, 128), (4, 1000, 256)]
        {
            assert_eq!(config("").client_memory_mb(shards, memory_mb), expected, "{shards}");
        }
        assert_eq!(config("--client-memory-mb 5000").client_memory_mb(1, 8000), 5000);
    }

    #[test]
    fn less_memory_of_clients_than_the_shards_need_is_refused_with_the_bound() {
        for (size, shards, least) in [(127, 1, 128), (127, 2, 128), (255, 4, 256)] {
            let given = config(&format!("--client-memory-mb {size}"));
            let text = format!(
                "CLIENT_MEMORY_MB: {size} is too little for {shards} shards: it must be at least {least}"
            );
            assert_eq!(given.check(shards), Err(text));
            assert_eq!(config(&format!("--client-memory-mb {least}")).check(shards), Ok(()));
        }
    }
}
