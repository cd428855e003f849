//! `outlast serve` and `outlast dev`: load the configuration, start the log, run the server.

use crate::config::{Config, Environment, Flags};
use crate::failure::{EXIT_CODES, Failure};
use crate::serve::{self, Mode};
use crate::telemetry;

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub flags: Flags,
}

pub(crate) async fn run(args: &Args, environment: &Environment, mode: Mode) -> Result<(), Failure> {
    let config = Config::load(&args.flags, environment).map_err(|problems| Failure::configuration(&problems))?;
    telemetry::start(&config.log)?;
    let (flags, environment) = (args.flags.clone(), environment.clone());
    let load = Box::new(move || Config::load(&flags, &environment));
    serve::run(config, mode, load).await?;
    Ok(())
}
