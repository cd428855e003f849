//! Which server is meant and which key opens it: flags over environment over the configuration file over defaults.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use reqwest::Url;

use super::Remote;
use crate::config::locate::ServerLocation;
use crate::config::{DATA_DEFAULT, Environment, Secret, config_path};
use crate::failure::Failure;

const URL_DEFAULT: &str = "http://127.0.0.1:8080";

pub(crate) struct Found {
    pub base: Url,
    pub key: Option<Secret>,
    pub key_source: KeySource,
}

/// Where the key came from, for hints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeySource {
    Flag,
    Environment,
    File(PathBuf),
    /// No key was given and the file is not there.
    Missing(PathBuf),
    /// The file is there and cannot be read.
    Unreadable(PathBuf, String),
}

pub(crate) fn server(remote: &Remote, environment: &Environment) -> Result<Found, Failure> {
    let url = remote.url.as_deref().or_else(|| environment.setting("OUTLAST_URL"));
    let key = given_key(remote, environment);
    // A file that somebody names is looked at; one of the environment only if it is needed.
    let is_needed = remote.config.is_some() || url.is_none() || key.is_none();
    let location = if is_needed { location(remote, environment)? } else { None };
    let (key, key_source) = match key {
        Some((key, source)) => (Some(key), source),
        None => key_of(&data_directory(remote, environment, location.as_ref())),
    };
    let base = match (url, &location) {
        (Some(url), _) => parse(url)?,
        (None, Some(location)) => parse(&url_of(location)?)?,
        (None, None) => parse(URL_DEFAULT)?,
    };
    Ok(Found { base, key, key_source })
}

/// Address and data directory of the configuration file, if there is one.
fn location(remote: &Remote, environment: &Environment) -> Result<Option<ServerLocation>, Failure> {
    let Some(path) = config_path(remote.config.as_ref(), environment) else { return Ok(None) };
    let location = ServerLocation::load(&path, environment).map_err(|problems| Failure::configuration(&problems))?;
    Ok(Some(location))
}

/// The directory that holds `admin.key`.
pub(crate) fn data_directory(remote: &Remote, environment: &Environment, location: Option<&ServerLocation>) -> PathBuf {
    let from_environment = || environment.setting("OUTLAST_DATA").map(PathBuf::from);
    let given = remote.data.clone().or_else(from_environment);
    given.or_else(|| location.map(|location| location.data.clone())).unwrap_or_else(|| PathBuf::from(DATA_DEFAULT))
}

fn url_of(location: &ServerLocation) -> Result<String, Failure> {
    location.url().ok_or_else(|| {
        Failure::usage(format!("the file has \"listen: {}\", a port that is chosen at each start", location.listen))
            .with_hint("give the address with --url or OUTLAST_URL")
    })
}

fn parse(text: &str) -> Result<Url, Failure> {
    let refuse = || {
        Failure::usage(format!("\"{text}\" is not the URL of a server"))
            .with_hint("write it like http://127.0.0.1:8080")
    };
    let url = Url::parse(text).map_err(|_| refuse())?;
    let is_usable = matches!(url.scheme(), "http" | "https") && url.has_host() && url.username().is_empty();
    if is_usable && url.query().is_none() && url.fragment().is_none() { Ok(url) } else { Err(refuse()) }
}

fn given_key(remote: &Remote, environment: &Environment) -> Option<(Secret, KeySource)> {
    if let Some(key) = &remote.key {
        return Some((Secret::new(key.as_str()), KeySource::Flag));
    }
    environment.setting("OUTLAST_KEY").map(|key| (Secret::new(key), KeySource::Environment))
}

fn key_of(data: &Path) -> (Option<Secret>, KeySource) {
    let path = data.join("admin.key");
    match std::fs::read_to_string(&path) {
        Ok(text) => (Some(Secret::new(text.trim())), KeySource::File(path)),
        Err(error) if error.kind() == ErrorKind::NotFound => (None, KeySource::Missing(path)),
        Err(error) => (None, KeySource::Unreadable(path, error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn remote() -> Remote {
        Remote { url: None, key: None, data: None, config: None, timeout: Duration::from_secs(1), json: false }
    }

    fn environment(variables: &[(&str, &str)]) -> Environment {
        Environment::of(variables)
    }

    #[test]
    fn the_key_is_found_by_flag_then_environment_then_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("admin.key");
        let mut remote = Remote { data: Some(directory.path().to_owned()), ..remote() };
        let find = |remote: &Remote, variables: &[(&str, &str)]| {
            let found = server(remote, &environment(variables)).unwrap();
            (found.key.map(|key| key.expose().to_owned()), found.key_source)
        };

        assert_eq!(find(&remote, &[]), (None, KeySource::Missing(path.clone())));

        std::fs::write(&path, "ol_file\n").unwrap();
        assert_eq!(find(&remote, &[]), (Some("ol_file".to_owned()), KeySource::File(path)));

        let variables = [("OUTLAST_KEY", "ol_environment")];
        assert_eq!(find(&remote, &variables), (Some("ol_environment".to_owned()), KeySource::Environment));

        remote.key = Some("ol_flag".to_owned());
        assert_eq!(find(&remote, &variables), (Some("ol_flag".to_owned()), KeySource::Flag));
    }

    #[test]
    fn the_file_gives_address_and_directory_where_nothing_else_does() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("outlast.yaml");
        let yaml = format!("listen: 0.0.0.0:9191\ndata: {}\n", directory.path().display());
        std::fs::write(&file, yaml).unwrap();
        let key = directory.path().join("admin.key");
        let named = Remote { config: Some(file.clone()), ..remote() };
        let find = |remote: &Remote, variables: &[(&str, &str)]| {
            let found = server(remote, &environment(variables)).unwrap();
            (found.base.to_string(), found.key_source)
        };

        let of_file = ("http://127.0.0.1:9191/".to_owned(), KeySource::Missing(key));
        assert_eq!(find(&named, &[]), of_file);
        assert_eq!(find(&remote(), &[("OUTLAST_CONFIG", file.to_str().unwrap())]), of_file);
        assert_eq!(
            find(&named, &[("OUTLAST_URL", "http://127.0.0.1:1"), ("OUTLAST_KEY", "ol_x")]),
            ("http://127.0.0.1:1/".to_owned(), KeySource::Environment)
        );
        assert_eq!(find(&Remote { url: Some("http://127.0.0.1:2".to_owned()), ..named }, &[]).0, "http://127.0.0.1:2/");
    }

    #[test]
    fn a_file_that_cannot_be_read_matters_only_if_it_is_needed() {
        let settled = Remote { url: Some("http://127.0.0.1:1".to_owned()), key: Some("ol_x".to_owned()), ..remote() };
        let variables = environment(&[("OUTLAST_CONFIG", "missing.yaml")]);

        assert!(server(&settled, &variables).is_ok());
        assert!(server(&Remote { key: None, ..settled.clone() }, &variables).is_err());
        assert!(server(&Remote { config: Some(PathBuf::from("missing.yaml")), ..settled }, &variables).is_err());
    }

    #[test]
    fn a_port_that_is_not_known_cannot_be_called() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("outlast.yaml");
        std::fs::write(&file, "listen: 127.0.0.1:0\n").unwrap();

        let failure = server(&Remote { config: Some(file), ..remote() }, &environment(&[])).err().unwrap();

        assert_eq!(failure.message, "the file has \"listen: 127.0.0.1:0\", a port that is chosen at each start");
    }

    #[test]
    fn a_base_url_must_be_a_plain_http_address() {
        for (url, is_good) in [
            ("http://127.0.0.1:8080", true),
            ("https://jobs.example/prefix/", true),
            ("127.0.0.1:8080", false),
            ("ftp://host", false),
            ("http://user:pass@host", false),
            ("http://host?x=1", false),
        ] {
            let remote = Remote { url: Some(url.to_owned()), ..remote() };
            assert_eq!(server(&remote, &environment(&[])).is_ok(), is_good, "{url}");
        }
    }
}
