//! How far a start is, for those who ask at the HTTP port and for the service manager.

use super::startup_http::StartupHttp;
use corq_io::service_manager::ServiceManager;
use std::io;
use std::sync::Arc;

/// Reports a start until the shards serve: on the HTTP port, and to the service manager.
pub struct StartReport {
    http: StartupHttp,
    manager: Arc<ServiceManager>,
}

impl StartReport {
    /// At the beginning of a start.
    pub fn new(http: StartupHttp, manager: Arc<ServiceManager>) -> Self {
        let report = Self { http, manager };
        report.progress("at the beginning".into());
        report
    }

    /// How far it is: words without quotes. May be said often.
    pub fn progress(&self, text: String) {
        self.manager.progress(&text);
        self.http.set_progress(text);
    }

    /// The shards take over. Returns when every client here has its answer, and no further one is accepted.
    pub fn end(self) -> io::Result<()> {
        self.http.leave()
    }
}
