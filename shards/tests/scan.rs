//! Pages of jobs by a cursor. The fears: a job that is missing or comes twice, and a page that costs as much as its queue is
//! long.

use crate::support::Bed;
use corq_shards::command::Command;
use corq_shards::job::State;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::NewJob;
use corq_shards::queue::listing::{States, Views};
use corq_shards::queue::scan::{Range, Scan, Wanted};

fn of_queue(newest_first: bool, wanted: Wanted) -> Scan {
    Scan { wanted, range: Range::Queue { name: "q".into(), newest_first, after: None } }
}

/// All that a scan finds, page by page, and what each page looks at.
fn all(bed: &mut Bed, scan: &mut Scan, page: usize) -> (Vec<JobId>, Vec<u64>) {
    let (mut found, mut looked) = (Vec::new(), Vec::new());
    loop {
        let slice = bed.shard.scan_jobs(scan, page, usize::MAX);
        found.extend(slice.found.iter().map(|one| one.id));
        looked.push(slice.looked);
        if slice.is_done {
            return (found, looked);
        }
    }
}

#[test]
fn a_page_looks_at_its_own_jobs_and_no_others_in_both_directions() {
    let mut bed = Bed::new();
    let jobs: Vec<JobId> = (0..10_000).map(|_| bed.data("q", b"1")).collect();
    let backwards: Vec<JobId> = jobs.iter().rev().copied().collect();
    for (newest_first, expected) in [(false, &jobs), (true, &backwards)] {
        let mut scan = of_queue(newest_first, Wanted::default());
        let (found, looked) = all(&mut bed, &mut scan, 100);
        assert_eq!(found, *expected);
        assert!(looked.iter().all(|&looked| looked <= 100), "{looked:?}");
        let range = Range::Queue { name: "q".into(), newest_first, after: Some(expected[5000]) };
        let mut middle = Scan { wanted: Wanted::default(), range };
        let slice = bed.shard.scan_jobs(&mut middle, 100, usize::MAX);
        assert_eq!((slice.looked, slice.found[0].id), (100, expected[5001]));
    }
}

#[test]
fn a_scan_goes_on_behind_a_job_that_is_gone_and_meets_the_others_once() {
    let mut bed = Bed::new();
    let jobs: Vec<JobId> = (0..500).map(|_| bed.data("q", b"1")).collect();
    let mut scan = of_queue(false, Wanted::default());
    let first = bed.shard.scan_jobs(&mut scan, 200, usize::MAX).found;
    assert_eq!(first.len(), 200);
    for (job, token) in bed.pull(1, "q", 300) {
        bed.ack(job, Some(token)).unwrap();
    }
    // Only the newest completed ones are kept.
    let kept: Vec<JobId> =
        jobs[200..].iter().copied().filter(|&id| bed.shard.find(id).is_some()).collect();
    let (rest, _) = all(&mut bed, &mut scan, 7);
    assert_eq!(rest, kept);
    scan.range.go_behind(first[9]);
    let next = bed.shard.scan_jobs(&mut scan, 1, usize::MAX).found[0].id;
    assert!(next > first[9].id && bed.shard.find(next).is_some());
}

#[test]
fn state_name_group_and_time_select_jobs() {
    let mut bed = Bed::new();
    let mut made = Vec::new();
    for n in 0..60_u64 {
        let (name, group) = (Some(["a", "b"][n as usize % 2]), (n % 3 == 0).then_some("g"));
        let delay_ms = if n % 5 == 0 { 1_000_000 } else { 0 };
        let priority = i32::from(n % 4 == 0);
        let job = NewJob { name, group_id: group, delay_ms, priority, ..NewJob::default() };
        made.push((n, bed.now_ms, bed.push("q", job)));
        bed.pass(10);
    }
    let mut select = |wanted: Wanted, is: &dyn Fn(u64, u64) -> bool| {
        let expected: Vec<JobId> =
            made.iter().filter(|(n, at, _)| is(*n, *at)).map(|(_, _, id)| *id).collect();
        for newest_first in [false, true] {
            let (mut found, _) = all(&mut bed, &mut of_queue(newest_first, wanted.clone()), 3);
            if newest_first {
                found.reverse();
            }
            assert_eq!(found, expected, "{wanted:?}");
        }
        let mut anywhere = Scan { wanted, range: Range::All { next: 0 } };
        let (mut found, _) = all(&mut bed, &mut anywhere, 7);
        found.sort_unstable();
        assert_eq!(found, expected);
    };
    let none: States = [].into_iter().collect();
    select(Wanted::default(), &|_, _| true);
    select(Wanted { states: none.and(State::Delayed), ..Wanted::default() }, &|n, _| n % 5 == 0);
    select(Wanted { name: Some("b".into()), ..Wanted::default() }, &|n, _| n % 2 == 1);
    select(Wanted { group: Some("g".into()), ..Wanted::default() }, &|n, _| n % 3 == 0);
    let views = Views { prioritized: true, paused: false };
    select(Wanted { states: none, views, ..Wanted::default() }, &|n, _| n % 4 == 0 && n % 5 > 0);
    let (from_ms, to_ms) = (made[20].1, made[29].1);
    select(Wanted { from_ms, to_ms, ..Wanted::default() }, &|_, at| {
        (from_ms..=to_ms).contains(&at)
    });
    select(Wanted { from_ms: to_ms, to_ms: from_ms, ..Wanted::default() }, &|_, _| false);
    select(Wanted { from_ms: u64::MAX, ..Wanted::default() }, &|_, _| false);
}

#[test]
fn a_scan_of_all_queues_passes_none_that_is_obliterated_and_looks_at_so_many_places_a_slice() {
    let mut bed = Bed::new();
    for n in 0..3000 {
        bed.data(["a", "b", "c"][n % 3], b"1");
    }
    bed.run(1, &Command::Obliterate { queue: "b" });
    let mut scan = Scan { wanted: Wanted::default(), range: Range::All { next: 0 } };
    let slice = bed.shard.scan_jobs(&mut scan, usize::MAX, 100);
    assert!(slice.looked <= 100 && !slice.is_done);
    let mut found = slice.found.len();
    loop {
        let slice = bed.shard.scan_jobs(&mut scan, usize::MAX, 100);
        found += slice.found.len();
        if slice.is_done {
            break;
        }
    }
    assert_eq!(found, 2000);
    let mut unknown = Scan {
        wanted: Wanted::default(),
        range: Range::Queue { name: "nowhere".into(), newest_first: false, after: None },
    };
    assert!(bed.shard.scan_jobs(&mut unknown, 5, 5).is_done);
}
