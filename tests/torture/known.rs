//! Answers so far: ids, tokens and names that later commands use.

use serde_json::Value as Json;

use crate::torture::commands::Command;

/// Ids, tokens and names from earlier answers.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) ids: Vec<String>,
    /// Jobs that were pulled, the newest last, with their token if there was one.
    pub(crate) leases: Vec<(String, Json)>,
    pub(crate) workers: Vec<String>,
    pub(crate) webhooks: Vec<String>,
    pub(crate) tasks: Vec<String>,
}

/// Entries that are remembered of each kind: the newest are the likeliest to exist.
const KNOWN_MAX: usize = 48;

fn remember<T>(list: &mut Vec<T>, one: T) {
    if list.len() >= KNOWN_MAX {
        list.remove(0);
    }
    list.push(one);
}

impl Known {
    /// Learns from the answer to a command.
    pub(crate) fn learn(&mut self, reply: &Json) {
        let texts = |list: &Json| -> Vec<String> {
            list.as_array().into_iter().flatten().filter_map(text).collect()
        };
        for id in texts(&reply["ids"]).into_iter().chain(text(&reply["id"])) {
            remember(&mut self.ids, id);
        }
        let pulled = [(&reply["job"], &reply["token"])];
        let jobs = reply["jobs"].as_array().map_or(&[][..], Vec::as_slice);
        let tokens = (0..jobs.len()).map(|place| &reply["tokens"][place]);
        for (job, token) in jobs.iter().zip(tokens).chain(pulled) {
            // A listed job has a state, a pulled one has none.
            if let (Some(id), true) = (text(&job["id"]), job["state"].is_null()) {
                remember(&mut self.leases, (id, token.clone()));
            }
        }
        for id in jobs.iter().chain([&reply["job"]]).filter_map(|job| text(&job["id"])) {
            remember(&mut self.ids, id);
        }
        if let Some(id) = text(&reply["data"]["workerId"]) {
            remember(&mut self.workers, id);
        }
        if let Some(id) = text(&reply["taskId"]) {
            remember(&mut self.tasks, id);
        }
        if let Some(id) = text(&reply["data"]["webhookId"]) {
            remember(&mut self.webhooks, id);
        }
    }

    /// These jobs are about to be ended.
    pub(crate) fn end(&mut self, command: &Command) {
        if ["ACK", "ACKB", "FAIL"].contains(&command.name) {
            let named = command.fields.get("ids").and_then(Json::as_array).into_iter().flatten();
            let named: Vec<&Json> = named.chain(command.fields.get("id")).collect();
            self.leases.retain(|(id, _)| !named.iter().any(|other| *other == id.as_str()));
        }
    }

    /// After a restart no token fits.
    pub(crate) fn forget_leases(&mut self) {
        self.leases.clear();
    }
}

fn text(value: &Json) -> Option<String> {
    value.as_str().map(str::to_owned)
}
