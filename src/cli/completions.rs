//! `completions` and `man`: what shells and manual pages need, generated from the same description
//! of the command line that parses it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;

use super::context::Context;
use super::failure::Failure;

/// Arguments of `completions`.
#[derive(Args, Debug)]
pub struct Completions {
    /// The shell: source the output, or save it where the shell looks for completions
    shell: Shell,
}

/// Arguments of `man`.
#[derive(Args, Debug)]
pub struct Man {
    /// Write a page for every command into this directory, instead of printing the first one
    directory: Option<PathBuf>,
}

/// Prints the completions of a shell.
pub fn run(
    context: &mut Context,
    program: &mut Command,
    completions: &Completions,
) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(completions.shell, program, "corq", &mut script);
    let script = String::from_utf8_lossy(&script);
    Ok(context.out.bytes(with_queues(completions.shell, &script).as_bytes())?)
}

/// The script, and what asks the server for the names of queues where one is wanted.
fn with_queues(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => format!(
            "{}{BASH}",
            script.replace("complete -F _corq ", "complete -F _corq_or_queues ")
        ),
        Shell::Zsh => zsh(script),
        Shell::Fish => format!("{script}{FISH}"),
        _ => script.to_owned(),
    }
}

/// The line is split here, because bash takes a colon for the end of a word.
const BASH: &str = r#"
_corq_or_queues() {
    _corq "$@"
    local line="${COMP_LINE:0:COMP_POINT}" words typed names
    read -ra words <<< "$line"
    [[ -z $line || $line == *[[:space:]] ]] && words+=("")
    names=$(corq complete "$((${#words[@]} - 1))" -- "${words[@]}" 2>/dev/null)
    [[ -n $names ]] || return 0
    typed="${words[-1]}"
    mapfile -t COMPREPLY <<< "$names"
    if [[ $typed == *:* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"${typed%"${typed##*:}"}"}")
    fi
}
"#;

/// Completion for fish: passes on the words up to the cursor of the command that it is in (`-opc`), none behind it.
const FISH: &str = r"
function __corq_queues
    set -l words (commandline -opc)
    corq complete (count $words) -- $words (commandline -ct) 2>/dev/null
end
complete -c corq -a '(__corq_queues)'
";

/// The function that zsh asks instead of its default, which is for files.
const ZSH: &str = r#"
(( $+functions[_corq_queues] )) ||
_corq_queues() {
    local -a typed queues
    typed=("${(@Q)${(z)LBUFFER}}")
    [[ $LBUFFER == *[[:space:]] ]] && typed+=('')
    queues=(${(f)"$(corq complete $((${#typed} - 1)) -- "${typed[@]}" 2>/dev/null)"})
    compadd -a queues
}
"#;

fn zsh(script: &str) -> String {
    let is_queue = |line: &str| {
        let (value, several) = (line.contains(":queue -- "), line.contains("]:QUEUES:"));
        value || several || line.contains("]:QUEUE:")
    };
    let lines = script.lines().map(|line| match line.strip_suffix(":_default' \\") {
        Some(front) if is_queue(line) => format!("{front}:_corq_queues' \\\n"),
        _ => format!("{line}\n"),
    });
    let script: String = lines.collect();
    // Before the last lines, which call the function at once.
    match script.rfind("if [ \"$funcstack[1]\"") {
        Some(at) => format!("{}{ZSH}\n{}", &script[..at], &script[at..]),
        None => format!("{script}{ZSH}"),
    }
}

/// Prints the page of the program, or writes the pages of all commands.
pub fn man(context: &mut Context, program: Command, man: &Man) -> Result<(), Failure> {
    let mut program = program.disable_help_subcommand(true);
    program.build();
    match &man.directory {
        None => Ok(context.out.bytes(&page(&program)?)?),
        Some(directory) => fs::create_dir_all(directory)
            .and_then(|()| pages(&program, directory))
            .map_err(|error| Failure::failed(directory.display(), &error)),
    }
}

/// Writes the page of a command, and those of all below it.
fn pages(command: &Command, directory: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        pages(below, directory)?;
    }
    let name = clap_mangen::Man::new(command.clone()).get_filename();
    fs::write(directory.join(name), page(command)?)
}

/// The page of a command, its examples as they are typed.
fn page(command: &Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    let page = String::from_utf8_lossy(&page);
    let Some((front, behind)) = page.split_once(".SH EXTRA\nExamples:\n") else {
        return Ok(page.into_owned().into_bytes());
    };
    let examples = behind.split_inclusive('\n').take_while(|line| line.starts_with("  "));
    let (examples, rest) = behind.split_at(examples.map(str::len).sum());
    Ok(format!("{front}.SH EXAMPLES\n.nf\n{examples}.fi\n{rest}").into_bytes())
}
