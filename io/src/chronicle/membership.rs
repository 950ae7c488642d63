//! The nodes of a fleet, and which one owns its logs. The tables are the truth; no time of any machine stands in them.
//!
//! A node counts: another number in each life (its incarnation), another with each beat. Who has seen the same two for a whole
//! lease, by a clock of its own and over one connection, may declare the node dead, by one statement that frees its logs and
//! fences it in the same moment.

use super::Fence;
use super::database::{Connection, Database, DatabaseError};
use super::rows::{segments_of, table};
use postgres::Row as Found;

/// The format of tables and rows that this build knows.
const FORMAT: i32 = 1;

const TABLES: &str = "
create table corq_fleet (id text not null, format int not null, shards int not null, segment_bytes bigint not null);
create table corq_node (
    name text primary key, incarnation bigint not null, beat bigint not null, address text not null
) with (fillfactor = 20);
create table corq_part (
    id int primary key, epoch bigint not null, nonce bigint not null, owner text, incarnation bigint not null
)";

/// The facts that were fixed when a fleet was founded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fleet {
    /// Id of the data directory that its logs are of.
    pub log_id: u64,
    /// How many logs there are.
    pub shards: u16,
    /// Bytes of a segment.
    pub segment_bytes: u64,
}

/// A node as the others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Name of the node.
    pub name: String,
    /// Number of the life.
    pub incarnation: i64,
    /// How often it has said that it lives.
    pub beat: i64,
    /// Where others reach it.
    pub address: String,
    /// How many logs it owns.
    pub logs: i64,
}

/// The database's answer to a sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    /// The node counts as alive, and owns what it has claimed.
    Alive {
        /// Whether commits wait for a standby.
        is_synchronous: bool,
    },
    /// Another node has declared this one dead, or its claim is gone.
    Dead,
}

/// Who owns the logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// No node does.
    Free,
    /// This node.
    Own,
    /// Another node.
    Of(Member),
}

impl Member {
    /// Where it serves clients: host, port of MessagePack and port of HTTP.
    pub fn place(&self) -> Option<(&str, u16, u16)> {
        let (rest, http) = self.address.rsplit_once(':')?;
        let (host, tcp) = rest.rsplit_once(':')?;
        Some((host, tcp.parse().ok()?, http.parse().ok()?))
    }
}

impl Fleet {
    /// Makes a fleet that is fixed so: its tables, then what `fill` writes to its logs under this claim.
    pub fn found(
        self,
        database: &Database,
        claim: Fence,
        fill: impl FnOnce() -> Result<(), DatabaseError>,
    ) -> Result<(), DatabaseError> {
        let mut connection = database.connect()?;
        if fleet(&mut connection)?.is_some() {
            return Err(DatabaseError(format!("{} has a fleet already", database.shown())));
        }
        let mut transaction = connection.client.transaction()?;
        // An attempt that has broken off left tables.
        transaction.batch_execute("drop table if exists corq_fleet, corq_node, corq_part")?;
        transaction.batch_execute(TABLES)?;
        for shard in 0..self.shards {
            transaction.execute(
                "insert into corq_part values ($1, $2, $3, null, 0)",
                &[&i32::from(shard), &claim.epoch, &claim.nonce],
            )?;
        }
        transaction.commit()?;
        for shard in 0..self.shards {
            for segment in segments_of(&mut connection, shard)? {
                connection
                    .client
                    .batch_execute(&format!("drop table {}", table(shard, segment)))?;
            }
        }
        fill()?;
        // The row of the fleet is what makes it one, unless another attempt has begun since.
        let mut connection = database.connect()?;
        let id = format!("{:016x}", self.log_id);
        let (shards, segment_bytes) = (i32::from(self.shards), self.segment_bytes as i64);
        let founded = connection.client.execute(
            "insert into corq_fleet select $1::text, $2::int, $3::int, $4::bigint where \
             (select count(*) from corq_part where epoch = $5 and nonce = $6) = $3::int and not exists (select 1 from corq_fleet)",
            &[&id, &FORMAT, &shards, &segment_bytes, &claim.epoch, &claim.nonce],
        )?;
        if founded == 1 {
            return Ok(());
        }
        Err(DatabaseError(format!("another fleet is being founded in {}", database.shown())))
    }

    /// The fleet of a database.
    pub fn of(database: &Database) -> Result<Self, DatabaseError> {
        let found = fleet(&mut database.connect()?)?;
        found.ok_or_else(|| {
            DatabaseError(format!(
                "{} has no fleet: 'corq fleet found' makes one",
                database.shown()
            ))
        })
    }

    /// All nodes that it has had, by their names.
    pub fn members(database: &Database) -> Result<Vec<Member>, DatabaseError> {
        let mut connection = database.connect()?;
        let found =
            connection.client.query(&format!("{MEMBER} group by name order by name"), &[])?;
        Ok(found.iter().map(member).collect())
    }

    /// Declares a node dead, whose process is known to be gone. False if there is no such node.
    pub fn bury(database: &Database, name: &str) -> Result<bool, DatabaseError> {
        let mut connection = database.connect()?;
        let mut transaction = connection.client.transaction()?;
        let gone = transaction.execute(
            "update corq_node set incarnation = incarnation + 1 where name = $1",
            &[&name],
        )?;
        transaction.execute(
            "update corq_part set epoch = epoch + 1, nonce = 0, owner = null where owner = $1",
            &[&name],
        )?;
        transaction.commit()?;
        Ok(gone > 0)
    }
}

const MEMBER: &str = "select name, n.incarnation, beat, address, count(id) from corq_node n left join corq_part on owner = name";

fn member(found: &Found) -> Member {
    Member {
        name: found.get(0),
        incarnation: found.get(1),
        beat: found.get(2),
        address: found.get(3),
        logs: found.get(4),
    }
}

fn fleet(connection: &mut Connection) -> Result<Option<Fleet>, DatabaseError> {
    let there = connection.client.query_one("select to_regclass('corq_fleet') is not null", &[])?;
    if !there.get::<_, bool>(0) {
        return Ok(None);
    }
    let found = connection
        .client
        .query_opt("select id, format, shards, segment_bytes from corq_fleet", &[])?;
    let Some(found) = found else { return Ok(None) };
    let (format, id): (i32, String) = (found.get(1), found.get(0));
    let log_id = u64::from_str_radix(&id, 16).ok().filter(|_| format == FORMAT);
    let log_id = log_id.ok_or_else(|| {
        DatabaseError(format!("the fleet has format {format}, this build knows {FORMAT}"))
    })?;
    let (shards, segment_bytes): (i32, i64) = (found.get(2), found.get(3));
    Ok(Some(Fleet { log_id, shards: shards as u16, segment_bytes: segment_bytes as u64 }))
}

/// A node in one of its lives.
pub struct Node {
    database: Database,
    connection: Option<Connection>,
    name: String,
    incarnation: i64,
    /// Nonce of the claim, once the node owns the logs.
    claim: Option<i64>,
    /// Breaks with each connection: what was watched before counts no longer.
    pub connections: u64,
}

impl Node {
    /// Begins a life of the node with this name, which serves at these ports of its host. Without a host it is the address
    /// from which the database sees this machine.
    pub fn born(
        database: Database,
        name: &str,
        host: Option<&str>,
        (tcp, http): (u16, u16),
    ) -> Result<Self, DatabaseError> {
        let mut connection = database.connect()?;
        let ports = format!(":{tcp}:{http}");
        let found = connection.client.query_one(
            "insert into corq_node values ($1, 1, 0, coalesce($2, host(inet_client_addr()), 'localhost') || $3) \
             on conflict (name) do update set incarnation = corq_node.incarnation + 1, beat = corq_node.beat + 1, \
             address = excluded.address returning incarnation",
            &[&name, &host, &ports],
        )?;
        let incarnation = found.get(0);
        let (connection, name) = (Some(connection), name.to_owned());
        Ok(Self { database, connection, name, incarnation, claim: None, connections: 0 })
    }

    fn with<T>(
        &mut self,
        ask: impl FnOnce(&mut Connection, &str, i64) -> Result<T, postgres::Error>,
    ) -> Result<T, DatabaseError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                self.connections += 1;
                self.database.connect()?
            }
        };
        let answer = ask(&mut connection, &self.name, self.incarnation)?;
        if connection.take_warning() {
            // As a wait for the standby that was cancelled: what was answered may not last.
            return Err(DatabaseError(
                "the database has warned, so the outcome is not certain".into(),
            ));
        }
        self.connection = Some(connection);
        Ok(answer)
    }

    /// Says that the node lives. A database that has gone back may have lost its claim, so the claim is asked for as well.
    pub fn beat(&mut self) -> Result<Beat, DatabaseError> {
        let claim = self.claim;
        self.with(|connection, name, incarnation| {
            let beaten = connection.client.query_opt(
                "update corq_node set beat = beat + 1 where name = $1 and incarnation = $2 and \
                 ($3::bigint is null or not exists (select 1 from corq_part where nonce <> $3)) \
                 returning current_setting('synchronous_standby_names') <> ''",
                &[&name, &incarnation, &claim],
            )?;
            Ok(beaten.map_or(Beat::Dead, |row| Beat::Alive { is_synchronous: row.get(0) }))
        })
    }

    /// Who owns the logs.
    pub fn standing(&mut self) -> Result<Standing, DatabaseError> {
        self.with(|connection, own, _| {
            let query =
                format!("{MEMBER} group by name having count(id) > 0 order by name = $1 limit 1");
            let found = connection.client.query_opt(&query, &[&own])?;
            Ok(match found.as_ref().map(member) {
                None => Standing::Free,
                Some(member) if member.name == own => Standing::Own,
                Some(member) => Standing::Of(member),
            })
        })
    }

    /// Declares a node dead that was seen so for a whole lease. False if it has beaten since, or another node was faster.
    pub fn declare_dead(&mut self, dead: &Member) -> Result<bool, DatabaseError> {
        self.with(|connection, _, _| {
            let freed = connection.client.execute(
                "with d as (update corq_node set incarnation = incarnation + 1 \
                 where name = $1 and incarnation = $2 and beat = $3 returning name) \
                 update corq_part set epoch = epoch + 1, nonce = 0, owner = null from d where owner = d.name",
                &[&dead.name, &dead.incarnation, &dead.beat],
            )?;
            Ok(freed > 0)
        })
    }

    /// Claims all logs, those that are free and those that the node owned in an earlier life: the right to append to each, in
    /// the order of the shards. None if another node owns one.
    pub fn claim(&mut self, nonce: i64) -> Result<Option<Vec<Fence>>, DatabaseError> {
        let fences = self.with(|connection, name, incarnation| {
            let mut transaction = connection.client.transaction()?;
            let claimed = transaction.query(
                "update corq_part set epoch = epoch + 1, nonce = $1, owner = $2, incarnation = $3 \
                 where owner is null or owner = $2 returning id, epoch",
                &[&nonce, &name, &incarnation],
            )?;
            let all: i64 = transaction.query_one("select count(*) from corq_part", &[])?.get(0);
            if claimed.len() as i64 != all {
                return Ok(None);
            }
            transaction.commit()?;
            let mut fences: Vec<(i32, Fence)> = claimed
                .iter()
                .map(|row| (row.get(0), Fence { epoch: row.get(1), nonce }))
                .collect();
            fences.sort_unstable_by_key(|(id, _)| *id);
            Ok(Some(fences.into_iter().map(|(_, fence)| fence).collect()))
        })?;
        self.claim = Some(nonce).filter(|_| fences.is_some());
        Ok(fences)
    }

    /// Gives the logs back, so that no other node has to wait for the lease.
    pub fn release(&mut self, nonce: i64) -> Result<(), DatabaseError> {
        self.with(|connection, name, _| {
            connection.client.execute(
                "update corq_part set epoch = epoch + 1, nonce = 0, owner = null where owner = $1 and nonce = $2",
                &[&name, &nonce],
            )?;
            Ok(())
        })
    }
}
