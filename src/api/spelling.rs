//! Names that seem to mean other names: of a query parameter or a field of a body that is not known, the known one that it
//! is a misspelling of. A client that misspells `timeout` takes a job at once instead of waiting for one, and would not
//! learn of it.

/// Longer names are not compared: no name of a field is as long.
const NAME_BYTES_MAX: usize = 32;

/// Names shorter than this must be closer: most short words are two edits apart.
const SHORT_BYTES: usize = 5;

/// The one of the known names that an unknown name seems to mean: the same but for case, or at most two edits away, one
/// for a short name. An edit is a letter that is too much, lacks, is another, or has changed places with the next.
pub fn meant<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let mut best: Option<(usize, &str)> = None;
    for one in known {
        let edits_max = if one.len() < SHORT_BYTES { 1 } else { 2 };
        let edits = if name.eq_ignore_ascii_case(one) {
            0
        } else if name.len().abs_diff(one.len()) > edits_max || differ(name, one) > 2 * edits_max {
            continue;
        } else {
            distance(name.as_bytes(), one.as_bytes())
        };
        if edits <= edits_max && best.is_none_or(|(least, _)| edits < least) {
            best = Some((edits, one));
        }
    }
    best.map(|(_, one)| one)
}

/// A name as an error repeats it: it comes from a client, and an error is written without escapes.
pub fn shown(name: &str) -> String {
    let plain = |it: char| if it.is_ascii_alphanumeric() || "_-.".contains(it) { it } else { '?' };
    name.chars().map(plain).collect()
}

/// How many letters stand in one name only: an edit changes two of them at most.
fn differ(one: &str, other: &str) -> usize {
    let letters = |name: &str| name.bytes().fold(0_u64, |seen, byte| seen | 1 << (byte & 63));
    (letters(one) ^ letters(other)).count_ones() as usize
}

/// Fewest edits that make one name of the other, where no part is edited twice.
fn distance(one: &[u8], other: &[u8]) -> usize {
    // Of the last two prefixes of `one` to each prefix of `other`.
    let mut before = [0; NAME_BYTES_MAX + 3];
    let mut last: [usize; NAME_BYTES_MAX + 3] = std::array::from_fn(|at| at);
    for (row, &byte) in one.iter().enumerate() {
        let mut next = [row + 1; NAME_BYTES_MAX + 3];
        for (column, &its) in other.iter().enumerate() {
            let swapped = row > 0 && column > 0 && byte == other[column - 1] && its == one[row - 1];
            let best = (last[column] + usize::from(byte != its))
                .min(last[column + 1] + 1)
                .min(next[column] + 1);
            next[column + 1] = if swapped { best.min(before[column - 1] + 1) } else { best };
        }
        before = last;
        last = next;
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelling_means_the_nearest_name_and_another_word_none() {
        let known = ["timeout", "lockTtl", "ttl", "data", "name", "priority", "tags"];
        let of = |name| meant(name, known.into_iter());
        for (name, expected) in [
            ("tmeout", "timeout"),
            ("tiemout", "timeout"),
            ("timeouts", "timeout"),
            ("TIMEOUT", "timeout"),
            ("lockttl", "lockTtl"),
            ("lock_ttl", "lockTtl"),
            ("prioritty", "priority"),
            ("proirty", "priority"),
            ("tag", "tags"),
            ("dtaa", "data"),
            ("nmae", "name"),
            ("tl", "ttl"),
        ] {
            assert_eq!(of(name), Some(expected), "{name}");
        }
        for name in ["", "x", "owner", "rate", "type", "timestamp", "attempts", &"t".repeat(40)] {
            assert_eq!(of(name), None, "{name}");
        }
    }

    #[test]
    fn a_distance_counts_edits_and_neighbours_that_changed_places() {
        for (one, other, edits) in
            [("", "", 0), ("", "ab", 2), ("ab", "", 2), ("abc", "acb", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(one.as_bytes(), other.as_bytes()), edits, "{one} {other}");
            assert_eq!(distance(other.as_bytes(), one.as_bytes()), edits, "{other} {one}");
        }
    }

    #[test]
    fn what_is_shown_of_a_name_needs_no_escapes() {
        assert_eq!(shown("a\"b\\\u{1}ü-_.9"), "a?b???-_.9");
    }
}
