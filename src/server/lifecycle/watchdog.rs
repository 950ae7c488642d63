//! Signs of life for a service manager: one is sent when every shard has been through a turn since the last, so that one
//! shard that stands still is enough for the manager to start the server anew.

use crate::server::event_loop::Pulse;
use corq_io::service_manager::ServiceManager;
use std::time::{Duration, Instant};

/// How often a manager gets a sign of life within the time that it allows, if all is well.
const OFTEN: u32 = 4;

/// Asks the shards, and passes their answer on.
pub struct Watchdog<'m> {
    manager: &'m ServiceManager,
    shards: usize,
    every: Duration,
    /// Not before this the next question.
    next: Instant,
    is_asked: bool,
}

impl<'m> Watchdog<'m> {
    /// For so many shards, if the manager wants signs of life.
    pub fn new(manager: &'m ServiceManager, shards: usize) -> Option<Self> {
        let every = manager.watchdog()? / OFTEN;
        Some(Self { manager, shards, every, next: Instant::now(), is_asked: false })
    }

    /// How long to sleep between two looks, at most `usual`.
    pub fn pause(&self, usual: Duration) -> Duration {
        self.every.min(usual)
    }

    /// Looks whether all shards have answered, and asks anew when it is time.
    pub fn look(&mut self, pulse: &Pulse, wake: impl FnOnce()) {
        if self.is_asked && pulse.answers() >= self.shards {
            self.manager.alive();
            self.is_asked = false;
        }
        let now = Instant::now();
        if !self.is_asked && now >= self.next {
            (self.is_asked, self.next) = (true, now + self.every);
            pulse.ask();
            wake();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn one_shard_that_stands_still_stops_the_signs_of_life() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let heard = || socket.recv(&mut [0; 64]).is_ok();
        let manager = ServiceManager::at(path.as_os_str(), Some(Duration::ZERO)).unwrap();
        let mut watchdog = Watchdog::new(&manager, 2).unwrap();
        let (pulse, mut beats) = (Pulse::default(), [0; 2]);
        let mut woken = 0;
        let mut look = || watchdog.look(&pulse, || woken += 1);
        look();
        pulse.answer(&mut beats[0]);
        pulse.answer(&mut beats[0]);
        look();
        assert!(!heard(), "the second shard has not answered");
        pulse.answer(&mut beats[1]);
        look();
        assert!(heard() && !heard());
        // Asked anew, and answered by one of them.
        pulse.answer(&mut beats[1]);
        look();
        look();
        assert!(!heard());
        assert_eq!(woken, 2);
    }
}
