//! The storage and its credentials, which come from the settings themselves, or from a file as other programs
//! have it. They are read for every backup, so that new ones count without a restart.

use super::objects::Objects;
use super::target::BackupTarget;
use crate::config::Config;
use crate::tools::place::{Fault, at};
use corq_io::s3::{Bucket, Client, Credentials, Stop};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Of a file of credentials, the part that is read.
const PROFILE: &str = "default";
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The storage of a target that is a bucket; nothing of one that is a directory.
pub fn open(config: &Config, target: &BackupTarget, stop: &Stop) -> Result<Option<Objects>, Fault> {
    let BackupTarget::Bucket { bucket, prefix } = target else { return Ok(None) };
    let credentials = credentials(config)?;
    let timeout = Duration::from_millis(config.backup_s3_timeout_ms);
    let endpoint = config.backup_s3_endpoint.as_deref();
    let bucket = Bucket::new(bucket, endpoint, &config.backup_s3_region, credentials, timeout);
    let bucket = bucket.map_err(|why| Fault(format!("BACKUP_S3_ENDPOINT: {why}")))?;
    Ok(Some(Objects::new(Client::new(bucket, stop.clone()), prefix)))
}

fn credentials(config: &Config) -> Result<Credentials, Fault> {
    let given = |value: &Option<String>| value.clone().filter(|it| !it.is_empty());
    let id = given(&config.backup_s3_access_key_id);
    let secret = given(&config.backup_s3_secret_access_key);
    let missing = |what: &str| Err(Fault(format!("{what}: it is missing for backups to a bucket")));
    match (id, secret, &config.backup_s3_credentials_file) {
        (Some(key_id), Some(secret), _) => Ok(Credentials {
            key_id,
            secret,
            session_token: given(&config.backup_s3_session_token),
        }),
        (Some(_), None, _) => missing("BACKUP_S3_SECRET_ACCESS_KEY"),
        (None, Some(_), _) => missing("BACKUP_S3_ACCESS_KEY_ID"),
        (None, None, Some(path)) => in_file(path),
        (None, None, None) => missing("BACKUP_S3_ACCESS_KEY_ID or BACKUP_S3_CREDENTIALS_FILE"),
    }
}

fn in_file(path: &Path) -> Result<Credentials, Fault> {
    let length = fs::metadata(path).map_err(at(path))?.len();
    if length > FILE_BYTES_MAX {
        return Err(Fault(format!("{}: it has more than {FILE_BYTES_MAX} bytes", path.display())));
    }
    let text = fs::read_to_string(path).map_err(at(path))?;
    parse(&text).map_err(|key| Fault(format!("{}: [{PROFILE}] has no {key}", path.display())))
}

/// The credentials of a file; else the key that it lacks.
fn parse(text: &str) -> Result<Credentials, &'static str> {
    let (mut id, mut secret, mut session_token) = (None, None, None);
    let mut is_ours = false;
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            is_ours = section.trim_end_matches(']').trim() == PROFILE;
        } else if let Some((key, value)) = line.split_once('=').filter(|_| is_ours) {
            let slot = match key.trim() {
                "aws_access_key_id" => &mut id,
                "aws_secret_access_key" => &mut secret,
                "aws_session_token" => &mut session_token,
                _ => continue,
            };
            *slot = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
        }
    }
    let key_id = id.ok_or("aws_access_key_id")?;
    Ok(Credentials { key_id, secret: secret.ok_or("aws_secret_access_key")?, session_token })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_those_of_the_default_profile() {
        let text = "[other]\naws_access_key_id = no\n# a note\n[default]\naws_access_key_id=AK\n\
            aws_secret_access_key = s3=cret \nregion = eu\n[last]\naws_session_token = no\n";
        let found = parse(text).unwrap();
        assert_eq!((&*found.key_id, &*found.secret, found.session_token), ("AK", "s3=cret", None));
        assert_eq!(parse("[default]\naws_access_key_id = AK\n"), Err("aws_secret_access_key"));
        assert_eq!(parse("aws_access_key_id = AK\n"), Err("aws_access_key_id"));
    }
}
