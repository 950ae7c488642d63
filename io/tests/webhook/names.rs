//! Names of receivers, and the addresses that they lead to.

use super::receiver::{Habit, Receiver};
use super::{Bed, until};
use corq_io::webhook::{Hook, Lookup, Target};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Names that lead where `addresses` says.
fn lookup(addresses: &'static [&'static str]) -> (Lookup, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let lookup = Lookup(Arc::new(move |_, port| {
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(addresses.iter().map(|it| SocketAddr::new(it.parse().unwrap(), port)).collect())
    }));
    (lookup, asked)
}

#[test]
fn a_name_that_leads_to_a_private_address_is_not_connected_to() {
    let receiver = Receiver::always(Habit::Status(200));
    for (addresses, said) in [
        (&["127.0.0.1"] as &'static [&'static str], "a loopback address: 127.0.0.1"),
        (&["10.0.0.1"], "a private address: 10.0.0.1"),
        (&["169.254.169.254"], "a cloud metadata host: 169.254.169.254"),
        (&["::ffff:127.0.0.1"], "a loopback address: ::ffff:127.0.0.1"),
        (&["fd00::1"], "a private address: fd00::1"),
        // A bad address among good ones is refused, too.
        (&["1.1.1.1", "127.0.0.1"], "a loopback address: 127.0.0.1"),
    ] {
        let (lookup, _) = lookup(addresses);
        let bed = Bed::new(|config| {
            config.allow_private = false;
            config.lookup = Some(lookup);
            config.attempts_max = 1;
        });
        let url = format!("http://rebound.example:{}/", receiver.port());
        let target = Target::parse(&url, false).unwrap();
        bed.tell(&[&Arc::new(Hook::new(1, target, None, 1))]);
        let report = until("a report", || bed.reports().pop());
        assert!(report.contains(&format!("rebound.example has {said}")), "{report}");
    }
    // Registered under other rules, or before there were any.
    for (url, said) in [
        ("http://localhost/", "localhost is this machine (localhost)"),
        ("http://db.internal/", "db.internal is an internal host (*.internal)"),
        ("http://127.0.0.1/", "127.0.0.1 has a loopback address: 127.0.0.1"),
        ("http://[::1]/", "[::1] has a loopback address: ::1"),
    ] {
        let bed = Bed::new(|config| {
            config.allow_private = false;
            config.attempts_max = 1;
        });
        bed.tell(&[&bed.hook(url, None)]);
        let report = until("a report", || bed.reports().pop());
        assert!(report.contains(said), "{report}");
    }
    assert_eq!(receiver.posts().len(), 0);
}

/// Guards that the address which was checked is the one connected to: nothing looks a name up between the two.
#[test]
fn a_name_is_looked_up_once_for_each_post() {
    let (lookup, asked) = lookup(&["127.0.0.1"]);
    let bed = Bed::new(|config| config.lookup = Some(lookup));
    let receiver =
        Receiver::start(|before, _| if before < 2 { Habit::Status(200) } else { Habit::Close });
    let hook = bed.hook(&format!("http://anything.example:{}/", receiver.port()), None);
    for posts in 1..=2 {
        bed.tell(&[&hook]);
        until("a post", || (hook.counts().delivered == posts).then_some(()));
    }
    let posts = receiver.posts();
    assert_eq!(posts.iter().map(|post| post.connection).collect::<Vec<_>>(), [0, 0]);
    let host = posts[0].header("Host");
    assert_eq!(host, Some(&*format!("anything.example:{}", receiver.port())));
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}
