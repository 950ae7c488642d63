//! The rate limit of HTTP clients: requests within a sliding window, per client.
//!
//! Pure: time is an argument. A window counts in grains of a 64th of its length, so a client that
//! has used it up waits at most that much longer than a list of all its requests would tell, and
//! costs no more than 66 pairs of numbers, however often it comes.

use corq_shards::collections::hash_key::HashKey;
use corq_shards::collections::table::Table;
use std::collections::VecDeque;

/// Pieces of a window.
const GRAINS: u64 = 64;

/// Clients that one shard remembers at a time, twice: those of this generation and of the last.
pub const CLIENTS_MAX: usize = 50_000;

/// At most so many requests within so long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The length of the window.
    pub window_ms: u64,
    /// Requests within it.
    pub requests_max: u32,
}

impl Rule {
    fn grain_ms(self) -> u64 {
        self.window_ms.div_ceil(GRAINS)
    }
}

/// A client has sent too many requests, and may send the next after so many milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooMany {
    /// Time until then.
    pub wait_ms: u64,
}

/// The requests of one client within the last window.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// Which grain, and how many requests came in it; oldest first.
    grains: VecDeque<(u64, u32)>,
    count: u32,
}

impl Window {
    /// Counts a request, unless there have been too many.
    pub fn admit(&mut self, now_ms: u64, rule: Rule) -> Result<(), TooMany> {
        let grain_ms = rule.grain_ms();
        // A grain leaves when the last request that may have come in it does.
        let leaves_at = |grain: u64| (grain + 1) * grain_ms - 1 + rule.window_ms;
        while let Some(&(grain, count)) = self.grains.front()
            && leaves_at(grain) <= now_ms
        {
            self.grains.pop_front();
            self.count -= count;
        }
        if self.count >= rule.requests_max {
            let front = self.grains.front();
            let wait_ms = front.map_or(1, |&(grain, _)| leaves_at(grain).saturating_sub(now_ms));
            return Err(TooMany { wait_ms });
        }
        self.count += 1;
        match self.grains.back_mut() {
            // A clock that was set back counts where it was.
            Some((grain, count)) if *grain >= now_ms / grain_ms => *count += 1,
            _ => self.grains.push_back((now_ms / grain_ms, 1)),
        }
        Ok(())
    }
}

/// The windows of all clients that one shard keeps. Those that were silent for a whole generation,
/// which is no shorter than the window, are forgotten with it, without a search: what they took is given
/// back a few at a time, with each request that comes. Where more come than are remembered, a generation
/// ends early: the silent ones may begin anew.
#[derive(Debug)]
pub struct Limiter {
    rule: Rule,
    generation_ms: u64,
    begun_ms: u64,
    key: HashKey,
    clients: Clients,
    earlier: Clients,
    /// Windows of forgotten clients, which still take memory.
    forgotten: VecDeque<Clients>,
}

type Clients = Table<(Box<[u8]>, Window)>;

impl Limiter {
    /// No client is counted yet. Forgets every `cleanup_ms`, or every window if that is longer. Clients choose what
    /// they are called: `key` is the secret of their table.
    pub fn new(rule: Rule, cleanup_ms: u64, key: HashKey) -> Self {
        Self {
            rule,
            generation_ms: cleanup_ms.max(rule.window_ms + rule.grain_ms()),
            begun_ms: 0,
            key,
            clients: Table::default(),
            earlier: Table::default(),
            forgotten: VecDeque::new(),
        }
    }

    /// Counts a request of a client, unless there have been too many.
    pub fn admit(&mut self, now_ms: u64, client: &[u8]) -> Result<(), TooMany> {
        if now_ms >= self.begun_ms + self.generation_ms || self.clients.len() >= CLIENTS_MAX {
            let earlier = std::mem::replace(&mut self.earlier, std::mem::take(&mut self.clients));
            self.forgotten.push_back(earlier);
            self.begun_ms = now_ms;
        }
        if self.forgotten.front_mut().is_some_and(|oldest| !oldest.shed()) {
            self.forgotten.pop_front();
        }
        let (key, hash) = (self.key, self.key.bytes(client));
        let same = |(name, _): &(Box<[u8]>, Window)| **name == *client;
        if let Some((_, window)) = self.clients.find_mut(hash, same) {
            return window.admit(now_ms, self.rule);
        }
        let hash_of = |(name, _): &(Box<[u8]>, Window)| key.bytes(name);
        let known = self.earlier.remove(hash, same, hash_of);
        let mut window = known.map(|(_, window)| window).unwrap_or_default();
        let verdict = window.admit(now_ms, self.rule);
        self.clients.insert(hash, (client.into(), window), hash_of);
        verdict
    }

    /// Clients that are remembered.
    pub fn len(&self) -> usize {
        self.clients.len() + self.earlier.len()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const KEY: HashKey = HashKey::new(1);
    const RULE: Rule = Rule { window_ms: 6_400, requests_max: 3 };

    #[test]
    fn the_window_slides() {
        let mut window = Window::default();
        for at_ms in [1_000, 2_000, 3_000] {
            assert_eq!(window.admit(at_ms, RULE), Ok(()));
        }
        let TooMany { wait_ms } = window.admit(4_000, RULE).unwrap_err();
        assert!((3_400..=3_500).contains(&wait_ms), "{wait_ms}");
        assert!(window.admit(4_000 + wait_ms - 1, RULE).is_err());
        assert_eq!(window.admit(4_000 + wait_ms, RULE), Ok(()), "the first has left");
        assert!(window.admit(4_000 + wait_ms, RULE).is_err(), "and only the first");
        assert_eq!(window.admit(100_000, RULE), Ok(()));
    }

    #[test]
    fn a_window_never_holds_more_than_its_grains() {
        let rule = Rule { window_ms: 1_000, requests_max: u32::MAX };
        let mut window = Window::default();
        (0..100_000).for_each(|at_ms| assert!(window.admit(at_ms, rule).is_ok()));
        assert!(window.grains.len() <= GRAINS as usize + 2, "{}", window.grains.len());
        assert!((1_000..1_020).contains(&window.count), "{}", window.count);
    }

    #[test]
    fn a_limiter_remembers_those_who_come_and_forgets_those_who_do_not() {
        let mut limiter = Limiter::new(RULE, 1, KEY);
        (0..3).for_each(|_| assert!(limiter.admit(1_000, b"a").is_ok()));
        assert!(limiter.admit(1_000, b"a").is_err() && limiter.admit(1_000, b"b").is_ok());
        // A generation later the client is still within its window.
        assert!(limiter.admit(7_399, b"a").is_err());
        assert!(limiter.admit(7_599, b"a").is_ok());
        limiter.admit(30_000, b"c").unwrap_or_default();
        limiter.admit(60_000, b"c").unwrap_or_default();
        assert_eq!(limiter.len(), 1);
    }

    #[test]
    fn a_crowd_of_clients_has_a_limit() {
        let mut limiter = Limiter::new(RULE, 60_000, KEY);
        for client in 0..3 * CLIENTS_MAX as u64 {
            assert!(limiter.admit(1_000, &client.to_be_bytes()).is_ok());
            assert!(limiter.len() <= 2 * CLIENTS_MAX);
            // Forgotten clients are freed faster than others come, and never at once.
            let kept: usize = limiter.forgotten.iter().map(Table::len).sum();
            assert!(kept <= CLIENTS_MAX, "{kept}");
        }
        (0..CLIENTS_MAX).for_each(|_| limiter.admit(1_000, b"again").unwrap_or_default());
        assert!(limiter.forgotten.is_empty());
    }
}
