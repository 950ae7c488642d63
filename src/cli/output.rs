//! Output for people: aligned tables, pairs and lines, with colour on a terminal only. Knows nothing of what it shows.

use std::env;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::failure::Failure;
use crate::escape;
use crate::protocol::json;
use crate::protocol::uuid_text::UUID_CHARS;

/// Spaces between columns.
const GAP: usize = 2;
/// Widths of the columns of a table that goes on: an id, the longest state, figures and times.
const STEADY_WIDTHS: [usize; 3] = [UUID_CHARS, 16, 9];

/// How a text is to look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// As it comes.
    Plain,
    /// Frames of the rest: heads of tables, names of pairs.
    Dim,
    /// As it should be.
    Good,
    /// Worth a look.
    Warn,
    /// Something is wrong.
    Bad,
}

/// A cell of a table.
#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// A text that looks like something.
    pub fn styled(text: impl Into<String>, style: Style) -> Self {
        Self { text: escape::line(&text.into()).into_owned(), style }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::styled(text, Style::Plain)
    }
}

/// Rows below heads. Columns whose head begins with `>` are set to the right.
#[derive(Debug)]
pub struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
    steady: bool,
}

impl Table {
    /// A table without rows.
    pub fn new(heads: &[&'static str]) -> Self {
        Self { heads: heads.to_vec(), rows: Vec::new(), steady: false }
    }

    /// Adds a row, with a cell for each head.
    pub fn row(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.heads.len());
        self.rows.push(cells);
    }

    /// With columns as wide as the rows to come are likely to need, so that they stand below each
    /// other.
    #[must_use]
    pub fn steady(self) -> Self {
        Self { steady: true, ..self }
    }

    fn columns(&self) -> Vec<Column> {
        let column = |(place, head): (usize, &&'static str)| {
            let widths = self.rows.iter().map(|row| row[place].text.width());
            let widest = widths.chain([head.trim_start_matches('>').width()]).max().unwrap_or(0);
            let least = STEADY_WIDTHS[place.min(STEADY_WIDTHS.len() - 1)];
            Column {
                right: head.starts_with('>'),
                width: if self.steady { widest.max(least) } else { widest },
            }
        };
        self.heads.iter().enumerate().map(column).collect()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// Standard output, as far as the commands need it.
#[derive(Debug)]
pub struct Output {
    out: BufWriter<StdoutLock<'static>>,
    colour: bool,
    /// Columns of the terminal; `None` where there is none and nothing is cut.
    width: Option<usize>,
}

impl Output {
    /// Takes standard output.
    pub fn new() -> Self {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        let width = if terminal { ratatui::crossterm::terminal::size().ok() } else { None };
        Self {
            colour: terminal && colour_is_wanted(),
            width: width.map(|(columns, _)| usize::from(columns)).filter(|columns| *columns > 0),
            out: BufWriter::new(stdout.lock()),
        }
    }

    /// The time that relative times are told from, milliseconds.
    pub fn now_ms() -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.as_millis() as i64
    }

    /// Hands on all that was written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Writes a line as it is.
    pub fn line(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{}", escape::line(text))
    }

    /// Text that may have several lines and ends with one.
    pub fn text(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(escape::lines(text).as_bytes())
    }

    /// A line of JSON that is there already.
    pub fn json_line(&mut self, text: &[u8]) -> io::Result<()> {
        self.out.write_all(&escape::json(text))?;
        self.out.write_all(b"\n")
    }

    /// Bytes that something else reads.
    pub fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)
    }

    /// A reply as one line of JSON.
    pub fn json(&mut self, value: &[u8]) -> Result<(), Failure> {
        let mut text = Vec::new();
        json::from_reply(value, &mut text)
            .map_err(|error| Failure::Failed(format!("the answer cannot be shown: {error}")))?;
        Ok(self.json_line(&text)?)
    }

    /// A record of the log as one line of JSON.
    pub fn record(&mut self, value: &[u8]) -> Result<(), Failure> {
        let mut text = Vec::new();
        json::from_record(value, &mut text)
            .map_err(|error| Failure::Failed(format!("a record cannot be shown: {error}")))?;
        Ok(self.json_line(&text)?)
    }

    /// Writes a line of pieces in their styles, with a space between them.
    pub fn pieces(&mut self, cells: &[Cell]) -> io::Result<()> {
        for (place, cell) in cells.iter().enumerate() {
            if place > 0 {
                self.out.write_all(b" ")?;
            }
            self.styled(&cell.text, cell.style)?;
        }
        self.out.write_all(b"\n")
    }

    /// Names and values, the values below each other.
    pub fn pairs(&mut self, pairs: &[(&str, Cell)]) -> io::Result<()> {
        let wide = pairs.iter().map(|(name, _)| name.width()).max().unwrap_or(0);
        for (name, cell) in pairs {
            self.styled(name, Style::Dim)?;
            write!(self.out, "{:1$}", "", wide - name.width() + GAP)?;
            self.styled(&cell.text, cell.style)?;
            self.out.write_all(b"\n")?;
        }
        Ok(())
    }

    /// A table, its last column cut where the terminal ends.
    pub fn table(&mut self, table: &Table) -> io::Result<()> {
        let heads = table.heads.iter().map(|head| head.trim_start_matches('>'));
        let heads: Vec<Cell> = heads.map(|head| Cell::styled(head, Style::Dim)).collect();
        self.row(&table.columns(), &heads)?;
        self.rows(table)
    }

    /// The rows of a table whose heads stand above already.
    pub fn rows(&mut self, table: &Table) -> io::Result<()> {
        let columns = table.columns();
        table.rows.iter().try_for_each(|row| self.row(&columns, row))
    }

    fn row(&mut self, columns: &[Column], cells: &[Cell]) -> io::Result<()> {
        let mut taken = 0;
        for (place, (column, cell)) in columns.iter().zip(cells).enumerate() {
            let last = place + 1 == columns.len();
            let text = match self.width.filter(|_| last) {
                Some(width) => cut(&cell.text, width.saturating_sub(taken).max(10)),
                None => cell.text.clone(),
            };
            let padding = column.width.saturating_sub(text.width());
            if column.right {
                write!(self.out, "{:padding$}", "")?;
            }
            self.styled(&text, cell.style)?;
            if !column.right && !last {
                write!(self.out, "{:padding$}", "")?;
            }
            if !last {
                write!(self.out, "{:GAP$}", "")?;
            }
            taken += column.width + GAP;
        }
        self.out.write_all(b"\n")
    }

    fn styled(&mut self, text: &str, style: Style) -> io::Result<()> {
        let code = match style {
            _ if !self.colour => "",
            Style::Plain => "",
            Style::Dim => "2",
            Style::Good => "32",
            Style::Warn => "33",
            Style::Bad => "31",
        };
        if code.is_empty() {
            self.out.write_all(text.as_bytes())
        } else {
            write!(self.out, "\x1b[{code}m{text}\x1b[0m")
        }
    }
}

struct Column {
    right: bool,
    width: usize,
}

/// The front of a text that fits so many columns, with a mark where something is missing.
fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut left = columns.saturating_sub(1);
    let mut shown: String = text
        .chars()
        .take_while(|it| {
            let wide = it.width().unwrap_or(0);
            let fits = wide <= left;
            left = left.saturating_sub(wide);
            fits
        })
        .collect();
    shown.push('…');
    shown
}

fn colour_is_wanted() -> bool {
    let no_color = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !no_color && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_by_columns_not_by_letters() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "ab…");
        // Wide letters take two columns each.
        assert_eq!(cut("日本語", 4), "日…");
    }
}
