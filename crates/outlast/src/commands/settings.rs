//! A JSON object put together from flags: `--set field=value`, files, and named flags. Values are kept as they were
//! written, so a number keeps all its digits on its way to the server.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::failure::{Exit, Failure};

/// Fields of a request body by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields(BTreeMap<String, Box<RawValue>>);

impl Fields {
    /// The fields of a JSON object.
    pub(crate) fn parse(json: &str) -> Result<Fields, Failure> {
        let fields = serde_json::from_str(json);
        fields.map(Fields).map_err(|error| Failure::usage(format!("not a JSON object: {error}")))
    }

    pub(crate) fn set(&mut self, name: &str, value: &impl Serialize) -> Result<(), Failure> {
        let raw =
            to_raw_value(value).map_err(|error| Failure::new(Exit::Refused, format!("cannot write JSON: {error}")))?;
        self.0.insert(name.to_owned(), raw);
        Ok(())
    }

    /// The same for what can always be written.
    pub(crate) fn put(&mut self, name: &str, value: impl Into<serde_json::Value>) {
        let value = value.into();
        let raw = to_raw_value(&value).expect("a JSON value can be written as JSON");
        self.0.insert(name.to_owned(), raw);
    }

    pub(crate) fn set_some(&mut self, name: &str, value: Option<&impl Serialize>) -> Result<(), Failure> {
        match value {
            Some(value) => self.set(name, value),
            None => Ok(()),
        }
    }

    /// Durations go out as seconds.
    pub(crate) fn set_duration(&mut self, name: &str, value: Option<Duration>) -> Result<(), Failure> {
        match value {
            Some(value) if value.subsec_nanos() == 0 => self.set(name, &value.as_secs()),
            Some(value) => self.set(name, &value.as_secs_f64()),
            None => Ok(()),
        }
    }

    /// The value is JSON where it can be read as such, else a text.
    pub(crate) fn assign(&mut self, (name, value): &(String, String)) -> Result<(), Failure> {
        match serde_json::from_str::<Box<RawValue>>(value) {
            Ok(raw) => {
                self.0.insert(name.clone(), raw);
                Ok(())
            }
            Err(_) => self.set(name, value),
        }
    }

    pub(crate) fn to_json(&self) -> Result<String, Failure> {
        serde_json::to_string(&self.0)
            .map_err(|error| Failure::new(Exit::Refused, format!("cannot write JSON: {error}")))
    }
}

/// For flags of the form `name=value`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("must be written as name=value".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assigned_value_is_json_where_it_can_be_and_text_otherwise() {
        let mut fields = Fields::default();
        for text in ["a=7", "b=12345678901234567890123", "c=fixed", "d={\"type\": \"fixed\"}", "e=true", "f=x=y", "g="]
        {
            fields.assign(&pair(text).unwrap()).unwrap();
        }

        assert_eq!(
            fields.to_json().unwrap(),
            r#"{"a":7,"b":12345678901234567890123,"c":"fixed","d":{"type": "fixed"},"e":true,"f":"x=y","g":""}"#
        );
    }

    #[test]
    fn durations_go_out_as_seconds() {
        let mut fields = Fields::default();
        fields.set_duration("whole", Some(Duration::from_secs(90))).unwrap();
        fields.set_duration("part", Some(Duration::from_millis(1500))).unwrap();
        fields.set_duration("unset", None).unwrap();

        assert_eq!(fields.to_json().unwrap(), r#"{"part":1.5,"whole":90}"#);
    }

    #[test]
    fn a_pair_needs_a_name_and_an_equals_sign() {
        assert!(pair("novalue").is_err());
        assert!(pair("=x").is_err());
    }
}
