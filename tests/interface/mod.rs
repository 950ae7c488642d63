//! The interface beyond the first contract: both versions of the protocol, roles, lists, figures and routes that pages and
//! programs use, tried against the real program. Each test is one promise and bears its name.

mod access;
mod access_queues;
mod attempts;
mod audit;
mod browsers;
mod bulk_filters;
mod bulk_rights;
mod bulk_tasks;
mod cli;
mod coercions;
mod dashboard_page;
mod dashboards;
mod error_groups;
mod event_choice;
mod event_resume;
mod event_rights;
mod explain;
mod figures;
mod job_fields;
mod large_payloads;
mod listings;
mod messages;
mod odd_texts;
mod prometheus;
mod protocol3;
mod pushed_children;
mod rest;
mod routes;
mod schedules;
mod traces;
mod versions;
mod watching;
mod webhook_looks;

use crate::{client, queue, shared};

/// The harness can fail: its server answers, and refuses what it does not know.
#[test]
fn the_shared_server_answers_and_refuses() {
    let mut client = client();
    let counts = client.ok("GetJobCounts", serde_json::json!({ "queue": queue("canary") }));
    assert_eq!(counts["counts"]["waiting"], 0);
    assert!(client.refused("NoSuchCommand", serde_json::json!({})).contains("NoSuchCommand"));
}
