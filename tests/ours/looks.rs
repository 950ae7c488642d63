//! Looking at a server with our client: pages, searches, explanations, figures, samples, dashboards.

use std::collections::BTreeSet;
use std::time::Duration;

use corq_client::{
    Applied, BusyQueue, FlowJob, JobFilter, JobOptions, JobState, PullOptions, QueueListing,
    QueueSort, Search, Shown, Span, Watching,
};
use serde_json::json;

use super::{client, run, server, until};
use crate::support::{DEADLINE, Start, WAIT};

const HOUR: Duration = Duration::from_hours(1);

/// Points that hold whatever a test does.
fn day() -> Span {
    Span::new().points(1440)
}

fn sum(column: &[Option<u64>]) -> u64 {
    column.iter().flatten().sum()
}

#[test]
fn queues_and_jobs_are_paged_by_a_cursor_with_our_client() {
    let server = server(2);
    run(async {
        let client = client(&server).await;
        for n in 0..7 {
            let queue = client.queue(format!("mail-{n}"));
            for _ in 0..=n {
                queue.push(&n).await.unwrap();
            }
        }
        client.queue("other").push(&1).await.unwrap();
        let mut which = QueueListing::new().prefix("mail-").sort(QueueSort::Waiting).limit(3);
        let mut found = Vec::new();
        loop {
            let page = client.queue_page(&which).await.unwrap();
            found.extend(page.queues.iter().map(|row| (row.name.clone(), row.waiting)));
            assert!(page.queues.iter().all(|row| row.oldest_waiting_ms > Some(0)), "{page:?}");
            let Some(next) = page.next else { break };
            which = which.after(next);
        }
        let expected: Vec<_> = (0..7).rev().map(|n| (format!("mail-{n}"), n + 1)).collect();
        assert_eq!(found, expected);
        let limited = client.queue("mail-6");
        limited.set_rate_limit(5, HOUR, None).await.unwrap();
        limited.set_concurrency(3).await.unwrap();
        let columns =
            QueueListing::new().prefix("mail-6").column("rateLimit").column("concurrencyLimit");
        let row = client.queue_page(&columns).await.unwrap().queues.remove(0);
        assert_eq!((row.rate.unwrap().max, row.concurrency, row.waiting), (5, Some(3), 0));
        let fewest = QueueListing::new().sort(QueueSort::Waiting).reversed().limit(1);
        assert_eq!(client.queue_page(&fewest).await.unwrap().queues[0].waiting, 1);

        let queue = client.queue("paged");
        let mut ids = Vec::new();
        for n in 0..10 {
            let options = JobOptions::new().name("mail").tag("t").priority(n);
            ids.push(queue.push_with(&json!({"n": n}), &options).await.unwrap());
        }
        let mut which = JobFilter::new().newest_first().limit(4).name("mail").tag("t");
        which = which.state(JobState::Waiting).data(Shown::Full).field("priority");
        let mut found = Vec::new();
        loop {
            let page = queue.page(&which).await.unwrap();
            for row in &page.jobs {
                let data: serde_json::Value = row.payload.as_ref().unwrap().decode().unwrap();
                assert_eq!(data, json!({"n": row.priority}));
            }
            found.extend(page.jobs.into_iter().map(|row| row.id));
            let Some(next) = page.next else { break };
            which = which.after(next);
        }
        ids.reverse();
        assert_eq!(found, ids);
        let preview = queue.page(&JobFilter::new().data(Shown::Preview)).await.unwrap();
        assert_eq!(preview.jobs[0].preview.as_deref(), Some("{\"n\":0}"));
        assert_eq!((preview.jobs[0].preview_cut, preview.jobs[0].data_bytes > 0), (false, true));
        let none = queue.page(&JobFilter::new().to_ms(5).group("g").from_ms(1)).await.unwrap();
        assert!(none.jobs.is_empty() && none.next.is_none());
    });
}

#[test]
fn jobs_are_searched_by_text_and_value_with_our_client() {
    let server = server(2);
    run(async {
        let client = client(&server).await;
        let mut ids = BTreeSet::new();
        for n in 0..20 {
            let queue = client.queue(format!("q-{}", n % 5));
            let data = json!({"order": {"lines": [n % 4]}, "text": format!("number {n}")});
            let id = queue.push(&data).await.unwrap();
            if n % 4 == 3 {
                ids.insert(id);
            }
        }
        let mut search = Search::value("order.lines.0", &3).unwrap().budget(WAIT);
        let (mut found, mut covered) = (BTreeSet::new(), 0);
        loop {
            let page = client.search(&search).await.unwrap();
            found.extend(page.jobs.into_iter().map(|row| row.id));
            covered += page.covered.jobs;
            assert_eq!(page.covered.done, page.next.is_none());
            assert_eq!(page.covered.shards, 2);
            let Some(next) = page.next else { break };
            search = search.after(next);
        }
        assert_eq!((found, covered), (ids, 20));
        let queue = client.queue("q-3");
        let of_queue = Search::text("number 13").among(JobFilter::new().data(Shown::Full));
        let page = queue.search(&of_queue.budget(WAIT)).await.unwrap();
        assert_eq!(page.jobs.len(), 1);
        let at = queue.search(&Search::at("order.lines.1")).await.unwrap();
        assert!(at.jobs.is_empty());
    });
}

#[test]
fn a_job_is_explained_and_shown_with_its_flow_by_our_client() {
    let server = server(2);
    run(async {
        let client = client(&server).await;
        let child = FlowJob::new("parts", "part", &1).unwrap();
        let whole = FlowJob::new("wholes", "whole", &2).unwrap().child(child);
        client.add_flow(&[whole]).await.unwrap();
        let told = client.job("whole").explain().await.unwrap();
        assert_eq!((&*told.queue, told.state), ("wholes", JobState::WaitingChildren));
        let waits = told.reasons.iter().find(|reason| reason.code == "dependencies").unwrap();
        assert_eq!((waits.count, &*waits.jobs[0].id), (Some(1), "part"));
        assert_eq!(waits.jobs[0].state, JobState::Waiting);
        assert!(!waits.text.is_empty());

        let pull = PullOptions::new().wait(WAIT).lock_ttl(HOUR);
        let pulled = client.queue("parts").pull(1, &pull).await.unwrap();
        let told = client.job("part").explain().await.unwrap();
        assert_eq!(told.reasons[0].code, "leased");
        let detail = client.job("part").detail().await.unwrap();
        assert_eq!((detail.job.id.as_str(), detail.attempts[0].attempt), ("part", 1));
        assert_eq!(detail.attempts[0].ended_at_ms, None);
        let flow = client.job("whole").flow(10, 100).await.unwrap();
        assert_eq!(flow.jobs.iter().map(|job| &*job.id).collect::<Vec<_>>(), ["whole", "part"]);
        assert_eq!((flow.jobs[1].depth, flow.jobs[1].parent_id.as_deref()), (1, Some("whole")));
        assert_eq!((flow.truncated, flow.jobs[1].state), (false, JobState::Active));
        let detail = client.job("whole").detail().await.unwrap();
        assert_eq!((detail.children.count, &*detail.children.jobs[0].id), (1, "part"));
        assert_eq!(pulled[0].complete(&()).await.unwrap(), Applied::Yes);
        // Of jobs that hold a queue's concurrency, Explain lists the ids only.
        let queue = client.queue("full");
        queue.set_concurrency(1).await.unwrap();
        let first = queue.push(&1).await.unwrap();
        let second = queue.push(&2).await.unwrap();
        let held = queue.pull(1, &pull).await.unwrap();
        let told = client.job(&second).explain().await.unwrap();
        let full = told.reasons.iter().find(|reason| reason.code == "queue_concurrency").unwrap();
        assert_eq!((full.limit, full.active, &full.jobs[0].id), (Some(1), Some(1), &first));
        drop(held);
        let unknown = client.job("nobody").explain().await;
        assert!(unknown.is_err_and(|error| error.is_not_found()));
    });
}

#[test]
fn figures_shards_and_dashboards_are_read_by_our_client() {
    let server = server(2);
    run(async {
        let client = client(&server).await;
        let queue = client.queue("figures");
        for n in 0..3 {
            queue.push(&n).await.unwrap();
        }
        let pulled = queue.pull(1, &PullOptions::new().wait(WAIT)).await.unwrap();
        assert_eq!(pulled[0].complete(&()).await.unwrap(), Applied::Yes);
        for history in [queue.history(day()).await.unwrap(), client.history(day()).await.unwrap()] {
            let series = &history.series;
            assert_eq!((sum(&series.pushed), sum(&series.completed)), (3, 1));
            assert_eq!((history.tracked, history.points, history.step_ms), (true, 1440, 10_000));
            assert_eq!(series.waiting.last(), Some(&Some(2)));
            assert_eq!(series.pushed[0], None, "so long ago there was no server");
            assert!(series.wait_p99_ms.iter().any(Option::is_some));
        }
        let minutes = Span::new().step(Duration::from_mins(1)).points(5);
        assert_eq!(client.history(minutes).await.unwrap().step_ms, 60_000);
        let waits = |columns: &[Option<Vec<u64>>]| columns.iter().flatten().flatten().sum::<u64>();
        assert_eq!(waits(&queue.heatmap(day()).await.unwrap().columns), 1);
        let all = client.heatmap(None, day()).await.unwrap();
        assert_eq!((waits(&all.columns), all.buckets_ms[0]), (1, 0));
        let mut of_shards = 0;
        for shard in 0..2 {
            of_shards += waits(&client.heatmap(Some(shard), day()).await.unwrap().columns);
        }
        assert_eq!(of_shards, 1);

        let shards = client.shards().await.unwrap();
        assert_eq!(shards.iter().map(|shard| shard.shard).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(shards.iter().map(|shard| shard.waiting).sum::<u64>(), 2);
        assert!(shards.iter().all(|shard| shard.log.disk_bytes > 0), "{shards:?}");

        let whole = client.dashboard().await.unwrap();
        assert_eq!((whole.stats.total_pushed, whole.stats.waiting), (3, 2));
        assert!(whole.memory.rss_mb > 0.0 && whole.timestamp_ms > 1_700_000_000_000);
        assert!(whole.latency.percentiles.contains_key("push"), "{whole:?}");
        let tiles = client.dashboard_queues().await.unwrap();
        assert_eq!((tiles[0].name.as_str(), tiles[0].waiting), ("figures", 2));
        let board = queue.dashboard(Some(5)).await.unwrap();
        assert_eq!((board.counts["waiting"], board.jobs["waiting"].len()), (2, 2));
        assert!(queue.dashboard(None).await.unwrap().jobs.is_empty());
        assert!(!client.storage_status().await.unwrap().disk_full);
    });
}

#[test]
fn samples_are_told_to_our_client_until_it_drops_them() {
    let server = server(2);
    run(async {
        let client = client(&server).await;
        client.queue("watched").push(&1).await.unwrap();
        let what = Watching::new().queues(5).shards().every(Duration::from_secs(1));
        let mut samples = client.watch(&what).await.unwrap();
        let first = samples.next().await.unwrap();
        let stats = first.stats.unwrap();
        assert_eq!((stats.waiting, stats.total_pushed), (1, 1));
        assert_eq!(first.shards.len(), 2);
        let busy: Vec<&BusyQueue> =
            first.queues.iter().filter(|queue| queue.name == "watched").collect();
        assert_eq!(busy[0].waiting, 1);
        client.queue("watched").push(&2).await.unwrap();
        let later = until("a sample has both", async || {
            let sample = samples.next().await.unwrap();
            (sample.stats.as_ref().unwrap().waiting == 2).then_some(sample)
        });
        assert!(later.await.at_ms > first.at_ms);
        drop(samples);
        until("nobody watches", async || {
            let shards = client.shards().await.unwrap();
            (shards.iter().map(|shard| shard.viewers).sum::<u64>() == 0).then_some(())
        })
        .await;
        let mut only = client.watch(&Watching::new().without_stats().queues(1)).await.unwrap();
        let sample = only.next().await.unwrap();
        assert!(sample.stats.is_none() && sample.shards.is_empty());
    });
}

#[test]
fn a_stream_of_samples_goes_on_after_the_server_was_away() {
    let mut server = Start::new().env("SHARDS", 1).start();
    run(async {
        let client = client(&server).await;
        let mut samples = client.watch(&Watching::new()).await.unwrap();
        samples.next().await.unwrap();
        server.kill();
        let lost = until("the stream is lost", async || samples.next().await.err());
        lost.await;
        server.start();
        until("the stream goes on", async || samples.next().await.ok()).await;
    });
}

#[test]
fn workers_and_roles_are_shown_to_our_client() {
    let server = Start::new().env("AUTH_TOKENS", "boss,read:looker").start();
    run(async {
        let builder = corq_client::Client::builder(&super::address(&server));
        let boss = builder.clone().token("boss").timeout(DEADLINE).connect().await.unwrap();
        for name in ["a", "b", "c"] {
            let worker = json!({"name": name, "queues": ["q"], "workerId": name, "concurrency": 7,
                "hostname": "here", "pid": 11});
            boss.call("RegisterWorker", &worker).await.unwrap();
        }
        let other = json!({"name": "x", "queues": ["other"]});
        boss.call("RegisterWorker", &other).await.unwrap();
        let page = boss.worker_page(Some("q"), None, 2).await.unwrap();
        assert_eq!(page.workers.iter().map(|worker| &*worker.id).collect::<Vec<_>>(), ["a", "b"]);
        let row = &page.workers[0];
        assert_eq!(
            (row.concurrency, &*row.hostname, row.pid, &*row.status),
            (7, "here", 11, "active")
        );
        let rest = boss.worker_page(Some("q"), page.next.as_deref(), 2).await.unwrap();
        assert_eq!((&*rest.workers[0].id, rest.next), ("c", None));
        assert_eq!(boss.worker_page(None, None, 100).await.unwrap().workers.len(), 4);

        let who = boss.whoami().await.unwrap();
        assert_eq!((&*who.role, who.read_only, &*who.by), ("admin", false, "token"));
        let looker = builder.token("looker").timeout(DEADLINE).connect().await.unwrap();
        let who = looker.whoami().await.unwrap();
        assert_eq!((&*who.role, who.read_only, who.queues.len()), ("read", true, 0));
    });
}
