//! When the runs of a repeated job are due where that is more than a plain interval: by a cron expression, not before a
//! time, not after one.

use crate::cron::expression::{BadPlan, Plan};
use crate::log_record::codec::{Malformed, Reader, Writer};
use crate::log_record::show::Show;

/// As a client gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recurrence<'a> {
    /// A cron expression; without one the interval of the repeat counts.
    pub pattern: Option<&'a str>,
    /// IANA name of the zone that the expression is in; UTC if none is given.
    pub timezone: Option<&'a str>,
    /// No run is due later.
    pub until_ms: Option<u64>,
    /// No run is due before. It concerns the first run, so that it is not recorded.
    pub from_ms: u64,
    /// The first run does not wait for the first time that fits.
    pub immediately: bool,
}

/// Bits that say which parts follow.
mod part {
    pub(super) const PATTERN: u8 = 1;
    pub(super) const TIMEZONE: u8 = 1 << 1;
    pub(super) const UNTIL: u8 = 1 << 2;
    pub(super) const ALL: u8 = (1 << 3) - 1;
}

impl<'a> Recurrence<'a> {
    /// The plan of its expression, if it has one.
    pub fn plan(&self) -> Result<Option<Plan>, BadPlan> {
        self.pattern.map(|pattern| Plan::at(pattern, self.timezone)).transpose()
    }

    /// Reads an expression that was taken once.
    fn recorded_plan(&self) -> Option<Plan> {
        Plan::recorded(self.pattern?, self.timezone).ok()
    }

    /// How long the first run of a series that is pushed at `now_ms` waits, if its push does not say.
    pub(crate) fn first_delay_ms(&self, now_ms: u64) -> u64 {
        if self.immediately {
            return 0;
        }
        let due_ms = match self.recorded_plan() {
            Some(plan) => plan.next(0, now_ms.max(self.from_ms.saturating_sub(1))),
            _ => Some(self.from_ms),
        };
        due_ms.unwrap_or(now_ms).saturating_sub(now_ms)
    }

    pub(crate) fn encoded_len(&self) -> usize {
        let text = |text: Option<&str>| text.map_or(0, |text| 2 + text.len());
        1 + text(self.pattern) + text(self.timezone) + self.until_ms.map_or(0, |_| 8)
    }

    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        let bit = |given: bool, bit: u8| if given { bit } else { 0 };
        out.u8(bit(self.pattern.is_some(), part::PATTERN)
            | bit(self.timezone.is_some(), part::TIMEZONE)
            | bit(self.until_ms.is_some(), part::UNTIL));
        for text in [self.pattern, self.timezone].into_iter().flatten() {
            out.short(text.as_bytes());
        }
        if let Some(until_ms) = self.until_ms {
            out.u64(until_ms);
        }
    }

    pub(crate) fn decode(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        let parts = from.u8()?;
        if parts & !part::ALL != 0 {
            return Err(Malformed("a repeat has a part that is not known to this release"));
        }
        let has = |bit: u8| parts & bit != 0;
        let pattern = has(part::PATTERN).then(|| from.text()).transpose()?;
        let timezone = has(part::TIMEZONE).then(|| from.text()).transpose()?;
        let until_ms = has(part::UNTIL).then(|| from.u64()).transpose()?;
        Ok(Self { pattern, timezone, until_ms, ..Self::default() })
    }

    pub(crate) fn show(&self, to: &mut impl Show) {
        to.some_text("pattern", self.pattern);
        to.some_text("tz", self.timezone);
        to.some_uint("endDate", self.until_ms);
    }
}

/// As a series keeps it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptRecurrence {
    pattern: Option<Box<str>>,
    timezone: Option<Box<str>>,
    until_ms: Option<u64>,
    plan: Option<Plan>,
}

impl KeptRecurrence {
    pub(crate) fn of(given: &Recurrence<'_>) -> Self {
        Self {
            pattern: given.pattern.map(Into::into),
            timezone: given.timezone.map(Into::into),
            until_ms: given.until_ms,
            plan: given.recorded_plan(),
        }
    }

    /// As it would be asked for.
    pub fn given(&self) -> Recurrence<'_> {
        Recurrence {
            pattern: self.pattern.as_deref(),
            timezone: self.timezone.as_deref(),
            until_ms: self.until_ms,
            ..Recurrence::default()
        }
    }

    /// When the first run is due that is not before `soonest_ms`: by the expression, or without one as the interval says.
    pub(crate) fn next_ms(
        &self,
        soonest_ms: u64,
        by_interval: impl FnOnce() -> Option<u64>,
    ) -> Option<u64> {
        match self.plan {
            Some(plan) => plan.next(0, soonest_ms.saturating_sub(1)),
            None => by_interval(),
        }
    }

    /// Whether a run may be due at a time.
    pub(crate) fn allows(&self, due_ms: u64) -> bool {
        self.until_ms.is_none_or(|until_ms| due_ms <= until_ms)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_recorded_is_read_as_it_was_written() {
        let all = Recurrence {
            pattern: Some("0 9 * * *"),
            timezone: Some("Europe/Rome"),
            until_ms: Some(7),
            ..Recurrence::default()
        };
        let none = Recurrence::default();
        for given in
            [all, none, Recurrence { timezone: None, ..all }, Recurrence { pattern: None, ..all }]
        {
            let mut bytes = vec![0; given.encoded_len()];
            let mut out = Writer::new(&mut bytes);
            given.encode(&mut out);
            out.finish();
            assert_eq!(Recurrence::decode(&mut Reader::new(&bytes)).unwrap(), given);
            assert_eq!(KeptRecurrence::of(&given).given(), given);
        }
        assert!(Recurrence::decode(&mut Reader::new(&[8])).is_err(), "an unknown part");
    }

    #[test]
    fn the_first_run_waits_for_the_first_time_that_fits_unless_it_is_wanted_at_once() {
        const HOUR_MS: u64 = 3_600_000;
        let hourly = Recurrence { pattern: Some("0 * * * *"), ..Recurrence::default() };
        for (now_ms, from_ms, delay_ms) in [
            (1, 0, HOUR_MS - 1),
            (HOUR_MS, 0, HOUR_MS),
            (1, 2 * HOUR_MS, 2 * HOUR_MS - 1),
            (1, 2 * HOUR_MS + 1, 3 * HOUR_MS - 1),
        ] {
            assert_eq!(Recurrence { from_ms, ..hourly }.first_delay_ms(now_ms), delay_ms);
        }
        assert_eq!(Recurrence { immediately: true, ..hourly }.first_delay_ms(1), 0);
        let plain = Recurrence { from_ms: 50, ..Recurrence::default() };
        assert_eq!((plain.first_delay_ms(20), plain.first_delay_ms(90)), (30, 0));
    }
}
