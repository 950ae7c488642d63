//! The settings that count by now, and how they are read again while the server runs: what may change does, the log says
//! what needs a restart, and settings with a mistake change nothing. Knows no shard.

use crate::config::{Changed, Config, Layers, Problem};
use crate::logging;
use crate::server::access::guard::Guard;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Settings that SIGHUP may change, shared by all shards.
pub struct LiveSettings {
    layers: Layers,
    shards: usize,
    /// Raised with every change.
    changes: AtomicU64,
    config: RwLock<Arc<Config>>,
}

impl LiveSettings {
    /// Settings of so many shards, which come from `layers`.
    pub fn new(config: Config, layers: Layers, shards: usize) -> Self {
        let config = RwLock::new(Arc::new(config));
        Self { layers, shards, changes: AtomicU64::new(1), config }
    }

    /// The settings in effect, from the last reload that succeeded.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// A number that is another once something has changed.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Whether there is a file to read again.
    pub fn has_file(&self) -> bool {
        self.config().config_file.is_some()
    }

    /// Reads the file again, and the tokens with it. The log says what has become of it, and so does the answer, in a line.
    pub fn read_again(&self, guard: &Guard) -> Result<String, String> {
        let before = self.config();
        match self.next(&before, guard) {
            Err(problem) => {
                say_refused(&problem);
                Err(problem.to_string())
            }
            Ok((taken, later)) => {
                let told = say_changes(&before, &taken, &later);
                logging::set_level(taken.log_level);
                *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(taken);
                self.changes.fetch_add(1, Ordering::AcqRel);
                Ok(told)
            }
        }
    }

    /// The settings that count from now on, and those that would after a restart.
    fn next(&self, before: &Config, guard: &Guard) -> Result<(Config, Config), Problem> {
        let one = |text: String| Problem::Settings(vec![text]);
        let later = self.layers.read()?;
        later.check(self.shards).map_err(one)?;
        let taken = self.layers.taken_over(before, &later)?;
        taken.check(self.shards).map_err(one)?;
        guard.reload(Some(&taken.auth_tokens.join(","))).map_err(one)?;
        Ok((taken, later))
    }
}

fn say_refused(problem: &Problem) {
    match problem {
        Problem::Settings(lines) => {
            for line in lines {
                tracing::error!("the settings stay as they were: {line}");
            }
        }
        Problem::Usage(_) => tracing::error!("the settings stay as they were: {problem}"),
    }
}

/// Logs what has changed. Returns the names of the settings that count from now on.
fn say_changes(before: &Config, taken: &Config, later: &Config) -> String {
    let changed = before.changes(taken);
    for change in &changed {
        tracing::info!("the settings were read again: {change}");
    }
    let waits = |change: &Changed| !changed.iter().any(|it| it.before.name == change.before.name);
    let waiting: Vec<Changed> = before.changes(later).into_iter().filter(waits).collect();
    for change in &waiting {
        tracing::warn!("the settings were read again: {change} needs a restart");
    }
    if changed.is_empty() && waiting.is_empty() {
        tracing::info!("the settings were read again: none has changed");
    }
    let names: Vec<&str> = changed.iter().map(|it| it.before.name.as_str()).collect();
    if names.is_empty() { "none has changed".to_owned() } else { names.join(", ") }
}

/// Settings as one shard follows them.
pub struct FollowedSettings {
    live: Arc<LiveSettings>,
    /// Up to which change it has followed.
    followed: u64,
}

impl FollowedSettings {
    /// Before the first turn of a shard, which takes them over.
    pub fn new(live: Arc<LiveSettings>) -> Self {
        Self { live, followed: 0 }
    }

    /// The settings in effect.
    pub fn config(&self) -> Arc<Config> {
        self.live.config()
    }

    /// The settings in effect, if they have changed since the last call.
    #[inline]
    pub fn news(&mut self) -> Option<Arc<Config>> {
        let changes = self.live.changes();
        if changes == self.followed {
            return None;
        }
        self.followed = changes;
        Some(self.config())
    }
}
