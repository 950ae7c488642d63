//! The records of rules of a queue: how they are written and read. What they do stands in
//! [`crate::dead_letter::policy`].

use crate::dead_letter::policy::{DlqRule, Rule, StallRule};
use crate::log_record::codec::{Malformed, Reader, Writer};
use crate::log_record::utf8;

/// Numbers of the kinds, for ever.
pub(crate) mod kind {
    pub(crate) const DLQ: u8 = 43;
    pub(crate) const STALL: u8 = 44;
}

/// Bits of both kinds. The first says what a rule is about as a whole.
const ON: u8 = 1;
const AGE: u8 = 1 << 1;
const ENTRIES: u8 = 1 << 2;
const INTERVAL: u8 = 1 << 1;

impl Rule {
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Self::Dlq(_) => kind::DLQ,
            Self::Stall(_) => kind::STALL,
        }
    }

    pub(crate) fn encoded_len(&self) -> usize {
        match self {
            Self::Dlq(_) => 1 + 8 + 4 + 8 + 4,
            Self::Stall(_) => 1 + 4 + 1 + 4,
        }
    }

    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        match self {
            Self::Dlq(rule) => {
                out.u8(bit(rule.auto_retry, ON)
                    | bit(rule.age_max_ms.is_some(), AGE)
                    | bit(rule.entries_max.is_some(), ENTRIES));
                out.u64(rule.retry_interval_ms);
                out.u32(rule.retries_max);
                out.u64(rule.age_max_ms.unwrap_or(0));
                out.u32(rule.entries_max.unwrap_or(0));
            }
            Self::Stall(rule) => {
                out.u8(bit(rule.enabled, ON) | bit(rule.interval_ms.is_some(), INTERVAL));
                out.u32(rule.interval_ms.unwrap_or(0));
                out.u8(rule.stalls_max);
                out.u32(rule.grace_ms);
            }
        }
    }

    /// Reads the rule of a record of one of the kinds above, and its queue.
    pub(crate) fn decode(kind: u8, mut from: Reader<'_>) -> Result<(&str, Self), Malformed> {
        let bits = from.u8()?;
        let known = if kind == kind::DLQ { ON | AGE | ENTRIES } else { ON | INTERVAL };
        if bits & !known != 0 {
            return Err(Malformed("a rule has a part that is not known to this release"));
        }
        let has = |bit: u8| bits & bit != 0;
        let rule = if kind == kind::DLQ {
            Self::Dlq(DlqRule {
                auto_retry: has(ON),
                retry_interval_ms: from.u64()?,
                retries_max: from.u32()?,
                age_max_ms: Some(from.u64()?).filter(|_| has(AGE)),
                entries_max: Some(from.u32()?).filter(|_| has(ENTRIES)),
            })
        } else {
            Self::Stall(StallRule {
                enabled: has(ON),
                interval_ms: Some(from.u32()?).filter(|_| has(INTERVAL)),
                stalls_max: from.u8()?,
                grace_ms: from.u32()?,
            })
        };
        if matches!(rule, Self::Dlq(DlqRule { entries_max: Some(0), .. })) {
            return Err(Malformed("a dead-letter queue without room"));
        }
        Ok((utf8(from.rest())?, rule))
    }
}
