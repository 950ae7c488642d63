//! Pieces of commands that are longer than a turn. The fear: what was judged for all of a command is not so any more when
//! its last piece comes, and something is done that should not be, or refused that was promised.

use crate::support::Bed;
use corq_shards::Foresight;
use corq_shards::command::{Ack, Command};
use corq_shards::effect::{Refusal, Reply};
use corq_shards::job::State;
use corq_shards::job::new_job::NewJob;
use corq_shards::job::overrides::{Dedup, Extras};

fn grouped(most: u32) -> NewJob<'static> {
    NewJob { group_id: Some("g"), group_max: most, ..NewJob::default() }
}

/// The refusal that the jobs meet as a push of its own.
fn refusal(bed: &mut Bed, jobs: &[NewJob<'_>]) -> Option<(usize, Refusal)> {
    match bed.ask(1, &Command::Push { queue: "a", jobs }) {
        Some(Reply::Refused { place, refusal }) => Some((place, refusal)),
        _ => None,
    }
}

fn foresee(bed: &mut Bed, jobs: &[NewJob<'_>], sight: &mut Foresight) -> Option<usize> {
    bed.shard.foresee_piece(bed.now_ms, "a", jobs, sight)
}

/// The piece comes.
fn come(bed: &mut Bed, jobs: &[NewJob<'_>], sight: &mut Foresight) {
    bed.shard.note_coming(bed.now_ms, "a", jobs, sight);
    bed.ask(1, &Command::PushJudged { queue: "a", jobs });
}

#[test]
fn places_that_a_long_push_will_take_are_not_there_for_others() {
    let mut bed = Bed::new();
    let piece = vec![grouped(10); 4];
    let mut sight = Foresight::default();
    assert_eq!(foresee(&mut bed, &piece, &mut sight), None);
    assert_eq!(foresee(&mut bed, &piece, &mut sight), None);
    let three = vec![grouped(10); 3];
    assert_eq!(refusal(&mut bed, &three), Some((2, Refusal::GroupFull)));
    assert_eq!(refusal(&mut bed, &three[..1]), None);
    come(&mut bed, &piece, &mut sight);
    assert_eq!(refusal(&mut bed, &three[..2]), Some((1, Refusal::GroupFull)));
    come(&mut bed, &piece, &mut sight);
    assert_eq!(bed.shard.queue("a").unwrap().count(State::Waiting), 9);
    assert_eq!(refusal(&mut bed, &three[..1]), None);
    assert_eq!(refusal(&mut bed, &three[..1]), Some((0, Refusal::GroupFull)));
    bed.shard.audit().unwrap();
}

#[test]
fn a_later_piece_is_judged_by_those_before_it_and_all_is_given_back_when_it_is_refused() {
    let mut bed = Bed::new();
    let piece = vec![grouped(10); 6];
    let mut sight = Foresight::default();
    assert_eq!(foresee(&mut bed, &piece, &mut sight), None);
    assert_eq!(foresee(&mut bed, &piece, &mut sight), Some(4));
    assert_eq!(refusal(&mut bed, &piece[..1]), Some((0, Refusal::GroupFull)));
    while !bed.shard.give_up_places("a", &mut sight, 1) {}
    assert_eq!(refusal(&mut bed, &piece), None);
    assert_eq!(refusal(&mut bed, &[grouped(6)]), Some((0, Refusal::GroupFull)));
}

#[test]
fn a_duplicate_in_a_later_piece_takes_no_place() {
    let mut bed = Bed::new();
    let job = NewJob { unique_key: Some("k"), ..grouped(2) };
    let mut sight = Foresight::default();
    assert_eq!(foresee(&mut bed, std::slice::from_ref(&job), &mut sight), None);
    assert_eq!(foresee(&mut bed, &[job.clone(), job.clone()], &mut sight), None);
    assert_eq!(refusal(&mut bed, &[grouped(2)]), None);
    for _ in 0..2 {
        come(&mut bed, std::slice::from_ref(&job), &mut sight);
    }
    assert_eq!(bed.shard.queue("a").unwrap().count(State::Waiting), 2);
}

#[test]
fn places_of_two_long_pushes_are_their_own() {
    let mut bed = Bed::new();
    let piece = vec![grouped(10); 5];
    let (mut one, mut other) = (Foresight::default(), Foresight::default());
    assert_eq!(foresee(&mut bed, &piece, &mut one), None);
    assert_eq!(foresee(&mut bed, &piece, &mut other), None);
    while !bed.shard.give_up_places("a", &mut one, 100) {}
    assert_eq!(refusal(&mut bed, &piece), None);
    assert_eq!(refusal(&mut bed, &piece[..1]), Some((0, Refusal::GroupFull)));
    come(&mut bed, &piece, &mut other);
    assert_eq!(bed.shard.queue("a").unwrap().count(State::Waiting), 10);
    assert_eq!(refusal(&mut bed, &piece[..1]), Some((0, Refusal::GroupFull)));
}

#[test]
fn a_later_piece_is_judged_by_what_others_pushed_since_the_first() {
    let mut bed = Bed::new();
    let piece = vec![grouped(10); 4];
    let mut sight = Foresight::default();
    assert_eq!(foresee(&mut bed, &piece, &mut sight), None);
    assert_eq!(refusal(&mut bed, &piece), None);
    assert_eq!(foresee(&mut bed, &piece, &mut sight), Some(2));
    // Two long ones, in turns.
    let mut bed = Bed::new();
    let (mut one, mut other) = (Foresight::default(), Foresight::default());
    assert_eq!(foresee(&mut bed, &piece, &mut one), None);
    assert_eq!(foresee(&mut bed, &piece, &mut other), None);
    assert_eq!(foresee(&mut bed, &piece, &mut one), Some(2));
    while !bed.shard.give_up_places("a", &mut one, 100) {}
    assert_eq!(foresee(&mut bed, &piece, &mut other), None);
    for _ in 0..2 {
        come(&mut bed, &piece, &mut other);
    }
    assert_eq!(bed.shard.queue("a").unwrap().count(State::Waiting), 8);
    assert_eq!(refusal(&mut bed, &piece[..2]), None);
    assert_eq!(refusal(&mut bed, &piece[..1]), Some((0, Refusal::GroupFull)));
}

#[test]
fn duplicates_and_replacements_give_no_place_of_later_pieces_to_others() {
    let replace = Dedup { replace: true, ..Dedup::default() };
    let extras = Extras { dedup: Some(replace), ..Extras::default() };
    for extras in [None, Some(Box::new(extras))] {
        let mut bed = Bed::new();
        let keyed = NewJob { unique_key: Some("k"), extras, ..grouped(6) };
        bed.push_all("a", std::slice::from_ref(&keyed));
        let (first, then) = (vec![keyed; 4], vec![grouped(6); 5]);
        let mut sight = Foresight::default();
        assert_eq!(foresee(&mut bed, &first, &mut sight), None);
        assert_eq!(foresee(&mut bed, &then, &mut sight), None);
        come(&mut bed, &first, &mut sight);
        assert_eq!(refusal(&mut bed, &then[..1]), Some((0, Refusal::GroupFull)));
        come(&mut bed, &then, &mut sight);
        assert_eq!(bed.shard.queue("a").unwrap().count(State::Waiting), 6);
        assert_eq!(refusal(&mut bed, &[grouped(7)]), None, "no place is set aside any more");
        bed.shard.audit().unwrap();
    }
}

#[test]
fn a_piece_completes_what_is_still_held_and_tells_what_is_not() {
    let mut bed = Bed::new();
    bed.push_all("a", &vec![NewJob::default(); 4]);
    let held = bed.pull(1, "a", 4);
    let acks: Vec<Ack<'_>> = held
        .iter()
        .map(|&(job, token)| Ack { job, token: Some(token), result: &[0xc0], remove: false })
        .collect();
    assert_eq!(bed.ask(1, &Command::CheckAcks { acks: &acks }), Some(Reply::Done));
    bed.fail(held[1].0, Some(held[1].1)).unwrap();
    let late: Box<[usize]> = [1].into();
    assert_eq!(bed.ask(1, &Command::AckHeld { acks: &acks }), Some(Reply::Late(late)));
    assert_eq!(bed.shard.queue("a").unwrap().count(State::Completed), 3);
    assert_eq!(bed.state(held[1].0), Some(State::Delayed));
    let all: Box<[usize]> = [0, 1, 2, 3].into();
    assert_eq!(bed.ask(1, &Command::AckHeld { acks: &acks }), Some(Reply::Late(all)));
    bed.shard.audit().unwrap();
}

#[test]
fn room_that_was_kept_is_used_though_there_is_no_other() {
    let mut bed = Bed::new();
    bed.journal.full = (true, true);
    assert_eq!(refusal(&mut bed, &[NewJob::default()]), Some((0, Refusal::Full)));
    let pushed = bed.ask(1, &Command::PushJudged { queue: "a", jobs: &[NewJob::default()] });
    assert_eq!(pushed, Some(Reply::Pushed(0..1)));
}
