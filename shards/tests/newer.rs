//! Records of a release that does not exist yet. The fear: an older one reads them as something else.

use crate::support::Bed;
use corq_shards::job::new_job::NewJob;
use corq_shards::job::overrides::Extras;
use corq_shards::log_record::{KINDS, Record};

/// Where the bits are that say which parts a job has.
const PARTS_AT: usize = 2;

/// A job as it was pushed and as it is kept, each with the bits that stand for no part.
fn jobs() -> [(Vec<u8>, Vec<usize>); 2] {
    let mut bed = Bed::new();
    bed.push("q", NewJob { data: b"\x01", ..NewJob::default() });
    bed.keep_one(0);
    let jobs = [
        (bed.journal.records[0].clone(), vec![15]),
        (bed.journal.records[1].clone(), vec![9, 10, 11, 15]),
    ];
    assert!(jobs.iter().all(|(record, _)| Record::decode(record).is_ok()));
    jobs
}

#[test]
fn parts_that_are_not_known_are_refused() {
    for (record, unknown) in jobs() {
        for bit in unknown {
            let mut newer = record.clone();
            newer[PARTS_AT + bit / 8] |= 1 << (bit % 8);
            let refused = Record::decode(&newer).unwrap_err().to_string();
            assert!(refused.contains("not known to this release"), "bit {bit}: {refused}");
        }
    }
}

#[test]
fn parts_behind_the_others_and_rules_that_are_not_known_are_refused() {
    /// Where those bits are in the record of a job with rules in a queue `q`; those of the rules follow.
    const MORE_AT: usize = 49;
    let mut bed = Bed::new();
    let extras = Some(Box::new(Extras { keep_logs: Some(1), ..Extras::default() }));
    bed.push("q", NewJob { data: b"\x01", extras, ..NewJob::default() });
    let record = bed.journal.records[0].clone();
    assert!(Record::decode(&record).is_ok());
    for (at, bits) in [(MORE_AT, 5..32), (MORE_AT + 4, 8..16)] {
        for bit in bits {
            let mut newer = record.clone();
            newer[at + bit / 8] |= 1 << (bit % 8);
            let refused = Record::decode(&newer).unwrap_err().to_string();
            assert!(refused.contains("not known to this release"), "{at}, bit {bit}: {refused}");
        }
    }
}

#[test]
fn kinds_and_versions_that_are_not_known_are_refused() {
    let [(record, ..), _] = jobs();
    for kind in 0..=u8::MAX {
        let known = KINDS.iter().any(|(number, _)| *number == kind);
        let mut other = record.clone();
        other[0] = kind;
        let refused = Record::decode(&other).err().map(|malformed| malformed.to_string());
        let strange = refused.is_some_and(|text| text.contains("kind is not known"));
        assert_eq!(strange, !known, "kind {kind}");
    }
    for version in (0..=u8::MAX).filter(|&version| version != 1) {
        let mut other = record.clone();
        other[1] = version;
        let refused = Record::decode(&other).unwrap_err().to_string();
        assert!(refused.contains("version is not known"), "version {version}: {refused}");
    }
}
