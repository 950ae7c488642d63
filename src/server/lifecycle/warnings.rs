//! Warns at the start of settings and file rights that let others reach jobs. Knows settings, no sockets.

use super::error::{StartError, other};
use crate::config::Config;
use crate::server::http::Rules;
use corq_io::log::{shard_path, user_of_shards};
use corq_io::privileges::User;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A line for each of them, of a server that listens at `hosts`, each once.
pub fn of(config: &Config, hosts: &[IpAddr], rules: &Rules) -> Vec<String> {
    let loopback = IpAddr::from([127, 0, 0, 1]);
    let host = hosts.iter().find(|host| !host.is_loopback()).copied().unwrap_or(loopback);
    let has_tls = config.tls_cert_file.is_some();
    let plain = !host.is_loopback() && !has_tls && config.has_tokens();
    let is_default = config.host.is_none() && config.listen_hosts() == hosts;
    let unasked = if is_default { ", which is the default with AUTH_TOKENS" } else { "" };
    let lines = [
        (!host.is_loopback() && !config.has_tokens(), format!(
            "listening on {host} without AUTH_TOKENS: everybody who reaches this address can read and \
             delete every job"
        )),
        (plain, format!(
            "listening on {host}{unasked}, without TLS: everybody on the way can read tokens and jobs. Set \
             TLS_CERT_FILE and TLS_KEY_FILE, or HOST=127.0.0.1 if only this machine is to connect"
        )),
        (rules.lets_all_in(),
            "CORS_ALLOW_ORIGIN is * and there are no AUTH_TOKENS: every web page that is opened where this server can be \
             reached can read and delete every job".to_owned()
        ),
        (rules.knows_all_hosts(),
            "ALLOWED_HOSTS is * and there are no AUTH_TOKENS: a web page whose name is pointed to this server can read \
             and delete every job".to_owned()
        ),
    ];
    lines.into_iter().filter_map(|(is_so, line)| is_so.then_some(line)).collect()
}

/// Whether every user of the machine can read the logs in a data directory, as those that earlier releases made.
pub fn of_data(path: &Path) -> Option<String> {
    let open = |path: &Path| {
        path.metadata().is_ok_and(|about| about.permissions().mode() & 0o005 == 0o005)
    };
    let is_open = open(path) && open(&shard_path(path, 0));
    is_open.then(|| {
        format!(
            "every user of this machine can read the jobs and the webhooks' secrets in {0}: chmod -R o= {0}",
            path.display()
        )
    })
}

/// Whether every user of the machine can read the file of tokens.
pub fn of_tokens(path: &Path) -> Option<String> {
    let is_open = path.metadata().is_ok_and(|about| about.permissions().mode() & 0o004 != 0);
    is_open.then(|| {
        format!(
            "every user of this machine can read the tokens in {0}: chmod o= {0}",
            path.display()
        )
    })
}

/// Refuses to root a directory with the shards of another user: links in it would lead root anywhere, and that user's server
/// could not use what root makes there.
pub fn must_not_be_roots(directory: &Path) -> Result<(), StartError> {
    let owner = user_of_shards(directory).filter(|owner| User::own().is_root() && !owner.is_root());
    owner.map_or(Ok(()), |owner| {
        let (path, user) = (directory.display(), owner.for_sudo());
        let why = format!(
            "the shards in {path} belong to {owner}, and this is root: run the server as that user, with 'sudo -u {user} \
             corq ...', or make all in {path} root's"
        );
        Err(other("data path", why))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use clap::{Args, FromArgMatches};
    use std::fs::{self, Permissions};

    fn lines(words: &str) -> Vec<String> {
        let command = Config::augment_args(clap::Command::new("corq").no_binary_name(true));
        let matches = command.get_matches_from(words.split_whitespace());
        let config = Config::from_arg_matches(&matches).unwrap();
        let rules = Rules {
            has_tokens: config.has_tokens(),
            origins: config.cors_allow_origin.clone(),
            hosts: config.allowed_hosts().map(Into::into).collect(),
        };
        of(&config, &config.listen_hosts(), &rules)
    }

    #[test]
    fn what_lets_others_in_or_lets_them_listen_is_told() {
        assert!(lines("").is_empty() && lines("--auth-tokens t --host 127.0.0.1").is_empty());
        let said = lines("--auth-tokens t");
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("listening on 0.0.0.0, which is the default with AUTH_TOKENS"));
        assert!(said[0].contains("TLS_CERT_FILE") && said[0].contains("HOST=127.0.0.1"));
        let said = lines("--auth-tokens t --host 0.0.0.0");
        assert!(said.len() == 1 && said[0].starts_with("listening on 0.0.0.0, without TLS"));
        assert!(lines("--auth-tokens t --tls-cert-file c --tls-key-file k").is_empty());
        let said = lines("--host ::");
        assert!(said.len() == 1 && said[0].contains("without AUTH_TOKENS"), "{said:?}");
        assert!(lines("--host localhost").is_empty());
        assert_eq!(lines("--cors-allow-origin * --allowed-hosts *").len(), 2);
    }

    #[test]
    fn a_data_directory_that_all_can_read_is_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let shard = shard_path(&data, 0);
        fs::create_dir_all(&shard).unwrap();
        for (of_data_dir, of_shard, warns) in
            [(0o755, 0o755, true), (0o750, 0o755, false), (0o755, 0o750, false)]
        {
            fs::set_permissions(&data, Permissions::from_mode(of_data_dir)).unwrap();
            fs::set_permissions(&shard, Permissions::from_mode(of_shard)).unwrap();
            assert_eq!(of_data(&data).is_some(), warns, "{of_data_dir:o} {of_shard:o}");
        }
    }
}
