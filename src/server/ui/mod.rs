//! The dashboard: a web page that is part of the program. It is made in `web/` and talks to the server as any client does;
//! what is here serves its files and knows no queue and no job.
//!
//! Files are immutable: their names have a hash of what is in them. Only the page that names them changes, with the
//! settings and with the proxy through which it was asked for.
//!
//! | file | responsibility |
//! |---|---|
//! | `answer` | what a request for the page or one of its files gets |
//! | `files` | the files, as `make web` has written them |
//! | `settings` | where the page lies, and what it shows |

pub(super) mod answer;
mod files;
pub(super) mod settings;
