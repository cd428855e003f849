//! `outlast validate`: reads a configuration exactly as the server would and explains every problem.

use std::path::PathBuf;

use serde_json::json;

use crate::config::problem::Problem;
use crate::config::{Config, Environment, Flags};
use crate::failure::{EXIT_CODES, Failure};
use crate::output::{self, escape};

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// The file to check [environment: OUTLAST_CONFIG]
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print the problems as JSON
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(args: &Args, environment: &Environment) -> Result<(), Failure> {
    let flags = Flags { config: args.config.clone(), ..Flags::default() };
    let problems = Config::load(&flags, environment).err().unwrap_or_default();
    if args.json {
        output::print_json(&to_json(&problems))?;
    } else if problems.is_empty() {
        let file = args.config.clone().or_else(|| environment.setting("OUTLAST_CONFIG").map(PathBuf::from));
        let name = file.map_or("the configuration".to_owned(), |path| path.display().to_string());
        output::print(&format!("{} is valid\n", escape(&name)))?;
    }
    if problems.is_empty() {
        return Ok(());
    }
    let failure = Failure::configuration(&problems);
    // The document on stdout has the details already.
    Err(if args.json { Failure { details: Vec::new(), ..failure } } else { failure })
}

fn to_json(problems: &[Problem]) -> String {
    let mut listed = Vec::new();
    for problem in problems {
        listed.push(json!({
            "where": problem.origin.to_string(),
            "message": problem.message,
            "hint": problem.hint,
        }));
    }
    json!({"valid": problems.is_empty(), "problems": listed}).to_string()
}
