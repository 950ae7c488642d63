//! Every setting with its value and source. Secrets are not shown.

use super::bounds::DATA_PATH;
use super::declared::Config;
use super::origin::{Origin, Source};
use clap::{Arg, Args};
use std::fmt;

/// A setting as people and programs are shown it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    /// As the environment writes it.
    pub name: String,
    /// The value in effect, as text. Of a secret, that it is set; none, if it is not set and has no default.
    pub value: Option<String>,
    pub source: Source,
    /// The flag, the variable, or the file and the line that the value comes from.
    pub place: Option<String>,
    /// The value without the setting, in words where it depends on something.
    pub default: Option<String>,
    pub unit: Option<&'static str>,
    /// Whether a change of it in the settings file counts without a restart.
    pub is_live: bool,
    /// Whether its value is never shown.
    pub is_secret: bool,
}

/// In the place of a secret.
pub(super) const HIDDEN: &str = "(hidden)";

/// Settings that a running server takes over from the settings file on SIGHUP.
const LIVE: &[&str] = &[
    "ALLOWED_HOSTS",
    "AUTH_TIMEOUT_MS",
    "AUTH_TOKENS",
    "BACKUP_KEEP",
    "BACKUP_S3_ACCESS_KEY_ID",
    "BACKUP_S3_CREDENTIALS_FILE",
    "BACKUP_S3_ENDPOINT",
    "BACKUP_S3_REGION",
    "BACKUP_S3_SECRET_ACCESS_KEY",
    "BACKUP_S3_SESSION_TOKEN",
    "BACKUP_S3_TIMEOUT_MS",
    "BACKUP_SCHEDULE",
    "BACKUP_TO",
    "CORS_ALLOW_ORIGIN",
    "FRAME_TIMEOUT_MS",
    "HTTP_IDLE_TIMEOUT_MS",
    "HTTP_REQUEST_TIMEOUT_MS",
    "LOG_LEVEL",
    "LOG_WAITING_MB",
    "METRICS_PREFIX",
    "OTLP_HEADERS",
    "OTLP_SAMPLE",
    "PROTOCOL_DEFAULT",
    "RATE_LIMIT_CLEANUP_MS",
    "RATE_LIMIT_MAX_REQUESTS",
    "RATE_LIMIT_WINDOW_MS",
    "REQUIRE_AUTH_FOR_METRICS",
    "SHUTDOWN_TIMEOUT_MS",
    "STREAM_KEEP_ALIVE_MS",
    "TCP_RATE_LIMIT_MAX_REQUESTS",
    "UI",
    "UI_COLOR",
    "UI_LABEL",
    "UI_PATH",
    "UI_READ_ONLY",
    "UI_REDACT",
];

/// Whether a setting may change between these settings without a restart. Whether there are tokens may not.
pub(super) fn is_live(name: &str, before: &Config, later: &Config) -> bool {
    LIVE.contains(&name) && (name != "AUTH_TOKENS" || before.has_tokens() == later.has_tokens())
}

fn unit(name: &str) -> Option<&'static str> {
    let by_end = [("_MS", "ms"), ("_US", "us"), ("_MB", "MB"), ("_PER_SECOND", "jobs/s")];
    let by_name = [
        ("BACKUP_KEEP", "backups"),
        ("COMPLETED_MAX", "jobs"),
        ("CONNECTIONS_MAX", "connections"),
        ("EVENTS_KEPT", "events"),
        ("RATE_LIMIT_MAX_REQUESTS", "requests"),
        ("SHARDS", "shards"),
        ("TCP_RATE_LIMIT_MAX_REQUESTS", "commands"),
        ("WEBHOOK_CONCURRENCY", "deliveries"),
        ("WEBHOOK_MAX_RETRIES", "attempts"),
    ];
    let named = by_name.iter().find(|(known, _)| *known == name);
    let ended = || by_end.iter().find(|(end, _)| name.ends_with(end));
    named.or_else(ended).map(|(_, unit)| *unit)
}

/// The arguments of the settings, in order; not the one that names the file.
pub(super) fn arguments() -> Vec<Arg> {
    let command = Config::augment_args(clap::Command::new("corq"));
    let all = command.get_arguments().filter(|arg| arg.get_id() != "config_file");
    all.map(|arg| arg.clone().env(clap::builder::Resettable::Reset)).collect()
}

/// Whether the value of the setting is never shown.
pub(super) fn is_secret(arg: &Arg) -> bool {
    arg.is_hide_env_values_set()
}

/// As the environment writes it.
pub(super) fn name(arg: &Arg) -> String {
    arg.get_id().as_str().to_ascii_uppercase()
}

/// The default in the words of the help, if it is no text of its own.
fn default_in_words(arg: &Arg) -> Option<String> {
    let help = arg.get_help()?.to_string().replace('\n', " ");
    let (_, behind) = help.split_once("[default: ")?;
    behind.split_once(']').map(|(words, _)| words.to_owned())
}

fn default(arg: &Arg) -> Option<String> {
    let values: Vec<_> = arg.get_default_values().iter().map(|it| it.to_string_lossy()).collect();
    if values.is_empty() { default_in_words(arg) } else { Some(values.join(",")) }
}

impl Config {
    /// Every setting with its value and source, in the order of the help.
    pub fn settings(&self) -> Vec<Setting> {
        arguments().iter().map(|arg| self.setting(arg)).collect()
    }

    /// Whether there are tokens in the settings file itself.
    pub fn has_tokens_in_file(&self) -> bool {
        let origin = self.origins.given.get("auth_tokens");
        self.has_tokens() && origin.is_some_and(|origin| origin.source == Source::File)
    }

    fn setting(&self, arg: &Arg) -> Setting {
        let (name, is_secret) = (name(arg), is_secret(arg));
        let origin = self.origins.given.get(arg.get_id().as_str());
        let shown = |origin: &Origin| {
            if is_secret { HIDDEN.into() } else { origin.text.to_string_lossy().into_owned() }
        };
        let given = origin.map(shown);
        let value = given.or_else(|| self.unset(arg, &name));
        Setting {
            value,
            source: origin.map_or(Source::Default, |origin| origin.source),
            place: origin.map(|origin| origin.place.clone()),
            default: default(arg),
            unit: unit(&name),
            is_live: LIVE.contains(&&*name),
            is_secret,
            name,
        }
    }

    /// The value in effect of a setting that was not given.
    fn unset(&self, arg: &Arg, name: &str) -> Option<String> {
        match name {
            "HOST" => self.listen_hosts().first().map(ToString::to_string),
            "GATHER_US" => Some(self.gather_us().to_string()),
            "DATA_PATH" => (!self.memory).then(|| DATA_PATH.to_owned()),
            _ => {
                let values = arg.get_default_values().iter().map(|it| it.to_string_lossy());
                let values: Vec<_> = values.collect();
                (!values.is_empty()).then(|| values.join(","))
            }
        }
    }

    /// The settings whose values differ from those of `later`.
    pub fn changes(&self, later: &Self) -> Vec<Changed> {
        let given = |config: &Self, arg: &Arg| {
            config.origins.given.get(arg.get_id().as_str()).map(|origin| origin.text.clone())
        };
        let changed = |arg: &Arg| {
            let (before, after) = (self.setting(arg), later.setting(arg));
            let same = before.value == after.value
                && (!before.is_secret || given(self, arg) == given(later, arg));
            (!same).then_some(Changed { before, after })
        };
        arguments().iter().filter_map(changed).collect()
    }
}

/// A setting before and after a change.
#[derive(Clone, Debug)]
pub struct Changed {
    pub before: Setting,
    pub after: Setting,
}

/// The change in one line, for people.
impl fmt::Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |setting: &Setting| setting.value.clone().unwrap_or_else(|| "unset".into());
        if self.before.is_secret {
            return write!(f, "{} {HIDDEN}", self.before.name);
        }
        write!(f, "{} {} -> {}", self.before.name, shown(&self.before), shown(&self.after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_a_name_of_its_own_and_those_that_are_live_are_settings() {
        let names: Vec<String> = arguments().iter().map(name).collect();
        for live in LIVE {
            assert!(names.iter().any(|name| name == live), "{live}");
        }
        assert!(LIVE.is_sorted() && names.len() > 50);
    }

    #[test]
    fn the_variable_of_a_setting_is_its_name() {
        let command = Config::augment_args(clap::Command::new("corq"));
        for arg in command.get_arguments().filter(|arg| arg.get_id() != "config_file") {
            let variable = arg.get_env().map(|name| name.to_string_lossy().into_owned());
            // The plain name would be taken for the size of a memory.
            let expected = Some(name(arg)).filter(|name| name != "MEMORY");
            assert_eq!(variable, expected);
        }
    }

    #[test]
    fn only_tokens_keys_and_headers_that_may_hold_one_are_secret() {
        let secret: Vec<String> =
            arguments().iter().filter(|arg| is_secret(arg)).map(name).collect();
        let expected = [
            "FLEET_DATABASE",
            "AUTH_TOKENS",
            "OTLP_HEADERS",
            "BACKUP_S3_SECRET_ACCESS_KEY",
            "BACKUP_S3_SESSION_TOKEN",
        ];
        assert_eq!(secret, expected);
    }
}
