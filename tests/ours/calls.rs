//! Every call there is, by what it does at the server.

use std::time::Duration;

use corq_client::{
    Applied, Backoff, BatcherOptions, CronOptions, Dedup, Ending, Error, Every, Failure, JobBatch,
    JobOptions, JobState, Listing, LogLevel, PullOptions, Raw, Repeat,
};
use serde_json::json;

use super::{client, run, server, until};
use crate::support::{DEADLINE, Start, WAIT};

const HOUR: Duration = Duration::from_hours(1);

#[test]
fn a_job_goes_through_its_life_in_the_hands_of_our_client() {
    for shards in [1, 2] {
        let server = server(shards);
        run(async {
            let client = client(&server).await;
            let queue = client.queue("life");
            let options = JobOptions::new().job_id("one").name("first").tag("a").priority(7);
            let id = queue.push_with(&json!({"n": 1}), &options).await.unwrap();
            assert_eq!(id, "one");
            assert_eq!(queue.push_with(&2, &options).await.unwrap(), "one");
            let job = client.job("one").get().await.unwrap().unwrap();
            assert_eq!(
                (job.priority, job.state, job.name.as_deref()),
                (7, JobState::Waiting, Some("first"))
            );
            assert_eq!(job.data::<serde_json::Value>().unwrap(), json!({"n": 1}));
            assert!(job.created_at_ms > 1_700_000_000_000, "{}", job.created_at_ms);
            client.job("one").update(&json!({"n": 3})).await.unwrap();
            client.job("one").change_priority(9).await.unwrap();
            client.job("one").log(LogLevel::Warn, "careful").await.unwrap();

            let waiting = client.job("one");
            let waiting = tokio::spawn(async move { waiting.wait(WAIT).await });
            let pulled = queue.pull(10, &PullOptions::new().wait(WAIT)).await.unwrap();
            let [pulled] = &pulled[..] else { panic!("{} jobs", pulled.len()) };
            assert_eq!((&*pulled.id, pulled.priority), ("one", 9));
            pulled.set_progress(50.5, Some("half")).await.unwrap();
            pulled.renew().await.unwrap();
            pulled.extend_lock(HOUR).await.unwrap();
            let progress = client.job("one").progress().await.unwrap();
            assert_eq!((progress.progress, progress.message.as_deref()), (50.5, Some("half")));
            assert_eq!(pulled.complete(&json!([1, 2])).await.unwrap(), Applied::Yes);
            let error = pulled.complete(&()).await.unwrap_err();
            assert!(error.is_refused(), "{error}");

            let result = Raw::encode(&json!([1, 2])).unwrap();
            assert_eq!(waiting.await.unwrap().unwrap(), Some(Ending::Completed(result.clone())));
            assert_eq!(client.job("one").result().await.unwrap(), Some(result));
            assert_eq!(client.job("one").state().await.unwrap(), JobState::Completed);
            let logs = client.job("one").logs().await.unwrap();
            assert_eq!((&*logs[0].message, &*logs[0].level), ("careful", "warn"));
            client.job("one").clear_logs(0).await.unwrap();
            assert!(client.job("one").logs().await.unwrap().is_empty());
            let job = client.job_by_custom_id("one").await.unwrap().unwrap();
            assert_eq!(job.timeline.len(), 3, "{:?}", job.timeline);
            assert_eq!(client.job_by_custom_id("nobody").await.unwrap().map(|job| job.id), None);
            assert!(client.job("nobody").get().await.unwrap().is_none());
            assert_eq!(client.job("nobody").state().await.unwrap(), JobState::Unknown);
        });
    }
}

#[test]
fn attempts_fail_are_given_back_and_end_in_the_dead_letter_queue() {
    let server = server(2);
    run(async {
        let client = client(&server).await;
        let queue = client.queue("fails");
        let options = JobOptions::new().max_attempts(2).backoff(Backoff::fixed(Duration::ZERO));
        let id = queue.push_with(&1, &options).await.unwrap();
        let pull = PullOptions::new().wait(WAIT);
        let job = queue.pull(1, &pull).await.unwrap().remove(0);
        job.give_back().await.unwrap();
        let job = queue.pull(1, &pull).await.unwrap().remove(0);
        assert_eq!(job.attempts, 0, "what was given back has not failed");
        assert_eq!(job.fail(Failure::new("first")).await.unwrap(), Applied::Yes);
        let job = queue.pull(1, &pull).await.unwrap().remove(0);
        let failure = Failure::new("second").stack_line("here").stack_line("there");
        assert_eq!(job.fail(failure).await.unwrap(), Applied::Yes);
        let ending = client.job(&id).wait(WAIT).await.unwrap();
        assert_eq!(ending, Some(Ending::Failed("second".into())));
        let dead = queue.dead_letters(10).await.unwrap();
        assert_eq!(dead[0].failed_reason.as_deref(), Some("second"));
        assert_eq!(dead[0].stacktrace, ["here", "there"]);
        assert!(queue.retry_dead_letter(&id).await.unwrap());
        assert!(!queue.retry_dead_letter(&id).await.unwrap());
        client.job(&id).discard().await.unwrap();
        assert_eq!(queue.retry_dead_letters(Some(5)).await.unwrap(), 1);
        client.job(&id).discard().await.unwrap();
        assert!(queue.remove_dead_letter(&id).await.unwrap());
        let gone = queue.push(&1).await.unwrap();
        client.job(&gone).discard().await.unwrap();
        assert_eq!(queue.purge_dead_letters().await.unwrap(), 1);
        let ending = client.job(queue.push(&1).await.unwrap());
        ending.cancel().await.unwrap();
        let again = ending.wait(Duration::ZERO).await;
        assert!(again.is_err_and(|error| error.is_not_found()));
    });
}

#[test]
fn queues_are_looked_at_and_handled() {
    let server = server(2);
    run(async {
        let client = client(&server).await;
        let queue = client.queue("handled");
        let later = JobOptions::new().delay(HOUR);
        let ids = [
            queue.push(&1).await.unwrap(),
            queue.push_with(&2, &JobOptions::new().priority(5)).await.unwrap(),
            queue.push_with(&3, &later).await.unwrap(),
        ];
        let dependent = JobOptions::new().depends_on(&ids[0]);
        queue.push_with(&4, &dependent).await.unwrap();
        let counts = queue.counts().await.unwrap();
        assert_eq!((counts.waiting, counts.delayed, counts.waiting_children), (2, 1, 1));
        assert_eq!(queue.counts_per_priority().await.unwrap()["5"], 1);
        assert_eq!(queue.count().await.unwrap(), 4);
        let delayed = queue.jobs(&Listing::new().state(JobState::Delayed)).await.unwrap();
        assert_eq!(delayed.iter().map(|job| &job.id).collect::<Vec<_>>(), [&ids[2]]);
        let newest = queue.jobs(&Listing::new().newest_first().limit(1).offset(1)).await.unwrap();
        assert_eq!(newest[0].id, ids[2]);
        client.job(&ids[2]).change_delay(2 * HOUR).await.unwrap();
        client.job(&ids[2]).promote().await.unwrap();
        client.job(&ids[1]).change_delay(HOUR).await.unwrap();
        assert_eq!(queue.promote(None).await.unwrap(), 1);

        queue.pause().await.unwrap();
        assert!(queue.is_paused().await.unwrap());
        assert!(queue.pull(1, &PullOptions::new()).await.unwrap().is_empty());
        queue.resume().await.unwrap();
        assert!(!queue.is_paused().await.unwrap());

        queue.set_rate_limit(100, Duration::from_secs(2), Some(HOUR)).await.unwrap();
        queue.set_concurrency(7).await.unwrap();
        let limits = queue.limits().await.unwrap();
        let rate = limits.rate.unwrap();
        assert_eq!((rate.max, rate.duration_ms, limits.concurrency), (100, 2000, Some(7)));
        queue.clear_rate_limit().await.unwrap();
        queue.clear_concurrency().await.unwrap();
        assert!(queue.limits().await.unwrap().rate.is_none());

        let job = queue.pull(1, &PullOptions::new()).await.unwrap().remove(0);
        client.job(&job.id).move_to_delayed(HOUR).await.unwrap();
        client.job(&job.id).move_to_wait().await.unwrap();
        let job = queue.pull(1, &PullOptions::new()).await.unwrap().remove(0);
        assert_eq!(job.complete(&()).await.unwrap(), Applied::Yes);
        assert_eq!(client.job(&job.id).result().await.unwrap(), None);
        assert_eq!(queue.retry_completed(None).await.unwrap(), 1);
        let cleaned = queue.clean(Duration::ZERO, Some(JobState::Waiting), 1).await.unwrap();
        assert_eq!(cleaned.len(), 1);
        assert!(queue.drain().await.unwrap() > 0);
        assert!(client.queues().await.unwrap().iter().any(|queue| queue.name == "handled"));
        queue.obliterate().await.unwrap();
        assert_eq!(queue.count().await.unwrap(), 0);
    });
}

#[test]
fn keys_and_repeats_are_what_the_server_makes_of_them() {
    let server = server(2);
    run(async {
        let client = client(&server).await;
        let queue = client.queue("keys");
        let keyed = JobOptions::new().unique_key("k").dedup(Dedup::new().ttl(HOUR));
        let id = queue.push_with(&1, &keyed).await.unwrap();
        assert_eq!(queue.push_with(&2, &keyed).await.unwrap(), id);
        assert_eq!(queue.deduplication_job_id("k").await.unwrap(), Some(id.clone()));
        assert!(client.job(&id).remove_deduplication_key().await.unwrap());
        assert!(!queue.remove_deduplication_key("k").await.unwrap());
        let replacing = keyed.dedup(Dedup::new().replace());
        let first = queue.push_with(&3, &replacing).await.unwrap();
        assert_ne!(queue.push_with(&4, &replacing).await.unwrap(), first);

        let repeated = JobOptions::new().repeat(Repeat::every(HOUR).limit(3));
        let id = client.queue("repeats").push_with(&5, &repeated).await.unwrap();
        let repeat = client.job(&id).get().await.unwrap().unwrap().repeat.unwrap();
        assert_eq!((repeat.every_ms, repeat.limit, repeat.count), (3_600_000, Some(3), 0));
    });
}

#[test]
fn schedules_webhooks_and_figures_are_told() {
    let server = Start::new().env("WEBHOOK_ALLOW_PRIVATE", "true").start();
    run(async {
        let client = client(&server).await;
        let options = CronOptions::new().timezone("Europe/Berlin").max_limit(5).job_name("tick");
        let every = Every::expression("0 7 * * mon-fri");
        let cron = client.set_cron("report", "reports", every, &"daily", &options).await.unwrap();
        assert!(cron.next_run_ms > 1_700_000_000_000);
        let every = Every::interval(Duration::from_millis(50));
        client.set_cron("often", "reports", every, &1, &CronOptions::new()).await.unwrap();
        let shown = client.cron("report").await.unwrap().unwrap();
        assert_eq!((shown.timezone.as_deref(), shown.max_limit), (Some("Europe/Berlin"), Some(5)));
        assert_eq!(client.crons().await.unwrap().len(), 2);
        assert!(client.cron("nobody").await.unwrap().is_none());
        until("a run", async || (client.queue("reports").count().await.unwrap() > 0).then_some(()))
            .await;
        assert!(client.delete_cron("often").await.unwrap());
        assert!(!client.delete_cron("often").await.unwrap());

        let url = "http://127.0.0.1:9/hook";
        let id =
            client.add_webhook(url, &["job.failed"], Some("reports"), Some("s")).await.unwrap();
        client.set_webhook_enabled(&id, false).await.unwrap();
        let hooks = client.webhooks().await.unwrap();
        assert_eq!(
            (&*hooks[0].url, &hooks[0].events[..], hooks[0].enabled),
            (url, &["job.failed".to_owned()][..], false)
        );
        assert!(client.remove_webhook(&id).await.unwrap());
        assert!(!client.remove_webhook(&id).await.unwrap());

        let info = client.server_info().await.unwrap();
        assert_eq!(
            (&*info.server, &*info.version, info.protocol_version),
            ("corq", env!("CARGO_PKG_VERSION"), 2)
        );
        assert!(client.ping().await.unwrap() > 1_700_000_000_000);
        assert!(client.stats().await.unwrap().total_pushed > 0);
        assert!(client.metrics().await.unwrap().memory_usage_mb > 0.0);
        assert!(client.prometheus().await.unwrap().contains("corq_jobs_pushed_total"));
        assert!(client.workers().await.unwrap().is_empty());
        let reply = client.call("Count", &json!({"queue": "reports"})).await.unwrap();
        assert!(reply.get::<u64>("count").unwrap().is_some());
        let error = client.call("MakeCoffee", &()).await.unwrap_err();
        assert!(matches!(&error, Error::Refused(words) if words.contains("MakeCoffee")), "{error}");
    });
}

#[test]
fn payloads_of_every_kind_and_size_come_back_as_they_went() {
    let server = server(2);
    run(async {
        let client = client(&server).await;
        let queue = client.queue("payloads");
        let large = Raw::encode(&"x".repeat(9 << 20)).unwrap();
        let id = queue.push(&large).await.unwrap();
        assert_eq!(client.job(&id).get().await.unwrap().unwrap().payload, large);
        let job = queue.pull(1, &PullOptions::new()).await.unwrap().remove(0);
        // A payload that came in goes out again as it is.
        assert_eq!(job.complete(&job.payload).await.unwrap(), Applied::Yes);
        assert_eq!(client.job(&id).result().await.unwrap(), Some(large));
        let error = queue.push(&"x".repeat(11 << 20)).await.unwrap_err();
        assert!(error.is_refused() && error.to_string().contains("10 MB"), "{error}");
        let error = queue.push(&"x".repeat(65 << 20)).await.unwrap_err();
        assert!(matches!(error, Error::Payload(_)), "{error}");
        let nothing = queue.push(&()).await.unwrap();
        let job = client.job(&nothing).get().await.unwrap().unwrap();
        assert_eq!(job.payload, Raw::encode(&()).unwrap());
    });
}

#[test]
fn many_jobs_are_pushed_with_one_command_or_gathered_on_the_way() {
    let server = server(2);
    run(async {
        let client = client(&server).await;
        let mut batch = JobBatch::new();
        for number in 0..1000 {
            batch.add_with(&number, &JobOptions::new().priority(number)).unwrap();
        }
        let ids = client.queue("many").push_many(&batch).await.unwrap();
        assert_eq!(ids.len(), 1000);
        let first = client.queue("many").pull(1, &PullOptions::new()).await.unwrap().remove(0);
        assert_eq!((&first.id, first.data::<i64>().unwrap()), (&ids[999], 999));

        let queue = client.queue("gathered");
        let batcher = queue.batcher(BatcherOptions::new().jobs_max(100).in_flight(1));
        let bad = JobOptions::new().priority(5_000_000);
        let mut receipts = Vec::new();
        for number in 0..1000 {
            let options = if number % 250 == 7 { bad.clone() } else { JobOptions::new() };
            receipts.push(batcher.push_with(&number, &options).await.unwrap());
        }
        let flushed = batcher.flush().await.unwrap();
        assert_eq!((flushed.pushed, flushed.failed), (996, 4));
        assert!(flushed.error.unwrap().to_string().contains("priority must be between"));
        for (number, receipt) in receipts.into_iter().enumerate() {
            assert_eq!(receipt.await.is_err(), number % 250 == 7, "job {number}");
        }
        assert_eq!(queue.count().await.unwrap(), 996);
        let jobs = queue.pull(996, &PullOptions::new()).await.unwrap();
        let numbers: Vec<u32> = jobs.iter().map(|job| job.data().unwrap()).collect();
        assert!(numbers.is_sorted(), "they kept their order");
        drop(batcher);
    });
}

#[test]
fn what_happens_in_a_queue_is_told_to_who_listens() {
    let server = server(2);
    run(async {
        let client = client(&server).await;
        let mut events = client.events("seen").await.unwrap();
        let id = client.queue("seen").push(&json!({"n": 1})).await.unwrap();
        client.queue("unseen").push(&1).await.unwrap();
        let job = client.queue("seen").pull(1, &PullOptions::new()).await.unwrap().remove(0);
        assert_eq!(job.complete(&"done").await.unwrap(), Applied::Yes);
        let mut seen = Vec::new();
        while seen.last().is_none_or(|kind| kind != "completed") {
            let event = tokio::time::timeout(DEADLINE, events.next()).await.unwrap().unwrap();
            assert_eq!((&event.job_id, &*event.queue), (&id, "seen"));
            assert!(event.timestamp_ms > 1_700_000_000_000);
            if event.event_type == "pushed" {
                let data = event.data.unwrap();
                assert_eq!(data.decode::<serde_json::Value>().unwrap(), json!({"n": 1}));
            }
            seen.push(event.event_type);
        }
        assert_eq!(seen, ["pushed", "pulled", "completed"]);
        assert_eq!(events.lost(), 0);
    });
}
