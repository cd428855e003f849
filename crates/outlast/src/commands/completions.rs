//! `outlast completions`: a script that teaches a shell our commands.

use clap_complete::{Shell, generate};

use crate::failure::Failure;
use crate::output;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    pub shell: Shell,
}

pub(crate) fn run(args: &Args, mut command: clap::Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    generate(args.shell, &mut command, "outlast", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}
