//! The records of what is set for a queue, for a group, or for webhooks. Each holds all of it, so that the newest one stands for
//! itself.

use crate::dead_letter::policy::{DlqRule, Rule, StallRule};
use crate::group::{GroupRate, GroupSettings, WEIGHT_MAX};
use crate::job::id::JobId;
use crate::log_record::codec::{Malformed, Reader, Writer};
use crate::log_record::kind;
use crate::log_record::row::Body;
use crate::log_record::show::Show;
use crate::queue::limit::{Limit, PerSpan};
use crate::webhook::{Trigger, Triggers};
use std::fmt;

/// See [`crate::log_record::Record::Limited`].
#[derive(Clone, Copy, Debug)]
pub struct Limited<'a> {
    /// The queue.
    pub queue: &'a str,
    /// The new setting.
    pub limit: Limit,
}

impl Limited<'_> {
    pub(crate) fn kind(&self) -> u8 {
        match self.limit {
            Limit::Rate(Some(rate)) if !rate.is_plain() => kind::RATE_LIMITED_FOR,
            Limit::Rate(_) => kind::RATE_LIMITED,
            Limit::Active(_) => kind::ACTIVE_LIMITED,
        }
    }
}

impl<'a> Body<'a> for Limited<'a> {
    fn encoded_len(&self) -> usize {
        let span = if self.kind() == kind::RATE_LIMITED_FOR { 4 + 8 } else { 0 };
        4 + span + self.queue.len()
    }

    fn encode(&self, out: &mut Writer<'_>) {
        // A limit is at least 1: zero stands for none.
        match self.limit {
            Limit::Rate(rate) => {
                out.u32(rate.map_or(0, |rate| rate.jobs));
                if let Some(rate) = rate.filter(|rate| !rate.is_plain()) {
                    out.u32(rate.span_ms);
                    out.u64(rate.until_ms);
                }
            }
            Limit::Active(limit) => out.u32(limit.unwrap_or(0)),
        }
        out.bytes(self.queue.as_bytes());
    }

    fn decode(kind: u8, mut from: Reader<'a>) -> Result<Self, Malformed> {
        let limit = Some(from.u32()?).filter(|&limit| limit > 0);
        let limit = match (kind, limit) {
            (kind::RATE_LIMITED, limit) => Limit::Rate(limit.map(PerSpan::per_second)),
            (kind::RATE_LIMITED_FOR, Some(jobs)) => {
                let (span_ms, until_ms) = (from.u32()?.max(1), from.u64()?);
                Limit::Rate(Some(PerSpan { jobs, span_ms, until_ms }))
            }
            (_, limit) => Limit::Active(limit),
        };
        Ok(Self { queue: from.rest_text()?, limit })
    }

    fn show(&self, to: &mut impl Show) {
        to.text("queue", self.queue);
        match self.limit {
            Limit::Active(limit) => to.uint_or_nil("limit", limit.map(u64::from)),
            Limit::Rate(None) => to.nil("limit"),
            Limit::Rate(Some(rate)) => {
                to.uint("limit", u64::from(rate.jobs));
                to.uint("duration", u64::from(rate.span_ms));
                to.some_uint("until", Some(rate.until_ms).filter(|&until_ms| until_ms > 0));
            }
        }
    }
}

/// Bits of rules. The first says what a rule is about as a whole.
const ON: u8 = 1;
const AGE: u8 = 1 << 1;
const ENTRIES: u8 = 1 << 2;
const INTERVAL: u8 = 1 << 1;

impl Rule {
    fn kind(&self) -> u8 {
        match self {
            Self::Dlq(_) => kind::DLQ_RULED,
            Self::Stall(_) => kind::STALL_RULED,
        }
    }

    fn encoded_len(&self) -> usize {
        match self {
            Self::Dlq(_) => 1 + 8 + 4 + 8 + 4,
            Self::Stall(_) => 1 + 4 + 1 + 4,
        }
    }

    fn encode(&self, out: &mut Writer<'_>) {
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

    /// Reads the rule of a record, and its queue.
    fn decode(kind: u8, mut from: Reader<'_>) -> Result<(&str, Self), Malformed> {
        let bits = from.u8()?;
        let known = if kind == kind::DLQ_RULED { ON | AGE | ENTRIES } else { ON | INTERVAL };
        if bits & !known != 0 {
            return Err(Malformed("a rule has a part that is not known to this release"));
        }
        let has = |bit: u8| bits & bit != 0;
        let rule = if kind == kind::DLQ_RULED {
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
        Ok((from.rest_text()?, rule))
    }

    fn show(&self, to: &mut impl Show) {
        match self {
            Self::Dlq(rule) => {
                to.bool("autoRetry", rule.auto_retry);
                to.uint("autoRetryInterval", rule.retry_interval_ms);
                to.uint("maxAutoRetries", u64::from(rule.retries_max));
                to.some_uint("maxAge", rule.age_max_ms);
                to.some_uint("maxEntries", rule.entries_max.map(u64::from));
            }
            Self::Stall(rule) => {
                to.bool("enabled", rule.enabled);
                to.some_uint("stallInterval", rule.interval_ms.map(u64::from));
                to.uint("maxStalls", u64::from(rule.stalls_max));
                to.uint("gracePeriod", u64::from(rule.grace_ms));
            }
        }
    }
}

/// See [`crate::log_record::Record::Ruled`].
#[derive(Clone, Copy, Debug)]
pub struct Ruled<'a> {
    /// The queue.
    pub queue: &'a str,
    /// All of it; the default takes it back.
    pub rule: Rule,
}

impl Ruled<'_> {
    pub(crate) fn kind(&self) -> u8 {
        self.rule.kind()
    }
}

impl<'a> Body<'a> for Ruled<'a> {
    fn encoded_len(&self) -> usize {
        self.rule.encoded_len() + self.queue.len()
    }

    fn encode(&self, out: &mut Writer<'_>) {
        self.rule.encode(out);
        out.bytes(self.queue.as_bytes());
    }

    fn decode(kind: u8, from: Reader<'a>) -> Result<Self, Malformed> {
        let (queue, rule) = Rule::decode(kind, from)?;
        Ok(Self { queue, rule })
    }

    fn show(&self, to: &mut impl Show) {
        to.text("queue", self.queue);
        self.rule.show(to);
    }
}

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

/// Bits that say what is set.
mod part {
    pub(crate) const RATE: u8 = 1;
    pub(crate) const ACTIVE: u8 = 1 << 1;
    pub(crate) const WEIGHT: u8 = 1 << 2;
    pub(crate) const PAUSED: u8 = 1 << 3;
    pub(crate) const HELD: u8 = 1 << 4;
    pub(crate) const ALL: u8 = (1 << 5) - 1;
}

impl Grouped<'_> {
    fn parts(&self) -> u8 {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let GroupSettings { rate, active_max, weight, paused, held_until_ms } = self.settings;
        bit(rate.is_some(), part::RATE)
            | bit(active_max.is_some(), part::ACTIVE)
            | bit(weight > 1, part::WEIGHT)
            | bit(paused, part::PAUSED)
            | bit(held_until_ms > 0, part::HELD)
    }
}

impl<'a> Body<'a> for Grouped<'a> {
    fn encoded_len(&self) -> usize {
        let parts = self.parts();
        let sized = |bit: u8, size: usize| if parts & bit != 0 { size } else { 0 };
        let set = sized(part::RATE, 16) + sized(part::ACTIVE, 8) + sized(part::WEIGHT, 4);
        1 + set + sized(part::HELD, 8) + 2 + self.group.len() + self.queue.len()
    }

    fn encode(&self, out: &mut Writer<'_>) {
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

    fn decode(_: u8, mut from: Reader<'a>) -> Result<Self, Malformed> {
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
        Ok(Self { queue: from.rest_text()?, group, settings })
    }

    fn show(&self, to: &mut impl Show) {
        let GroupSettings { rate, active_max, weight, paused, held_until_ms } = self.settings;
        to.text("queue", self.queue);
        to.text("groupId", self.group);
        if let Some(rate) = rate {
            to.uint("max", rate.jobs);
            to.uint("duration", rate.span_ms);
        }
        to.some_uint("concurrency", active_max);
        to.uint("weight", u64::from(weight));
        to.flag("paused", paused);
        to.some_uint("heldUntil", (held_until_ms > 0).then_some(held_until_ms));
    }
}

/// A webhook came. Payload: none.
#[derive(Clone, Copy)]
pub struct WebhookAdded<'a> {
    /// Id of the webhook, a UUID.
    pub id: u128,
    /// When it came.
    pub created_at_ms: u64,
    /// Where to post.
    pub url: &'a str,
    /// Events that the webhook asks for.
    pub events: Triggers,
    /// Only events of this queue.
    pub queue: Option<&'a str>,
    /// Signs the posts.
    pub secret: Option<&'a str>,
}

impl fmt::Debug for WebhookAdded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the secret, which no log line may show.
        write!(f, "WebhookAdded({:032x} to {})", self.id, self.url)
    }
}

/// Texts that are not there are written as empty ones: those that are given are not empty.
fn text(text: Option<&str>) -> &[u8] {
    text.unwrap_or_default().as_bytes()
}

impl WebhookAdded<'_> {
    fn texts(&self) -> [&[u8]; 3] {
        [self.url.as_bytes(), text(self.queue), text(self.secret)]
    }
}

impl<'a> Body<'a> for WebhookAdded<'a> {
    fn encoded_len(&self) -> usize {
        16 + 8 + 4 + self.texts().iter().map(|text| 2 + text.len()).sum::<usize>()
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.id(JobId(self.id));
        out.u64(self.created_at_ms);
        out.u32(self.events.bits());
        for text in self.texts() {
            out.short(text);
        }
    }

    fn decode(_: u8, mut from: Reader<'a>) -> Result<Self, Malformed> {
        let text = |text: &'a str| (!text.is_empty()).then_some(text);
        Ok(Self {
            id: from.id()?.0,
            created_at_ms: from.u64()?,
            events: Triggers::of_bits(from.u32()?),
            url: text(from.text()?).ok_or(Malformed("a webhook has no URL"))?,
            queue: text(from.text()?),
            secret: text(from.text()?),
        })
    }

    fn show(&self, to: &mut impl Show) {
        to.id("id", JobId(self.id));
        to.uint("createdAt", self.created_at_ms);
        to.text("url", self.url);
        to.texts("events", self.events.iter().map(Trigger::name));
        to.some_text("queue", self.queue);
        to.flag("disabled", !self.events.is_enabled());
        // The secret itself is not shown.
        to.flag("hasSecret", self.secret.is_some());
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
