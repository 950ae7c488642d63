//! The further pages of the dashboard in a real browser: dead letters, search, flows, schedules, workers, groups, webhooks, live
//! events and the server. The fears: an action reaches other jobs than the page has said, or more; a page offers what
//! its server or its token cannot do; a graph of thousands of jobs stands still.
//!
//! `dashboard/further.mjs` does it all; this file sends the commands that it asks for.

use serde_json::{Value, json};

use crate::dashboard::{Driver, base};
use crate::support::{Client, Server, Start};

/// Sends a command for the script, and says what came of it.
fn answer(client: &mut Client, asked: &str) -> Value {
    let mut words = asked.splitn(3, ' ');
    let mut word = || words.next().unwrap();
    let (how, cmd) = (word(), word());
    let fields: Value = serde_json::from_str(word()).unwrap();
    match (how, fields) {
        ("call", fields) => client.call(cmd, fields),
        ("text", fields) => client.call(cmd, fields).to_string().into(),
        ("many", Value::Array(all)) => {
            let sent = all.len();
            for fields in all {
                client.send(cmd, fields).unwrap();
            }
            (0..sent).filter(|_| client.recv().unwrap()["ok"] == true).count().into()
        }
        other => panic!("{other:?}"),
    }
}

fn play_on(server: &Server, client: &mut Client, part: &str, settings: Value) {
    let Some(driver) = Driver::find() else { return };
    driver.play(&base(server), part, settings, |asked| answer(client, asked));
}

fn play(part: &str) {
    let server = Server::start_default();
    play_on(&server, &mut server.client(), part, json!({}));
}

#[test]
fn the_further_pages_work_in_light_and_dark_on_desks_and_phones_and_axe_finds_nothing() {
    play("further_pages");
}

#[test]
fn ten_thousand_dead_letters_of_one_error_are_retried_after_a_dry_run_and_no_other() {
    play("dead_letters");
}

#[test]
fn a_task_on_dead_letters_is_cancelled_and_what_it_changed_stays() {
    play("cancelled_task");
}

#[test]
fn a_search_finds_texts_and_values_at_paths_and_says_what_it_covered() {
    play("search");
}

#[test]
fn a_flow_is_walked_by_keys_and_of_thousands_of_jobs_only_those_seen_are_drawn() {
    play("flows");
}

#[test]
fn schedules_are_set_with_their_digits_run_held_changed_and_removed() {
    let server = Start::new().env("UI_REDACT", "password").start();
    play_on(&server, &mut server.client(), "schedules", json!({}));
}

#[test]
fn workers_are_shown_by_host_with_what_they_have_in_hand() {
    play("workers");
}

#[test]
fn groups_are_paused_limited_weighed_and_held() {
    play("groups");
}

#[test]
fn webhooks_are_added_tested_disabled_and_removed() {
    let server = Start::new().env("WEBHOOK_ALLOW_PRIVATE", "true").start();
    let receiver = json!({"receiver": "http://127.0.0.1:9/hook"});
    play_on(&server, &mut server.client(), "webhooks", receiver);
}

#[test]
fn events_are_shown_by_choice_paused_and_sampled() {
    play("events");
}

#[test]
fn the_server_shows_its_shards_turns_and_metrics() {
    play("server");
}

#[test]
fn further_pages_offer_what_a_token_may_do() {
    let tokens = "boss,read:reader,admin(mail*):clerk";
    let server = Start::new().env("AUTH_TOKENS", tokens).start();
    let mut client = server.client();
    client.ok("Auth", json!({"token": "boss"}));
    let tokens = json!({"tokens": {"read": "reader", "clerk": "clerk"}});
    play_on(&server, &mut client, "further_rights", tokens);
}
