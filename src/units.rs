//! Figures as people read them.

/// Bytes in the largest unit that leaves at least one: `980 B`, `1.5 KB`, `2.0 GB`.
pub fn bytes(count: f64) -> String {
    let mut count = count.max(0.0);
    for unit in ["B", "KB", "MB", "GB"] {
        if count < 1024.0 {
            let digits = usize::from(unit != "B" && count < 100.0);
            return format!("{count:.digits$} {unit}");
        }
        count /= 1024.0;
    }
    format!("{count:.1} TB")
}

/// A number with as many decimals as its size deserves: `0`, `0.25`, `3.1`, `1200`.
pub fn figure(number: f64) -> String {
    match number.abs() {
        0.0 => "0".to_owned(),
        ..1.0 => format!("{number:.2}"),
        ..100.0 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        let figures = [0.0, 0.254, 3.12, 1200.4].map(figure);
        assert_eq!(figures, ["0", "0.25", "3.1", "1200"]);
        let sizes = [980.0, 1536.0, 300.0 * 1024.0, 2_147_483_648.0].map(bytes);
        assert_eq!(sizes, ["980 B", "1.5 KB", "300 KB", "2.0 GB"]);
    }
}
