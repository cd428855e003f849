//! The settings of a queue as the file has them. Names, ranges and rules are those of HTTP: the table that requests are
//! read by says which settings there are, the file's values are put together as the body of such a request, and what is
//! wrong with that body is reported at the lines it came from.

use outlast_api::fields::QUEUE_NEW;
use outlast_api::schema::{Field, Kind};
use outlast_api::settings::read_queue;
use outlast_core::QueueSettings;
use outlast_core::queue::FieldError;
use outlast_engine::queues::QueueChange;
use serde_json::{Map, Value as Json};

use super::json::to_json;
use super::problem::{Origin, Problem};
use super::reader::Section;
use super::suggest::unknown_key;
use super::tree::{Key, Node, Value, join};

/// In the table of fields, but in the file the key above the settings is the name.
const NAME: &str = "name";

/// Every setting by the name it has in the file.
pub(crate) fn names() -> Vec<String> {
    QUEUE_NEW.fields.iter().filter(|field| field.name != NAME).map(|field| snake_case(field.name)).collect()
}

/// Reads the settings out of the section of a queue; also which ones they are, on the wire.
pub(crate) fn read(key: &Key, section: &mut Section) -> (QueueChange, Vec<String>) {
    let entries = section.take_known(names());
    let path = section.path().to_owned();
    let mut body = Body { places: Vec::new(), problems: Vec::new() };
    // The name, and the request as a whole.
    for field in [NAME, "body"] {
        let (field, path) = (field.to_owned(), path.clone());
        body.places.push(Place { field, path, origin: key.origin.clone(), is_refused: false });
    }
    let mut members = body.object(QUEUE_NEW.fields, entries, &At { field: String::new(), path: path.clone() });
    let mut given: Vec<String> = members.keys().cloned().collect();
    members.insert(NAME.to_owned(), Json::String(key.name.clone()));

    let read = read_queue(Json::Object(members).to_string().as_bytes());
    let change = read.unwrap_or_else(|errors| {
        for error in errors {
            body.blame(error, &path, key);
        }
        QueueChange { settings: QueueSettings::default(), secret: None }
    });
    for problem in body.problems {
        section.report(problem);
    }
    // The file declares the presets of its template too.
    given.extend(change.settings.differing(&QueueSettings::default()));
    given.sort_unstable();
    given.dedup();
    (change, given)
}

/// `visibilityTimeout` as `visibility_timeout`.
fn snake_case(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 4);
    for character in name.chars() {
        if character.is_ascii_uppercase() {
            text.push('_');
        }
        text.push(character.to_ascii_lowercase());
    }
    text
}

/// A body that is being put together.
struct Body {
    places: Vec<Place>,
    problems: Vec<Problem>,
}

/// Where a field of the body was written.
struct Place {
    field: String,
    path: String,
    origin: Origin,
    /// It has a problem already.
    is_refused: bool,
}

/// The same spot in both worlds.
struct At {
    field: String,
    path: String,
}

impl At {
    fn below(&self, field: &str, key: &str) -> At {
        At { field: join(&self.field, field), path: join(&self.path, key) }
    }

    fn entry(&self, place: usize) -> At {
        At { field: format!("{}[{place}]", self.field), path: format!("{}[{place}]", self.path) }
    }
}

impl Body {
    fn object(&mut self, fields: &'static [Field], entries: Vec<(Key, Node)>, at: &At) -> Map<String, Json> {
        let mut members = Map::new();
        for (key, node) in entries {
            let Some(field) = fields.iter().find(|field| snake_case(field.name) == key.name) else {
                let known: Vec<String> = fields.iter().map(|field| snake_case(field.name)).collect();
                self.problems.push(unknown_key(&at.path, &key, known.iter().map(String::as_str)));
                continue;
            };
            let at = at.below(field.name, &key.name);
            self.note(&at, &node);
            match node.value {
                Value::Refused => {}
                // Null unsets what can be unset, a preset of the template say; elsewhere it is as good as nothing.
                Value::Null if field.nullable => {
                    members.insert(field.name.to_owned(), Json::Null);
                }
                Value::Null => {}
                value => {
                    members.insert(field.name.to_owned(), self.value(&field.kind, value, &at));
                }
            }
        }
        members
    }

    fn value(&mut self, kind: &'static Kind, value: Value, at: &At) -> Json {
        match (kind, value) {
            (Kind::Object(object), Value::Map(entries)) => Json::Object(self.object(object.fields, entries, at)),
            (Kind::Map { .. }, Value::Map(entries)) => {
                let mut members = Map::new();
                for (key, node) in entries {
                    self.note(&at.below(&key.name, &key.name), &node);
                    let value = match node.value {
                        Value::Refused => Json::String(String::new()),
                        Value::Integer(value) => Json::String(value.to_string()),
                        other => to_json(other),
                    };
                    members.insert(key.name, value);
                }
                Json::Object(members)
            }
            (Kind::List { of, .. }, Value::List(items)) => {
                let mut values = Vec::with_capacity(items.len());
                for (place, item) in items.into_iter().enumerate() {
                    let at = at.entry(place);
                    self.note(&at, &item);
                    values.push(self.value(of, item.value, &at));
                }
                Json::Array(values)
            }
            (kind, value) => single(kind, value),
        }
    }

    fn note(&mut self, at: &At, node: &Node) {
        self.places.push(Place {
            field: at.field.clone(),
            path: at.path.clone(),
            origin: node.origin.clone(),
            is_refused: matches!(node.value, Value::Refused),
        });
    }

    /// Tells what is wrong with a field where it was written; what was not written, at the closest thing around it.
    fn blame(&mut self, error: FieldError, path: &str, key: &Key) {
        let message = in_words_of_the_file(&error.message);
        let find = |field: &str| self.places.iter().find(|place| place.field == field);
        let (origin, path) = match find(&error.field) {
            Some(place) if place.is_refused => return,
            Some(place) => (&place.origin, place.path.clone()),
            None => {
                let around = error.field.rsplit_once('.').and_then(|(around, _)| find(around));
                (around.map_or(&key.origin, |place| &place.origin), join(path, &snake_case(&error.field)))
            }
        };
        self.problems.push(Problem::new(origin.clone(), format!("{path} {message}")));
    }
}

/// A single value. Variables hold only strings, so a string is read as a number or a boolean where one is needed.
fn single(kind: &Kind, value: Value) -> Json {
    match (kind, &value) {
        (Kind::Int { .. } | Kind::Number { .. }, Value::Text { value: text, .. }) => {
            let number: Option<serde_json::Number> = text.trim().parse().ok();
            number.map_or_else(|| to_json(value), Json::Number)
        }
        (Kind::Bool, Value::Text { value: text, .. }) => match text.as_str() {
            "true" => Json::Bool(true),
            "false" => Json::Bool(false),
            _ => to_json(value),
        },
        (Kind::Text { .. } | Kind::Word(_), Value::Integer(number)) => Json::String(number.to_string()),
        _ => to_json(value),
    }
}

/// A message of HTTP, in which other settings have their names of HTTP.
fn in_words_of_the_file(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    for part in message.split_inclusive(|character: char| !character.is_ascii_alphanumeric()) {
        let word = part.trim_end_matches(|character: char| !character.is_ascii_alphanumeric());
        if is_setting(QUEUE_NEW.fields, word) {
            text.push_str(&snake_case(word));
            text.push_str(part.get(word.len()..).unwrap_or_default());
        } else {
            text.push_str(part);
        }
    }
    text
}

fn is_setting(fields: &[Field], word: &str) -> bool {
    fields.iter().any(|field| match &field.kind {
        Kind::Object(object) => field.name == word || is_setting(object.fields, word),
        _ => field.name == word,
    })
}
