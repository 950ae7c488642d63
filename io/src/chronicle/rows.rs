//! Rows of one log in a database: a table per segment, which goes with it.
//!
//! An append is one statement: it inserts if the claim is the newest, which it locks for its time, and if the row before is
//! there. No row is updated, so that old snapshots cost nothing. A statement whose outcome is not known is settled by a write,
//! which waits for the standby as every commit does: what is only read may not be there yet.

use super::database::{Connection, Database, DatabaseError};
use super::{Chronicle, Fence, Refused, Row};
use postgres::Statement;
use postgres::error::SqlState;
use std::cell::Cell;
use std::thread;
use std::time::Duration;

/// Between two attempts to reach the database.
const PAUSE: Duration = Duration::from_millis(100);

/// Called when the database is not to be reached, and when it is again.
pub type Tell = Box<dyn Fn(Result<(), &DatabaseError>) + Send>;

/// The rows of a log, and the right to append to them.
pub struct Rows {
    database: Database,
    connection: Option<Connection>,
    shard: u16,
    segment_bytes: u64,
    fence: Fence,
    /// The statement for a segment and that of the row before.
    prepared: Option<((u64, Option<u64>), Statement)>,
    tell: Tell,
    is_away: bool,
}

/// A row in the form of the database.
pub(super) fn stored(at: i64, until: i64, sum: i32) -> Row {
    Row { at: at as u64, until: until as u64, sum: sum as u32 }
}

pub(super) fn table(shard: u16, segment: u64) -> String {
    format!("corq_log_{shard}_{segment}")
}

/// The segments of which there is a table, in their order.
pub(super) fn segments_of(
    connection: &mut Connection,
    shard: u16,
) -> Result<Vec<u64>, postgres::Error> {
    let prefix = format!("corq_log_{shard}_");
    let found = connection.client.query(
        "select tablename from pg_tables where schemaname = current_schema() and starts_with(tablename, $1)",
        &[&prefix],
    )?;
    let names = found.iter().map(|row| row.get::<_, String>(0));
    let mut numbers: Vec<u64> =
        names.filter_map(|name| name.strip_prefix(&prefix)?.parse().ok()).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Outcome of one attempt.
enum Attempt {
    Done,
    Refused(Refused),
    /// Another attempt is to be made.
    Again,
}

impl Rows {
    /// The rows of a shard's log, for the holder of its newest claim.
    pub fn new(
        database: Database,
        (shard, segment_bytes): (u16, u64),
        fence: Fence,
        tell: Tell,
    ) -> Self {
        let (connection, prepared) = (None, None);
        Self { database, connection, shard, segment_bytes, fence, prepared, tell, is_away: false }
    }

    /// Goes on until the outcome of a call is known. `settles` finds out what became of one that broke off.
    fn until_known(
        &mut self,
        mut attempt: impl FnMut(&mut Self, &mut Connection) -> Result<Attempt, postgres::Error>,
        mut settle: impl FnMut(&mut Self, &mut Connection) -> Result<Attempt, postgres::Error>,
    ) -> Result<(), Refused> {
        let mut broke_off = false;
        loop {
            let mut connection = match self.connection.take() {
                Some(connection) => connection,
                None => match self.database.connect() {
                    Ok(connection) => connection,
                    Err(error) => {
                        self.away(&error);
                        continue;
                    }
                },
            };
            let outcome = if broke_off {
                settle(self, &mut connection)
            } else {
                attempt(self, &mut connection)
            };
            match outcome {
                // With a warning nothing is certain: ask on a new connection.
                Ok(_) if connection.take_warning() => broke_off = true,
                Ok(attempt) => {
                    self.connection = Some(connection);
                    if std::mem::take(&mut self.is_away) {
                        (self.tell)(Ok(()));
                    }
                    match attempt {
                        Attempt::Done => return Ok(()),
                        Attempt::Refused(refused) => return Err(refused),
                        Attempt::Again => broke_off = false,
                    }
                }
                Err(error) => {
                    broke_off = true;
                    self.away(&error.into());
                }
            }
            if broke_off {
                self.prepared = None;
            }
        }
    }

    fn away(&mut self, error: &DatabaseError) {
        if !std::mem::replace(&mut self.is_away, true) {
            (self.tell)(Err(error));
        }
        thread::sleep(PAUSE);
    }

    fn create(&self, connection: &mut Connection, segment: u64) -> Result<(), postgres::Error> {
        let table = table(self.shard, segment);
        connection.client.batch_execute(&format!(
            "create table if not exists {table} (at bigint primary key, until bigint not null, epoch bigint not null, \
             sum int not null, block bytea not null) with (autovacuum_enabled = off, toast.autovacuum_enabled = off); \
             alter table {table} alter column block set storage external"
        ))
    }

    fn insert(
        &mut self,
        connection: &mut Connection,
        (row, after): (Row, Option<Row>),
        block: &[u8],
    ) -> Result<u64, postgres::Error> {
        let of = |row: Row| row.at / self.segment_bytes;
        let places = (of(row), after.map(of));
        if self.prepared.as_ref().is_none_or(|(of, _)| *of != places) {
            let shard = self.shard;
            let behind = places.1.map_or(String::new(), |before| {
                let before = table(shard, before);
                format!("and exists (select 1 from {before} where at = $7 and sum = $8)")
            });
            let statement = connection.client.prepare(&format!(
                "insert into {} (at, until, epoch, sum, block) select $1::bigint, $2::bigint, $3::bigint, $4::int, $5::bytea \
                 from corq_part where id = {shard} and epoch = $3 and nonce = $6 {behind} for share of corq_part",
                table(shard, places.0)
            ))?;
            self.prepared = Some((places, statement));
        }
        let Some((_, statement)) = &self.prepared else { return Ok(0) };
        let (at, until, sum) = (row.at as i64, row.until as i64, row.sum as i32);
        let Fence { epoch, nonce } = self.fence;
        match after {
            None => {
                connection.client.execute(statement, &[&at, &until, &epoch, &sum, &block, &nonce])
            }
            Some(before) => {
                let (before_at, before_sum) = (before.at as i64, before.sum as i32);
                connection.client.execute(
                    statement,
                    &[&at, &until, &epoch, &sum, &block, &nonce, &before_at, &before_sum],
                )
            }
        }
    }

    /// Whether the claim is the newest. Asks by a write.
    fn is_newest(&self, connection: &mut Connection) -> Result<bool, postgres::Error> {
        let Fence { epoch, nonce } = self.fence;
        let updated = connection.client.execute(
            "update corq_part set nonce = nonce where id = $1 and epoch = $2 and nonce = $3",
            &[&i32::from(self.shard), &epoch, &nonce],
        )?;
        Ok(updated == 1)
    }

    /// Outcome for a row that may be there.
    fn look(&self, connection: &mut Connection, row: Row) -> Result<Attempt, postgres::Error> {
        let segments = segments_of(connection, self.shard)?;
        let mut last = None;
        for &segment in segments.iter().rev() {
            let table = table(self.shard, segment);
            let found = connection.client.query_opt(
                &format!("select at, until, sum from {table} order by at desc limit 1"),
                &[],
            )?;
            last = found.map(|found| stored(found.get(0), found.get(1), found.get(2)));
            if last.is_some() {
                break;
            }
        }
        // Rows that were read may not be on the standby yet. A write that is committed after them shows that they are.
        if !self.is_newest(connection)? {
            return Ok(Attempt::Refused(Refused::Fenced));
        }
        Ok(match last {
            Some(last) if last == row => Attempt::Done,
            Some(last) if last.until > row.at => Attempt::Refused(Refused::Fenced),
            last => Attempt::Refused(Refused::WentBack(last)),
        })
    }
}

impl Chronicle for Rows {
    fn append(&mut self, row: Row, after: Option<Row>, bytes: &[u8]) -> Result<(), Refused> {
        let block = lz4_flex::compress_prepend_size(bytes);
        let segment = row.at / self.segment_bytes;
        let attempt = |this: &mut Self, connection: &mut Connection| {
            if row.at.is_multiple_of(this.segment_bytes) {
                this.create(connection, segment)?;
            }
            match this.insert(connection, (row, after), &block) {
                Ok(1) => Ok(Attempt::Done),
                Ok(_) => this.look(connection, row),
                Err(error)
                    if matches!(
                        error.code(),
                        Some(&(SqlState::UNIQUE_VIOLATION | SqlState::UNDEFINED_TABLE))
                    ) =>
                {
                    this.look(connection, row)
                }
                Err(error) => Err(error),
            }
        };
        let settle = |this: &mut Self, connection: &mut Connection| {
            Ok(match this.look(connection, row)? {
                // The row is not there, and the one before is: send the same bytes again.
                Attempt::Refused(Refused::WentBack(last)) if last == after => Attempt::Again,
                known => known,
            })
        };
        self.until_known(attempt, settle)
    }

    fn trim(&mut self, segment: u64) -> Result<bool, Refused> {
        let is_read = Cell::new(false);
        let drop_table = |this: &mut Self, connection: &mut Connection| {
            let Fence { epoch, nonce } = this.fence;
            let table = table(this.shard, segment);
            let mut transaction = connection.client.transaction()?;
            // Waiting would hold up all that comes behind.
            let lock = format!("lock table {table} in access exclusive mode nowait");
            match transaction.batch_execute(&lock).map_err(|error| error.code().cloned()) {
                Err(Some(SqlState::LOCK_NOT_AVAILABLE)) => {
                    is_read.set(true);
                    return Ok(Attempt::Done);
                }
                Err(Some(SqlState::UNDEFINED_TABLE)) => return Ok(Attempt::Done),
                // A connection that is broken shows with the next statement.
                Ok(()) | Err(_) => {}
            }
            let held = transaction.query_opt(
                "select 1 from corq_part where id = $1 and epoch = $2 and nonce = $3 for share",
                &[&i32::from(this.shard), &epoch, &nonce],
            )?;
            if held.is_none() {
                return Ok(Attempt::Refused(Refused::Fenced));
            }
            transaction.batch_execute(&format!("drop table {table}"))?;
            transaction.commit()?;
            Ok(Attempt::Done)
        };
        self.until_known(drop_table, drop_table)?;
        Ok(!is_read.get())
    }
}
