//! Connections to the database of a fleet.

use postgres::error::Severity;
use postgres::{Client, Config};
use rustls::ClientConfig;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio_postgres_rustls::MakeRustlsConnect;

/// How long a connection is tried at one host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Settings of each connection: a commit is at least on the disk, no wait for the standby is cut short, and a node that is gone
/// in the middle of a transaction holds its locks no longer than others need to find it dead.
const SETTINGS: &str = "set client_min_messages = warning; set synchronous_commit = on; set statement_timeout = 0; \
    set lock_timeout = 0; set idle_in_transaction_session_timeout = 3000";

/// How long a connection stays without an answer before the system gives it up: a cut network says nothing.
const SILENCE_MAX: Duration = Duration::from_secs(3);

/// A database that cannot be used, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseError(pub String);

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<postgres::Error> for DatabaseError {
    fn from(error: postgres::Error) -> Self {
        use std::error::Error;
        let cause = error.source().map_or(String::new(), |cause| format!(": {cause}"));
        Self(format!("{error}{cause}"))
    }
}

/// Where the database is, and how it is spoken to.
#[derive(Clone)]
pub struct Database {
    config: Config,
    tls: MakeRustlsConnect,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Database({})", self.shown())
    }
}

/// A connection, and whether the database has warned since that was asked last.
pub(super) struct Connection {
    pub(super) client: Client,
    warned: Arc<AtomicBool>,
}

impl Connection {
    /// Whether there was a warning: a wait for the standby that was cancelled ends with one, and the commit is then not known
    /// to be anywhere else.
    pub(super) fn take_warning(&self) -> bool {
        self.warned.swap(false, Ordering::AcqRel)
    }
}

impl Database {
    /// Of a URL, `postgres://user:password@host,host/database`, or of pairs, `host=... dbname=...`.
    pub fn parse(url: &str) -> Result<Self, DatabaseError> {
        let mut config: Config = url.parse().map_err(DatabaseError::from)?;
        config
            .application_name("corq")
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_user_timeout(SILENCE_MAX)
            .keepalives_idle(Duration::from_secs(1))
            .keepalives_interval(Duration::from_secs(1))
            .target_session_attrs(postgres::config::TargetSessionAttrs::ReadWrite);
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| DatabaseError(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { config, tls: MakeRustlsConnect::new(tls) })
    }

    /// Hosts and name of the database, without what is secret.
    pub fn shown(&self) -> String {
        let hosts = self.config.get_hosts().iter().map(|host| match host {
            postgres::config::Host::Tcp(name) => name.clone(),
            postgres::config::Host::Unix(path) => path.display().to_string(),
        });
        let hosts: Vec<String> = hosts.collect();
        format!("{}/{}", hosts.join(","), self.config.get_dbname().unwrap_or_default())
    }

    pub(super) fn connect(&self) -> Result<Connection, DatabaseError> {
        let warned = Arc::new(AtomicBool::new(false));
        let (mut config, note) = (self.config.clone(), Arc::clone(&warned));
        config.notice_callback(move |notice| {
            if notice.parsed_severity() == Some(Severity::Warning) {
                note.store(true, Ordering::Release);
            }
        });
        let mut connection = Connection { client: config.connect(self.tls.clone())?, warned };
        connection.client.batch_execute(SETTINGS)?;
        // A database may warn at each connection, as of another version of its collations.
        connection.take_warning();
        Ok(connection)
    }
}
