//! How the state changes: by records, and as time passes.
//!
//! | file | responsibility |
//! |---|---|
//! | `allowance` | how much one command may bring about before the next step of time |
//! | `due_work` | what is due: delays, leases, retries |
//! | `log_clock` | what a log tells of the clock |
//! | `replay` | recovery: records back into a state |
//! | `set_back` | a clock that was ahead is right again |
//! | `transitions` | what each record does to the state |
//! | `unknown_jobs` | records about jobs that a replay does not know |

pub(crate) mod allowance;
pub(crate) mod due_work;
pub(crate) mod log_clock;
pub(crate) mod replay;
pub(crate) mod set_back;
pub(crate) mod transitions;
pub(crate) mod unknown_jobs;
