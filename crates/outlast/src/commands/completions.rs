//! `outlast completions`: prints a completion script for a shell.

use clap_complete::{Shell, generate};

use crate::client::NoServer;
use crate::failure::Failure;
use crate::output;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    pub shell: Shell,
    #[command(flatten)]
    no_server: NoServer,
}

pub(crate) fn run(args: &Args, mut command: clap::Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    generate(args.shell, &mut command, "outlast", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}
