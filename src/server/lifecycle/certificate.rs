//! The server's certificate as people see it: in the log, in metrics, in `/health`; and what those are told who
//! speak TLS where it is not spoken, or the other way round.

use super::listeners::Port;
use crate::api::error::{ErrorKind, ErrorRef};
use crate::config::Config;
use crate::protocol::http1::answer::{self, Answer, JSON, Manner, Standing as Manners};
use crate::protocol::msgpack::writer::MapWriter;
use crate::protocol::reply;
use crate::server::connection::protocol::Protocol;
use corq_io::tls::{CertificateStatus, CertificateStore, Identity, ServerFiles};
use std::sync::Arc;

/// A certificate that ends sooner is worth a word.
const SOON_S: i64 = 14 * DAY_S;
const DAY_S: i64 = 86_400;

/// Reads the files that the settings name, if they name any. An error is one line.
pub fn open(config: &Config) -> Result<Option<Arc<CertificateStore>>, String> {
    let (Some(certificate), Some(key)) = (&config.tls_cert_file, &config.tls_key_file) else {
        return Ok(None);
    };
    let files = ServerFiles {
        certificate: certificate.clone(),
        key: key.clone(),
        client_authorities: config.tls_client_ca_file.clone(),
    };
    let certificates = CertificateStore::open(files)?;
    judge(&certificates.identity());
    Ok(Some(Arc::new(certificates)))
}

/// Reads them again, and says what there is. What is wrong is said, and all stays as it is.
pub fn reload(certificates: &CertificateStore) -> Result<String, String> {
    match certificates.reload() {
        Ok(identity) => {
            let told = shown(&identity);
            tracing::info!("the certificate was read again: {told}");
            judge(&identity);
            Ok(told)
        }
        Err(error) => {
            tracing::error!("the certificate stays as it was: {error}");
            Err(error)
        }
    }
}

/// A certificate for people.
pub fn shown(identity: &Identity) -> String {
    format!("{}, valid until {}", identity.names, date(identity.expires_s))
}

fn judge(identity: &Identity) {
    for line in &identity.exposures {
        tracing::warn!("{line}");
    }
    let remaining_s = identity.remaining_s();
    if remaining_s < 0 {
        tracing::warn!("TLS_CERT_FILE: the certificate has expired: {}", shown(identity));
    } else if identity.is_early() {
        let begins = date(identity.begins_s);
        tracing::warn!("TLS_CERT_FILE: the certificate is not valid before {begins}");
    } else if remaining_s < SOON_S {
        let days = remaining_s / DAY_S;
        tracing::warn!(
            "TLS_CERT_FILE: the certificate expires in {days} days: {}",
            shown(identity)
        );
    }
}

fn date(at_s: i64) -> String {
    let date = chrono::DateTime::from_timestamp_secs(at_s).unwrap_or_default();
    date.format("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// Writes `tls` of `/health`.
pub fn write_health(health: &mut MapWriter<'_>, standing: CertificateStatus) {
    let mut tls = health.map("tls");
    tls.key("certificateExpiresAt").number(standing.expires_s as f64 * 1000.0);
    tls.key("reloadFailed").bool(standing.is_stale);
}

/// Writes the answer to a client that speaks in the clear at a port for TLS.
pub fn refuse_plain(out: &mut Vec<u8>, port: Port, manners: &Manners, date: &str) {
    if port.protocol == Protocol::Http {
        let error = ErrorRef::from(ErrorKind::TlsSpoken);
        let (status, body) = (error.code.status(), error.json());
        let answer = Answer { status, kind: JSON, extra: "", body: body.as_bytes() };
        let manner = Manner { bodiless: false, stay: false, origin: 0 };
        answer::write(out, manners, date, &answer, manner);
    } else {
        reply::error(out, None, ErrorKind::TlsSpoken);
    }
}

/// Whether a client begins with a handshake where TLS is not spoken.
pub fn is_handshake(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x16, 0x03])
}
