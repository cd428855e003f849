//! Why a command ends without success: the exit code, a message and, where there is one, a hint. People read it on stderr;
//! with `--json` it is also a problem document on stdout. Texts from a server are escaped before they reach the terminal.

use std::io::Write;

use serde_json::{Map, Value, json};

use crate::config::problem::Problem;
use crate::display::{Display, Style};
use crate::output::{self, escape};

/// Shown below the help of every command; docs/reference/CLI.md has the same list.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  ok
  1  the server refused the request, or the job failed
  2  usage or configuration error
  3  server not reachable
  4  not authorised
  5  not found
  6  the wait ran out: the job is not finished, or no job came";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Refused,
    Usage,
    Unreachable,
    Unauthorised,
    NotFound,
    WaitOver,
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Refused => 1,
            Exit::Usage => 2,
            Exit::Unreachable => 3,
            Exit::Unauthorised => 4,
            Exit::NotFound => 5,
            Exit::WaitOver => 6,
        }
    }

    /// The `code` of a problem document that no server has written.
    fn word(self) -> &'static str {
        match self {
            Exit::Refused => "failed",
            Exit::Usage => "usage",
            Exit::Unreachable => "unreachable",
            Exit::Unauthorised => "unauthorized",
            Exit::NotFound => "not_found",
            Exit::WaitOver => "wait_over",
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
    /// The same call may succeed a little later: the server is unreachable, overloaded or shutting down.
    pub is_temporary: bool,
    /// The server's problem document.
    pub problem: Option<Box<Value>>,
    /// With `--json` the command has printed a document that says the same, so stdout gets no second one.
    pub is_printed: bool,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure {
            exit,
            message: message.into(),
            details: Vec::new(),
            hint: None,
            is_temporary: false,
            problem: None,
            is_printed: false,
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, message)
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Failure {
        Failure { hint: Some(hint.into()), ..self }
    }

    /// For a failure that the document on stdout shows already.
    pub(crate) fn printed(self) -> Failure {
        Failure { is_printed: true, ..self }
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
    pub(crate) fn render(&self, display: Display) -> String {
        let mut text = format!("{} {}\n", display.paint("error:", Style::Bad), escape(&self.message));
        for detail in &self.details {
            text.push_str(&format!("  {}\n", escape(detail)));
        }
        if let Some(hint) = &self.hint {
            text.push_str(&format!("{} {}\n", display.paint("hint:", Style::Active), escape(hint)));
        }
        text
    }

    pub(crate) fn print(&self, display: Display) {
        // A closed stderr loses the text; the exit code still tells.
        let _ = std::io::stderr().write_all(self.render(display).as_bytes());
    }

    /// The problem document of `--json`: the server's where there is one, else one of the same form. `exitCode` and `hint`
    /// are added.
    pub(crate) fn to_json(&self) -> Value {
        let mut document = match self.problem.as_deref() {
            Some(Value::Object(members)) => members.clone(),
            _ => self.own_problem(),
        };
        document.insert("exitCode".to_owned(), json!(self.exit.code()));
        if let Some(hint) = &self.hint {
            document.insert("hint".to_owned(), json!(hint));
        }
        Value::Object(document)
    }

    fn own_problem(&self) -> Map<String, Value> {
        let mut members = Map::new();
        members.insert("type".to_owned(), json!("about:blank"));
        members.insert("code".to_owned(), json!(self.exit.word()));
        members.insert("detail".to_owned(), json!(self.message));
        if !self.details.is_empty() {
            let errors: Vec<Value> = self.details.iter().map(|detail| json!({"message": detail})).collect();
            members.insert("errors".to_owned(), Value::Array(errors));
        }
        members
    }

    pub(crate) fn print_json(&self) {
        if !self.is_printed {
            // A closed stdout loses the document; the exit code still tells.
            let _ = output::print_json_line(&self.to_json().to_string());
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::new(Exit::Refused, format!("{error:#}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_a_problem_document_of_the_server_or_of_its_form() {
        let own = Failure { details: vec!["x: wrong".to_owned()], ..Failure::usage("bad").with_hint("do this") };
        let server = json!({"type": "t", "code": "queue_not_found", "status": 404});
        let refused = Failure { problem: Some(Box::new(server)), ..Failure::new(Exit::NotFound, "not there") };

        assert_eq!(
            own.to_json(),
            json!({"type": "about:blank", "code": "usage", "detail": "bad", "errors": [{"message": "x: wrong"}],
                "exitCode": 2, "hint": "do this"})
        );
        assert_eq!(refused.to_json(), json!({"type": "t", "code": "queue_not_found", "status": 404, "exitCode": 5}));
    }

    #[test]
    fn every_exit_code_is_in_the_list() {
        for exit in [Exit::Refused, Exit::Usage, Exit::Unreachable, Exit::Unauthorised, Exit::NotFound, Exit::WaitOver]
        {
            assert!(EXIT_CODES.contains(&format!("\n  {}  ", exit.code())), "{exit:?}");
        }
    }
}
