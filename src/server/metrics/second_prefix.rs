//! Repeats metrics under a second prefix: for dashboards and alarms that know the families by the names that another
//! server gives them. Knows lines of text only.

/// The prefix that all names have.
const PREFIX: &str = "corq_";

/// Beginnings of the lines about a family, before its name.
const ABOUT: [&str; 2] = ["# HELP ", "# TYPE "];

/// Whole lines again, with the other prefix in front of each name.
pub(super) fn renamed(lines: &str, prefix: &str) -> String {
    let mut text = String::with_capacity(lines.len() + lines.len() / 8);
    for line in lines.split_inclusive('\n') {
        let about = ABOUT.into_iter().find(|about| line.starts_with(about)).unwrap_or("");
        let rest = &line[about.len()..];
        let Some(name) = rest.strip_prefix(PREFIX) else {
            text.push_str(line);
            continue;
        };
        text.push_str(about);
        text.push_str(prefix);
        text.push_str(name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_other_prefix_and_nothing_else_is_changed() {
        let lines = "# HELP corq_jobs Jobs of corq_ in any state.\n# TYPE corq_jobs gauge\n\
                     corq_jobs{queue=\"corq_x\"} 7\n";
        let expected = "# HELP other_jobs Jobs of corq_ in any state.\n# TYPE other_jobs gauge\n\
                        other_jobs{queue=\"corq_x\"} 7\n";
        assert_eq!(renamed(lines, "other_"), expected);
        assert_eq!(renamed("", "other_"), "");
    }
}
