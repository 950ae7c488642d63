//! Lock tokens: what is shown must fit, wherever it is shown, and no token tells anything of another.

use crate::support::{Bed, locked, outcome};
use corq_shards::command::{Ack, Beat, Command, Fail, Pull, Token};
use corq_shards::effect::{Refusal, Reply};
use corq_shards::job::State;
use corq_shards::job::change::Change;
use corq_shards::job::id::{Chance, JobId};
use std::collections::BTreeSet;

type Run = Box<dyn Fn(&mut Bed) -> Result<(), Refusal>>;

/// Every command on a leased job that a token can be shown to.
fn commands(job: JobId, token: Option<Token>) -> Vec<(&'static str, Run)> {
    let change = |change: Change<'static>| -> Run {
        Box::new(move |bed| match bed.ask(1, &Command::Change { job, change }) {
            Some(Reply::Count(_)) => Ok(()),
            reply => outcome(reply),
        })
    };
    vec![
        ("ack", Box::new(move |bed| bed.ack(job, token))),
        (
            "ack of many",
            Box::new(move |bed| {
                let ack = Ack { job, token, result: &[0xc0], remove: false };
                let unknown = Ack { job: JobId(7), token: None, ..ack };
                outcome(bed.ask(1, &Command::Ack { acks: &[ack, unknown] }))
            }),
        ),
        ("fail", Box::new(move |bed| bed.fail(job, token))),
        (
            "heartbeat",
            Box::new(move |bed| {
                outcome(bed.ask(1, &Command::Heartbeat(Beat { job, token, ttl_ms: None })))
            }),
        ),
        (
            "extension",
            Box::new(move |bed| {
                outcome(bed.ask(1, &Command::Heartbeat(Beat { job, token, ttl_ms: Some(9) })))
            }),
        ),
        ("move to delayed", change(Change::PutOff { delay_ms: 5000, token })),
        ("discard", change(Change::Discard { token })),
        ("move to wait", change(Change::ToWait { token })),
        ("change delay", change(Change::Delay { delay_ms: 5000, token })),
        ("move to waiting children", change(Change::Block { token })),
    ]
}

#[test]
fn a_token_that_is_shown_fits_or_nothing_happens() {
    let count = commands(JobId(1), None).len();
    for number in 0..count {
        let mut bed = Bed::new();
        let job = bed.data("q", b"\x01");
        let other = bed.data("q", b"\x01");
        let [(_, right), (_, others)] = bed.pull(1, "q", 2)[..] else { panic!("two jobs") };
        let (facts, records) = (bed.shard.facts(), bed.journal.records.len());
        for wrong in [others, Token(right.0 ^ 1), Token::UNREADABLE] {
            let (name, run) = &commands(job, Some(wrong))[number];
            assert_eq!(run(&mut bed), Err(Refusal::TokenInvalid), "{name}");
        }
        assert_eq!(bed.state(job), Some(State::Active));
        assert_eq!((bed.shard.facts(), bed.journal.records.len()), (facts, records));
        let (name, run) = &commands(job, Some(right))[number];
        let done = run(&mut bed);
        let fits = if *name == "ack of many" { Err(Refusal::NotActive) } else { Ok(()) };
        assert_eq!(done, fits, "{name}");
        assert_eq!(bed.state(other), Some(State::Active));
        bed.shard.audit().unwrap();
    }
}

#[test]
fn a_token_fits_no_job_that_was_pulled_without_an_owner() {
    let count = commands(JobId(1), None).len();
    for number in 0..count {
        let mut bed = Bed::new();
        let job = bed.data("q", b"\x01");
        bed.run(1, &Command::Pull(Pull { locked: false, ..locked("q") }));
        let (name, run) = &commands(job, Some(Token(99)))[number];
        assert_eq!(run(&mut bed), Err(Refusal::TokenInvalid), "{name}");
        assert_eq!(bed.state(job), Some(State::Active));
    }
}

/// Guards against a lock that has run out and is not yet ended by its timer.
#[test]
fn the_token_of_a_lock_that_has_run_out_fits_no_more() {
    let count = commands(JobId(1), None).len();
    for number in 0..count {
        let mut bed = Bed::new();
        let job = bed.data("q", b"\x01");
        let (_, token) = bed.pull(1, "q", 1)[0];
        bed.now_ms += 30_000;
        let (name, run) = &commands(job, Some(token))[number];
        let refused = run(&mut bed).unwrap_err();
        let is_late = matches!(refused, Refusal::TokenInvalid | Refusal::NotActive);
        assert!(is_late, "{name}: {refused:?}");
        assert_eq!(bed.state(job), Some(State::Active), "{name}");
    }
}

/// An operator shows none.
#[test]
fn a_leased_job_is_put_off_and_discarded_without_a_token() {
    for change in [
        Change::PutOff { delay_ms: 5000, token: None },
        Change::Discard { token: None },
        Change::ToWait { token: None },
        Change::Delay { delay_ms: 5000, token: None },
    ] {
        let mut bed = Bed::new();
        let job = bed.data("q", b"\x01");
        bed.pull(1, "q", 1);
        assert_eq!(outcome(bed.ask(1, &Command::Change { job, change })), Ok(()), "{change:?}");
        assert_ne!(bed.state(job), Some(State::Active));
        assert_eq!(
            outcome(bed.ask(1, &Command::Fail(Fail { job, ..Fail::default() }))),
            Err(Refusal::NotActive)
        );
    }
}

/// Undoes a step of the generator that ids are made with.
fn unmix(mut z: u64) -> u64 {
    let inverse =
        |of: u64| (0..6).fold(of, |x, _| x.wrapping_mul(2_u64.wrapping_sub(of.wrapping_mul(x))));
    let unshift = |z: u64, by: u32| (0..64 / by).fold(z, |x, _| z ^ (x >> by));
    z = unshift(z, 31).wrapping_mul(inverse(0x94d0_49bb_1331_11eb));
    z = unshift(z, 27).wrapping_mul(inverse(0xbf58_476d_1ce4_e5b9));
    unshift(z, 30)
}

/// The tokens that follow this one, if they came from that generator.
fn guesses(Token(token): Token) -> impl Iterator<Item = u128> {
    // Two bits of each token are the same in all.
    (0..4_u64).map(move |bits| {
        let low = (token as u64) & !(0b11 << 62) | (bits << 62);
        let mut next = Chance::new(unmix(low));
        let bits = u128::from(next.draw()) << 64 | u128::from(next.draw());
        bits & !(0xf << 76) & !(0b11 << 62) | (4 << 76) | (0b10 << 62)
    })
}

#[test]
fn a_token_tells_nothing_of_the_next_ones() {
    let mut chance = Chance::new(42);
    let first = chance.draw();
    assert_eq!(Chance::new(unmix(first)).draw(), chance.draw(), "the guess is a good one");
    let mut bed = Bed::new();
    for _ in 0..1000 {
        bed.data("q", b"\x01");
    }
    let pulled = bed.pull(1, "q", 1000);
    for pair in pulled.windows(2) {
        assert!(guesses(pair[0].1).all(|guess| guess != pair[1].1.0), "the next one is known");
    }
    let distinct: BTreeSet<u128> = pulled.iter().map(|(_, token)| token.0).collect();
    assert_eq!(distinct.len(), pulled.len());
    assert!(distinct.iter().all(|token| token >> 76 & 0xf == 4 && token >> 62 & 0b11 == 0b10));
}
