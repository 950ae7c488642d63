//! Groups, flows and the rules of queues, by their methods.

use std::time::Duration;

use corq_client::{
    Applied, DlqConfig, Failure, FlowJob, GroupOptions, JobBatch, JobOptions, JobState,
    OnChildFailure, PullOptions, Queue, StallConfig, Worker,
};

use super::{address, client, run, server, until};
use crate::support::WAIT;

const HOUR: Duration = Duration::from_hours(1);

fn of_group(group: &str) -> JobOptions {
    JobOptions::new().group_id(group)
}

/// The numbers of the jobs that one pull brings.
async fn numbers(queue: &Queue, groups: GroupOptions) -> Vec<u64> {
    let jobs = queue.pull(9, &PullOptions::new().groups(groups)).await.unwrap();
    jobs.iter().map(|job| job.data().unwrap()).collect()
}

#[test]
fn groups_are_set_asked_about_and_pulled_from() {
    for shards in [1, 2] {
        let server = server(shards);
        run(async {
            let client = client(&server).await;
            let queue = client.queue("grouped");
            for (number, group) in [(1, "a"), (2, "a"), (3, "b")] {
                queue.push_with(&number, &of_group(group)).await.unwrap();
            }
            queue.push(&4).await.unwrap();
            let full = of_group("a").group_max_size(2);
            let error = queue.push_with(&5, &full).await.unwrap_err();
            assert!(error.to_string().contains("maximum size of 2"), "{error}");

            let group = queue.group("a");
            assert_eq!((group.id(), group.queue()), ("a", "grouped"));
            assert_eq!((group.count().await.unwrap(), group.active_count().await.unwrap()), (2, 0));
            assert_eq!(queue.count_in_groups().await.unwrap(), 3);
            assert!(group.pause().await.unwrap() && !group.pause().await.unwrap());
            assert!(group.is_paused().await.unwrap());
            let only_a = || GroupOptions::new().only("a");
            assert!(numbers(&queue, only_a()).await.is_empty());
            assert!(group.resume().await.unwrap() && !group.resume().await.unwrap());

            group.set_concurrency(1).await.unwrap();
            assert_eq!(group.concurrency().await.unwrap(), Some(1));
            assert_eq!(numbers(&queue, only_a()).await, [1]);
            assert_eq!(group.active_count().await.unwrap(), 1);
            assert!(group.clear_concurrency().await.unwrap());
            assert!(!group.clear_concurrency().await.unwrap());
            assert_eq!(group.concurrency().await.unwrap(), None);

            assert_eq!(group.rate_limit_ttl(None).await.unwrap(), None);
            group.set_rate_limit(1, HOUR).await.unwrap();
            let rate = group.rate_limit().await.unwrap().unwrap();
            assert_eq!((rate.max, rate.duration_ms), (1, 3_600_000));
            assert_eq!(numbers(&queue, only_a()).await, [2]);
            let left = group.rate_limit_ttl(None).await.unwrap().unwrap();
            assert!(left > HOUR / 2 && left <= HOUR, "{left:?}");
            assert_eq!(group.rate_limit_ttl(Some(2)).await.unwrap(), Some(Duration::ZERO));
            assert!(group.clear_rate_limit().await.unwrap());
            assert!(group.rate_limit().await.unwrap().is_none());

            group.set_weight(5).await.unwrap();
            assert_eq!(group.weight().await.unwrap(), 5);
            group.hold(HOUR).await.unwrap();
            let groups = queue.groups(1, None).await.unwrap();
            let [a] = &groups[..] else { panic!("{groups:?}") };
            assert_eq!((&*a.id, a.count, a.active, a.weight, a.paused), ("a", 0, 2, 5, false));
            assert!(a.held_for_ms.is_some_and(|left_ms| left_ms > 1_800_000), "{a:?}");
            assert!(a.concurrency.is_none() && a.rate.is_none());
            let more = queue.groups(10, Some("a")).await.unwrap();
            assert_eq!(more.iter().map(|group| &*group.id).collect::<Vec<_>>(), ["b"]);

            assert_eq!(numbers(&queue, GroupOptions::new().ungrouped()).await, [4]);
            assert_eq!(numbers(&queue, GroupOptions::new()).await, [3]);
        });
    }
}

#[test]
fn a_worker_keeps_to_the_limits_that_it_brings_for_groups() {
    let server = server(2);
    run(async {
        let client = client(&server).await;
        let queue = client.queue("polite");
        let mut batch = JobBatch::new();
        for number in 0..30 {
            batch.add_with(&number, &of_group(["a", "b"][number % 2])).unwrap();
        }
        queue.push_many(&batch).await.unwrap();
        let worker = Worker::builder(&client, "polite")
            .concurrency(10)
            .groups(GroupOptions::new().concurrency(2))
            .start(async |job: corq_client::ActiveJob| {
                let group = job.group_id.clone().unwrap_or_default();
                let queue = job.client().queue(&job.queue);
                let active = queue.group(group).active_count().await?;
                Ok::<_, Failure>(active)
            })
            .unwrap();
        let done = async || (queue.counts().await.unwrap().completed == 30).then_some(());
        until("all to be done", done).await;
        let _ = worker.drain().await;
        let jobs = queue.jobs(&corq_client::Listing::new()).await.unwrap();
        for job in jobs {
            let active = client.job(&job.id).result().await.unwrap().unwrap();
            let active: u64 = active.decode().unwrap();
            assert!((1..=2).contains(&active), "{active} were active");
        }
    });
}

async fn run_one(queue: &Queue, how: impl Into<Option<Failure>>) -> String {
    let job = queue.pull(1, &PullOptions::new().wait(WAIT)).await.unwrap().remove(0);
    let applied = match how.into() {
        None => job.complete(&format!("of {}", job.id)).await.unwrap(),
        Some(failure) => job.fail(failure).await.unwrap(),
    };
    assert_eq!(applied, Applied::Yes);
    job.id.clone()
}

#[test]
fn a_flow_comes_as_a_whole_and_its_root_sees_what_came_of_its_children() {
    for shards in [1, 2] {
        let server = server(shards);
        run(async {
            let client = client(&server).await;
            let job = |queue: &str, id: &str| FlowJob::new(queue, id, id).unwrap();
            let ignored = JobOptions::new().max_attempts(1).on_failure(OnChildFailure::Ignore);
            let root = job("books", "book")
                .options(JobOptions::new().job_id("of no account").priority(3).name("whole"))
                .child(job("pages", "page-1").child(job("words", "word")))
                .child(job("pages", "page-2").options(ignored));
            let pushed = client.add_flow(&[root.clone(), job("books", "other")]).await.unwrap();
            let ids: Vec<&str> = pushed.iter().map(|job| &*job.id).collect();
            assert_eq!(ids, ["book", "page-1", "word", "page-2", "other"]);
            assert_eq!((pushed[0].state, pushed[0].priority), (JobState::WaitingChildren, 3));
            assert_eq!(pushed[0].children_ids, ["page-1", "page-2"]);
            assert_eq!(pushed[2].parent_id.as_deref(), Some("page-1"));
            let error = client.add_flow(&[root]).await.unwrap_err();
            assert!(error.to_string().contains("already exists"), "{error}");
            assert!(client.add_flow(&[]).await.unwrap().is_empty());

            assert_eq!(run_one(&client.queue("pages"), Failure::new("torn")).await, "page-2");
            assert_eq!(run_one(&client.queue("words"), None).await, "word");
            assert_eq!(run_one(&client.queue("pages"), None).await, "page-1");
            let book = client.job("book");
            until("the root to be free", async || {
                (book.state().await.unwrap() == JobState::Waiting).then_some(())
            })
            .await;
            let values = book.children_values().await.unwrap();
            assert_eq!(values["pages:page-1"].decode::<&str>().unwrap(), "of page-1");
            assert_eq!(book.ignored_children().await.unwrap()["pages:page-2"], "torn");
            assert!(book.failed_children().await.unwrap().is_empty());
        });
    }
}

#[test]
fn children_come_and_go_while_their_parent_is_there() {
    let server = server(2);
    run(async {
        let client = client(&server).await;
        let (parents, children) = (client.queue("parents"), client.queue("children"));
        let failing = JobOptions::new().max_attempts(1).on_failure(OnChildFailure::ContinueParent);
        let failing = children.push_with(&1, &failing.parent_id("parent")).await.unwrap();
        let parent = JobOptions::new().job_id("parent").child_id(&failing);
        parents.push_with(&"p", &parent).await.unwrap();
        let parent = client.job("parent");
        assert_eq!(parent.state().await.unwrap(), JobState::WaitingChildren);
        run_one(&children, Failure::new("broke")).await;
        let job = parents.pull(1, &PullOptions::new().wait(WAIT)).await.unwrap().remove(0);
        let failed = parent.failed_children().await.unwrap();
        assert_eq!(failed[&format!("children:{failing}")], "broke");

        // The parent finds more work while it runs, and waits for that.
        let late = client.job(children.push_with(&2, &JobOptions::new()).await.unwrap());
        let later = client.job(children.push_with(&3, &JobOptions::new()).await.unwrap());
        late.set_parent("parent").await.unwrap();
        later.set_parent("parent").await.unwrap();
        assert!(job.wait_for_children().await.unwrap());
        assert_eq!(parent.state().await.unwrap(), JobState::WaitingChildren);
        assert!(late.leave_parent().await.unwrap());
        parent.remove_unprocessed_children().await.unwrap();
        assert_eq!(later.state().await.unwrap(), JobState::Unknown);
        let job = parents.pull(1, &PullOptions::new().wait(WAIT)).await.unwrap().remove(0);
        assert!(!job.wait_for_children().await.unwrap(), "there is nothing to wait for");
        assert_eq!(job.complete(&()).await.unwrap(), Applied::Yes);
    });
}

#[test]
fn rules_of_a_queue_are_set_and_told() {
    let server = server(2);
    run(async {
        let client = client(&server).await;
        let queue = client.queue("ruled");
        let rules = queue.dlq_config().await.unwrap();
        assert!(!rules.auto_retry && rules.max_age_ms.is_none() && rules.max_entries.is_none());
        let all = DlqConfig::new()
            .auto_retry(true)
            .auto_retry_interval(HOUR)
            .max_auto_retries(2)
            .max_age(Some(24 * HOUR))
            .max_entries(Some(5));
        queue.set_dlq_config(&all).await.unwrap();
        queue.set_dlq_config(&DlqConfig::new().max_entries(None)).await.unwrap();
        let rules = queue.dlq_config().await.unwrap();
        assert_eq!(
            (rules.auto_retry, rules.auto_retry_interval_ms, rules.max_auto_retries),
            (true, 3_600_000, 2)
        );
        assert_eq!((rules.max_age_ms, rules.max_entries), (Some(86_400_000), None));

        queue.push_with(&1, &JobOptions::new().max_attempts(1)).await.unwrap();
        run_one(&queue, Failure::new("no")).await;
        let stats = queue.dlq_stats().await.unwrap();
        assert_eq!((stats.total, stats.pending_retry, stats.expired), (1, 1, 0));
        assert_eq!(stats.by_reason["max_attempts_exceeded"], 1);
        assert!(stats.oldest_entry_ms.is_some() && stats.oldest_entry_ms == stats.newest_entry_ms);

        let stall = StallConfig::new()
            .enabled(false)
            .stall_interval(Duration::from_secs(7))
            .max_stalls(0)
            .grace_period(Duration::ZERO);
        queue.set_stall_config(&stall).await.unwrap();
        let rules = queue.stall_config().await.unwrap();
        assert_eq!(
            (rules.enabled, rules.stall_interval_ms, rules.max_stalls, rules.grace_period_ms),
            (false, 7000, 0, 0)
        );
    });
}

#[test]
fn threads_have_groups_flows_and_rules_as_well() {
    let server = server(2);
    let client = corq_client::blocking::Client::connect(&address(&server)).unwrap();
    let queue = client.queue("threads");
    queue.push_with(&1, &of_group("a")).unwrap();
    let group = queue.group("a");
    group.set_weight(2).unwrap();
    assert_eq!((group.count().unwrap(), group.weight().unwrap()), (1, 2));
    assert_eq!(queue.groups(10, None).unwrap().len(), 1);
    let root = FlowJob::new("threads", "root", &1).unwrap();
    let root = root.child(FlowJob::new("threads", "leaf", &2).unwrap());
    assert_eq!(client.add_flow(&[root]).unwrap().len(), 2);
    assert!(client.job("root").children_values().unwrap().is_empty());
    queue.set_dlq_config(&DlqConfig::new().auto_retry(true)).unwrap();
    assert!(queue.dlq_config().unwrap().auto_retry);
}
