//! `outlast config`: prints the default configuration, to start a file from.

use crate::client::NoServer;
use crate::config::DEFAULTS;
use crate::failure::Failure;
use crate::output;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    no_server: NoServer,
}

pub(crate) fn run() -> Result<(), Failure> {
    output::print(DEFAULTS)
}
