//! `outlast serve` and `outlast dev`: loads the configuration, starts the log and runs the server.

use crate::client::NoServer;
use crate::config::{Config, Environment, Flags, found_config_path};
use crate::failure::{EXIT_CODES, Failure};
use crate::serve::{self, DevClock, Mode};
use crate::telemetry;

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub flags: Flags,
    #[command(flatten)]
    no_server: NoServer,
}

/// Of `dev`.
#[derive(Debug, clap::Args)]
pub(crate) struct DevArgs {
    #[command(flatten)]
    pub start: Args,
    /// manual: only POST /v1/dev/clock moves the time; for tests of delays and limits
    #[arg(long, value_name = "CLOCK", value_enum, default_value_t = DevClock::System)]
    pub clock: DevClock,
}

pub(crate) async fn run(args: &Args, environment: &Environment, mode: Mode) -> Result<(), Failure> {
    let config = Config::load(&args.flags, environment).map_err(|problems| Failure::configuration(&problems))?;
    if mode == Mode::Dev(DevClock::Manual) && config.external.database_url.is_some() {
        return Err(Failure::usage("--clock manual needs the embedded store: leave out database_url"));
    }
    telemetry::start(&config.log)?;
    if let Some(path) = found_config_path(args.flags.config.as_ref(), environment) {
        let file = path.display().to_string();
        tracing::info!(file, "configuration read from the file in the working directory; name another with -c");
    }
    let (flags, environment) = (args.flags.clone(), environment.clone());
    let load = Box::new(move || Config::load(&flags, &environment));
    serve::run(config, mode, load).await?;
    Ok(())
}
