//! `completions` and `man`: what shells and manual pages need, generated from the same description
//! of the command line that parses it.

use std::fs;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

use super::context::Context;
use super::failure::Failure;

/// What `completions` takes.
#[derive(Args, Debug)]
pub struct Completions {
    /// The shell: source the output, or save it where the shell looks for completions
    shell: Shell,
}

/// What `man` takes.
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
    Ok(context.out.bytes(&script)?)
}

/// Prints the page of the program, or writes the pages of all commands.
pub fn man(context: &mut Context, program: Command, man: &Man) -> Result<(), Failure> {
    match &man.directory {
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(program).render(&mut page)?;
            Ok(context.out.bytes(&page)?)
        }
        Some(directory) => fs::create_dir_all(directory)
            .and_then(|()| clap_mangen::generate_to(program, directory))
            .map_err(|error| Failure::failed(directory.display(), &error)),
    }
}
