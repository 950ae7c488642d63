//! Tokens as settings and files write them: `secret`, `role:secret` or `role(pattern,pattern):secret`.
//!
//! What begins with none of the roles is the token of an admin as a whole, colons included. What begins like a role and
//! its queues and goes on like nothing of the kind is refused: as a token of an admin it would open everything. Errors
//! say where an entry stands and never what its secret is.

use crate::api::access::Role;
use crate::protocol::decode::value::is_queue_name;

/// Most tokens of a server.
pub const TOKENS_MAX: usize = 1000;

/// Most patterns of a token.
pub const PATTERNS_MAX: usize = 64;

/// A token of the settings.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    pub role: Role,
    /// For all queues, if there are none.
    pub patterns: Vec<String>,
    pub secret: String,
}

/// The role that an entry begins with, and what follows its name.
fn role_of(entry: &str) -> Option<(Role, &str)> {
    Role::ALL.into_iter().find_map(|role| {
        let rest = entry.strip_prefix(role.name())?;
        rest.starts_with([':', '(']).then_some((role, rest))
    })
}

/// Splits a setting at its commas, but for those between the parentheses behind a role.
fn entries(setting: &str) -> Vec<&str> {
    let (mut entries, mut begin, mut inside) = (Vec::new(), 0, false);
    for (at, byte) in setting.bytes().enumerate() {
        let entry = setting[begin..at].trim_start();
        match byte {
            b'(' if Role::ALL.iter().any(|role| role.name() == entry) => inside = true,
            b')' => inside = false,
            b',' if !inside => {
                entries.push(&setting[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    entries.push(&setting[begin..]);
    entries
}

/// Reads an entry of the settings; `None` if it is empty.
fn read_one(entry: &str) -> Result<Option<Token>, String> {
    let entry = entry.trim();
    if entry.is_empty() {
        return Ok(None);
    }
    let Some((role, rest)) = role_of(entry) else {
        let secret = entry.to_owned();
        return Ok(Some(Token { role: Role::Admin, patterns: Vec::new(), secret }));
    };
    let name = role.name();
    let (patterns, rest) = match rest.strip_prefix('(') {
        None => (Vec::new(), rest),
        Some(rest) => {
            let (list, rest) = rest
                .split_once(')')
                .ok_or_else(|| format!("{name}( must be closed by ) behind its queues"))?;
            (patterns(name, list)?, rest)
        }
    };
    let Some(secret) = rest.strip_prefix(':') else {
        return Err(format!("{name}(...) must be followed by : and a token"));
    };
    if secret.is_empty() {
        return Err(format!("{name}: must be followed by a token"));
    }
    Ok(Some(Token { role, patterns, secret: secret.to_owned() }))
}

fn patterns(role: &str, list: &str) -> Result<Vec<String>, String> {
    let patterns: Vec<String> = list.split(',').map(|pattern| pattern.trim().to_owned()).collect();
    if patterns.len() > PATTERNS_MAX {
        return Err(format!("{role}(...) must have at most {PATTERNS_MAX} queues"));
    }
    // A star stands where any character of a name could.
    match patterns.iter().find(|pattern| !is_queue_name(&pattern.replace('*', "-"))) {
        Some(pattern) => Err(format!(
            "{role}({pattern}) must name queues: letters, digits, _ - . : and * for any characters"
        )),
        None => Ok(patterns),
    }
}

fn read<'a>(
    source: &str,
    entries: impl Iterator<Item = (usize, &'a str)>,
    tokens: &mut Vec<Token>,
) -> Result<(), String> {
    for (number, entry) in entries {
        let token = read_one(entry).map_err(|error| format!("{source} {number}: {error}"))?;
        let Some(token) = token else { continue };
        if tokens.iter().any(|known| known.secret == token.secret && *known != token) {
            return Err(format!("{source} {number}: another entry gives this token other rights"));
        }
        tokens.push(token);
        if tokens.len() > TOKENS_MAX {
            return Err(format!("there must be at most {TOKENS_MAX} tokens"));
        }
    }
    Ok(())
}

/// The tokens of the setting, and of the text of a file: one a line, with lines that are empty or begin with `#` between.
pub fn read_all(setting: &str, file: Option<&str>) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let listed = entries(setting);
    read("AUTH_TOKENS: entry", listed.into_iter().enumerate().map(numbered), &mut tokens)?;
    let lines = file.unwrap_or_default().lines().enumerate().map(numbered);
    let lines = lines.filter(|(_, line)| !line.trim_start().starts_with('#'));
    read("AUTH_TOKENS_FILE: line", lines, &mut tokens)?;
    if tokens.is_empty() && file.is_some() {
        return Err("AUTH_TOKENS_FILE: it holds no token".into());
    }
    Ok(tokens)
}

fn numbered<T>((index, item): (usize, T)) -> (usize, T) {
    (index + 1, item)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn token(role: Role, patterns: &[&str], secret: &str) -> Token {
        let patterns = patterns.iter().map(ToString::to_string).collect();
        Token { role, patterns, secret: secret.to_owned() }
    }

    fn shown(setting: &str) -> Vec<(&'static str, Vec<String>, String)> {
        let tokens = read_all(setting, None).unwrap();
        tokens.into_iter().map(|it| (it.role.name(), it.patterns, it.secret)).collect()
    }

    #[test]
    fn what_names_no_role_is_the_token_of_an_admin_as_a_whole() {
        for plain in ["abc", "writer:abc", ":abc", "adminabc", "a(b):c", "Admin:x", "reader(q):x"] {
            assert_eq!(shown(plain), [("admin", vec![], plain.to_owned())], "{plain}");
        }
        assert_eq!(shown(" one , two,,")[1], ("admin", vec![], "two".into()));
    }

    #[test]
    fn a_role_and_its_queues_stand_before_the_token() {
        let read =
            read_all("admin:abc,read:d:e, push(emails.*, sms):ghi,work(a:b):jkl,(x,y)", None);
        let expected = [
            token(Role::Admin, &[], "abc"),
            token(Role::Read, &[], "d:e"),
            token(Role::Push, &["emails.*", "sms"], "ghi"),
            token(Role::Work, &["a:b"], "jkl"),
            token(Role::Admin, &[], "(x"),
            token(Role::Admin, &[], "y)"),
        ];
        assert!(read.unwrap() == expected);
    }

    #[test]
    fn what_is_nearly_a_role_opens_nothing_and_errors_show_no_secret() {
        for (setting, words) in [
            ("push(emails:secret", "entry 1: push( must be closed"),
            ("a,read(q)secret", "entry 2: read(...) must be followed by :"),
            ("read:", "entry 1: read: must be followed by a token"),
            ("work():secret", "must name queues"),
            ("work(a b):secret", "must name queues"),
            ("read:secret,push:secret", "entry 2: another entry gives this token"),
        ] {
            let error = read_all(setting, None).err().unwrap();
            assert!(error.contains(words) && !error.contains("secret"), "{setting}: {error}");
        }
        let many = vec!["q"; PATTERNS_MAX + 1].join(",");
        assert!(read_all(&format!("read({many}):x"), None).is_err());
        let many: Vec<String> = (0..=TOKENS_MAX).map(|number| number.to_string()).collect();
        assert!(read_all(&many.join(","), None).is_err());
    }

    #[test]
    fn a_file_has_a_token_a_line_with_comments_between() {
        let tokens = read_all("env", Some("# people\nread:one\n\n push(a,b):two \n")).unwrap();
        let secrets: Vec<&str> = tokens.iter().map(|token| &*token.secret).collect();
        assert_eq!(secrets, ["env", "one", "two"]);
        let error = read_all("", Some("read:one\npush(x:two")).err().unwrap();
        assert!(error.starts_with("AUTH_TOKENS_FILE: line 2: "), "{error}");
        assert!(read_all("env", Some("# none")).is_ok());
        assert!(read_all("", Some("# none")).is_err());
    }
}
