//! Why a command ends without success: the exit code, one line that says what happened and, where there is one, a hint
//! about what to do. Texts from a server are escaped before they reach the terminal.

use std::io::Write;

use crate::config::problem::Problem;
use crate::output::escape;

/// Shown below the help of every command.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  ok
  1  the server refused, or the answer is a failure
  2  usage or configuration error
  3  server not reachable
  4  not authorised
  5  not found";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Refused,
    Usage,
    Unreachable,
    Unauthorised,
    NotFound,
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Refused => 1,
            Exit::Usage => 2,
            Exit::Unreachable => 3,
            Exit::Unauthorised => 4,
            Exit::NotFound => 5,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub exit: Exit,
    pub message: String,
    /// More lines below the message, such as the fields that were refused.
    pub details: Vec<String>,
    pub hint: Option<String>,
    /// The same call may succeed a little later: the server is away, overloaded or shutting down.
    pub is_temporary: bool,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure { exit, message: message.into(), details: Vec::new(), hint: None, is_temporary: false }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, message)
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Failure {
        Failure { hint: Some(hint.into()), ..self }
    }

    /// All that is wrong with a configuration.
    pub(crate) fn configuration(problems: &[Problem]) -> Failure {
        let message = match problems.len() {
            1 => "the configuration has a problem".to_owned(),
            count => format!("the configuration has {count} problems"),
        };
        let details = problems.iter().map(Problem::to_string).collect();
        Failure { details, ..Failure::usage(message) }
    }

    /// The text for stderr, ready for a terminal.
    pub(crate) fn render(&self) -> String {
        let mut text = format!("error: {}\n", escape(&self.message));
        for detail in &self.details {
            text.push_str(&format!("  {}\n", escape(detail)));
        }
        if let Some(hint) = &self.hint {
            text.push_str(&format!("hint: {}\n", escape(hint)));
        }
        text
    }

    pub(crate) fn print(&self) {
        // A closed stderr leaves nobody to tell; the exit code still does.
        let _ = std::io::stderr().write_all(self.render().as_bytes());
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::new(Exit::Refused, format!("{error:#}"))
    }
}
