//! The record of what is set for a group: how it is written and read. It holds all of it, so that the newest
//! one stands for itself.

use crate::group::{GroupRate, GroupSettings, WEIGHT_MAX};
use crate::log_record::codec::{Malformed, Reader, Writer};
use crate::log_record::utf8;

/// See [`crate::log_record::Record::Grouped`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grouped<'a> {
    /// The queue.
    pub queue: &'a str,
    /// The group.
    pub group: &'a str,
    /// All that is set for it now. The default is nothing.
    pub settings: GroupSettings,
}

/// Numbers of the kinds, for ever.
pub(crate) mod kind {
    pub(crate) const GROUPED: u8 = 45;
    pub(crate) const CLEARED: u8 = 46;
}

/// Bits that say what is set.
mod part {
    pub(crate) const RATE: u8 = 1;
    pub(crate) const ACTIVE: u8 = 1 << 1;
    pub(crate) const WEIGHT: u8 = 1 << 2;
    pub(crate) const PAUSED: u8 = 1 << 3;
    pub(crate) const HELD: u8 = 1 << 4;
    pub(crate) const ALL: u8 = (1 << 5) - 1;
}

impl<'a> Grouped<'a> {
    fn parts(&self) -> u8 {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let GroupSettings { rate, active_max, weight, paused, held_until_ms } = self.settings;
        bit(rate.is_some(), part::RATE)
            | bit(active_max.is_some(), part::ACTIVE)
            | bit(weight > 1, part::WEIGHT)
            | bit(paused, part::PAUSED)
            | bit(held_until_ms > 0, part::HELD)
    }

    pub(crate) fn encoded_len(&self) -> usize {
        let parts = self.parts();
        let sized = |bit: u8, size: usize| if parts & bit != 0 { size } else { 0 };
        let set = sized(part::RATE, 16) + sized(part::ACTIVE, 8) + sized(part::WEIGHT, 4);
        1 + set + sized(part::HELD, 8) + 2 + self.group.len() + self.queue.len()
    }

    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        let parts = self.parts();
        out.u8(parts);
        if let Some(rate) = self.settings.rate {
            out.u64(rate.jobs);
            out.u64(rate.span_ms);
        }
        if let Some(max) = self.settings.active_max {
            out.u64(max);
        }
        if parts & part::WEIGHT != 0 {
            out.u32(self.settings.weight);
        }
        if parts & part::HELD != 0 {
            out.u64(self.settings.held_until_ms);
        }
        out.short(self.group.as_bytes());
        out.bytes(self.queue.as_bytes());
    }

    pub(crate) fn decode(mut from: Reader<'a>) -> Result<Self, Malformed> {
        let parts = from.u8()?;
        if parts & !part::ALL != 0 {
            return Err(Malformed("a group has settings that are not known to this release"));
        }
        let has = |bit: u8| parts & bit != 0;
        let mut settings = GroupSettings { paused: has(part::PAUSED), ..GroupSettings::default() };
        if has(part::RATE) {
            let (jobs, span_ms) = (from.u64()?.max(1), from.u64()?.max(1));
            settings.rate = Some(GroupRate { jobs, span_ms });
        }
        if has(part::ACTIVE) {
            settings.active_max = Some(from.u64()?.max(1));
        }
        if has(part::WEIGHT) {
            settings.weight = from.u32()?.clamp(1, WEIGHT_MAX);
        }
        if has(part::HELD) {
            settings.held_until_ms = from.u64()?;
        }
        let group = from.text()?;
        Ok(Self { queue: utf8(from.rest())?, group, settings })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_record::Record;

    #[test]
    fn settings_are_read_as_they_were_written_alone_and_together() {
        let none = GroupSettings::default();
        let rate = Some(GroupRate { jobs: 1 << 40, span_ms: 7 });
        let each = [
            none,
            GroupSettings { rate, ..none },
            GroupSettings { active_max: Some(3), ..none },
            GroupSettings { weight: WEIGHT_MAX, ..none },
            GroupSettings { paused: true, ..none },
            GroupSettings { held_until_ms: 1 << 41, ..none },
            GroupSettings { rate, active_max: Some(1), weight: 2, paused: true, held_until_ms: 5 },
        ];
        for settings in each {
            let grouped = Grouped { queue: "mail", group: "tenant \u{e9}", settings };
            let record = Record::Grouped(grouped);
            let mut bytes = vec![0; record.encoded_len()];
            record.encode(&mut bytes);
            assert!(matches!(Record::decode(&bytes), Ok(Record::Grouped(read)) if read == grouped));
            bytes[2] |= 1 << 7;
            assert!(Record::decode(&bytes).is_err(), "a setting that nobody knows");
        }
    }
}
