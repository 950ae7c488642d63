//! Parents, children and flows in the random lives of a shard.

use super::Bed;
use super::life::pushed_before;
use corq_shards::command::Command;
use corq_shards::dependency::Unmet;
use corq_shards::family::{NewFamily, Policy, Report, Reported};
use corq_shards::flow::{Fate, Staged};
use corq_shards::job::State;
use corq_shards::job::change::Change;
use corq_shards::job::id::{Chance, JobId};
use corq_shards::job::new_job::NewJob;
use corq_shards::log_record::{Pushed, Record};

/// A job with kin, a change of that, or a step of a flow.
pub fn step_family(bed: &mut Bed, chance: &mut Chance, queue: &str) {
    match chance.draw() % 6 {
        0 | 1 => push_family(bed, chance, queue),
        2 | 3 => step_flow(bed, chance, queue),
        _ => change_family(bed, chance),
    }
}

fn push_family(bed: &mut Bed, chance: &mut Chance, queue: &str) {
    let policies = [
        None,
        Some(Policy::Fail),
        Some(Policy::Continue),
        Some(Policy::Ignore),
        Some(Policy::Remove),
    ];
    let (mut unmet, mut open) = (Vec::new(), Vec::new());
    if chance.draw().is_multiple_of(2) {
        for _ in 0..=chance.draw() % 3 {
            Unmet::push(&mut open, pushed_before(bed, chance), "child");
        }
        if chance.draw().is_multiple_of(3) {
            Unmet::push(&mut unmet, pushed_before(bed, chance), "");
        }
    }
    let name = format!("kin{}", bed.request);
    let family = NewFamily {
        parent: chance.draw().is_multiple_of(2).then_some("parent"),
        policy: policies[chance.draw() as usize % policies.len()],
        children: if open.is_empty() { b"" } else { b"\x92\xa5child\xa5other" },
        open: Unmet::new(&open),
    };
    let job = NewJob {
        data: b"\xa3kin",
        family: Some(Box::new(family)),
        unmet: Unmet::new(&unmet),
        priority: (chance.draw() % 3) as i32,
        max_attempts: 1 + (chance.draw() % 2) as u16,
        custom_id: chance.draw().is_multiple_of(2).then_some(name.as_str()),
        remove_on_complete: chance.draw().is_multiple_of(2),
        remove_on_fail: chance.draw().is_multiple_of(2),
        ..NewJob::default()
    };
    bed.run(1, &Command::Push { queue, jobs: &[job] });
}

fn change_family(bed: &mut Bed, chance: &mut Chance) {
    let known: Vec<JobId> = bed.known().collect();
    let Some(&job) = known.get(chance.draw() as usize % known.len().max(1)) else { return };
    let child = known[chance.draw() as usize % known.len()];
    let new = NewJob { data: b"\xa6linked", ..NewJob::default() };
    let active = known.iter().copied().find(|&id| bed.state(id) == Some(State::Active));
    if let Some(job) = active.filter(|&job| job != child && chance.draw().is_multiple_of(2)) {
        bed.run(1, &Command::Change { job, change: Change::Adopt { child, name: "late" } });
        bed.run(1, &Command::Change { job, change: Change::Block { token: None } });
    }
    let change = match chance.draw() % 5 {
        0 if job != child => Change::Adopt { child, name: "other" },
        1 => Change::LetGo { child, name: "other" },
        2 => {
            let parent = chance.draw().is_multiple_of(2).then_some("another");
            Change::Link { job: &new, parent }
        }
        3 => Change::Abandon,
        _ => Change::Block { token: None },
    };
    bed.run(1, &Command::Change { job, change });
}

fn step_flow(bed: &mut Bed, chance: &mut Chance, queue: &str) {
    let some = bed.flows.get(chance.draw() as usize % bed.flows.len().max(1)).copied();
    let Some(flow) = some.filter(|_| !chance.draw().is_multiple_of(3)) else {
        stage(bed, queue);
        return;
    };
    let fates = [Fate::Committed, Fate::CommittedHere, Fate::Released, Fate::Dropped, Fate::Done];
    let fate = fates[chance.draw() as usize % fates.len()];
    bed.run(0, &Command::Decide { flow, fate, durable: false });
    if !matches!(fate, Fate::Committed) {
        // A flow that is over is not decided again, but for parts that may still be open.
        bed.run(0, &Command::Decide { flow, fate: Fate::Done, durable: false });
        bed.run(0, &Command::Decide { flow, fate: Fate::Released, durable: false });
        bed.flows.retain(|&other| other != flow);
    }
}

fn stage(bed: &mut Bed, queue: &str) {
    let ids: Vec<JobId> = (0..2).map(|_| bed.shard.reserve_id(bed.now_ms, queue)).collect();
    let mut open = Vec::new();
    Unmet::push(&mut open, ids[1], "");
    let family = |parent: Option<&'static str>| NewFamily { parent, ..NewFamily::default() };
    let whole = NewFamily { children: b"\x91\xa1c", open: Unmet::new(&open), ..family(None) };
    let jobs = [
        NewJob { data: b"\xa5whole", family: Some(Box::new(whole)), ..NewJob::default() },
        NewJob {
            data: b"\xa4part",
            family: Some(Box::new(family(Some("w")))),
            ..NewJob::default()
        },
    ];
    let flow = ids[0];
    let run_at_ms = bed.now_ms;
    let records: Vec<Vec<u8>> = ids
        .iter()
        .zip(jobs)
        .map(|(&id, job)| {
            let record = Record::Staged(Staged {
                flow,
                pushed: Pushed { id, queue, run_at_ms, job: job.into() },
            });
            let mut bytes = vec![0; record.encoded_len()];
            record.encode(&mut bytes);
            bytes
        })
        .collect();
    let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
    bed.run(0, &Command::Stage { records: &records, group_max: &[], durable: false });
    bed.flows.push(flow);
}

/// A report comes to the shard of the parent, which is the same one here.
pub fn deliver(bed: &mut Bed, report: &Report) {
    let record = bed.journal.records[report.stored.position as usize].clone();
    let value = &record[record.len() - report.stored.payload_bytes as usize..];
    let known_as = report.known_as.to_string();
    let reported = Reported {
        parent: report.parent,
        child: report.child,
        known_as: &known_as,
        queue: &report.queue,
        end: report.end,
        value,
        is_last: report.is_last,
    };
    bed.run(0, &Command::Report(&reported));
}
