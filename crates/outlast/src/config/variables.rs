//! `${NAME}` and `${NAME:-default}` in the texts of a configuration file. Expansion happens after parsing, on values
//! only: quoted and unquoted texts behave alike, comments do not matter, and a variable cannot add YAML of its own.
//! A variable that is unset and has no default is a problem, never an empty text.

use super::Environment;
use super::problem::Problem;
use super::tree::{Node, Value};

/// Puts the variables into every text of the tree.
pub(crate) fn expand(node: &mut Node, environment: &Environment, problems: &mut Vec<Problem>) {
    match &mut node.value {
        Value::Text { value, written } => match expand_text(value, environment) {
            Ok(Some(expanded)) => *written = Some(std::mem::replace(value, expanded)),
            Ok(None) => {}
            Err(message) => {
                problems.push(Problem::new(node.origin.clone(), message));
                node.value = Value::Refused;
            }
        },
        Value::List(items) => {
            for item in items {
                expand(item, environment, problems);
            }
        }
        Value::Map(entries) => {
            for (_, value) in entries {
                expand(value, environment, problems);
            }
        }
        Value::Null | Value::Refused | Value::Bool(_) | Value::Integer(_) | Value::Float(_) => {}
    }
}

/// `None` when the text has nothing to expand.
fn expand_text(text: &str, environment: &Environment) -> Result<Option<String>, String> {
    if !text.contains("${") {
        return Ok(None);
    }
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        if let Some(literal) = before.strip_suffix('$') {
            expanded.push_str(literal);
            expanded.push_str("${");
            rest = after;
            continue;
        }
        let Some((reference, remainder)) = after.split_once('}') else {
            return Err("\"${\" is not closed with \"}\"; write \"$${\" for the characters themselves".to_owned());
        };
        expanded.push_str(before);
        expanded.push_str(&resolve(reference, environment)?);
        rest = remainder;
    }
    expanded.push_str(rest);
    Ok(Some(expanded))
}

fn resolve(reference: &str, environment: &Environment) -> Result<String, String> {
    let (name, default) = match reference.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (reference, None),
    };
    if !is_name(name) {
        return Err(format!("\"${{{reference}}}\" is neither ${{NAME}} nor ${{NAME:-default}}"));
    }
    match (environment.variable(name), default) {
        (Some(""), Some(default)) | (None, Some(default)) => Ok(default.to_owned()),
        (Some(value), _) => Ok(value.to_owned()),
        (None, None) => Err(format!("environment variable {name} is not set; set it, or write ${{{name}:-default}}")),
    }
}

fn is_name(text: &str) -> bool {
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts_well && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
