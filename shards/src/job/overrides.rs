//! Rules that few jobs are pushed with: for their retries, stalls, logs, stack traces and keys. One box
//! beside the other options, for those that have any. What the rules bring about stands where it happens.

use crate::log_record::codec::{Malformed, Reader, Writer};

/// Rules that a job brings for its retries, stalls, logs and key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extras {
    /// How the wait between attempts grows, if that was said.
    pub backoff: Option<Growth>,
    /// Longest wait between two attempts, if it is another than that of all jobs.
    pub backoff_max_ms: Option<u32>,
    /// Time without a sign of life after which it counts as stalled.
    pub stall_timeout_ms: Option<u32>,
    /// Lines of its log that are kept.
    pub keep_logs: Option<u32>,
    /// Bytes that its payload may have, now and after each change.
    pub size_limit: Option<u32>,
    /// Lines of a stack trace that are kept.
    pub stack_lines_max: Option<u32>,
    /// When its client says that it was made, in milliseconds since the epoch.
    pub made_at_ms: Option<u64>,
    /// Effect of a second push under the job's key.
    pub dedup: Option<Dedup>,
}

/// How the wait between attempts grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Growth {
    /// Each wait is twice as long as the last.
    Exponential,
    /// All waits are equally long.
    Fixed,
}

/// Effect of a second push under the same key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dedup {
    /// For how long the key is held at most; 0 for as long as the job needs it.
    pub ttl_ms: u64,
    /// A second push makes that time begin anew.
    pub extend: bool,
    /// A second push takes the place of the job, unless a worker has it.
    pub replace: bool,
    /// When the key is free, in milliseconds since the epoch; 0 for not before its job ends.
    pub until_ms: u64,
}

/// Bits that say which rules follow.
mod rule {
    pub(crate) const BACKOFF: u16 = 1;
    pub(crate) const BACKOFF_MAX: u16 = 1 << 1;
    pub(crate) const STALL: u16 = 1 << 2;
    pub(crate) const LOGS: u16 = 1 << 3;
    pub(crate) const SIZE: u16 = 1 << 4;
    pub(crate) const STACK: u16 = 1 << 5;
    pub(crate) const MADE: u16 = 1 << 6;
    pub(crate) const DEDUP: u16 = 1 << 7;
    pub(crate) const ALL: u16 = (1 << 8) - 1;
}

const EXTEND: u8 = 1;
const REPLACE: u8 = 2;

impl Extras {
    /// The remaining delay, which counts from when the job was made, as its client says. A job without a delay has
    /// none, whenever it was made.
    pub fn delay_left_ms(&self, delay_ms: u64, now_ms: u64) -> u64 {
        if delay_ms == 0 {
            return 0;
        }
        let made_at_ms = self.made_at_ms.unwrap_or(now_ms);
        made_at_ms.saturating_add(delay_ms).saturating_sub(now_ms)
    }

    /// Rules like these for a job that is made at `now_ms`.
    #[must_use]
    pub fn anew(mut self, now_ms: u64) -> Self {
        if let Some(dedup) = &mut self.dedup {
            dedup.until_ms = match dedup.ttl_ms {
                0 => 0,
                ttl_ms => now_ms.saturating_add(ttl_ms),
            };
        }
        self
    }

    fn rules(&self) -> u16 {
        let bit = |given: bool, bit: u16| if given { bit } else { 0 };
        bit(self.backoff.is_some(), rule::BACKOFF)
            | bit(self.backoff_max_ms.is_some(), rule::BACKOFF_MAX)
            | bit(self.stall_timeout_ms.is_some(), rule::STALL)
            | bit(self.keep_logs.is_some(), rule::LOGS)
            | bit(self.size_limit.is_some(), rule::SIZE)
            | bit(self.stack_lines_max.is_some(), rule::STACK)
            | bit(self.made_at_ms.is_some(), rule::MADE)
            | bit(self.dedup.is_some(), rule::DEDUP)
    }

    fn numbers(&self) -> impl Iterator<Item = u32> {
        let numbers = [
            self.backoff_max_ms,
            self.stall_timeout_ms,
            self.keep_logs,
            self.size_limit,
            self.stack_lines_max,
        ];
        numbers.into_iter().flatten()
    }

    pub(crate) fn encoded_len(&self) -> usize {
        2 + usize::from(self.backoff.is_some())
            + 4 * self.numbers().count()
            + self.made_at_ms.map_or(0, |_| 8)
            + self.dedup.map_or(0, |_| 1 + 8 + 8)
    }

    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        out.u16(self.rules());
        if let Some(growth) = self.backoff {
            out.u8(u8::from(growth == Growth::Fixed));
        }
        self.numbers().for_each(|number| out.u32(number));
        if let Some(made_at_ms) = self.made_at_ms {
            out.u64(made_at_ms);
        }
        if let Some(Dedup { ttl_ms, extend, replace, until_ms }) = self.dedup {
            out.u8(if extend { EXTEND } else { 0 } | if replace { REPLACE } else { 0 });
            out.u64(ttl_ms);
            out.u64(until_ms);
        }
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let rules = from.u16()?;
        if rules & !rule::ALL != 0 {
            return Err(Malformed("a job has rules that are not known to this release"));
        }
        let has = |bit: u16| rules & bit != 0;
        let backoff = has(rule::BACKOFF).then(|| from.u8()).transpose()?;
        let mut number = |bit: u16| has(bit).then(|| from.u32()).transpose();
        Ok(Self {
            backoff: backoff
                .map(|fixed| if fixed == 0 { Growth::Exponential } else { Growth::Fixed }),
            backoff_max_ms: number(rule::BACKOFF_MAX)?,
            stall_timeout_ms: number(rule::STALL)?,
            keep_logs: number(rule::LOGS)?,
            size_limit: number(rule::SIZE)?,
            stack_lines_max: number(rule::STACK)?,
            made_at_ms: has(rule::MADE).then(|| from.u64()).transpose()?,
            dedup: has(rule::DEDUP).then(|| Self::decode_dedup(from)).transpose()?,
        })
    }

    fn decode_dedup(from: &mut Reader<'_>) -> Result<Dedup, Malformed> {
        let policy = from.u8()?;
        let (extend, replace) = (policy & EXTEND != 0, policy & REPLACE != 0);
        Ok(Dedup { ttl_ms: from.u64()?, extend, replace, until_ms: from.u64()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_back(extras: &Extras) -> Result<Extras, Malformed> {
        let mut bytes = vec![0; extras.encoded_len()];
        let mut out = Writer::new(&mut bytes);
        extras.encode(&mut out);
        out.finish();
        Extras::decode(&mut Reader::new(&bytes))
    }

    #[test]
    fn rules_are_read_as_they_were_written_alone_and_together() {
        let none = Extras::default();
        let dedup = Dedup { ttl_ms: 5, extend: true, replace: false, until_ms: 9 };
        let each = [
            none,
            Extras { backoff: Some(Growth::Fixed), ..none },
            Extras { backoff: Some(Growth::Exponential), ..none },
            Extras { backoff_max_ms: Some(1), ..none },
            Extras { stall_timeout_ms: Some(2), ..none },
            Extras { keep_logs: Some(0), ..none },
            Extras { size_limit: Some(4), ..none },
            Extras { stack_lines_max: Some(0), ..none },
            Extras { made_at_ms: Some(6), ..none },
            Extras { dedup: Some(dedup), ..none },
            Extras {
                backoff: Some(Growth::Fixed),
                backoff_max_ms: Some(1),
                stall_timeout_ms: Some(2),
                keep_logs: Some(3),
                size_limit: Some(4),
                stack_lines_max: Some(5),
                made_at_ms: Some(6),
                dedup: Some(Dedup { replace: true, ..dedup }),
            },
        ];
        for extras in each {
            assert_eq!(read_back(&extras), Ok(extras));
        }
        assert!(Extras::decode(&mut Reader::new(&[0, 1])).is_err(), "an unknown rule");
    }
}
