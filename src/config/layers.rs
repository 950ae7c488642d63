//! Settings from all places: a flag comes before a variable, a variable before the settings file, and that before the
//! default. All places are kept, so that the file can be read again while the server runs.

use super::declared::Config;
use super::environment::Environment;
use super::file::SettingsFile;
use super::origin::{Origin, Origins, Source};
use super::setting::{HIDDEN, arguments, is_live, is_secret, name};
use super::values::{flag, free, is_off, reason};
use clap::builder::Resettable;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, FromArgMatches};
use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// Why there are no settings.
#[derive(Debug)]
pub enum Problem {
    /// The command line is wrong, or asks for help.
    Usage(clap::Error),
    /// A line for each setting that is wrong, with the place that it comes from.
    Settings(Vec<String>),
}

impl From<clap::Error> for Problem {
    fn from(error: clap::Error) -> Self {
        Self::Usage(error)
    }
}

/// In one line.
impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Usage(error) => f.write_str(error.to_string().trim_end()),
            Self::Settings(lines) => f.write_str(&lines.join("; ")),
        }
    }
}

/// The places that settings come from.
#[derive(Clone, Debug)]
pub struct Layers {
    /// The description of the command line.
    command: fn() -> Command,
    /// The command line, which begins with the name of the program.
    words: Vec<OsString>,
    environment: Environment,
}

impl Layers {
    /// For a command that takes the flags of all settings.
    pub fn new(command: fn() -> Command, words: Vec<OsString>, environment: Environment) -> Self {
        Self { command, words, environment }
    }

    /// The settings of the file `path` and of nothing else.
    pub fn of_file(command: fn() -> Command, path: &OsStr) -> Self {
        let mut named = OsString::from("--config=");
        named.push(path);
        Self::new(command, vec!["corq".into(), named], Environment::default())
    }

    /// Reads all of them. Flags and variables are always those of the start; the file may have changed.
    pub fn read(&self) -> Result<Config, Problem> {
        let flags = self.description().try_get_matches_from(&self.words);
        let flags = flags.map_err(|error| self.with_variables(error))?;
        let arguments = arguments();
        let path = self.file(&flags);
        let file = path.as_deref().map(|path| SettingsFile::read(path, &arguments));
        let (file, mut findings) = match file.transpose() {
            Ok(file) => (file.unwrap_or_default(), Vec::new()),
            Err(findings) => (SettingsFile::default(), findings),
        };
        let mut origins = Origins { notes: self.environment.misspelled(), ..Origins::default() };
        for arg in &arguments {
            let id = arg.get_id().as_str();
            let variable = self.environment.find(id, &mut origins.notes);
            let wrong = variable.as_ref().and_then(|origin| wrong_variable(arg, origin));
            let given = of_flag(arg, &flags);
            match wrong {
                // A variable that a flag stands before does not count.
                Some(finding) if given.is_none() => findings.push(finding),
                _ => {
                    let origin = given.or(variable).or_else(|| file.find(id));
                    origins.given.extend(origin.map(|origin| (id.to_owned(), origin)));
                }
            }
        }
        settle_memory(&mut origins, &mut findings);
        if !findings.is_empty() {
            return Err(Problem::Settings(findings));
        }
        Ok(Config { config_file: path, ..self.config(origins)? })
    }

    /// Settings that were read later, but for those that only a restart changes: these are as they were.
    pub fn taken_over(&self, before: &Config, later: &Config) -> Result<Config, Problem> {
        let mut origins = Origins { notes: before.origins.notes.clone(), ..Origins::default() };
        for arg in &arguments() {
            let from = if is_live(&name(arg), before, later) { later } else { before };
            let id = arg.get_id().as_str();
            let origin = from.origins.given.get(id).cloned();
            origins.given.extend(origin.map(|origin| (id.to_owned(), origin)));
        }
        Ok(Config { config_file: before.config_file.clone(), ..self.config(origins)? })
    }

    /// The command line without its variables: those are read here, and would come before the file there.
    fn description(&self) -> Command {
        (self.command)().mut_args(|arg| free(arg).env(Resettable::Reset))
    }

    /// The settings that have these values, each of which fits its setting.
    fn config(&self, origins: Origins) -> Result<Config, Problem> {
        let given = arguments().into_iter().filter_map(|arg| {
            let origin = origins.given.get(arg.get_id().as_str())?;
            Some(flag(&arg, &origin.text))
        });
        let words = self.words.iter().take(1).cloned().chain(given);
        let matches = self.description().try_get_matches_from(words)?;
        Ok(Config { origins, ..Config::from_arg_matches(&matches)? })
    }

    /// The file that a flag or a variable names.
    fn file(&self, flags: &ArgMatches) -> Option<PathBuf> {
        let named = flags.get_one::<PathBuf>("config_file").cloned();
        named.or_else(|| self.environment.file().map(PathBuf::from))
    }

    /// A help that names the variables, too.
    fn with_variables(&self, error: clap::Error) -> clap::Error {
        if error.kind() != ErrorKind::DisplayHelp {
            return error;
        }
        let asked = (self.command)().try_get_matches_from(&self.words);
        asked.err().unwrap_or(error)
    }
}

fn of_flag(arg: &Arg, flags: &ArgMatches) -> Option<Origin> {
    let id = arg.get_id().as_str();
    if flags.value_source(id) != Some(ValueSource::CommandLine) {
        return None;
    }
    let mut text = OsString::new();
    for (at, value) in flags.get_raw(id).into_iter().flatten().enumerate() {
        if at > 0 {
            text.push(",");
        }
        text.push(value);
    }
    let place = format!("--{}", arg.get_long().unwrap_or_default());
    Some(Origin { source: Source::Flag, place, text })
}

fn wrong_variable(arg: &Arg, origin: &Origin) -> Option<String> {
    let reason = reason(arg, &origin.text)?;
    let value = if is_secret(arg) { HIDDEN.into() } else { origin.text.to_string_lossy() };
    let advice = match &*origin.place {
        "CORQ_HOST" => ". Commands look for a server there, too: --host says where to listen",
        "HOST" => ". CORQ_HOST comes before it, if another program needs HOST",
        _ => "",
    };
    Some(format!("{}={value}: {reason}{advice}", origin.place))
}

/// `MEMORY` and `DATA_PATH` exclude each other. A variable gives way to a flag, and a file to both; two of the same place are a
/// mistake that could cost all jobs.
fn settle_memory(origins: &mut Origins, findings: &mut Vec<String>) {
    let wants_memory = |origin: &&Origin| !is_off(&origin.text);
    let memory = origins.given.get("memory").filter(wants_memory);
    let (Some(memory), Some(data)) = (memory, origins.given.get("data_path")) else { return };
    let loser = match memory.source.cmp(&data.source) {
        Ordering::Less => "data_path",
        Ordering::Greater => "memory",
        Ordering::Equal => {
            findings.push(format!(
                "{} and {} cannot be used together: without a log there is no path",
                memory.place, data.place
            ));
            return;
        }
    };
    origins.given.remove(loser);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use clap::Args;
    use std::fs;

    fn command() -> Command {
        Config::augment_args(Command::new("corq"))
    }

    fn layers(line: &str, variables: &[(&str, &str)]) -> Layers {
        let words = ["corq"].into_iter().chain(line.split_whitespace()).map(OsString::from);
        let environment = variables.iter().map(|(name, value)| (name.into(), value.into()));
        Layers::new(command, words.collect(), environment.collect())
    }

    fn read(line: &str, variables: &[(&str, &str)]) -> Result<Config, Vec<String>> {
        match layers(line, variables).read() {
            Err(Problem::Settings(lines)) => Err(lines),
            Err(Problem::Usage(error)) => panic!("{error}"),
            Ok(config) => Ok(config),
        }
    }

    /// A setting as it is shown, with where it comes from.
    fn shown(config: &Config, name: &str) -> String {
        let setting = config.settings().into_iter().find(|it| it.name == name).unwrap();
        let (value, source) = (setting.value.unwrap_or_default(), setting.source.name());
        format!("{value} {source} {}", setting.place.unwrap_or_default())
    }

    #[test]
    fn a_flag_comes_before_a_variable_and_that_before_the_file_and_that_before_the_default() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("corq.toml");
        fs::write(&path, "tcp_port = 1\nhttp_port = 2\nshards = 3\nmemory = true\n").unwrap();
        let file = path.display().to_string();
        let line = format!("--tcp-port 4 --config {file}");
        let config = read(&line, &[("TCP_PORT", "5"), ("HTTP_PORT", "6")]).unwrap();
        assert_eq!((config.tcp_port, config.http_port, config.shards), (4, 6, Some(3)));
        assert!(config.memory && config.data_path().is_none());
        assert_eq!(shown(&config, "TCP_PORT"), "4 flag --tcp-port");
        assert_eq!(shown(&config, "HTTP_PORT"), "6 environment HTTP_PORT");
        assert_eq!(shown(&config, "SHARDS"), format!("3 file {file}:3"));
        assert_eq!(shown(&config, "FSYNC_INTERVAL_MS"), "10 default ");
    }

    #[test]
    fn a_file_that_is_read_again_changes_what_may_change_and_names_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("corq.toml");
        let file = path.display().to_string();
        let layers = layers("", &[("CORQ_CONFIG", &file)]);
        let read = |text: &str| {
            fs::write(&path, text).unwrap();
            layers.read()
        };
        let names = |before: &Config, after: &Config| -> Vec<String> {
            before.changes(after).iter().map(ToString::to_string).collect()
        };
        let before = read("tcp_port = 1\nauth_tokens = \"s3cret\"\n").unwrap();
        let later = read("tcp_port = 2\nauth_tokens = \"other\"\nlog_level = \"warn\"").unwrap();
        let all = ["TCP_PORT 1 -> 2", "AUTH_TOKENS (hidden)", "LOG_LEVEL info -> warn"];
        assert_eq!(names(&before, &later), all);
        let taken = layers.taken_over(&before, &later).unwrap();
        assert_eq!(names(&before, &taken), all[1..]);
        assert_eq!((taken.tcp_port, &*taken.auth_tokens), (1, &["other".to_owned()][..]));
        assert_eq!(shown(&taken, "AUTH_TOKENS"), format!("(hidden) file {file}:2"));
        // Whether there are tokens at all is settled at the start.
        let open = read("tcp_port = 1\n").unwrap();
        let taken = layers.taken_over(&before, &open).unwrap();
        assert_eq!(names(&before, &taken), [""; 0]);
        assert!(read("tcp_port = \"x\"\n").is_err());
    }

    #[test]
    fn all_that_is_wrong_with_variables_and_file_is_said_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("corq.toml");
        fs::write(&path, "tcp_port = -1\n").unwrap();
        let line = format!("--config {} --shards 1", path.display());
        let wrong = [("DURABILITY", "hopeful"), ("HOST", "a-host"), ("SHARDS", "0"), ("UI", "2")];
        let said = read(&line, &wrong).unwrap_err();
        assert_eq!(
            said[0],
            format!("{}:1: tcp_port = -1: it must be between 0 and 65535", path.display())
        );
        assert!(
            said[1].starts_with("HOST=a-host: it must be an IP address or localhost"),
            "{said:?}"
        );
        assert_eq!(said[2], "DURABILITY=hopeful: it must be one of written, synced, replicated");
        assert_eq!(said[3], "UI=2: it must be true or false");
        assert_eq!(said.len(), 4, "{said:?}");
    }

    #[test]
    fn a_server_in_memory_has_no_path_unless_the_path_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("corq.toml");
        fs::write(&path, "data_path = \"/d\"\n").unwrap();
        let file = format!("--config {}", path.display());
        assert_eq!(read(&file, &[]).unwrap().data_path(), Some("/d".into()));
        assert_eq!(read(&format!("{file} --memory"), &[]).unwrap().data_path(), None);
        assert_eq!(read(&file, &[("CORQ_MEMORY", "yes")]).unwrap().data_path(), None);
        assert_eq!(read("--memory", &[("DATA_PATH", "/d")]).unwrap().data_path(), None);
        let data = read("--data-path /d", &[("CORQ_MEMORY", "1")]).unwrap().data_path();
        assert_eq!(data, Some("/d".into()));
        assert!(read("--memory=false", &[("DATA_PATH", "/d")]).is_ok());
        assert!(read("--memory --data-path /d", &[]).is_err());
        assert!(read("", &[("CORQ_MEMORY", "1"), ("DATA_PATH", "/d")]).is_err());
        assert!(read("", &[("CORQ_MEMORY", " "), ("DATA_PATH", "/d")]).is_ok());
        fs::write(&path, "memory = true\n").unwrap();
        assert_eq!(read(&file, &[("DATA_PATH", "/d")]).unwrap().data_path(), Some("/d".into()));
        fs::write(&path, "memory = true\ndata_path = \"/d\"\n").unwrap();
        assert!(read(&file, &[]).unwrap_err()[0].contains("cannot be used together"));
    }
}
