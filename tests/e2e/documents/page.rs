//! Commands on a page: the lines of its blocks for shells, and the commands that its text names.

use std::fs;
use std::path::Path;

/// A page of Markdown.
pub(super) struct Page {
    pub(super) name: String,
    text: String,
}

/// A line of a page, with its number.
type Line<'a> = (usize, &'a str);

/// A command that the text names: line, the words of its name, the options that are said of it.
type Named = (usize, Vec<String>, Vec<String>);

/// README.md and docs/*.md, in the order of their names.
pub(super) fn pages(repository: &Path) -> Vec<Page> {
    let mut paths = vec![repository.join("README.md")];
    let docs = fs::read_dir(repository.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    paths.extend(docs.filter(|path| path.extension().is_some_and(|it| it == "md")));
    paths.sort();
    let page = |path: &std::path::PathBuf| {
        let name = path.strip_prefix(repository).unwrap().display().to_string();
        Page::new(&name, &fs::read_to_string(path).unwrap())
    };
    paths.iter().map(page).collect()
}

impl Page {
    pub(super) fn new(name: &str, text: &str) -> Self {
        Self { name: name.to_owned(), text: text.to_owned() }
    }

    /// Lines outside of all blocks, or those of blocks in one of these languages.
    fn lines(&self, languages: Option<&[&str]>) -> Vec<Line<'_>> {
        let (mut inside, mut found) = (None, Vec::new());
        for (number, line) in (1..).zip(self.text.lines()) {
            if let Some(language) = line.trim_start().strip_prefix("```") {
                inside = if inside.is_some() { None } else { Some(language.trim()) };
                continue;
            }
            let wanted = match (inside, languages) {
                (None, None) => true,
                (Some(language), Some(languages)) => languages.contains(&language),
                _ => false,
            };
            if wanted {
                found.push((number, line));
            }
        }
        found
    }

    /// The commands of its blocks for shells, each on one line. In a block `console` they stand behind `$`.
    pub(super) fn commands(&self) -> Vec<(usize, String)> {
        let mut commands: Vec<(usize, String)> = Vec::new();
        let mut goes_on = false;
        for (number, line) in self.lines(Some(&["sh", "bash", "shell"])) {
            let (text, more) = match line.trim_end().strip_suffix('\\') {
                Some(text) => (text, true),
                None => (line, false),
            };
            match commands.last_mut().filter(|_| goes_on) {
                Some((_, command)) => command.push_str(text.trim_start()),
                None => commands.push((number, text.trim().to_owned())),
            }
            goes_on = more;
        }
        for (number, line) in self.lines(Some(&["console"])) {
            commands.extend(line.strip_prefix("$ ").map(|it| (number, it.trim().to_owned())));
        }
        commands.retain(|(_, command)| !command.is_empty() && !command.starts_with('#'));
        commands.sort();
        commands
    }

    /// Texts between backticks on the page, by line.
    pub(super) fn spans(&self) -> Vec<(usize, &str)> {
        let lines = self.lines(None).into_iter();
        lines
            .flat_map(|(number, line)| {
                line.split('`').skip(1).step_by(2).map(move |span| (number, span))
            })
            .collect()
    }

    /// The commands that its text names. In a row of a table that begins with one, all options of the row are its own.
    pub(super) fn named(&self) -> Vec<Named> {
        let mut named = Vec::new();
        for (number, line) in self.lines(None) {
            let row = line.starts_with("| `corq ");
            let spans: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
            for (place, span) in spans.iter().enumerate() {
                let Some(rest) = span.strip_prefix("corq ") else { continue };
                let is_name = |word: &&str| {
                    word.chars().all(|it| it.is_ascii_lowercase() || it == '-')
                        && !word.starts_with('-')
                };
                let words: Vec<String> =
                    rest.split(' ').take_while(is_name).map(str::to_owned).collect();
                let others = spans.iter().filter(|_| row && place == 0);
                let said = std::iter::once(span).chain(others).flat_map(|span| span.split(' '));
                let options = said.filter(|word| word.starts_with("--")).map(str::to_owned);
                named.push((number, words, options.collect()));
            }
        }
        named
    }

    /// Rows of tables that begin where no head of a table stands.
    pub(super) fn headless_rows(&self) -> Vec<Line<'_>> {
        let lines = self.lines(None);
        let is_row = |place: usize| {
            lines.get(place).is_some_and(|(_, line)| line.trim_start().starts_with('|'))
        };
        let is_rule = |place: usize| {
            let cells = lines.get(place).map(|(_, line)| line.trim());
            cells.is_some_and(|it| it.starts_with("|-") && !it.contains(|it| !"|-: ".contains(it)))
        };
        let follows = |place: usize| {
            place > 0 && is_row(place - 1) && lines[place].0 == lines[place - 1].0 + 1
        };
        let firsts = (0..lines.len()).filter(|&place| is_row(place) && !follows(place));
        firsts.filter(|&place| !is_rule(place + 1)).map(|place| lines[place]).collect()
    }

    /// The block of text that begins with this.
    pub(super) fn block(&self, start: &str) -> Vec<&str> {
        let lines = self.lines(Some(&["text", "json"]));
        let first = lines.iter().position(|(_, line)| line.starts_with(start));
        let first = first.unwrap_or_else(|| panic!("{} does not show '{start}'", self.name));
        let mut block = vec![lines[first].1];
        for pair in lines[first..].windows(2) {
            if pair[1].0 != pair[0].0 + 1 {
                break;
            }
            block.push(pair[1].1);
        }
        block
    }
}
