//! PEM files. An error is one line that names the setting and the file, and says what is wrong with it.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A file of ours is a few kilobytes, a bundle of all authorities a few hundred.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// A line about a file.
pub(super) fn line(setting: &str, path: &Path, what: impl Display) -> String {
    format!("{setting}: {}: {what}", path.display())
}

fn read(setting: &str, path: &Path) -> Result<Vec<u8>, String> {
    let wrong = |error: std::io::Error| line(setting, path, error);
    // A pipe in its place must not block the reading thread, which is the one that handles signals.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = file.map_err(wrong)?;
    if !file.metadata().map_err(wrong)?.is_file() {
        return Err(line(setting, path, "it is no file"));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(wrong)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(line(setting, path, "the file is too large for what it should hold"));
    }
    Ok(bytes)
}

/// Says that other users of the machine can do with a file what they should not: write it, or read it if it is
/// `secret`. Members of its group may read it, which is how keys are shared among servers of one machine.
pub(super) fn exposure(setting: &str, path: &Path, secret: bool) -> Option<String> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
    let (read, written) = (secret && mode & 0o004 != 0, mode & 0o002 != 0);
    // A group of one is common, so only a secret is worth a word.
    let by_group = secret && mode & 0o020 != 0;
    let what = match (read, written, by_group) {
        (true, true, _) => "every user of this machine can read and replace it",
        (true, false, _) => "every user of this machine can read it",
        (false, true, _) => "every user of this machine can replace it",
        (false, false, true) => "its group can replace it",
        (false, false, false) => return None,
    };
    let wanted = if secret { "chmod 600, or 640" } else { "chmod o-w" };
    Some(line(setting, path, format!("its mode is {mode:04o}, so {what}: {wanted}")))
}

/// The certificates in a file; at least one.
pub(super) fn certificates(
    setting: &str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = read(setting, path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|error| line(setting, path, format!("it is no PEM: {error}")))?;
    if found.is_empty() {
        let what = "it holds no certificate: PEM with a block CERTIFICATE is wanted";
        return Err(line(setting, path, what));
    }
    Ok(found)
}

/// The private key in a file.
pub(super) fn key(setting: &str, path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let bytes = read(setting, path)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| {
        let is_encrypted = bytes.windows(9).any(|window| window == b"ENCRYPTED");
        match error {
            PemError::NoItemsFound if is_encrypted => {
                line(setting, path, "the key is encrypted: a key without a passphrase is wanted")
            }
            PemError::NoItemsFound => line(
                setting,
                path,
                "it holds no private key: PEM with a block PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY \
                 is wanted",
            ),
            error => line(setting, path, format!("it is no PEM: {error}")),
        }
    })
}

/// The authorities in a file.
pub(super) fn authorities(setting: &str, path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for (place, certificate) in certificates(setting, path)?.into_iter().enumerate() {
        roots.add(certificate).map_err(|error| {
            line(setting, path, format!("certificate {} is none: {error}", place + 1))
        })?;
    }
    Ok(roots)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};

    #[test]
    fn a_file_that_others_can_read_or_write_is_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key.pem");
        fs::write(&path, "").unwrap();
        let told = |mode: u32, secret: bool| {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            exposure("TLS_KEY_FILE", &path, secret)
        };
        for (mode, words) in [
            (0o666, Some("is 0666, so every user of this machine can read and replace it")),
            (0o644, Some("is 0644, so every user of this machine can read it")),
            (0o602, Some("every user of this machine can replace it")),
            (0o660, Some("its group can replace it")),
            (0o640, None),
            (0o600, None),
            (0o400, None),
        ] {
            let said = told(mode, true);
            assert_eq!(said.is_some(), words.is_some(), "{mode:o}: {said:?}");
            assert!(words.is_none_or(|words| said.unwrap().contains(words)), "{mode:o}");
        }
        assert_eq!((told(0o644, false), told(0o664, false)), (None, None));
        assert!(told(0o666, false).unwrap().ends_with("can replace it: chmod o-w"));
        fs::remove_file(&path).unwrap();
        assert_eq!(exposure("TLS_KEY_FILE", &path, true), None);
    }
}
