//! Where a value comes from.

use std::collections::BTreeMap;
use std::ffi::OsString;

/// The source of a setting's value. If several give the setting, the one listed first counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Source {
    /// The command line.
    Flag,
    /// A variable.
    Environment,
    /// The settings file.
    File,
    /// Nothing: it was not given.
    Default,
}

impl Source {
    /// As programs read it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flag => "flag",
            Self::Environment => "environment",
            Self::File => "file",
            Self::Default => "default",
        }
    }
}

/// A value as it was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Origin {
    pub(super) source: Source,
    /// The flag, the variable, or the file and the line.
    pub(super) place: String,
    pub(super) text: OsString,
}

/// Where the values that were given come from.
#[derive(Clone, Default)]
pub struct Origins {
    /// By the names of settings in lower case.
    pub(super) given: BTreeMap<String, Origin>,
    /// Lines for the log about variables that were passed over.
    pub notes: Vec<String>,
}

/// Texts may be secrets.
impl std::fmt::Debug for Origins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.given.keys()).finish()
    }
}
