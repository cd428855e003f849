//! Checks the object store: writes a small object, reads it back and removes it.

use outlast_core::Entropy;
use outlast_engine::ports::SystemEntropy;
use outlast_store::blobs::location::Location;
use outlast_store::blobs::{BlobTimeouts, Blobs};

use super::{Check, Verdict};
use crate::config::Config;

const NAME: &str = "objects";

pub(crate) async fn check(config: &Config) -> Check {
    let (location, is_shared) = (config.blobs(), config.external.database_url.is_some());
    let shown = location.to_string();
    let is_own = config.external.blobs.is_none();
    if let Location::Folder(path) = &location
        && !path.exists()
    {
        // A probe would create it.
        return Check::new(
            NAME,
            Verdict::Warn,
            format!("{shown} does not exist; the first start of a server makes it"),
        );
    }
    let mark = SystemEntropy::seed().map_or(0, |mut entropy| entropy.next_u64());
    let probed = match Blobs::new(location, BlobTimeouts::default()) {
        Ok(blobs) => blobs.probe(mark).await,
        Err(error) => Err(error),
    };
    match probed {
        Err(error) => Check::new(NAME, Verdict::Fail, format!("{shown}: {}", error.with_causes())),
        Ok(()) if is_shared && is_own => {
            let finding = format!(
                "{shown} is of this machine only, as store.allow_local_objects allows; several nodes need one blobs_url"
            );
            Check::new(NAME, Verdict::Warn, finding)
        }
        Ok(()) => Check::new(NAME, Verdict::Ok, format!("{shown}: read, write and delete work")),
    }
}
