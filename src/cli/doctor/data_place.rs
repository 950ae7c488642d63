//! Which directory `doctor` judges: the one that it was given, or the server's own if that is on this machine, or where a
//! first start would put it. It says which.

use std::path::{Path, PathBuf};

use crate::api::error::ErrorKind;
use crate::checks::Finding;
use crate::cli::backup::whereabouts;
use crate::cli::client::Reply;
use crate::tools::place::{Place, Whereabouts};

const WHAT: &str = "data path";

/// What a server says of where its data is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Told {
    /// Nothing: there is none, or it does not know the question.
    #[default]
    Nothing,
    /// It keeps none.
    Memory,
    /// Here, on its machine.
    At {
        /// From the root on.
        path: PathBuf,
        /// The same, and what tells it from others.
        which: Whereabouts,
    },
}

impl Told {
    /// Out of the answer to `BackupPoint`.
    pub fn of(reply: &Reply) -> Self {
        if reply.refusal().is_some_and(|it| it.text == ErrorKind::NothingOnDisk.text()) {
            return Self::Memory;
        }
        let told = whereabouts(reply.value().get("data"));
        let at = told.and_then(|which| Some(Self::At { path: which.path.clone()?, which }));
        at.unwrap_or_default()
    }
}

/// Whether a directory on this machine is the server's, not a copy of it.
fn is_it(path: &Path, server: &Whereabouts) -> bool {
    Place::of(path).is_ok_and(|place| place.is_used_by(server))
}

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
