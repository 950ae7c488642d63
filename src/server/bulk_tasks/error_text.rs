//! Which errors count as one: those that say the same but for numbers and ids. A ground type: it imports nothing of the
//! server.

/// Most characters of the text of a group.
const GROUP_CHARS_MAX: usize = 200;

/// Replaces each word with a digit, so that errors that differ in numbers and ids only are one group.
const PLACEHOLDER: char = '#';

/// The text of the group that an error belongs to: its first line, in which each word with a digit is a placeholder. A word is
/// letters and digits with `-` and `_` between them, so that a UUID is one. The group of such a text is itself.
pub fn group_of(error: &str) -> String {
    let is_of_word = |byte: char| byte.is_ascii_alphanumeric() || matches!(byte, '-' | '_');
    let line = error.trim_start().lines().next().unwrap_or_default().trim_end();
    let mut group = String::new();
    let (mut rest, mut chars) = (line, 0);
    while let Some(first) = rest.chars().next()
        && chars < GROUP_CHARS_MAX
    {
        let end = match rest.find(|letter| !is_of_word(letter)) {
            Some(0) => first.len_utf8(),
            Some(end) => end,
            None => rest.len(),
        };
        let (word, behind) = rest.split_at(end);
        rest = behind;
        if word.bytes().any(|byte| byte.is_ascii_digit()) {
            group.push(PLACEHOLDER);
            chars += 1;
            continue;
        }
        for letter in word.chars().take(GROUP_CHARS_MAX - chars) {
            group.push(letter);
            chars += 1;
        }
    }
    group.truncate(group.trim_end().len());
    group
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_differ_in_numbers_and_ids_are_of_one_group() {
        for (error, group) in [
            ("timeout after 3000 ms", "timeout after # ms"),
            ("timeout after 30s", "timeout after #"),
            ("job 0190163d-8694-739b-aea5-966c26f8a787 is gone", "job # is gone"),
            ("connect ECONNREFUSED 10.0.0.1:5432", "connect ECONNREFUSED #.#.#.#:#"),
            ("user_17 not found", "# not found"),
            ("no digits at all", "no digits at all"),
            ("  first line \nat stack (file.js:1:2)", "first line"),
            ("Fehler: größer als 5 €", "Fehler: größer als # €"),
            ("", ""),
            ("\n\n", ""),
        ] {
            assert_eq!(group_of(error), group, "{error}");
        }
    }

    #[test]
    fn the_text_of_a_group_is_bounded_and_is_its_own_group() {
        let long = "ä".repeat(1000);
        for error in
            ["E11000 duplicate key: 5", "a-1 b", &long, &"word ".repeat(100), &"7 ".repeat(500)]
        {
            let group = group_of(error);
            assert!(group.chars().count() <= GROUP_CHARS_MAX);
            assert_eq!(group_of(&group), group);
        }
    }
}
