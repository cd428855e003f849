//! Where objects are kept, read from a URL: `file:///path`, `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`.
//! Settings of a bucket follow as a query; credentials come from the environment. Neither ever gets into a message.

use std::fmt;
use std::path::PathBuf;

use object_store::aws::AmazonS3ConfigKey;
use object_store::azure::AzureConfigKey;
use object_store::gcp::GoogleConfigKey;
use object_store::path::Path;
use url::Url;

#[derive(Clone, Debug, PartialEq)]
pub enum Location {
    Folder(PathBuf),
    Bucket(BucketSettings),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketKind {
    S3,
    Google,
    Azure,
}

/// Settings of a connection to a bucket.
#[derive(Clone, PartialEq)]
pub struct BucketSettings {
    pub kind: BucketKind,
    pub name: String,
    /// Before every key; may be empty.
    pub prefix: Path,
    /// In the words of the object store's own settings. May hold secrets.
    pub(super) options: Vec<(String, String)>,
}

/// An error in a URL. Names parts of it, and never a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongUrl {
    #[error("it is not a URL")]
    NotAUrl,
    #[error("it must begin with file:///, s3://, gs:// or az://")]
    Scheme,
    #[error("a file URL names an absolute path, as in file:///srv/objects, and nothing else")]
    Folder,
    #[error("it names no bucket")]
    NoBucket,
    #[error("its path is no prefix of keys")]
    Prefix,
    #[error("it has no user and no password; credentials come from the environment")]
    UserInfo,
    #[error("`{0}` is no setting of such a bucket")]
    Setting(String),
}

impl Location {
    /// `environment` has the variables of the process; those of the kind of bucket are taken, and the URL wins over them.
    pub fn parse<'a>(url: &str, environment: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Location, WrongUrl> {
        let url = Url::parse(url).map_err(|_| WrongUrl::NotAUrl)?;
        let kind = match url.scheme() {
            "file" => return folder(&url),
            "s3" => BucketKind::S3,
            "gs" => BucketKind::Google,
            "az" => BucketKind::Azure,
            _ => return Err(WrongUrl::Scheme),
        };
        if !url.username().is_empty() || url.password().is_some() || url.port().is_some() {
            return Err(WrongUrl::UserInfo);
        }
        let name = url.host_str().filter(|name| !name.is_empty()).ok_or(WrongUrl::NoBucket)?.to_owned();
        let prefix = Path::from_url_path(url.path()).map_err(|_| WrongUrl::Prefix)?;
        let mut options = Vec::new();
        for (variable, value) in environment.filter(|(variable, _)| variable.starts_with(kind.variables())) {
            // Other programs have variables of that beginning, too.
            let key = variable.to_ascii_lowercase();
            if kind.knows(&key) {
                options.push((key, value.to_owned()));
            }
        }
        for (key, value) in url.query_pairs() {
            if !kind.knows(&key) || matches!(key.as_ref(), "bucket" | "bucket_name" | "container" | "container_name") {
                return Err(WrongUrl::Setting(key.into_owned()));
            }
            options.push((key.into_owned(), value.into_owned()));
        }
        Ok(Location::Bucket(BucketSettings { kind, name, prefix, options }))
    }
}

fn folder(url: &Url) -> Result<Location, WrongUrl> {
    let is_plain = url.query().is_none() && url.fragment().is_none();
    let path = url.to_file_path().ok().filter(|path| is_plain && path.parent().is_some());
    path.map(Location::Folder).ok_or(WrongUrl::Folder)
}

impl BucketKind {
    /// How the names of its variables begin.
    fn variables(self) -> &'static str {
        match self {
            BucketKind::S3 => "AWS_",
            BucketKind::Google => "GOOGLE_",
            BucketKind::Azure => "AZURE_",
        }
    }

    fn knows(self, key: &str) -> bool {
        match self {
            BucketKind::S3 => key.parse::<AmazonS3ConfigKey>().is_ok(),
            BucketKind::Google => key.parse::<GoogleConfigKey>().is_ok(),
            BucketKind::Azure => key.parse::<AzureConfigKey>().is_ok(),
        }
    }

    fn scheme(self) -> &'static str {
        match self {
            BucketKind::S3 => "s3",
            BucketKind::Google => "gs",
            BucketKind::Azure => "az",
        }
    }
}

impl fmt::Display for Location {
    /// Without settings.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Folder(path) => write!(f, "{}", path.display()),
            Location::Bucket(settings) => {
                write!(f, "{}://{}/{}", settings.kind.scheme(), settings.name, settings.prefix)
            }
        }
    }
}

impl fmt::Debug for BucketSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}/{}?…", self.kind.scheme(), self.name, self.prefix)
    }
}

#[cfg(test)]
mod tests;
