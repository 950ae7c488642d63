//! The database of a fleet: whether what it commits lasts, and how long that takes.

use corq_io::chronicle::{Condition, Database};
use std::time::Duration;

use super::{millis, spread};
use crate::checks::Finding;
use crate::cli::words;

/// A commit that takes longer than this on the middle is slow.
const COMMIT_SLOW: Duration = Duration::from_millis(10);

/// Transactions since the oldest one that is not frozen, from which on it is time to look: half of what there is room for.
const TRANSACTIONS_AGE_MANY: i64 = 1 << 30;

/// Looks at the database with this URL.
pub(super) fn findings(url: &str) -> Vec<Finding> {
    match Database::parse(url)
        .and_then(|database| Ok((database.shown(), Condition::of(&database)?)))
    {
        Ok((shown, condition)) => of_condition(&shown, &condition),
        Err(error) => {
            let advice = "see FLEET_DATABASE, and whether the database takes writes";
            vec![Finding::wrong("fleet database", error.to_string(), advice)]
        }
    }
}

fn of_condition(shown: &str, condition: &Condition) -> Vec<Finding> {
    let size = words::bytes(condition.bytes as f64);
    let found = format!("PostgreSQL {} at {shown}, {size}", condition.version);
    let database = if condition.is_off.is_empty() {
        Finding::good("fleet database", found)
    } else {
        let off = condition.is_off.join(" and ");
        let advice =
            format!("turn {off} on: without, a crash of its machine loses what was acknowledged");
        Finding::wrong("fleet database", format!("{found}; {off} is off"), advice)
    };
    let standby = if !condition.is_synchronous {
        Finding::warning(
            "fleet standby",
            "asynchronous: a failover may lose what was acknowledged",
            "set synchronous_standby_names in the database, and FLEET_REQUIRE_SYNC for corq",
        )
    } else if condition.standbys == 0 {
        Finding::warning(
            "fleet standby",
            "commits wait for a standby, and none is seen",
            "connect one, or grant pg_monitor to the user of FLEET_DATABASE, who may not see it",
        )
    } else {
        Finding::good("fleet standby", "commits wait for a standby")
    };
    let age = condition.transactions_age;
    let transactions = if age > TRANSACTIONS_AGE_MANY {
        let advice = "let autovacuum freeze tables, or run VACUUM FREEZE: at 2,147 million the database takes no writes";
        let found = format!("{} million since the oldest that is not frozen", age / 1_000_000);
        Finding::warning("fleet transactions", found, advice)
    } else {
        let found = format!("{} million since the oldest that is not frozen", age / 1_000_000);
        Finding::good("fleet transactions", found)
    };
    vec![database, standby, commits(&condition.commit_times), transactions]
}

fn commits(times: &[Duration]) -> Finding {
    if times.is_empty() {
        let advice = "grant the user of FLEET_DATABASE the right to call pg_logical_emit_message";
        return Finding::warning("fleet commit", "could not be timed", advice);
    }
    let (middle, worst) = spread(times);
    let found = format!("{}, {} at worst", millis(middle), millis(worst));
    if middle > COMMIT_SLOW {
        let advice = "every reply to a command that writes waits for one: see the disk of the database and its standby";
        return Finding::warning("fleet commit", found, advice);
    }
    Finding::good("fleet commit", found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Verdict;

    #[test]
    fn what_a_commit_does_not_survive_is_told() {
        let well = Condition {
            version: "15.18".into(),
            is_off: Vec::new(),
            is_synchronous: true,
            standbys: 1,
            bytes: 1 << 30,
            transactions_age: 5_000_000,
            commit_times: vec![Duration::from_millis(1); 3],
        };
        let verdicts = |condition: &Condition| {
            let found = of_condition("db/corq", condition);
            found.iter().map(|it| it.verdict).collect::<Vec<_>>()
        };
        assert_eq!(verdicts(&well), [Verdict::Good; 4]);
        let ill = Condition {
            is_off: vec!["fsync".into()],
            is_synchronous: false,
            transactions_age: 2_000_000_000,
            commit_times: vec![Duration::from_millis(30)],
            ..well.clone()
        };
        let [database, others @ ..] = &verdicts(&ill)[..] else { panic!("no findings") };
        assert!(*database == Verdict::Wrong && others == [Verdict::Warning; 3]);
        let unseen = Condition { standbys: 0, commit_times: Vec::new(), ..well };
        assert_eq!(verdicts(&unseen)[1..3], [Verdict::Warning; 2]);
    }
}
