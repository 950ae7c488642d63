//! Valid commands of every kind, drawn from the server's own table, so that a new command is played
//! as soon as it stands there and a new kind of field does not compile until it is played.
//!
//! Names, keys and ids are few, so that commands meet; times are short, so that what they begin
//! falls due while others work. Every value is within its bounds: a refusal is about the state of a
//! job, and [`is_expected`](crate::torture::refusals::is_expected) knows all of those that may come.

use corq::api::commands::{
    BACKOFF_FIELDS, BULK_FILTER_FIELDS, COMMANDS, CRON_JOB_FIELDS, CommandSpec, DEDUP_FIELDS,
    DLQ_CONFIG_FIELDS, DLQ_CONFIG_NULLABLE, DLQ_FILTER_FIELDS, FieldSpec, GROUP_PULL_FIELDS,
    GROUP_RATE_FIELDS, JOB_FIELDS, Kind, REPEAT_FIELDS, STALL_CONFIG_FIELDS,
};
use serde_json::{Map, Value as Json, json};

use crate::support::Dice;
use crate::torture::known::Known;

pub(crate) const QUEUES: [&str; 4] = ["t-a", "t-b", "t-c", "t-d"];
pub(crate) const KEYS: [&str; 4] = ["key-0", "key-1", "key-2", "key-3"];
pub(crate) const CUSTOM_IDS: [&str; 6] = ["own-0", "own-1", "own-2", "own-3", "own-4", "own-5"];
const GROUPS: [&str; 3] = ["group-0", "group-1", "group-2"];
const CRONS: [&str; 4] = ["cron-0", "cron-1", "cron-2", "cron-3"];

/// The bare token that no server gives out.
pub(crate) const WRONG_TOKEN: &str = "00000000-0000-4000-8000-000000000000";

/// Commands that take away jobs of a whole queue.
pub(crate) const REMOVING: [&str; 5] = ["Drain", "Obliterate", "Clean", "PurgeDlq", "Bulk"];

/// Commands after which little moves.
const STIFLING: [&str; 10] = [
    "Drain",
    "Obliterate",
    "Clean",
    "Pause",
    "PauseGroup",
    "RateLimit",
    "SetConcurrency",
    "SetGroupConcurrency",
    "SetGroupRateLimit",
    "RateLimitGroup",
];

/// The conditions of a round.
#[derive(Clone)]
pub(crate) struct Weather {
    /// The queues whose jobs are taken away by the queue.
    pub(crate) wild: Vec<&'static str>,
    /// Too many jobs are there: pushes become pulls.
    pub(crate) is_crowded: bool,
    /// Names of commands and fields that are left out.
    pub(crate) skipped: Vec<String>,
    /// The largest payloads have up to so many bytes.
    pub(crate) filler_max: u64,
    /// Where webhooks may point to.
    pub(crate) urls: Vec<String>,
    /// The token of the server, if it has one.
    pub(crate) token: Option<String>,
}

/// A command about to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) name: &'static str,
    pub(crate) fields: Map<String, Json>,
    /// The reply may come later than any player here waits for it.
    pub(crate) is_endless: bool,
}

impl std::fmt::Display for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fields = Json::Object(self.fields.clone()).to_string();
        write!(f, "{} {}", self.name, fields.chars().take(2000).collect::<String>())
    }
}

/// Makes commands.
pub(crate) struct Maker<'a> {
    pub(crate) dice: Dice,
    pub(crate) weather: &'a Weather,
    /// Gives every pushed payload a number of its own.
    pub(crate) number: &'a dyn Fn() -> u64,
}

impl Maker<'_> {
    pub(crate) fn roll(&mut self, bound: u64) -> u64 {
        self.dice.roll(bound)
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.roll(bound) == 0
    }

    fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.roll(list.len() as u64) as usize].clone()
    }

    fn is_skipped(&self, name: &str) -> bool {
        self.weather.skipped.iter().any(|skipped| skipped == name)
    }

    /// A command; half of all push, pull or end jobs, or the others would find none.
    pub(crate) fn command(&mut self, known: &Known) -> Command {
        loop {
            let spec = if self.one_in(2) { self.pick(&COMMANDS[..7]) } else { self.pick(COMMANDS) };
            let pushes = ["PUSH", "PUSHB", "PUSHF", "Cron"].contains(&spec.name);
            // Commands that hold everything back, or take it away, leave little to play with.
            let stifles = STIFLING.contains(&spec.name) && !self.one_in(3);
            let crowded = pushes && self.weather.is_crowded;
            let is_out = self.is_skipped(spec.name) || crowded || stifles;
            if !is_out {
                return self.of(&spec, known);
            }
        }
    }

    /// A command of this row of the table.
    pub(crate) fn of(&mut self, spec: &CommandSpec, known: &Known) -> Command {
        let mut fields = self.fields(known, spec.name, spec.fields);
        self.fit(known, spec, &mut fields);
        let is_endless =
            fields.get("timeout").and_then(Json::as_u64).is_some_and(|wait_ms| wait_ms > 10_000);
        Command { name: spec.name, fields, is_endless }
    }

    fn fields(&mut self, known: &Known, command: &str, specs: &[FieldSpec]) -> Map<String, Json> {
        let mut fields = Map::new();
        // Some commands say much, most say little.
        let rarity = self.pick(&[2, 4, 8]);
        for spec in specs {
            let waits = command == "WaitJob" && spec.name == "timeout"
                || ["PULL", "PULLB"].contains(&command) && spec.name == "lockTtl";
            let wanted = spec.required || waits || spec.kind == Kind::Token && !self.one_in(6);
            if (wanted || self.one_in(rarity)) && (spec.required || !self.is_skipped(spec.name)) {
                let value = self.value(known, command, spec);
                fields.insert(spec.name.to_owned(), value);
            }
        }
        fields
    }

    /// Fits fields to each other.
    fn fit(&mut self, known: &Known, spec: &CommandSpec, fields: &mut Map<String, Json>) {
        match spec.name {
            "PUSH" => self.fit_job(known, fields),
            "Cron" => {
                let other = if self.one_in(2) { "schedule" } else { "repeatEvery" };
                for name in ["schedule", "repeatEvery"] {
                    let row = spec.fields.iter().find(|row| row.name == name);
                    let value = row.map(|row| self.value(known, spec.name, row));
                    fields.insert(name.to_owned(), value.unwrap_or_default());
                }
                fields.remove(other);
                // A schedule that nobody deletes ends by itself.
                let runs = 1 + self.roll(20);
                fields.insert("maxLimit".into(), runs.into());
            }
            // The jobs of a queue that may lose any, so that no others are lost.
            "Bulk" => {
                let queue = self.pick(&self.weather.wild.clone());
                fields.insert("queue".into(), queue.into());
                fields.remove("ids");
                fields.entry("filter").or_insert_with(|| json!({}));
                let delay = self.pick(&[0, 20, 500]);
                fields.entry("delay").or_insert_with(|| delay.into());
                fields.entry("priority").or_insert_with(|| json!(1));
                if let Some(filter) = fields.get_mut("filter").and_then(Json::as_object_mut) {
                    if !filter.contains_key("path") {
                        filter.remove("value");
                    }
                    // An empty list is refused: it would mean all.
                    filter.retain(|_, value| *value != json!([]));
                }
            }
            // Names of events and positions in a stream are no texts of their own choice.
            "Subscribe" | "Unsubscribe" => {
                let names = ["job:*", "job:failed", "queue:*", "stats:snapshot", "*"];
                if fields.contains_key("events") {
                    fields.remove("types");
                    let name = self.pick(&names);
                    fields.insert("events".into(), json!([name]));
                }
                if fields.contains_key("queues") {
                    let queue = self.pick(&["t-*", "t-a", "*", "elsewhere"]);
                    fields.insert("queues".into(), json!([queue]));
                }
                if fields.contains_key("lastEventId") {
                    fields.insert("lastEventId".into(), json!("0000000000000abc-0.17"));
                }
            }
            "Heatmap" if self.one_in(2) => drop(fields.remove("queue")),
            "Heatmap" => drop(fields.remove("shard")),
            "RetryDlq" if self.one_in(2) => drop(fields.remove("jobId")),
            "RetryDlq" => drop(fields.remove("filter")),
            "ExtendLocks" => {
                let length = fields["ids"].as_array().map_or(0, Vec::len);
                let durations: Vec<u64> = (0..length).map(|_| 1 + self.roll(500)).collect();
                fields.insert("durations".into(), durations.into());
            }
            _ if REMOVING.contains(&spec.name) || spec.name == "SetDlqConfig" => {
                let queue = self.pick(&self.weather.wild.clone());
                fields.insert("queue".into(), queue.into());
            }
            _ => {}
        }
        let ids = fields.get("ids").and_then(Json::as_array).map_or(0, Vec::len);
        self.fit_outcomes(known, ids, fields);
    }

    /// Ids with the tokens that fit them, mostly; as many results as ids.
    fn fit_outcomes(&mut self, known: &Known, ids: usize, fields: &mut Map<String, Json>) {
        for (id, token) in [("id", "token"), ("ids", "tokens")] {
            let has_both = fields.contains_key(id) && fields.contains_key(token);
            if known.leases.is_empty() || !has_both || self.one_in(8) {
                continue;
            }
            let leases: Vec<(String, Json)> = (0..ids.max(1)).map(|_| self.lease(known)).collect();
            let (some, mut their): (Vec<String>, Vec<Json>) = leases.into_iter().unzip();
            if self.one_in(12) {
                their.fill(WRONG_TOKEN.into());
            }
            if id == "ids" {
                fields.insert(id.into(), some.into());
                fields.insert(token.into(), their.into());
            } else {
                fields.insert(id.into(), some[0].clone().into());
                fields.insert(token.into(), their.swap_remove(0));
            }
        }
        let ids = fields.get("ids").and_then(Json::as_array).map_or(0, Vec::len);
        for name in ["results", "removeOnCompletes", "durations", "tokens"] {
            if let Some(list) = fields.get_mut(name).and_then(Json::as_array_mut) {
                let last = list.last().cloned().unwrap_or(json!(1));
                let filler = if name == "durations" { last } else { Json::Null };
                list.resize(ids, filler);
            }
        }
    }

    fn fit_job(&mut self, known: &Known, job: &mut Map<String, Json>) {
        if job.contains_key("groupId") && self.one_in(2) {
            job.insert("priority".into(), self.roll(3).into());
        }
        if job.contains_key("childrenIds") {
            job.insert("dependsOn".into(), job["childrenIds"].clone());
        }
        // A job that names itself is refused.
        let own = ["jobId", "customId"].map(|name| job.get(name).cloned().unwrap_or_default());
        for name in ["dependsOn", "childrenIds"] {
            if let Some(list) = job.get_mut(name).and_then(Json::as_array_mut) {
                list.retain(|other| !own.contains(other));
                let mut seen = Vec::new();
                list.retain(|other| !seen.contains(other) && (seen.push(other.clone()), true).1);
            }
        }
        if self.one_in(3) && known.ids.len() > 8 {
            job.remove("dependsOn");
            job.remove("childrenIds");
        }
    }

    fn object(&mut self, known: &Known, command: &str, specs: &[FieldSpec]) -> Json {
        Json::Object(self.fields(known, command, specs))
    }

    fn value(&mut self, known: &Known, command: &str, spec: &FieldSpec) -> Json {
        match spec.kind {
            Kind::Queue => self.pick(&QUEUES).into(),
            Kind::Queues { .. } => self.list(1, |maker| maker.pick(&QUEUES).into()),
            Kind::Text { .. } => self.text(known, command, spec.name),
            Kind::Traceparent => {
                self.pick(&["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"]).into()
            }
            Kind::Tracestate => self.pick(&["", "a=1", "rojo=1,congo=2"]).into(),
            Kind::LongText { .. } => self.pick(&["said", "", "ä\u{10ffff}\0\"\\"]).into(),
            Kind::Texts { .. } if ["dependsOn", "childrenIds"].contains(&spec.name) => {
                self.list(1, |maker| maker.id(known).into())
            }
            Kind::Texts { .. } | Kind::Stack { .. } => {
                self.list(0, |maker| maker.pick(&KEYS).into())
            }
            Kind::TextsOf(choices) => self.list(0, |maker| maker.pick(choices).into()),
            Kind::Choice(choices) => self.pick(choices).into(),
            Kind::Choices(choices) if self.one_in(2) => self.pick(choices).into(),
            Kind::Choices(choices) => self.list(0, |maker| maker.pick(choices).into()),
            Kind::Integer { min, max } => self.number(command, spec.name, min, max).into(),
            Kind::Integers { .. } => self.list(0, |maker| (1 + maker.roll(500)).into()),
            Kind::Number { min, max } => {
                let (min, max) = (f64::from(min), f64::from(max));
                self.pick(&[min, max, f64::midpoint(min, max), 0.5]).into()
            }
            Kind::Flag => self.one_in(2).into(),
            Kind::Flags => self.list(0, |maker| maker.one_in(2).into()),
            Kind::Payload { .. } => self.payload(command, spec.name),
            Kind::Results => self.list(0, |maker| maker.payload(command, "result")),
            Kind::Backoff if self.one_in(2) => self.roll(200).into(),
            Kind::Backoff => self.object(known, command, BACKOFF_FIELDS),
            Kind::Repeat => {
                let mut repeat = self.fields(known, command, REPEAT_FIELDS);
                for name in ["every", "pattern", "startDate", "endDate"] {
                    repeat.remove(name);
                }
                if self.one_in(3) {
                    repeat.insert("pattern".into(), "* * * * * *".into());
                } else {
                    repeat.insert("every".into(), self.pick(&[1, 50, 200, 1000]).into());
                }
                // A limit, so that the repetition ends by itself.
                repeat.insert("limit".into(), (1 + self.roll(4)).into());
                repeat.into()
            }
            Kind::JobId => self.id(known).into(),
            Kind::JobIds => self.list(1, |maker| maker.id(known).into()),
            Kind::Token => self.token(known),
            Kind::Tokens => self.list(0, |maker| maker.token(known)),
            Kind::Jobs => self.batch(known),
            Kind::Dedup => self.object(known, command, DEDUP_FIELDS),
            Kind::Priority => Json::from(self.roll(5) as i64 - 2),
            Kind::GroupPull => {
                let mut group = self.fields(known, command, GROUP_PULL_FIELDS);
                if self.one_in(4) {
                    group.insert("affinity".into(), Json::Null);
                }
                group.into()
            }
            Kind::GroupRate => self.object(known, command, GROUP_RATE_FIELDS),
            Kind::CronJob => self.object(known, command, CRON_JOB_FIELDS),
            Kind::DlqConfig => self.dlq_config(known, command),
            Kind::StallConfig => self.object(known, command, STALL_CONFIG_FIELDS),
            Kind::DlqFilter => self.object(known, command, DLQ_FILTER_FIELDS),
            Kind::BulkFilter => self.object(known, command, BULK_FILTER_FIELDS),
            Kind::Flow => self.flow(known),
            // Only within a flow, which makes its jobs itself.
            Kind::FlowJob => Json::Null,
        }
    }

    /// Jobs that often bear the same names: what one of them does to another happens within one command.
    fn batch(&mut self, known: &Known) -> Json {
        const NAMES: [&str; 8] = [
            "uniqueKey",
            "debounceId",
            "dedup",
            "customId",
            "jobId",
            "groupId",
            "groupMaxSize",
            "dependsOn",
        ];
        let shared = self.one_in(2);
        let first = self.fields(known, "PUSHB", JOB_FIELDS);
        self.list(1, |maker| {
            let mut job = maker.fields(known, "PUSHB", JOB_FIELDS);
            for name in NAMES.iter().filter(|_| shared) {
                match first.get(*name) {
                    Some(value) if !maker.one_in(4) => {
                        drop(job.insert((*name).into(), value.clone()));
                    }
                    _ => {}
                }
            }
            maker.fit_job(known, &mut job);
            job.into()
        })
    }

    fn dlq_config(&mut self, known: &Known, command: &str) -> Json {
        let mut config = self.fields(known, command, DLQ_CONFIG_FIELDS);
        for name in DLQ_CONFIG_NULLABLE {
            if self.one_in(3) {
                config.insert(name.to_owned(), Json::Null);
            }
        }
        config.into()
    }

    /// Jobs of several queues, each of which may depend on those before it and have some of them as children.
    fn flow(&mut self, known: &Known) -> Json {
        let mut jobs: Vec<Json> = Vec::new();
        let mut ids: Vec<String> = Vec::new();
        let mut orphans: Vec<usize> = Vec::new();
        for _ in 0..=self.roll(6) {
            let mut input = self.fields(known, "PUSHF", JOB_FIELDS);
            for name in [
                "uniqueKey",
                "debounceId",
                "debounceTtl",
                "dedup",
                "repeat",
                "jobId",
                "customId",
                "parentId",
                "dependsOn",
                "childrenIds",
            ] {
                input.remove(name);
            }
            self.fit_job(known, &mut input);
            let mut depends: Vec<String> = Vec::new();
            let mut children: Vec<String> = Vec::new();
            orphans.retain(|&other| {
                let fate = self.dice.roll(3);
                if fate > 0 {
                    depends.push(ids[other].clone());
                }
                if fate == 2 {
                    children.push(ids[other].clone());
                }
                fate != 2
            });
            let id = if self.one_in(12) {
                self.pick(&CUSTOM_IDS).to_owned()
            } else {
                format!("flow-{}", (self.number)())
            };
            if ids.contains(&id) {
                continue;
            }
            for job in &mut jobs {
                if children.iter().any(|child| job["id"] == child.as_str()) {
                    job["input"]["parentId"] = id.clone().into();
                }
            }
            input.insert("dependsOn".into(), depends.into());
            input.insert("childrenIds".into(), children.into());
            let queue = self.pick(&QUEUES);
            ids.push(id.clone());
            jobs.push(json!({"id": id, "queue": queue, "input": input}));
            orphans.push(jobs.len() - 1);
        }
        // A policy is for children only.
        for job in &mut jobs {
            let input = job["input"].as_object_mut().expect("it was made above");
            if !input.contains_key("parentId") {
                input.retain(|name, _| !name.ends_with("Failure"));
            }
        }
        jobs.into()
    }

    fn list(&mut self, least: u64, mut item: impl FnMut(&mut Self) -> Json) -> Json {
        let length = least + self.roll(4);
        (0..length).map(|_| item(self)).collect()
    }

    fn id(&mut self, known: &Known) -> String {
        match self.roll(8) {
            0 => self.pick(&CUSTOM_IDS).to_owned(),
            1..=3 if !known.leases.is_empty() => self.lease(known).0,
            _ if known.ids.is_empty() => self.pick(&CUSTOM_IDS).to_owned(),
            _ => self.pick(&known.ids),
        }
    }

    /// Picks a lease, mostly one of the newest.
    fn lease(&mut self, known: &Known) -> (String, Json) {
        let newest = known.leases.len().saturating_sub(6);
        if self.one_in(4) { self.pick(&known.leases) } else { self.pick(&known.leases[newest..]) }
    }

    fn token(&mut self, known: &Known) -> Json {
        match self.roll(8) {
            0 => "".into(),
            1 => WRONG_TOKEN.into(),
            _ if known.leases.is_empty() => WRONG_TOKEN.into(),
            _ => self.lease(known).1,
        }
    }

    fn known_or(&mut self, unknown: &str, known: &[String]) -> Json {
        if known.is_empty() { unknown.into() } else { self.pick(known).into() }
    }

    fn text(&mut self, known: &Known, command: &str, name: &str) -> Json {
        match (command, name) {
            ("Heartbeat", "id") | (_, "workerId") => self.known_or("worker-0", &known.workers),
            (_, "webhookId")
            | ("SetWebhookEnabled" | "TestWebhook" | "WebhookDeliveries", "id") => {
                self.known_or("webhook-0", &known.webhooks)
            }
            (_, "task") => self.known_or("b0.1.1", &known.tasks),
            (_, "jobId" | "customId") => self.pick(&CUSTOM_IDS).into(),
            (_, "parentId") if self.one_in(3) => "pending".into(),
            (_, "parentId") => self.id(known).into(),
            (_, "groupId" | "affinity" | "after") => self.pick(&GROUPS).into(),
            (
                "Cron" | "CronDelete" | "CronGet" | "CronTrigger" | "SetCronEnabled"
                | "CronPreview",
                "name",
            ) => self.pick(&CRONS).into(),
            (_, "uniqueKey" | "debounceId" | "deduplicationId") => self.pick(&KEYS).into(),
            (_, "schedule") => self.pick(&["* * * * * *", "*/2 * * * * *", "@yearly"]).into(),
            (_, "timezone" | "tz") => self.pick(&["UTC", "Europe/Berlin", "Asia/Kathmandu"]).into(),
            ("Prometheus", "queues") => self.pick(&["all", "none", "top:2", "prefix:q"]).into(),
            (_, "url") => self.pick(&self.weather.urls.clone()).into(),
            ("Auth", _) => self.weather.token.clone().unwrap_or_default().into(),
            _ => self.pick(&["text", "ä\u{10ffff}", "a b"]).into(),
        }
    }

    /// Times that are over soon, bounds that are reached.
    fn number(&mut self, command: &str, name: &str, min: i64, max: i64) -> i64 {
        let now_ms = || {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.map_or(0, |since| since.as_millis() as i64)
        };
        let number = match (command, name) {
            ("PULL" | "PULLB", "timeout") if self.one_in(20) => 60_000,
            ("PULL" | "PULLB" | "WaitJob", "timeout") => self.pick(&[0, 1, 20, 60]),
            (_, "lockTtl" | "duration") => self.pick(&[1, 20, 100, 500, 2000]),
            (_, "timestamp" | "olderThan" | "newerThan") => now_ms() - self.roll(3000) as i64 + 500,
            (_, "repeatEvery" | "every") => self.pick(&[1, 50, 200, 1000]),
            ("History" | "Heatmap", "until") => now_ms() - self.roll(60_000) as i64,
            ("History" | "Heatmap", "points") => self.pick(&[1, 60, 1440]),
            (_, "maxAttempts") => self.pick(&[1, 1, 2, 3]),
            (_, "count") if command == "PULLB" => self.pick(&[1, 2, 5, 50]),
            (
                _,
                "delay" | "backoff" | "maxDelay" | "gracePeriod" | "stallInterval"
                | "autoRetryInterval" | "grace" | "maxAge",
            ) => self.pick(&[0, 0, 1, 30, 200, 1000]),
            // The worker at the end must be able to keep within them, on a slow machine as well.
            (_, "timeout" | "stallTimeout") => self.pick(&[0, 0, 150, 1000]),
            (_, "ttl" | "debounceTtl") => self.pick(&[0, 1, 50, 500, 2000]),
            ("RateLimit" | "SetConcurrency", "limit") => self.pick(&[1, 2, 20]),
            // There is one shard at least.
            (_, "sizeLimit") | ("Heatmap", "shard") => 0,
            (_, "end") => self.pick(&[-1, 0, 5]),
            ("Clean" | "GetJobs", "limit")
            | ("PromoteJobs" | "RetryDlq" | "RetryCompleted", "count") => {
                self.pick(&[0, 1, 3, 1000])
            }
            _ => min.saturating_add(self.roll(4) as i64),
        };
        number.clamp(min, max)
    }

    /// Payloads of pushes bear their number. Those with `odd` become, on the way, what JSON cannot say.
    fn payload(&mut self, command: &str, name: &str) -> Json {
        // Payloads of schedules are of many jobs, so they bear no number.
        if name != "data" || ["Cron", "Update"].contains(&command) {
            return self.pick(&[json!(7), json!({"done": [1, 2.5, "ä"]}), json!("x".repeat(300))]);
        }
        let number = (self.number)();
        match self.roll(8) {
            0 if !self.is_skipped("odd") => json!({"number": number, "odd": self.roll(60)}),
            1 => {
                json!({"number": number, "filler": "x".repeat(self.roll(self.weather.filler_max) as usize)})
            }
            2 => json!({"number": number, "filler": "\"\\\u{1}".repeat(self.roll(300) as usize)}),
            _ => json!({"number": number}),
        }
    }
}
