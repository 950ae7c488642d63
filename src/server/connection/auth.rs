//! Who may come in: tokens compared in constant time, as tags under a key of this process, so that
//! neither their lengths nor their contents show in the time a refusal takes.

use ring::hmac;
use ring::rand::SystemRandom;

/// The accepted tokens.
pub struct Guard {
    key: hmac::Key,
    tags: Vec<hmac::Tag>,
}

/// The system gave no randomness.
#[derive(Debug)]
pub struct NoRandomness;

impl Guard {
    /// Accepts `tokens`; every client, if there are none.
    pub fn new<'a>(tokens: impl Iterator<Item = &'a str>) -> Result<Self, NoRandomness> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| NoRandomness)?;
        let tags = tokens.map(|token| hmac::sign(&key, token.as_bytes())).collect();
        Ok(Self { key, tags })
    }

    /// Whether clients have to show a token.
    pub fn is_on(&self) -> bool {
        !self.tags.is_empty()
    }

    /// Whether `token` is accepted. Looks at every accepted one, whichever fits.
    pub fn accepts(&self, token: &str) -> bool {
        let fits = self
            .tags
            .iter()
            .filter(|tag| hmac::verify(&self.key, token.as_bytes(), tag.as_ref()).is_ok())
            .count();
        fits > 0 || !self.is_on()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_accepted_tokens_open_a_guarded_server() {
        let guard = Guard::new(["one", "two"].into_iter()).unwrap();
        assert!(guard.is_on() && guard.accepts("one") && guard.accepts("two"));
        assert!(!guard.accepts("") && !guard.accepts("on") && !guard.accepts("one "));
        assert!(Guard::new(std::iter::empty()).unwrap().accepts("anything"));
    }
}
