//! Options of lists and searches besides their queue: where they begin, which rows, and which columns.

use crate::protocol::uuid_text;
use corq_shards::job::id::JobId;

/// Columns of a list of jobs, in the order of their bits.
pub const JOB_SHOWN: &[&str] = &[
    "id",
    "queue",
    "name",
    "state",
    "priority",
    "createdAt",
    "runAt",
    "startedAt",
    "finishedAt",
    "attempts",
    "maxAttempts",
    "stallCount",
    "progress",
    "groupId",
    "parentId",
    "uniqueKey",
    "lifo",
    "children",
    "childrenCompleted",
    "dataBytes",
    "tags",
    "failedReason",
];

/// How much of its payload, in the order of [`DataForm`].
pub const DATA_FORMS: &[&str] = &["none", "preview", "full"];

/// Which end of a list comes first.
pub const ORDERS: &[&str] = &["asc", "desc"];

/// Keys that a list of queues can be sorted by, in the order of [`QueueSort`].
pub const QUEUE_SORTS: &[&str] =
    &["name", "waiting", "delayed", "active", "completed", "failed", "total", "rate", "oldest"];

/// Columns of a list of queues, in the order of their bits.
pub const QUEUE_SHOWN: &[&str] = &[
    "name",
    "waiting",
    "delayed",
    "active",
    "completed",
    "failed",
    "waiting-children",
    "total",
    "paused",
    "completedPerMinute",
    "failedPerMinute",
    "oldestWaiting",
    "waitP99",
    "rateLimit",
    "concurrencyLimit",
    "groups",
];

/// How much of a payload a row shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DataForm {
    /// Nothing but its length.
    #[default]
    None,
    /// The beginning of it as JSON text.
    Preview,
    /// All of it.
    Full,
}

impl DataForm {
    /// In the order of [`DATA_FORMS`].
    pub(crate) fn of(bits: Option<u32>) -> Self {
        match bits {
            Some(0b10) => Self::Preview,
            Some(0b100) => Self::Full,
            _ => Self::None,
        }
    }
}

/// Which jobs a page has, and what of each. An absent field selects nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JobPage<'a> {
    /// Behind this cursor.
    pub after: Option<&'a str>,
    /// Whether the newest job comes first.
    pub newest_first: bool,
    /// Bits of [`JOB_SHOWN`].
    pub fields: Option<u32>,
    pub data: DataForm,
    pub name: Option<&'a str>,
    pub tag: Option<&'a str>,
    pub group: Option<&'a str>,
    /// Pushed at this time or later.
    pub from_ms: Option<u64>,
    /// Pushed at this time or before.
    pub to_ms: Option<u64>,
}

/// Which jobs are searched for, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Search<'a> {
    /// In this queue, or in all of them.
    pub queue: Option<&'a str>,
    /// With this text somewhere in the payload.
    pub text: Option<&'a str>,
    /// With a value at this path.
    pub path: Option<&'a str>,
    /// Which is this one, a `MessagePack` value; empty for any.
    pub value: &'a [u8],
    /// Bits of [`super::objects::LISTED`].
    pub states: Option<u32>,
    pub limit: u32,
    pub budget_ms: u64,
    pub page: JobPage<'a>,
}

/// Which queues a page has, and what of each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuePage<'a> {
    /// Whose names begin so.
    pub prefix: Option<&'a str>,
    pub sort: QueueSort,
    /// The largest figure first, or the last name.
    pub descending: bool,
    pub limit: u32,
    /// Behind this cursor.
    pub after: Option<&'a str>,
    /// Bits of [`QUEUE_SHOWN`].
    pub fields: Option<u32>,
}

/// Key that a list of queues is sorted by; ties are sorted by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum QueueSort {
    #[default]
    Name,
    Waiting,
    Delayed,
    Active,
    Completed,
    Failed,
    Total,
    /// Jobs that ended lately.
    Rate,
    /// How long the job has waited that waits for longest.
    Oldest,
}

impl QueueSort {
    /// In the order of [`QUEUE_SORTS`].
    const ALL: [Self; 9] = [
        Self::Name,
        Self::Waiting,
        Self::Delayed,
        Self::Active,
        Self::Completed,
        Self::Failed,
        Self::Total,
        Self::Rate,
        Self::Oldest,
    ];

    pub(crate) fn of(bits: Option<u32>) -> Self {
        let place = bits.map_or(0, u32::trailing_zeros) as usize;
        Self::ALL.get(place).copied().unwrap_or_default()
    }
}

const _: () = assert!(QueueSort::ALL.len() == QUEUE_SORTS.len());
const _: () = assert!(JOB_SHOWN.len() <= 32 && QUEUE_SHOWN.len() <= 32);

/// Where a scan goes on, as clients are given it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScanCursor {
    /// Behind this job of its queue.
    Behind(JobId),
    /// On this shard, from this place in its memory on: since the start at this time, or from the first place.
    At { shard: usize, from: Option<(u64, u32)> },
}

impl ScanCursor {
    /// Reads what [`std::fmt::Display`] wrote.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(id) = uuid_text::parse_exact(text).map(JobId) {
            return id.is_v7().then_some(Self::Behind(id));
        }
        let mut parts = text.strip_prefix('s')?.split('.');
        let shard = parts.next()?.parse().ok()?;
        let from = match (parts.next(), parts.next(), parts.next()) {
            (None, ..) => None,
            (Some(started), Some(place), None) => {
                Some((started.parse().ok()?, place.parse().ok()?))
            }
            _ => return None,
        };
        Some(Self::At { shard, from })
    }

    /// The shard that it names; any other one for a job of a queue.
    pub fn shard(self) -> usize {
        match self {
            Self::Behind(_) => 0,
            Self::At { shard, .. } => shard,
        }
    }
}

impl std::fmt::Display for ScanCursor {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Behind(id) => id.fmt(out),
            Self::At { shard, from: None } => write!(out, "s{shard}"),
            Self::At { shard, from: Some((started, place)) } => {
                write!(out, "s{shard}.{started}.{place}")
            }
        }
    }
}

/// The cursor behind a row of a list of queues.
pub fn queue_cursor(front: &str, figure: u64, name: &str) -> String {
    format!("{front}{figure}:{name}")
}

impl<'a> QueuePage<'a> {
    /// Front of the cursors of its list: in another order a figure means something else, and without the prefix other
    /// queues follow. The prefix is said by its length, since the name begins with it.
    pub fn cursor_front(&self) -> String {
        let (sort, order) = (QUEUE_SORTS[self.sort as usize], ORDERS[usize::from(self.descending)]);
        format!("{sort}:{order}:{}:", self.prefix.map_or(0, str::len))
    }

    /// The figure and the name that the page goes on behind; `None` if its cursor is none of this list.
    pub fn behind(&self) -> Option<(u64, &'a str)> {
        let (figure, name) = self.after?.strip_prefix(&*self.cursor_front())?.split_once(':')?;
        let is_of_this = name.starts_with(self.prefix.unwrap_or_default());
        is_of_this.then_some((figure.parse().ok()?, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written_and_nothing_else_is_one() {
        let id = JobId(0x0190_163d_8694_739b_aea5_966c_26f8_a787);
        let cursors = [
            ScanCursor::Behind(id),
            ScanCursor::At { shard: 0, from: None },
            ScanCursor::At { shard: 3, from: Some((1_700_000_000_000, 77)) },
        ];
        for cursor in cursors {
            assert_eq!(ScanCursor::parse(&cursor.to_string()), Some(cursor));
        }
        for text in ["", "s", "s1.", "s1.2", "s1.2.3.4", "s1.2.-3", "sx", "x", "custom-id"] {
            assert_eq!(ScanCursor::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_cursor_of_queues_fits_the_list_that_it_is_of_and_no_other() {
        let page = QueuePage {
            prefix: Some("a:"),
            sort: QueueSort::Waiting,
            descending: true,
            limit: 1,
            after: None,
            fields: None,
        };
        let cursor = queue_cursor(&page.cursor_front(), 24, "a:b:c");
        let after = Some(&*cursor);
        assert_eq!(QueuePage { after, limit: 9, ..page }.behind(), Some((24, "a:b:c")));
        for other in [
            QueuePage { after, sort: QueueSort::Total, ..page },
            QueuePage { after, descending: false, ..page },
            QueuePage { after, prefix: Some("a"), ..page },
            QueuePage { after, prefix: Some("a:b"), ..page },
            QueuePage { after, prefix: None, ..page },
        ] {
            assert_eq!(other.behind(), None, "{other:?}");
        }
        for text in ["", ":", "24:a:b", "waiting:desc:9:24:a:b", "waiting:desc:2:x:a:b"] {
            assert_eq!(QueuePage { after: Some(text), ..page }.behind(), None, "{text}");
        }
    }
}
