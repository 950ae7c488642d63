//! A client with one connection or several, against a server that misbehaves on demand. The fear: an answer goes to the
//! wrong question, a caller waits for ever, or gets a wrong answer about the outcome of its command.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::fake::{start, until};
use corq_client::{Client, Error, JobOptions};
use rmpv::Value;
use tokio::task::JoinSet;

/// Commands of callers that may be under way on a connection: fifty, but for one that asks for a sign of life.
const ROOM: usize = 49;

#[tokio::test]
async fn answers_find_their_questions_in_whatever_order_they_come() {
    let fake = start(|mut peer| async move {
        let mut asked = Vec::new();
        while let Some(one) = peer.next().await {
            asked.push(one);
            if asked.len() == ROOM {
                for one in asked.drain(..).rev() {
                    let count = one.fields["number"].clone();
                    peer.ok(&one, &[("count", count)]).await;
                }
            }
        }
    })
    .await;
    let client = Client::builder(&fake.address).connections(1).connect().await.unwrap();
    let mut calls = JoinSet::new();
    for number in 0..10 * ROOM as u64 {
        let client = client.clone();
        calls.spawn(async move {
            let reply = client.call("Echo", &serde_json::json!({"number": number})).await.unwrap();
            assert_eq!(reply.get::<u64>("count").unwrap(), Some(number));
        });
    }
    while let Some(done) = calls.join_next().await {
        done.unwrap();
    }
    assert_eq!(fake.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_answer_that_comes_twice_is_not_taken_for_the_next_one() {
    let fake = start(|mut peer| async move {
        let mut last = None;
        while let Some(one) = peer.next().await {
            let fields = [("count", one.fields["number"].clone())];
            if let Some(last) = last.replace(one.reply(true, &fields)) {
                peer.write(&last).await;
            }
            peer.ok(&one, &fields).await;
        }
    })
    .await;
    let client = Client::builder(&fake.address).connections(1).connect().await.unwrap();
    for number in 0..100_u64 {
        let reply = client.call("Echo", &serde_json::json!({"number": number})).await.unwrap();
        assert_eq!(reply.get::<u64>("count").unwrap(), Some(number));
    }
}

#[tokio::test]
async fn no_more_than_fifty_requests_of_a_connection_are_under_way() {
    let most = Arc::new(AtomicUsize::new(0));
    let seen = most.clone();
    let fake = start(move |mut peer| {
        let seen = seen.clone();
        async move {
            let mut asked = Vec::new();
            while let Some(one) = peer.next().await {
                asked.push(one);
                if asked.len() < ROOM {
                    continue;
                }
                // A request beyond the room would come now.
                let more = tokio::time::timeout(Duration::from_millis(100), peer.next()).await;
                asked.extend(more.ok().flatten());
                seen.fetch_max(asked.len(), Ordering::SeqCst);
                for one in asked.drain(..) {
                    peer.ok(&one, &[("count", 1.into())]).await;
                }
            }
        }
    })
    .await;
    let client = Client::builder(&fake.address).connections(1).connect().await.unwrap();
    let mut calls = JoinSet::new();
    for _ in 0..4 * ROOM {
        let queue = client.queue("q");
        calls.spawn(async move { queue.count().await.unwrap() });
    }
    while let Some(done) = calls.join_next().await {
        assert_eq!(done.unwrap(), 1);
    }
    assert_eq!(most.load(Ordering::SeqCst), ROOM);
}

#[tokio::test]
async fn commands_that_wait_leave_room_for_others() {
    let fake = start(|mut peer| async move {
        while let Some(one) = peer.next().await {
            if one.cmd != "WaitJob" {
                peer.ok(&one, &[("count", 1.into())]).await;
            }
        }
    })
    .await;
    let client = Client::builder(&fake.address).connections(1).connect().await.unwrap();
    let mut waits = JoinSet::new();
    for _ in 0..200 {
        let job = client.job("x");
        waits.spawn(async move { job.wait(Duration::from_secs(50)).await });
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(client.queue("q").count().await.unwrap(), 1);
}

#[tokio::test]
async fn a_broken_connection_leaves_the_outcome_unknown_and_the_next_command_connects_again() {
    let fake = start(|mut peer| async move {
        while let Some(one) = peer.next().await {
            if peer.number == 0 {
                return;
            }
            peer.ok(&one, &[("id", "a".into())]).await;
        }
    })
    .await;
    let client = Client::builder(&fake.address).connections(1).connect().await.unwrap();
    let error = client.queue("q").push(&1).await.unwrap_err();
    assert!(matches!(error, Error::Lost(_)) && error.is_outcome_unknown(), "{error}");
    assert_eq!(client.queue("q").push(&1).await.unwrap(), "a");
}

#[tokio::test]
async fn what_is_safe_to_repeat_is_repeated() {
    let pushes = Arc::new(AtomicUsize::new(0));
    let counted = pushes.clone();
    let fake = start(move |mut peer| {
        let counted = counted.clone();
        async move {
            while let Some(one) = peer.next().await {
                counted.fetch_add(1, Ordering::SeqCst);
                if peer.number < 2 {
                    return;
                }
                peer.ok(&one, &[("id", one.fields["jobId"].clone()), ("count", 5.into())]).await;
            }
        }
    })
    .await;
    let client = Client::builder(&fake.address).connections(1).connect().await.unwrap();
    let options = JobOptions::new().job_id("once");
    assert_eq!(client.queue("q").push_with(&1, &options).await.unwrap(), "once");
    assert_eq!(pushes.load(Ordering::SeqCst), 3);
    assert_eq!(client.queue("q").count().await.unwrap(), 5);
}

#[tokio::test]
async fn a_late_answer_is_a_timeout_that_harms_nobody_else() {
    let fake = start(|mut peer| async move {
        let mut late = None;
        while let Some(one) = peer.next().await {
            match one.fields["queue"].as_str() {
                Some("slow") => late = Some(one),
                _ => peer.ok(&one, &[("count", 1.into())]).await,
            }
            if let Some(late) = late.take_if(|_| peer.number == 1) {
                peer.ok(&late, &[("count", 2.into())]).await;
            }
        }
    })
    .await;
    let timeout = Duration::from_secs(5);
    let client =
        Client::builder(&fake.address).connections(1).timeout(timeout).connect().await.unwrap();
    let slow = client.queue("slow");
    let slow = tokio::spawn(async move { slow.count().await });
    // The connection talks, so it lives on.
    while !slow.is_finished() {
        assert_eq!(client.queue("q").count().await.unwrap(), 1);
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    let error = slow.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Timeout { sent: true, .. }), "{error}");
    assert_eq!(fake.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_connection_that_has_gone_silent_is_given_up() {
    let fake = start(|mut peer| async move {
        while let Some(one) = peer.next().await {
            if peer.number > 0 {
                peer.ok(&one, &[("count", 1.into())]).await;
            }
        }
    })
    .await;
    // The second question is answered, and has as long.
    let timeout = Duration::from_secs(5);
    let client =
        Client::builder(&fake.address).connections(1).timeout(timeout).connect().await.unwrap();
    let error = client.queue("q").count().await.unwrap_err();
    assert!(error.is_outcome_unknown(), "{error}");
    assert_eq!(client.queue("q").count().await.unwrap(), 1);
    assert_eq!(fake.connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_slow_command_does_not_end_the_connection_of_the_others() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let entrance = gate.clone();
    let waits = Arc::new(AtomicUsize::new(0));
    let counted = waits.clone();
    let fake = start(move |mut peer| {
        let (entrance, counted) = (entrance.clone(), counted.clone());
        async move {
            let mut waiting = Vec::new();
            while let Some(one) = peer.next().await {
                match one.cmd.as_str() {
                    // Leave the command without an answer.
                    "Count" => {}
                    "Ping" => {
                        peer.ok(&one, &[]).await;
                        entrance.acquire().await.unwrap().forget();
                        for one in waiting.drain(..) {
                            peer.ok(&one, &[("jobs", Value::Array(vec![]))]).await;
                        }
                    }
                    _ => {
                        waiting.push(one);
                        counted.fetch_add(1, Ordering::SeqCst);
                    }
                }
            }
        }
    })
    .await;
    let builder = Client::builder(&fake.address).connections(1);
    let client = builder.timeout(Duration::from_secs(5)).connect().await.unwrap();
    let mut pulls = JoinSet::new();
    for _ in 0..40 {
        let queue = client.queue("q");
        let options = corq_client::PullOptions::new().wait(Duration::from_mins(1));
        pulls.spawn(async move { queue.pull(1, &options).await });
    }
    until("all to wait", || waits.load(Ordering::SeqCst) == 40).await;
    // All room but one is taken by commands that are never answered.
    let mut slow = JoinSet::new();
    for _ in 0..9 {
        let queue = client.queue("q");
        slow.spawn(async move { queue.count().await });
    }
    while let Some(done) = slow.join_next().await {
        let error = done.unwrap().unwrap_err();
        assert!(matches!(error, Error::Timeout { sent: true, .. }), "{error}");
    }
    gate.add_permits(1);
    while let Some(done) = pulls.join_next().await {
        assert!(done.unwrap().unwrap().is_empty());
    }
}

#[tokio::test]
async fn nothing_that_is_printed_shows_a_token() {
    let builder = Client::builder("tcp://localhost").token("s3cret");
    assert!(!format!("{builder:?} {builder:#?}").contains("s3cret"));
    assert!(!format!("{:?}", builder.build().unwrap()).contains("s3cret"));
    let blocking = corq_client::blocking::Client::builder("tcp://localhost").token("s3cret");
    assert!(!format!("{blocking:?} {blocking:#?}").contains("s3cret"));
    // Some write it where other programs expect it.
    let misplaced = Client::builder("tcp://s3cret@localhost");
    assert!(!format!("{misplaced:?}").contains("s3cret"));
    let error = misplaced.build().unwrap_err();
    assert!(!format!("{error} {error:?}").contains("s3cret"));
    let fake = start(|mut peer| async move {
        while let Some(one) = peer.next().await {
            let job = Value::Map(vec![("id".into(), "a".into()), ("queue".into(), "q".into())]);
            let fields = [
                ("jobs", Value::Array(vec![job])),
                ("tokens", vec!["t0ken"].into_iter().map(Value::from).collect::<Vec<_>>().into()),
            ];
            peer.ok(&one, &fields).await;
        }
    })
    .await;
    let client = Client::builder(&fake.address).token("right").connect().await.unwrap();
    let options = corq_client::PullOptions::new();
    let pulled = client.queue("q").pull(1, &options).await.unwrap();
    assert_eq!(pulled[0].token(), "t0ken");
    assert!(!format!("{pulled:?} {pulled:#?}").contains("t0ken"));
}

#[tokio::test]
async fn a_caller_that_leaves_takes_no_room_with_it() {
    let fake = start(|mut peer| async move {
        while let Some(one) = peer.next().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
            peer.ok(&one, &[("count", one.fields["n"].clone())]).await;
        }
    })
    .await;
    let client = Client::builder(&fake.address).connections(1).connect().await.unwrap();
    for n in 0..200_u64 {
        let fields = serde_json::json!({"n": n + 1_000_000});
        let call = client.call("Echo", &fields);
        let _ = tokio::time::timeout(Duration::from_micros(300), call).await;
        let reply = client.call("Echo", &serde_json::json!({"n": n})).await.unwrap();
        assert_eq!(reply.get::<u64>("count").unwrap(), Some(n));
    }
}

#[tokio::test]
async fn a_wrong_token_is_told_at_once_and_a_right_one_opens() {
    let fake = start(|mut peer| async move { while peer.next().await.is_some() {} }).await;
    let with = |token: &str| Client::builder(&fake.address).token(token).connect();
    let error = with("wrong").await.unwrap_err();
    assert!(matches!(&error, Error::Refused(words) if &**words == "Invalid token"), "{error}");
    assert_eq!(with("right").await.unwrap().server_info().await.unwrap().server, "fake");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable_and_nothing_was_sent() {
    // A port below 1024 is given to nobody who asks for any.
    let address = "127.0.0.1:1";
    let error = Client::connect(address).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable(_)) && !error.is_outcome_unknown(), "{error}");
    let client = Client::builder(address).timeout(Duration::from_millis(400)).build().unwrap();
    let begun = Instant::now();
    let error = client.queue("q").push(&1).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable(_)), "{error}");
    assert!(begun.elapsed() >= Duration::from_millis(400), "it was tried again meanwhile");
}

#[tokio::test]
async fn a_reply_that_is_no_reply_ends_the_connection() {
    let fake = start(|mut peer| async move {
        peer.next().await;
        peer.write(&Value::from("nonsense")).await;
        peer.next().await;
    })
    .await;
    let client = Client::connect(&fake.address).await.unwrap();
    let error = client.queue("q").push(&1).await.unwrap_err();
    assert!(error.is_outcome_unknown(), "{error}");
}

#[tokio::test]
async fn the_servers_last_words_are_the_reason_of_the_loss() {
    let fake = start(|mut peer| async move {
        peer.next().await;
        let words = [("ok".into(), false.into()), ("error".into(), "Frame exceeds 64 MB".into())];
        peer.write(&Value::Map(words.to_vec())).await;
        peer.next().await;
    })
    .await;
    let client = Client::connect(&fake.address).await.unwrap();
    let error = client.queue("q").push(&1).await.unwrap_err();
    assert!(error.to_string().contains("Frame exceeds 64 MB"), "{error}");
}

#[tokio::test]
async fn a_closed_client_says_so_and_still_gets_what_it_asked_for() {
    let questions = Arc::new(AtomicUsize::new(0));
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let (counted, entrance) = (questions.clone(), gate.clone());
    let fake = start(move |mut peer| {
        let (counted, entrance) = (counted.clone(), entrance.clone());
        async move {
            while let Some(one) = peer.next().await {
                counted.fetch_add(1, Ordering::SeqCst);
                entrance.acquire().await.unwrap().forget();
                peer.ok(&one, &[("count", 1.into())]).await;
            }
        }
    })
    .await;
    let client = Client::connect(&fake.address).await.unwrap();
    let queue = client.queue("q");
    let asked = tokio::spawn(async move { queue.count().await });
    until("the question", || questions.load(Ordering::SeqCst) == 1).await;
    client.close();
    assert!(matches!(client.queue("q").count().await, Err(Error::Closed)));
    gate.add_permits(1);
    assert_eq!(asked.await.unwrap().unwrap(), 1);
}

#[tokio::test]
async fn a_client_comes_over_a_unix_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("corq.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut peer = crate::fake::Peer { stream, number: 0 };
        while let Some(one) = peer.next().await {
            peer.ok(&one, &[("count", 3.into())]).await;
        }
    });
    let client = Client::connect(&format!("unix://{}", path.display())).await.unwrap();
    assert_eq!(client.queue("q").count().await.unwrap(), 3);
}

#[tokio::test]
async fn busy_connections_have_others_opened_up_to_the_limit() {
    let fake = start(|mut peer| async move { while peer.next().await.is_some() {} }).await;
    let client = Client::builder(&fake.address).connections(3).connect().await.unwrap();
    let mut calls = JoinSet::new();
    for _ in 0..500 {
        let queue = client.queue("q");
        calls.spawn(async move { queue.count().await });
    }
    let connections = fake.connections.clone();
    until("three connections", move || connections.load(Ordering::SeqCst) == 3).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(fake.connections.load(Ordering::SeqCst), 3);
}
