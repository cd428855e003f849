//! Finds the address and the data directory of a server in its configuration file, for the command line. Ignores the rest
//! of the file, so an operator's shell needs no variables for its secrets.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::problem::{Origin, Problem};
use super::reader::Section;
use super::sections::{self, ListenAddress};
use super::tree::{self, Node, Value};
use super::{DEFAULTS, Environment, environment_layer, read_text, variables};

const LISTEN: &str = "listen";
const DATA: &str = "data";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerLocation {
    pub listen: ListenAddress,
    /// Where `admin.key` is.
    pub data: PathBuf,
}

impl ServerLocation {
    /// Environment over file over defaults, as the server reads them.
    pub(crate) fn load(path: &Path, environment: &Environment) -> Result<ServerLocation, Vec<Problem>> {
        let single = |problem| vec![problem];
        let origin = Origin::file(path);
        let text = read_text(path).map_err(|message| single(Problem::new(origin.clone(), message)))?;
        let mut root = ours(tree::parse(DEFAULTS, &Origin::Defaults).map_err(single)?);
        let mut file = ours(tree::parse(&text, &origin).map_err(single)?);

        let mut problems = Vec::new();
        variables::expand(&mut file, environment, &mut problems);
        tree::overlay(&mut root, file, "", &mut problems);
        tree::overlay(&mut root, ours(environment_layer(environment)), "", &mut problems);
        let mut section = Section::new(root);
        let location = ServerLocation {
            listen: sections::listen(&mut section, LISTEN).unwrap_or_default(),
            data: PathBuf::from(section.text(DATA)),
        };
        problems.extend(section.finish());
        if problems.is_empty() { Ok(location) } else { Err(problems) }
    }

    /// The URL for a client on this machine; none where the port is chosen at each start. "Any" is an address to
    /// listen on, not one to call.
    pub(crate) fn url(&self) -> Option<String> {
        let host = match self.listen.host.parse() {
            Ok(IpAddr::V4(address)) if address.is_unspecified() => "127.0.0.1".to_owned(),
            Ok(IpAddr::V6(address)) if address.is_unspecified() => "::1".to_owned(),
            _ => self.listen.host.clone(),
        };
        let called = ListenAddress { host, port: self.listen.port };
        (called.port != 0).then(|| format!("http://{called}"))
    }
}

/// Only what is read here.
fn ours(mut layer: Node) -> Node {
    if let Value::Map(entries) = &mut layer.value {
        entries.retain(|(key, _)| [LISTEN, DATA].contains(&key.name.as_str()));
    }
    layer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(yaml: &str, environment: &[(&str, &str)]) -> Result<ServerLocation, Vec<Problem>> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("outlast.yaml");
        std::fs::write(&path, yaml).unwrap();
        ServerLocation::load(&path, &Environment::of(environment))
    }

    #[test]
    fn a_server_is_called_where_its_file_lets_it_listen() {
        for (yaml, url) in [
            ("", Some("http://127.0.0.1:8080")),
            ("listen: 127.0.0.1:9090", Some("http://127.0.0.1:9090")),
            ("listen: 0.0.0.0:80", Some("http://127.0.0.1:80")),
            ("listen: '[::]:80'", Some("http://[::1]:80")),
            ("listen: '[fd00::7]:80'", Some("http://[fd00::7]:80")),
            ("listen: jobs.internal:80", Some("http://jobs.internal:80")),
            ("listen: 127.0.0.1:0", None),
        ] {
            assert_eq!(load(yaml, &[]).unwrap().url().as_deref(), url, "{yaml}");
        }
    }

    #[test]
    fn the_environment_wins_over_the_file() {
        let yaml = "listen: 127.0.0.1:${PORT}\ndata: /srv/jobs\n";

        let of_file = load(yaml, &[("PORT", "81")]).unwrap();
        let of_environment =
            load(yaml, &[("PORT", "81"), ("OUTLAST_LISTEN", "[::1]:82"), ("OUTLAST_DATA", "/srv/other")]).unwrap();

        assert_eq!((of_file.listen.port, of_file.data), (81, PathBuf::from("/srv/jobs")));
        assert_eq!((of_environment.listen.port, of_environment.data), (82, PathBuf::from("/srv/other")));
    }

    #[test]
    fn other_sections_of_the_file_are_ignored() {
        let yaml = "sources: {stripe: {secret: '${NOT_SET_HERE}', odd: 1}}\nmistake: [1]\nlisten: nonsense\n";

        let problems = load(yaml, &[("OUTLAST_REDIS_URL", "redis://127.0.0.1")]).unwrap_err();

        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].message.starts_with("listen must be HOST:PORT"), "{problems:?}");
        assert_eq!(problems[0].origin.position(), (3, 9));
    }
}
