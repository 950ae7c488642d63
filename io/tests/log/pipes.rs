//! A pipe that bears the name of a segment. The fear: a start, or a tool, that waits for ever for someone to write into it.

use corq_io::log::{BlockingDisk, Disk, Subject, clear_claims, give_id, inspect, shard_path};
use std::fmt::Display;
use std::ops::ControlFlow;
use std::process::Command;

const NAME: &str = "0000000000000000.seg";

fn refused<T>(outcome: Result<T, impl Display>, by: &str) {
    let told = outcome.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(told.contains(NAME) && told.contains("is a pipe"), "{by} says {told:?}");
}

#[test]
fn a_pipe_in_the_place_of_a_segment_is_refused_by_its_name_wherever_segments_are_opened() {
    let home = tempfile::tempdir().unwrap();
    let directory = shard_path(home.path(), 0);
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join(NAME);
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    refused(clear_claims(&path), "a copy");
    refused(give_id(&path, 1, 2), "a restore");
    let subject =
        Subject { directory: &directory, shard: 0, log_id: 1, is_begun: true, until: None };
    refused(inspect(subject, |_| ControlFlow::Continue(())), "a verification");
    let mut disk = BlockingDisk::open(home.path(), 0).unwrap();
    refused(disk.read_at(0, 0, &mut [0; 8]), "a start");
}
