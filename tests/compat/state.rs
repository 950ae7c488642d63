//! State that a data directory leads to, as one value: all that a client could learn of it, now or later. The names and
//! forms here are those of the files beside it, which never change; the engine may call these things by other names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use corq::tools::describe::jobs_of;
use corq::tools::place::Place;
use corq::tools::replay::Replay;
use corq_io::log::Seen;
use corq_shards::Limits;
use corq_shards::dead_letter::reason::Cause;
use corq_shards::dependency::Standing;
use corq_shards::group::GroupSettings;
use corq_shards::job::id::JobId;
use corq_shards::job::overrides::Growth;
use corq_shards::job::{Job, Options, State, flags};
use corq_shards::log_record::cron::CronRules;
use corq_shards::log_record::location::LogRef;
use corq_shards::log_record::{Pushed, Record};
use corq_shards::webhook::Trigger;
use rmpv::Value;
use serde_json::{Map, Value as Json, json};

use crate::support::decode;

/// A shard, read back.
struct Seat {
    replay: Replay,
    /// Every record by its address.
    records: BTreeMap<u64, Vec<u8>>,
}

/// The kinds of record that a directory has, by name.
pub fn kinds(data: &Path) -> BTreeSet<String> {
    seats(data).into_iter().flat_map(|seat| seat.replay.kinds.into_keys()).collect()
}

/// The state of all shards.
pub fn state(data: &Path) -> Json {
    Json::Array(seats(data).iter_mut().map(Seat::state).collect())
}

/// Every block and every record must be whole, and understood.
fn seats(data: &Path) -> Vec<Seat> {
    let place = Place::of(data).unwrap();
    (0..place.shards)
        .map(|shard| {
            let fresh = || Seat {
                replay: Replay::new(crate::compat::COMPLETED_MAX),
                records: BTreeMap::new(),
            };
            let looked = place.look(shard, fresh, |seat, seen| {
                if let Seen::Record { position, segment, offset, body } = seen {
                    seat.replay.take(position, segment, offset, body);
                    seat.records.insert(position.0, body.to_vec());
                }
            });
            let (inspection, seat) = looked.unwrap();
            let about = format!("{}, shard {shard}", data.display());
            assert!(inspection.damages.is_empty(), "{about}: {:?}", inspection.damages);
            assert_eq!(inspection.tail, None, "{about}");
            assert!(inspection.clean, "{about}");
            assert!(seat.replay.refused.is_empty(), "{about}: {:?}", seat.replay.refused);
            seat.replay.shard.audit().unwrap();
            assert_eq!(seat.replay.shard.unknown_job_records(), 0, "{about}");
            seat
        })
        .collect()
}

/// A value that clients gave, as they see it.
fn value(mut bytes: &[u8]) -> Json {
    if bytes.is_empty() {
        return Json::Null;
    }
    decode(&rmpv::decode::read_value(&mut bytes).unwrap())
}

/// Whether a due time has passed is no fact: it needs no record.
fn standing(state: State) -> &'static str {
    match state {
        State::Waiting | State::Delayed => "pending",
        other => other.name(),
    }
}

fn name(id: JobId) -> Json {
    id.to_string().into()
}

impl Seat {
    fn state(&mut self) -> Json {
        let mut jobs: Vec<(JobId, Json)> = self
            .replay
            .shard
            .indices()
            .map(|index| (self.replay.shard.view(index).job.id, self.job(index)))
            .collect();
        jobs.sort_by_key(|(id, _)| *id);
        let jobs: Vec<Json> = jobs.into_iter().map(|(_, job)| job).collect();
        let shard = &self.replay.shard;
        let crons: Vec<Json> = shard
            .crons()
            .map(|cron| {
                let mut facts = json!({
                    "name": cron.name, "queue": cron.queue, "data": value(&cron.data),
                    "schedule": cron.schedule, "repeatEvery": cron.repeat_every_ms,
                    "timezone": cron.timezone, "priority": cron.priority,
                    "maxLimit": cron.runs_max, "executions": cron.executions,
                    "version": cron.version, "nextRun": cron.next_run_ms,
                });
                let pushes = cron.job();
                if cron.rules != CronRules::default() {
                    facts["rules"] = json!({
                        "immediately": cron.rules.immediately,
                        "skipIfNoWorker": cron.rules.skip_if_no_worker,
                        "catchUp": cron.rules.catch_up,
                        "preventOverlap": cron.rules.prevent_overlap,
                    });
                }
                if let Some(name) = pushes.name {
                    facts["job"] = json!({"name": name, "maxAttempts": pushes.max_attempts});
                }
                facts
            })
            .collect();
        let webhooks: Vec<Json> = shard
            .webhooks()
            .map(|hook| {
                let events: Vec<&str> = hook.events.iter().map(Trigger::name).collect();
                let mut facts = json!({
                    "id": name(JobId(hook.id)), "url": hook.url, "events": events,
                    "queue": hook.queue, "secret": hook.secret.as_ref().map(|it| &*it.0),
                    "createdAt": hook.created_at_ms,
                });
                if !hook.is_enabled() {
                    facts["enabled"] = false.into();
                }
                facts
            })
            .collect();
        json!({
            "jobs": jobs, "queues": self.queues(), "crons": sorted(crons), "webhooks": webhooks,
            "past": self.past(),
        })
    }

    fn queues(&mut self) -> Json {
        let names: Vec<Box<str>> =
            self.replay.shard.queues().map(|queue| queue.name.clone()).collect();
        let mut queues = Vec::new();
        for queue in names {
            let shard = &mut self.replay.shard;
            let failed: Vec<u32> = shard.failed(&queue).collect();
            let failed: Vec<Json> =
                failed.into_iter().map(|index| name(shard.view(index).job.id)).collect();
            let about = shard.queue(&queue).unwrap();
            let limits = about.limits.as_deref();
            let rate = limits.and_then(Limits::rate);
            let mut facts = json!({
                "name": queue, "paused": about.is_paused(), "failed": failed,
                "perSecond": rate.map(|rate| rate.jobs),
                "active": limits.and_then(Limits::active_max),
            });
            if let Some(rate) = rate.filter(|rate| rate.span_ms != 1000 || rate.until_ms > 0) {
                facts["rate"] = json!({"duration": rate.span_ms, "until": rate.until_ms});
            }
            if let Some(rules) = about.rules.as_deref() {
                let (dlq, stall) = (rules.dlq, rules.stall);
                facts["dlq"] = json!({
                    "autoRetry": dlq.auto_retry, "interval": dlq.retry_interval_ms,
                    "retries": dlq.retries_max, "age": dlq.age_max_ms,
                    "entries": dlq.entries_max,
                });
                facts["stall"] = json!({
                    "enabled": stall.enabled, "interval": stall.interval_ms,
                    "stalls": stall.stalls_max, "grace": stall.grace_ms,
                });
            }
            let groups = self.groups(&queue);
            if !groups.is_empty() {
                facts["groups"] = Json::Array(groups);
            }
            queues.push(facts);
        }
        sorted(queues)
    }

    /// Groups for which something is set.
    fn groups(&mut self, queue: &str) -> Vec<Json> {
        let groups = self.replay.shard.groups_of(queue, None).into_iter().flatten();
        let set = groups.filter(|group| group.settings != GroupSettings::default());
        let mut groups: Vec<Json> = set
            .map(|group| {
                let set = group.settings;
                let rate = set.rate.map(|rate| json!({"jobs": rate.jobs, "span": rate.span_ms}));
                json!({
                    "name": group.name, "rate": rate, "active": set.active_max,
                    "weight": set.weight, "paused": set.paused, "heldUntil": set.held_until_ms,
                })
            })
            .collect();
        groups.sort_by_key(|group| group["name"].to_string());
        groups
    }

    /// Jobs that are gone and count as completed for those that depend on them.
    fn past(&mut self) -> Json {
        let records = self.records.values().map(|bytes| Record::decode(bytes).unwrap());
        let told: BTreeSet<JobId> = records.flat_map(|record| jobs_of(&record)).collect();
        let shard = &mut self.replay.shard;
        let gone = told.into_iter().filter(|&id| shard.find(id).is_none());
        let gone: Vec<JobId> = gone.collect();
        let past = gone.into_iter().filter(|&id| shard.standing(id) == Standing::Completed);
        past.map(name).collect()
    }

    /// The payload of a record.
    fn payload(&self, stored: LogRef) -> &[u8] {
        let record = &self.records[&stored.position];
        assert_eq!(record.len(), stored.record_bytes as usize);
        &record[record.len() - stored.payload_bytes as usize..]
    }

    fn text(&self, stored: LogRef) -> Json {
        std::str::from_utf8(self.payload(stored)).unwrap().into()
    }

    fn pushed(&self, stored: LogRef) -> Pushed<'_> {
        let record = &self.records[&stored.position];
        Record::decode_original(record).unwrap().into_pushed().unwrap()
    }

    fn job(&self, index: u32) -> Json {
        let view = self.replay.shard.view(index);
        let job: &Job = view.job;
        let pushed = self.pushed(view.data);
        let mut all = json!({
            "id": name(job.id), "queue": view.queue, "state": standing(job.state),
            "data": value(self.payload(view.data)),
            "createdAt": view.created_at_ms(), "runAt": job.run_at_ms, "priority": job.priority,
            "attempts": job.attempts, "maxAttempts": job.max_attempts, "backoff": job.backoff_ms,
            "stalls": job.stalls, "lifo": job.has(flags::LIFO),
            "removeOnComplete": job.has(flags::REMOVE_ON_COMPLETE),
            "removeOnFail": job.has(flags::REMOVE_ON_FAIL),
            "groupId": pushed.job.group_id, "tags": value(pushed.job.tags),
            "dependsOn": value(pushed.job.depends_on),
        });
        let Json::Object(fields) = &mut all else { panic!("it is a map") };
        if let Some(lease) = view.lease {
            let token = lease.token.map(|token| name(JobId(token.0)));
            fields.insert("lock".into(), json!({"token": token, "ttl": lease.ttl_ms}));
        }
        if !view.failures().is_empty() {
            let errors: Vec<Json> = view.failures().iter().map(|&it| self.text(it)).collect();
            fields.insert("failures".into(), errors.into());
        }
        if let Some(outcome) = view.outcome {
            let is_text = job.state == State::Failed;
            let stored = outcome.stored;
            let how = if is_text { self.text(stored) } else { value(self.payload(stored)) };
            let record = Record::decode_original(&self.records[&stored.position]).unwrap();
            let stack: Vec<Json> = match record {
                Record::Buried(buried) => {
                    let mut texts = buried.stack.texts;
                    let text = |_| rmpv::decode::read_value(&mut texts).unwrap();
                    (0..buried.stack.lines).map(text).map(|line: Value| decode(&line)).collect()
                }
                _ => Vec::new(),
            };
            let (at, started) = (outcome.finished_at_ms, outcome.started_at_ms);
            let mut ended = json!({"at": at, "startedAt": started, "with": how, "stack": stack});
            if outcome.cause != Cause::Unknown {
                ended["cause"] = outcome.cause.name().into();
            }
            fields.insert("ended".into(), ended);
        }
        if let Some(options) = view.options {
            self.options(options, fields);
        }
        if let Some(name) = view.name {
            fields.insert("name".into(), name.into());
        }
        all
    }

    fn options(&self, options: &Options, fields: &mut Map<String, Json>) {
        let mut put = |name: &str, value: Json| drop(fields.insert(name.into(), value));
        put("uniqueKey", json!(options.unique_key));
        put("customId", json!(options.custom_id));
        put("expiresAt", options.expires_at_ms.into());
        put("timeout", options.timeout_ms.into());
        if let Some(notes) = &options.notes {
            let lines = notes.logs.iter().map(|line| {
                json!({"at": line.at_ms, "level": line.level as u8, "text": self.text(line.stored)})
            });
            put("progress", notes.progress.into());
            put("message", notes.message.map_or(Json::Null, |stored| self.text(stored)));
            put("logs", lines.collect());
        }
        let unmet = options.unmet.iter().map(|one| json!({"id": name(one.id), "name": one.name}));
        put("unmet", unmet.collect());
        if let Some(rules) = options.extras.as_deref() {
            let dedup = rules.dedup.map(|dedup| {
                json!({
                    "ttl": dedup.ttl_ms, "extend": dedup.extend, "replace": dedup.replace,
                    "until": dedup.until_ms,
                })
            });
            put(
                "rules",
                json!({
                    "fixed": rules.backoff.map(|growth| growth == Growth::Fixed),
                    "backoffMax": rules.backoff_max_ms, "stallTimeout": rules.stall_timeout_ms,
                    "keepLogs": rules.keep_logs, "sizeLimit": rules.size_limit,
                    "stackTraceLimit": rules.stack_lines_max, "timestamp": rules.made_at_ms,
                    "dedup": dedup,
                }),
            );
        }
        if let Some(trace) = options.trace.as_deref() {
            let parent = String::from_utf8(trace.parent.text().to_vec()).unwrap();
            put("trace", json!({"parent": parent, "state": trace.state}));
        }
        if let Some(family) = options.family.as_deref() {
            let ends = family
                .ends
                .values()
                .map(|end| json!({"child": name(end.child), "how": end.how as u8}));
            put("parent", json!(family.parent));
            put("childrenEnded", Json::Array(ends.collect()));
            put("freed", family.freed.into());
        }
        if let Some(before) = options.redelivered {
            put("redelivered", json!({"times": before.times, "at": before.last_at_ms}));
        }
        if let Some(series) = &options.series {
            put(
                "repeat",
                json!({
                    "every": series.every_ms, "limit": series.limit, "count": series.count,
                    "due": series.due_ms, "ttl": series.ttl_ms, "continued": series.continued,
                    "durable": series.durable,
                }),
            );
        }
    }
}

fn sorted(mut values: Vec<Json>) -> Json {
    values.sort_by_key(|value| value["name"].to_string());
    Json::Array(values)
}
