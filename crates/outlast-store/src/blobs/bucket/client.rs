//! The client of a bucket: made from settings, with its retries and timeouts; and what its errors mean to us.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::multipart::MultipartStore;
use object_store::signer::Signer;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};

use super::{BlobTimeouts, BucketKind, BucketSettings, Error};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const RETRIES_MAX: usize = 3;

/// The operations that every kind of bucket has.
pub(super) trait BucketClient: ObjectStore + MultipartStore + Signer {}

impl<T: ObjectStore + MultipartStore + Signer> BucketClient for T {}

pub(super) fn connect(settings: BucketSettings, patience: BlobTimeouts) -> Result<Arc<dyn BucketClient>, Error> {
    let BucketSettings { kind, name, options, .. } = settings;
    let is_plain = options.iter().any(|(key, value)| key.contains("endpoint") && value.starts_with("http://"));
    let http = ClientOptions::new()
        .with_allow_http(is_plain)
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_read_timeout(patience.idle)
        // A whole object may take long; each piece of it has its timeout.
        .with_timeout_disabled();
    let retry =
        RetryConfig { backoff: BackoffConfig::default(), max_retries: RETRIES_MAX, retry_timeout: patience.call };
    match kind {
        BucketKind::S3 => {
            let mut builder = AmazonS3Builder::new().with_client_options(http).with_retry(retry);
            for (key, value) in options {
                builder = builder.with_config(key.parse().map_err(sorted_out)?, value);
            }
            // Not every store of this kind deletes in bulk, and we delete one by one.
            let builder = builder.with_bucket_name(name).with_disable_bulk_delete(true);
            Ok(Arc::new(builder.build().map_err(sorted_out)?))
        }
        BucketKind::Google => {
            let mut builder = GoogleCloudStorageBuilder::new().with_client_options(http).with_retry(retry);
            for (key, value) in options {
                builder = builder.with_config(key.parse().map_err(sorted_out)?, value);
            }
            Ok(Arc::new(builder.with_bucket_name(name).build().map_err(sorted_out)?))
        }
        BucketKind::Azure => {
            let mut builder = MicrosoftAzureBuilder::new().with_client_options(http).with_retry(retry);
            for (key, value) in options {
                builder = builder.with_config(key.parse().map_err(sorted_out)?, value);
            }
            Ok(Arc::new(builder.with_container_name(name).build().map_err(sorted_out)?))
        }
    }
}

/// Classifies an error by the reaction: missing, a wrong setting, or retry.
pub(super) fn sorted_out(error: object_store::Error) -> Error {
    use object_store::Error as Theirs;
    match error {
        Theirs::NotFound { .. } => Error::Missing,
        Theirs::Generic { .. } | Theirs::JoinError { .. } => Error::Unavailable(error.into()),
        other => Error::Refused(other.into()),
    }
}
