//! A moment of a fleet: the database, its standby, two nodes, and what these have acknowledged.

/// The most rows that a log has.
pub const ROWS: usize = 3;

/// Ticks for which a node must not be heard of before another declares it dead.
pub const LEASE: u8 = 3;

/// Ticks from the sending of a beat for which the node may speak.
pub const FENCE: u8 = 2;

/// The number of a beat that is unlike all that are remembered.
pub const NEW_BEAT: u8 = 2;

/// Bytes of a row, by the number of the claim under which they were written first; 0 if there are none. A process writes each
/// place of its files once, so that a place and a claim have the same bytes everywhere.
pub type Content = u8;

/// Makes a content another one of the same claim.
pub const OTHER_BYTES: Content = 0x10;

/// The right to append: that of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Fence {
    pub epoch: u8,
    pub nonce: u8,
}

/// A row of the log. Its number is its place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Row {
    pub content: Content,
    /// Content of the row before, as the writer has it.
    pub after: Content,
    pub epoch: u8,
}

/// The statement that appends a row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Statement {
    pub place: u8,
    pub row: Row,
    pub fence: Fence,
    /// The number of the claim, which no database knows.
    pub claim: u8,
}

/// The owner of the log.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Part {
    pub fence: Fence,
    pub owner: Option<u8>,
    /// The number of the newest claim, which no database knows.
    pub claim: u8,
}

/// The row of a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Member {
    /// The incarnation is that of the process that runs.
    pub is_this_life: bool,
    pub beat: u8,
}

/// Tables of a database. A row is seen by all once it is carried out, though the standby may lack it: `PostgreSQL` shows it
/// when the wait for the standby is over, or was cancelled, or the database was started anew, which may be at once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Database {
    pub rows: [Row; ROWS],
    pub part: Part,
    pub members: [Member; 2],
}

/// The life of a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Life {
    /// Stands by.
    #[default]
    Standby,
    /// Has claimed the log.
    Owner,
    /// Is gone, but for its disk.
    Ended,
}

/// Whether the outcome of an append is known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Doubt {
    /// The outcome is known.
    #[default]
    None,
    /// The connection broke off, or there was a warning.
    Unknown,
    /// The write that settles is committed, and the look is still to come (a flaw).
    Written,
}

/// The owner as a node that stands by sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Watch {
    pub beat: u8,
    pub ticks: u8,
}

/// A node with its files.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Node {
    pub life: Life,
    /// The number that the process has drawn.
    pub nonce: u8,
    pub fence: Fence,
    pub claim: u8,
    /// Ticks since the last beat was sent that was answered, up to the fence.
    pub lease_ticks: u8,
    pub watch: Option<Watch>,
    pub files: [Content; ROWS],
    /// Rows of the files that the node knows to be in the database.
    pub stored: u8,
    pub doubt: Doubt,
    /// A statement whose connection broke, and which the database may still carry out.
    pub late: Option<Statement>,
    /// The database has lost this node's claim.
    pub undone: bool,
    /// Ticks since the node has asked for the owner's beat (a flaw).
    pub asked: Option<u8>,
    /// A beat was carried out and not answered (a flaw).
    pub beaten: bool,
    /// Rows of the files that replies do not wait for (a flaw).
    pub said: u8,
    /// The end of the process is wanted (a flaw).
    pub ending: bool,
}

/// A moment of a fleet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    pub primary: Database,
    /// The state that the standby will have when it is promoted, once it receives no more.
    pub standby: Option<Database>,
    pub promoted: bool,
    pub nodes: [Node; 2],
    /// Contents that were acknowledged, by their places.
    pub acknowledged: [Content; ROWS],
    /// The newest claim that was answered.
    pub answered: u8,
    /// How many claims there were.
    pub claims: u8,
    /// How many processes there were.
    pub processes: u8,
    /// A row was stored under a claim or an epoch that is not the newest.
    pub is_stale: bool,
}

impl Database {
    /// How many rows there are, up to the last one.
    pub fn count(&self) -> usize {
        self.rows.iter().rposition(|row| row.content != 0).map_or(0, |last| last + 1)
    }
}

impl Node {
    /// How many rows the files have.
    pub fn count(&self) -> usize {
        self.files.iter().take_while(|&&content| content != 0).count()
    }

    /// The statement that appends the next row.
    pub fn statement(&self) -> Statement {
        let Self { stored: place, fence, claim, files, .. } = *self;
        let at = usize::from(place);
        let after = at.checked_sub(1).map_or(0, |before| files[before]);
        Statement {
            place,
            row: Row { content: files[at], after, epoch: fence.epoch },
            fence,
            claim,
        }
    }

    /// The process ends: what it had in memory is gone.
    pub fn end(&mut self) {
        let Self { claim, files, late, .. } = *self;
        *self = Self { life: Life::Ended, claim, files, late, ..Self::default() };
    }
}

impl State {
    /// The first node owns an empty log and has just beaten, the other one stands by.
    pub fn first(nonces: [u8; 2]) -> Self {
        let fence = Fence { epoch: 1, nonce: nonces[0] };
        let mut nodes = nonces.map(|nonce| Node { nonce, ..Node::default() });
        nodes[0] = Node { life: Life::Owner, fence, claim: 1, ..nodes[0] };
        let members = [Member { is_this_life: true, beat: 0 }; 2];
        let part = Part { fence, owner: Some(0), claim: 1 };
        Self {
            primary: Database { part, members, ..Database::default() },
            standby: None,
            promoted: false,
            nodes,
            acknowledged: [0; ROWS],
            answered: 1,
            claims: 1,
            processes: 2,
            is_stale: false,
        }
    }

    /// Carries out an append on the primary.
    pub fn store(&mut self, statement: Statement) {
        let rows = &mut self.primary.rows[..=usize::from(statement.place)];
        let is_older = rows.iter().any(|before| before.epoch > statement.row.epoch);
        self.is_stale |= is_older || statement.claim != self.primary.part.claim;
        rows[usize::from(statement.place)] = statement.row;
    }
}
