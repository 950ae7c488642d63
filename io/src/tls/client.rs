//! Certificates that a client of ours believes and shows: for the command line, which speaks to a server that may have
//! a certificate of an authority that no other program knows.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};

use super::files;

/// Files of a client.
#[derive(Clone, Debug, Default)]
pub struct ClientFiles {
    /// Whose servers are believed; those of the system if there is none.
    pub authorities: Option<PathBuf>,
    /// Certificate and key that the client shows to servers that ask for them.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl ClientFiles {
    /// Which of them other users of the machine can do too much with, a line for each.
    pub fn exposures(&self) -> Vec<String> {
        let authorities = self.authorities.as_ref();
        let authorities = authorities.and_then(|path| files::exposure("--tls-ca", path, false));
        let key = self.identity.as_ref();
        let key = key.and_then(|(_, key)| files::exposure("--tls-key", key, true));
        authorities.into_iter().chain(key).collect()
    }
}

/// A configuration of these files. An error is one line that names the file.
pub fn client_config(files: &ClientFiles) -> Result<Arc<ClientConfig>, String> {
    let roots = match &files.authorities {
        Some(path) => files::authorities("--tls-ca", path)?,
        None => system_roots()?,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let config = match &files.identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = files::certificates("--tls-cert", certificate)?;
            let private = files::key("--tls-key", key)?;
            builder
                .with_client_auth_cert(chain, private)
                .map_err(|error| files::line("--tls-key", key, error))?
        }
    };
    Ok(Arc::new(config))
}

fn system_roots() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let errors: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
        let why = errors.join("; ");
        let why = if why.is_empty() { why } else { format!(" ({why})") };
        return Err(format!("the system has no certificates of authorities{why}: use --tls-ca"));
    }
    Ok(roots)
}
