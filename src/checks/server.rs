//! A server, by its metrics: `number` tells what a family without labels is, if there is such a family. Its name comes without
//! the prefix.

use super::Finding;
use crate::units;

const DAY_S: f64 = 86_400.0;
const HOUR_S: f64 = 3_600.0;

/// A certificate that lasts no longer should be renewed.
const CERTIFICATE_DAYS_FEW: f64 = 14.0;

/// Whether the files that the server writes to are where its next start looks for them.
pub fn data(number: impl Fn(&str) -> Option<f64>) -> Option<Finding> {
    let gone = number("data_gone")?;
    let looks = number("data_looks_total").unwrap_or(0.0);
    if gone > 0.0 {
        let advice = "jobs are refused meanwhile; put it back where it was, or stop the server and restore a backup";
        return Some(Finding::wrong("data", "the data directory is gone, or a part of it", advice));
    }
    // In memory there is nothing to look after.
    (looks > 0.0).then(|| Finding::good("data", "where it was at the start"))
}

/// How long the server's certificate lasts, which expires then, and which could not be read again so often.
pub fn certificate(expires_s: f64, failures: f64, now_s: f64) -> Finding {
    let days = (expires_s - now_s) / DAY_S;
    let advice = "renew it, then send the server SIGHUP";
    if days < 0.0 {
        let found = format!("has expired {} days ago", units::figure(-days));
        Finding::wrong("certificate", found, advice)
    } else if days < CERTIFICATE_DAYS_FEW {
        Finding::warning("certificate", format!("expires in {} days", units::figure(days)), advice)
    } else if failures > 0.0 {
        let found = format!("could not be read again {failures:.0} times");
        Finding::warning("certificate", found, "see the server's log, then send it SIGHUP")
    } else {
        Finding::good("certificate", format!("valid for {} days", units::figure(days)))
    }
}

/// How the backups of a server do that makes them by a schedule.
pub fn backups(number: impl Fn(&str) -> Option<f64>, now_s: f64) -> Option<Finding> {
    let due_s = number("backup_due_timestamp_seconds").filter(|due_s| *due_s > 0.0)?;
    let failures = number("backup_failures_in_a_row").unwrap_or(0.0);
    let last_s = number("backup_last_success_timestamp_seconds").unwrap_or(0.0);
    let age = |at_s: f64| format!("{} hours", units::figure((now_s - at_s).abs() / HOUR_S));
    let last = if last_s > 0.0 {
        format!("the last one is {} old", age(last_s))
    } else {
        "there is none yet".to_owned()
    };
    Some(if failures > 0.0 {
        let advice = "see the server's log, and 'corq backup list' for what there is";
        Finding::wrong("backups", format!("{failures:.0} attempts in a row failed; {last}"), advice)
    } else if now_s > due_s + HOUR_S {
        let advice =
            "see the server's log; an upload may take longer than its schedule leaves time";
        Finding::warning("backups", format!("the next one is {} late; {last}", age(due_s)), advice)
    } else {
        Finding::good("backups", last)
    })
}

/// How far what a node of a fleet acknowledges is in other hands.
pub fn fleet(number: impl Fn(&str) -> Option<f64>) -> Option<Finding> {
    number("fleet_logs").filter(|logs| *logs > 0.0)?;
    let waiting = number("fleet_logs_waiting").unwrap_or(0.0);
    Some(if waiting > 0.0 {
        let found = format!("{waiting:.0} logs wait for the database, which is not to be reached");
        let advice = "see the server's log, and whether the database takes writes; no answer is lost meanwhile";
        Finding::wrong("fleet", found, advice)
    } else if number("fleet_asynchronous").is_some_and(|it| it > 0.0) {
        let advice =
            "set synchronous_standby_names in the database, and FLEET_REQUIRE_SYNC for corq";
        Finding::warning("fleet", REPLICATED[1], advice)
    } else {
        Finding::good("fleet", REPLICATED[0])
    })
}

/// Names of the states of a fleet's database: with a synchronous standby, and without.
pub const REPLICATED: [&str; 2] =
    ["replicated to a standby", "asynchronous: a failover may lose what was acknowledged"];

/// Counters that stand at zero on a server that is well.
const COMPLAINTS: [(&str, &str, &str); 8] = [
    (
        "connections_rejected_total",
        "connections were turned away",
        "raise CONNECTIONS_MAX, or find out who opens so many",
    ),
    (
        "accept_pauses_total",
        "times the system lacked something for a connection",
        "raise the limit of open files (ulimit -n; systemd: LimitNOFILE=)",
    ),
    (
        "backup_removal_failures_total",
        "backups were made after which old ones could not be removed",
        "see the server's log: the server, or its key to the bucket, needs the right to delete there",
    ),
    (
        "log_segment_failures_total",
        "times the next file of the log could not be made",
        "see the server's log; the disk may be full",
    ),
    (
        "log_full",
        "shards get no further file for their log and refuse pushes",
        "make room on the disk, or see 'corq health' for what else is lacking",
    ),
    (
        "clock_ahead_seconds",
        "seconds is the server's time ahead of its system's clock, which was set back",
        "start the server anew: it takes the clock as it is then",
    ),
    (
        "clock_set_back_seconds",
        "seconds was the clock of the process before ahead; what it had put off counts from this start on",
        "keep the clock in step (NTP). If the system clock is wrong now, set it and start the server anew",
    ),
    (
        "unknown_job_records",
        "records of the log were about jobs that it does not have",
        "something of the log is lost, or this is a bug: see 'corq log verify', and report it",
    ),
];

/// Accounts of the memory of clients that end connections or stop commands where they are full, and the consequence.
const ACCOUNTS: [(&str, &str); 3] = [
    ("input", "large requests are refused"),
    ("output", "connections that do not read their replies are closed"),
    ("commands", "requests wait"),
];

/// Findings on accounts that are nearly full on a shard; `fullest` tells the share of the fullest.
pub fn client_memory(fullest: impl Fn(&str) -> Option<f64>) -> Vec<Finding> {
    let finding = |(account, consequence): &(&str, &str)| {
        let percent = fullest(account)? * 100.0;
        let found = format!("'{account}' is {percent:.0} % full on a shard: {consequence}");
        let advice = "find out which clients take it, or raise CLIENT_MEMORY_MB";
        (percent > 90.0).then(|| Finding::warning("client memory", found, advice))
    };
    ACCOUNTS.iter().filter_map(finding).collect()
}

/// The rules of time zones that it goes by.
pub fn time_zones(version: &str, source: &str) -> Finding {
    Finding::good("time zones", format!("rules {version}, {source}"))
}

/// Findings on counters that should be zero, or that nothing is unusual.
pub fn complaints(number: impl Fn(&str) -> Option<f64>) -> Vec<Finding> {
    let found = COMPLAINTS.iter().filter_map(|(family, what, advice)| {
        let count = number(family)?;
        let finding = || Finding::warning("counters", format!("{count:.0} {what}"), *advice);
        (count > 0.0).then(finding)
    });
    let found: Vec<Finding> = found.collect();
    if found.is_empty() { vec![Finding::good("counters", "nothing unusual")] } else { found }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn a_certificate_is_told_of_before_it_expires() {
        let told = |days: f64, failures: f64| certificate(days * DAY_S, failures, 0.0).verdict;
        let expected = [
            (-1.0, 0.0, Verdict::Wrong),
            (3.0, 0.0, Verdict::Warning),
            (90.0, 0.0, Verdict::Good),
            (90.0, 2.0, Verdict::Warning),
        ];
        for (days, failures, verdict) in expected {
            assert_eq!(told(days, failures), verdict, "{days} {failures}");
        }
    }

    #[test]
    fn a_database_that_is_away_or_asynchronous_is_told() {
        let verdict = |logs: f64, waiting: f64, asynchronous: f64| {
            let number = |family: &str| match family {
                "fleet_logs" => Some(logs),
                "fleet_logs_waiting" => Some(waiting),
                "fleet_asynchronous" => Some(asynchronous),
                _ => None,
            };
            fleet(number).map(|it| it.verdict)
        };
        assert_eq!(verdict(0.0, 0.0, 0.0), None);
        assert_eq!(verdict(2.0, 0.0, 0.0), Some(Verdict::Good));
        assert_eq!(verdict(2.0, 0.0, 1.0), Some(Verdict::Warning));
        assert_eq!(verdict(2.0, 1.0, 1.0), Some(Verdict::Wrong));
    }

    #[test]
    fn backups_that_fail_or_are_late_are_told() {
        let found = |due: f64, failures: f64, last: f64| {
            let number = |family: &str| match family {
                "backup_due_timestamp_seconds" => Some(due),
                "backup_failures_in_a_row" => Some(failures),
                _ => Some(last),
            };
            backups(number, 100.0 * HOUR_S).map(|it| (it.verdict, it.found))
        };
        assert_eq!(found(0.0, 3.0, 0.0), None);
        let (verdict, text) =
            found(101.0 * HOUR_S, 0.0, 77.0 * HOUR_S).unwrap_or((Verdict::Wrong, String::new()));
        assert_eq!((verdict, &*text), (Verdict::Good, "the last one is 23.0 hours old"));
        let verdict = |due: f64, failures: f64| found(due, failures, 0.0).map(|(it, _)| it);
        assert_eq!(verdict(101.0 * HOUR_S, 2.0), Some(Verdict::Wrong));
        assert_eq!(verdict(98.0 * HOUR_S, 0.0), Some(Verdict::Warning));
    }

    #[test]
    fn data_that_is_gone_is_wrong() {
        let verdict = |gone: f64, looks: f64| {
            let number = |family: &str| match family {
                "data_gone" => Some(gone),
                "data_looks_total" => Some(looks),
                _ => None,
            };
            data(number).map(|it| it.verdict)
        };
        assert_eq!(verdict(0.0, 0.0), None);
        assert_eq!(verdict(0.0, 7.0), Some(Verdict::Good));
        assert_eq!(verdict(1.0, 7.0), Some(Verdict::Wrong));
    }

    #[test]
    fn accounts_that_are_nearly_full_on_a_shard_are_told_with_the_consequence() {
        let found = client_memory(|account| (account != "commands").then_some(0.95));
        let texts: Vec<&str> = found.iter().map(|it| &*it.found).collect();
        let expected = [
            "'input' is 95 % full on a shard: large requests are refused",
            "'output' is 95 % full on a shard: connections that do not read their replies are closed",
        ];
        assert_eq!(texts, expected);
        assert!(client_memory(|_| Some(0.9)).is_empty());
    }

    #[test]
    fn counters_that_should_be_zero_are_told() {
        assert_eq!(complaints(|_| Some(0.0))[0].verdict, Verdict::Good);
        let told = complaints(|family| (family == "connections_rejected_total").then_some(3.0));
        assert!(told[0].found.starts_with("3 connections"), "{told:?}");
        assert_eq!(complaints(|_| Some(1.0)).len(), COMPLAINTS.len());
    }
}
