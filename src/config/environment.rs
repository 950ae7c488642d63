//! Which variable a setting is taken from: `CORQ_` and its name, else its name alone. A variable that is empty or blank counts as
//! unset, and blanks around a value do not count. What other programs keep under such a name is passed over, and the log says so.

use super::host::is_platform;
use super::origin::{Origin, Source};
use super::setting::{arguments, name};
use super::values;
use crate::api::spelling;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Before the names of our own variables.
const PREFIX: &str = "CORQ_";

/// Where another server of this protocol keeps its data, for those who come from there.
const OTHER_DATA_PATH: &str = "BUNQUEUE_DATA_PATH";

/// Variables of other programs for the storage of backups, each with the setting that it gives, first come first.
const OF_STORAGE: [(&str, &str); 8] = [
    ("backup_s3_endpoint", "AWS_ENDPOINT_URL_S3"),
    ("backup_s3_endpoint", "AWS_ENDPOINT_URL"),
    ("backup_s3_region", "AWS_REGION"),
    ("backup_s3_region", "AWS_DEFAULT_REGION"),
    ("backup_s3_access_key_id", "AWS_ACCESS_KEY_ID"),
    ("backup_s3_secret_access_key", "AWS_SECRET_ACCESS_KEY"),
    ("backup_s3_session_token", "AWS_SESSION_TOKEN"),
    ("backup_s3_credentials_file", "AWS_SHARED_CREDENTIALS_FILE"),
];

/// The file of settings.
const FILE: &str = "CORQ_CONFIG";

/// Variables of the command line, which are no misspelling of a setting.
const OF_COMMANDS: [&str; 9] = [
    FILE,
    "CORQ_HTTP_SOCKET",
    "CORQ_PORT",
    "CORQ_SOCKET",
    "CORQ_TLS",
    "CORQ_TLS_CA",
    "CORQ_TLS_CERT",
    "CORQ_TLS_KEY",
    "CORQ_TOKEN",
];

/// Whether a value is that of a variable by which Kubernetes announces a service: a pod beside a service that is called
/// `corq-tcp` has `CORQ_TCP_PORT=tcp://10.0.0.1:6789`.
pub fn is_service_link(value: &OsStr) -> bool {
    let value = value.to_string_lossy();
    ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme))
}

/// The variables of a process that are not blank, without the blanks around their values.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, OsString>);

/// Values may be secrets.
impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Environment {
    /// Of this process.
    pub fn of_process() -> Self {
        std::env::vars_os().collect()
    }

    /// The file that a variable names.
    pub(super) fn file(&self) -> Option<&OsStr> {
        self.get(FILE)
    }

    /// The data directory that a variable names.
    pub fn data_path(&self) -> Option<PathBuf> {
        self.setting("data_path").map(PathBuf::from)
    }

    /// The database of a fleet that a variable names.
    pub fn fleet_database(&self) -> Option<String> {
        self.setting("fleet_database").map(|url| url.to_string_lossy().into_owned())
    }

    /// The value of a setting, by its name in lower case.
    pub fn setting(&self, id: &str) -> Option<OsString> {
        Some(self.find(id, &mut Vec::new())?.text)
    }

    /// The variables that say where backups go and how, and which file has settings; for commands, which the others are not for.
    #[must_use]
    pub fn of_backups(&self) -> Self {
        let is_one = |name: &String| {
            let plain = name.strip_prefix(PREFIX).unwrap_or(name);
            plain.starts_with("BACKUP_")
                || name == FILE
                || OF_STORAGE.iter().any(|(_, other)| other == name)
        };
        let kept = self.0.iter().filter(|(name, _)| is_one(name));
        Self(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(name).map(OsString::as_os_str)
    }

    /// The value of a setting, by its name in lower case. Adds to `notes` what the log should say.
    pub(super) fn find(&self, id: &str, notes: &mut Vec<String>) -> Option<Origin> {
        let plain = id.to_ascii_uppercase();
        let mut names = vec![format!("{PREFIX}{plain}")];
        match id {
            // The plain name would be taken for the size of a memory.
            "memory" => {}
            "data_path" => names.extend([plain, OTHER_DATA_PATH.to_owned()]),
            _ => names.push(plain),
        }
        let others = OF_STORAGE.iter().filter(|(known, _)| *known == id);
        names.extend(others.map(|(_, other)| (*other).to_owned()));
        let mut found: Option<Origin> = None;
        for name in names {
            let Some(value) = self.get(&name) else { continue };
            if let Some(why) = passed_over(id, &name, value) {
                notes.push(why);
                continue;
            }
            match &found {
                // Other programs have an order of such names, too, and say nothing.
                Some(_) if OF_STORAGE.iter().any(|(_, other)| *other == name) => {}
                Some(first) if first.text != value => notes.push(format!(
                    "{} and {name} are both set and differ: {} counts",
                    first.place, first.place
                )),
                Some(_) => {}
                None => {
                    let (source, text) = (Source::Environment, value.to_owned());
                    found = Some(Origin { source, place: name, text });
                }
            }
        }
        found
    }

    /// Variables of ours that are no settings and seem to mean one.
    pub(super) fn misspelled(&self) -> Vec<String> {
        let known: Vec<String> =
            arguments().iter().map(|arg| format!("{PREFIX}{}", name(arg))).collect();
        let ours = self.0.keys().filter(|name| {
            name.starts_with(PREFIX) && !known.contains(name) && !OF_COMMANDS.contains(&&***name)
        });
        let meant = |unknown: &String| {
            let meant = spelling::meant(unknown, known.iter().map(String::as_str))?;
            Some(format!("{unknown} is no setting and is passed over: {meant} is one"))
        };
        ours.filter_map(meant).collect()
    }
}

impl FromIterator<(OsString, OsString)> for Environment {
    fn from_iter<I: IntoIterator<Item = (OsString, OsString)>>(variables: I) -> Self {
        // A name that is no text is none of ours.
        let named = variables
            .into_iter()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, without_blanks(&value)?)));
        Self(named.collect())
    }
}

/// A value without the blanks and line ends that files of variables leave around it; none, if nothing else is there.
fn without_blanks(value: &OsStr) -> Option<OsString> {
    let bytes = value.as_bytes().trim_ascii();
    (!bytes.is_empty()).then(|| OsStr::from_bytes(bytes).to_owned())
}

/// Whether the value of a setting of the storage fits.
fn of_storage(id: &str, value: &OsStr) -> Result<(), String> {
    let text = value.to_str().ok_or("it is no text")?;
    match id {
        "backup_s3_endpoint" => values::s3_endpoint(text).map(drop),
        "backup_s3_region" => values::s3_region(text).map(drop),
        "backup_s3_credentials_file" => Ok(()),
        _ => values::s3_word(text).map(drop),
    }
}

/// Why a variable is another program's, if it is.
fn passed_over(id: &str, name: &str, value: &OsStr) -> Option<String> {
    let shown = value.to_string_lossy();
    // Variables of the storage are meant for other programs: a value that those take and this one does not must not
    // keep a server from starting.
    if OF_STORAGE.iter().any(|(_, other)| *other == name) {
        let why = of_storage(id, value).err()?;
        return Some(format!("{name} is passed over: {why}"));
    }
    if id.ends_with("_port") && is_service_link(value) {
        return Some(format!(
            "{name}={shown} is how Kubernetes announces a service, and is passed over: set enableServiceLinks: false for \
             the pod, or name the port by --{}",
            id.replace('_', "-")
        ));
    }
    (name == "HOST" && is_platform(&shown)).then(|| {
        format!(
            "HOST={shown} is a platform, as tools for builds such as conda keep it there, and is passed over: CORQ_HOST \
             says where to listen"
        )
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Environment {
        variables.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    #[test]
    fn names_of_other_programs_for_the_storage_come_last_and_stop_no_start() {
        let both = [("AWS_DEFAULT_REGION", "eu-west-2"), ("AWS_REGION", "eu-west-1")];
        let (found, notes) = find(&both, "backup_s3_region");
        assert_eq!((&*found.unwrap(), notes.len()), ("AWS_REGION=eu-west-1", 0));
        let ours = [("BACKUP_S3_REGION", "eu-west-3"), both[0]];
        assert_eq!(find(&ours, "backup_s3_region").0.unwrap(), "BACKUP_S3_REGION=eu-west-3");
        for (name, value, id) in [
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:4566/path", "backup_s3_endpoint"),
            ("AWS_SECRET_ACCESS_KEY", "s3 cret", "backup_s3_secret_access_key"),
        ] {
            let (found, notes) = find(&[(name, value)], id);
            assert_eq!(found, None);
            assert!(notes[0].starts_with(&format!("{name} is passed over: it must")), "{notes:?}");
            assert!(!notes[0].contains(value), "{notes:?}");
        }
    }

    #[test]
    fn a_variable_of_nothing_or_blanks_is_unset_and_blanks_around_a_value_do_not_count() {
        for arg in arguments() {
            let id = arg.get_id().as_str();
            let variable = format!("{PREFIX}{}", name(&arg));
            for nothing in ["", " ", "\t \r\n"] {
                assert_eq!(find(&[(&variable, nothing)], id), (None, Vec::new()), "{variable}");
            }
            let (found, _) = find(&[(&variable, " x\r\n")], id);
            assert_eq!(found, Some(format!("{variable}=x")));
        }
        assert_eq!(find(&[("BUNQUEUE_DATA_PATH", " ")], "data_path").0, None);
        assert_eq!(find(&[("AWS_REGION", "")], "backup_s3_region"), (None, Vec::new()));
        let (found, notes) = find(&[("CORQ_SHARDS", ""), ("SHARDS", "2 ")], "shards");
        assert_eq!((&*found.unwrap(), notes.len()), ("SHARDS=2", 0));
        assert_eq!(environment(&[("CORQ_CONFIG", " ")]).file(), None);
    }

    fn find(variables: &[(&str, &str)], id: &str) -> (Option<String>, Vec<String>) {
        let mut notes = Vec::new();
        let found = environment(variables).find(id, &mut notes);
        (found.map(|it| format!("{}={}", it.place, it.text.to_string_lossy())), notes)
    }

    #[test]
    fn our_own_variable_comes_before_the_plain_one_and_a_difference_is_said() {
        let both = [("CORQ_TCP_PORT", "1"), ("TCP_PORT", "2")];
        let (found, notes) = find(&both, "tcp_port");
        assert_eq!(found.unwrap(), "CORQ_TCP_PORT=1");
        assert_eq!(
            notes,
            ["CORQ_TCP_PORT and TCP_PORT are both set and differ: CORQ_TCP_PORT counts"]
        );
        let same = [("CORQ_AUTH_TOKENS", "s3cret"), ("AUTH_TOKENS", "s3cret")];
        assert!(find(&same, "auth_tokens").1.is_empty());
        let differ = [("CORQ_AUTH_TOKENS", "s3cret"), ("AUTH_TOKENS", "s4cret")];
        assert!(!find(&differ, "auth_tokens").1.concat().contains("cret"));
        assert_eq!(find(&[("MEMORY", "2G")], "memory").0, None);
        assert_eq!(find(&[("CORQ_MEMORY", "true")], "memory").0.unwrap(), "CORQ_MEMORY=true");
        let (data, _) = find(&[("BUNQUEUE_DATA_PATH", "/b")], "data_path");
        assert_eq!(data.unwrap(), "BUNQUEUE_DATA_PATH=/b");
    }

    #[test]
    fn what_other_programs_keep_under_such_a_name_is_passed_over() {
        let link = [("CORQ_TCP_PORT", "tcp://10.0.0.1:6789"), ("TCP_PORT", "7")];
        let (found, notes) = find(&link, "tcp_port");
        assert_eq!(found.unwrap(), "TCP_PORT=7");
        assert!(notes[0].contains("Kubernetes") && notes[0].contains("--tcp-port"), "{notes:?}");
        let (found, notes) = find(&[("HOST", "x86_64-conda-linux-gnu")], "host");
        assert!(found.is_none() && notes[0].contains("conda"), "{notes:?}");
        // Nothing but its own text is a wrong value.
        assert!(find(&[("CORQ_HOST", "x86_64-conda-linux-gnu")], "host").0.is_some());
        assert!(find(&[("HOST", "build-1")], "host").0.is_some());
    }

    #[test]
    fn a_misspelled_variable_is_told_from_those_of_commands_and_of_services() {
        let some = environment(&[
            ("CORQ_TCP_PROT", "1"),
            ("CORQ_PORT", "1"),
            ("CORQ_TOKEN", "1"),
            ("CORQ_SERVICE_HOST", "1"),
            ("CORQ_PORT_6789_TCP_ADDR", "1"),
        ]);
        let said = some.misspelled();
        assert_eq!(said, ["CORQ_TCP_PROT is no setting and is passed over: CORQ_TCP_PORT is one"]);
    }
}
