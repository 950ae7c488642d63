//! Which directory `doctor` judges: the one that it was given, or the server's own if that is on this machine, or where a
//! first start would put it. It says which.

use std::path::PathBuf;

use crate::checks::Finding;
use crate::cli::backup::{Told, is_it};

const WHAT: &str = "data path";

/// Which directory it is, and the path to judge, if there is one.
pub fn find(named: Option<PathBuf>, told: &Told, address: &str) -> (Finding, Option<PathBuf>) {
    match (named, told) {
        (Some(named), Told::At { path, which }) if !is_it(&named, which) => {
            let found = format!(
                "{}, which is not what the server at {address} uses: {}",
                named.display(),
                path.display()
            );
            let advice =
                "leave out --data-path and DATA_PATH to have the server's own directory judged";
            (Finding::warning(WHAT, found, advice), Some(named))
        }
        (Some(named), Told::Memory) => {
            let found = format!("{}; the server at {address} keeps all in memory", named.display());
            (Finding::good(WHAT, found), Some(named))
        }
        (Some(named), Told::At { .. }) => {
            let found = format!("{}, of the server at {address}", named.display());
            (Finding::good(WHAT, found), Some(named))
        }
        (Some(named), Told::Nothing) => {
            (Finding::good(WHAT, format!("{}, as asked for", named.display())), Some(named))
        }
        (None, Told::At { path, which }) if is_it(path, which) => {
            let found = format!("{}, of the server at {address}", path.display());
            (Finding::good(WHAT, found), Some(path.clone()))
        }
        (None, Told::At { path, .. }) => {
            let found = format!(
                "{}, of the server at {address}, cannot be read here: its disk was not looked at",
                path.display()
            );
            let advice = "run it on the server's machine, as the server's user";
            (Finding::warning(WHAT, found, advice), None)
        }
        (None, Told::Memory) => (
            Finding::good(WHAT, format!("none: the server at {address} keeps all in memory")),
            None,
        ),
        (None, Told::Nothing) => {
            let found = "./corq-data, as a start without DATA_PATH takes it";
            (Finding::good(WHAT, found), Some("./corq-data".into()))
        }
    }
}
