//! Where backups go.

use corq_io::s3::Bucket;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Before the name of a bucket.
const SCHEME: &str = "s3://";
/// Longest prefix in a bucket: keys may have 1,024 bytes.
const PREFIX_BYTES_MAX: usize = 512;

/// Where backups go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BackupTarget {
    /// A directory of this machine.
    Directory(PathBuf),
    /// A bucket, and what the names of all objects begin with: nothing, or a text with a slash at its end.
    Bucket { bucket: String, prefix: String },
}

impl BackupTarget {
    /// Reads a path, or `s3://bucket/prefix`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix(SCHEME) else {
            return match text {
                "" => Err("it must not be empty".into()),
                _ if text.contains("://") => Err("it must be a path or s3://BUCKET/PREFIX".into()),
                _ => Ok(Self::Directory(text.into())),
            };
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_matches('/');
        let is_plain = prefix.split('/').all(|part| !matches!(part, "" | "." | ".."));
        if prefix.len() > PREFIX_BYTES_MAX
            || prefix.chars().any(char::is_control)
            || !prefix.is_empty() && !is_plain
        {
            return Err(format!("its prefix must be a path of at most {PREFIX_BYTES_MAX} bytes"));
        }
        let nobody = corq_io::s3::Credentials {
            key_id: String::new(),
            secret: String::new(),
            session_token: None,
        };
        // The client knows which names can be those of buckets.
        Bucket::new(bucket, None, "any", nobody, Duration::ZERO)?;
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(Self::Bucket { bucket: bucket.into(), prefix })
    }
}

impl fmt::Display for BackupTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => path.display().fmt(f),
            Self::Bucket { bucket, prefix } => {
                write!(f, "{SCHEME}{bucket}/{}", prefix.trim_end_matches('/'))
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_path_or_a_bucket_with_a_prefix() {
        assert_eq!(BackupTarget::parse("/b").unwrap(), BackupTarget::Directory("/b".into()));
        for (text, prefix) in [("s3://jobs", ""), ("s3://jobs/", ""), ("s3://jobs/a/b/", "a/b/")] {
            let target = BackupTarget::parse(text).unwrap();
            assert_eq!(
                target,
                BackupTarget::Bucket { bucket: "jobs".into(), prefix: prefix.into() }
            );
        }
        assert_eq!(BackupTarget::parse("s3://jobs/a/").unwrap().to_string(), "s3://jobs/a");
        for wrong in
            ["", "s3://", "s3:///p", "s3://a", "gs://jobs/a", "s3://jobs/a//b", "s3://jobs/../b"]
        {
            assert!(BackupTarget::parse(wrong).is_err(), "{wrong}");
        }
    }
}
