//! Facts about the database of a fleet that are worth knowing before it is relied on.

use super::database::{Database, DatabaseError};
use std::time::{Duration, Instant};

/// Commits that are timed.
const COMMITS: usize = 40;

/// How long the database has for one: none that waits for a standby that is away.
const LIMIT: &str = "set statement_timeout = 3000";

/// Settings, standby and speed of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// As `PostgreSQL` calls it.
    pub version: String,
    /// Settings that must be on for a commit to last, and are not.
    pub is_off: Vec<String>,
    /// Whether commits wait for a standby.
    pub is_synchronous: bool,
    /// Standbys that they can wait for, as far as the user may see them.
    pub standbys: i64,
    /// Bytes of the database.
    pub bytes: i64,
    /// Transactions since the oldest one that is not frozen. At 2^31 a database refuses writes.
    pub transactions_age: i64,
    /// How long commits took, sorted; nothing if the user has no right to the function that writes without a table.
    pub commit_times: Vec<Duration>,
}

impl Condition {
    /// Asks the database, and has it commit some small messages that change nothing.
    pub fn of(database: &Database) -> Result<Self, DatabaseError> {
        let mut connection = database.connect()?;
        connection.client.batch_execute(LIMIT)?;
        let found = connection.client.query_one(
            "select current_setting('server_version'), \
             array(select name from unnest(array['fsync', 'full_page_writes']) name where current_setting(name) = 'off'), \
             current_setting('synchronous_standby_names') <> '', \
             (select count(*) from pg_stat_replication where sync_state in ('sync', 'quorum')), \
             pg_database_size(current_database()), \
             (select age(datfrozenxid)::bigint from pg_database where datname = current_database())",
            &[],
        )?;
        let mut commit_times = Vec::new();
        for _ in 0..COMMITS {
            let began = Instant::now();
            let message = "select pg_logical_emit_message(true, 'corq', '')";
            if connection.client.execute(message, &[]).is_err() {
                break;
            }
            commit_times.push(began.elapsed());
            if connection.take_warning() {
                // The wait for the standby was cut short.
                break;
            }
        }
        commit_times.sort_unstable();
        Ok(Self {
            version: found.get(0),
            is_off: found.get(1),
            is_synchronous: found.get(2),
            standbys: found.get(3),
            bytes: found.get(4),
            transactions_age: found.get(5),
            commit_times,
        })
    }
}
