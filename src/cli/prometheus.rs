//! Reads out of the metrics text what the command line shows. Knows the form of the lines, not what
//! they mean.

/// The samples of a family: labels (without braces) and value of each.
fn samples<'a>(text: &'a str, family: &str) -> impl Iterator<Item = (&'a str, f64)> {
    text.lines().filter_map(move |line| {
        let rest = line.strip_prefix(family)?;
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => rest.rsplit_once("} ")?,
            None => ("", rest.strip_prefix(' ')?),
        };
        Some((labels, value.parse().ok()?))
    })
}

/// The number that a family is, or one of its samples if its labels are given.
pub fn number(text: &str, family: &str) -> Option<f64> {
    samples(text, family).next().map(|(_, value)| value)
}

/// Text of a label of a family's first line, where nothing in it has to be escaped.
pub fn label<'a>(text: &'a str, family: &str, label: &str) -> Option<&'a str> {
    let (labels, _) = samples(text, family).next()?;
    let value = |pair: &'a str| pair.strip_prefix(label)?.strip_prefix("=\"")?.strip_suffix('"');
    labels.split(',').find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP corq_jobs Jobs.\n# TYPE corq_jobs gauge\ncorq_jobs 7\n\
        corq_queue_jobs_dlq{queue=\"a\"} 3\n";

    #[test]
    fn families_are_told_apart() {
        assert_eq!(number(TEXT, "corq_jobs"), Some(7.0));
        assert_eq!(number(TEXT, "corq_job"), None);
        assert_eq!(number(TEXT, "corq_queue_jobs_dlq{queue=\"a\"}"), Some(3.0));
        assert_eq!(label(TEXT, "corq_queue_jobs_dlq", "queue"), Some("a"));
        assert_eq!(label(TEXT, "corq_queue_jobs_dlq", "que"), None);
    }
}
