//! The result of a program that has ended well: JSON goes along with the ack, everything else is uploaded before it.

use std::io::ErrorKind;
use std::path::Path;

use serde_json::value::RawValue;

use super::job_client::{CallError, INLINE_BYTES_MAX, JobClient};
use crate::client::transfer::Content;
use crate::commands::settings::Fields;

const JSON: &str = "application/json";
const BYTES: &str = "application/octet-stream";

/// Flags about the result.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Results")]
pub(crate) struct ResultFlags {
    /// Use the program's stdout as the result instead of $OUTLAST_RESULT_FILE
    #[arg(long)]
    pub stdout_result: bool,
    /// File name of an uploaded result
    #[arg(long, value_name = "NAME")]
    pub result_filename: Option<String>,
    /// Media type of an uploaded result [default: application/json or application/octet-stream]
    #[arg(long, value_name = "TYPE")]
    pub result_type: Option<String>,
}

/// Reports success with the file as the result. Gives the state of the job after it.
pub(crate) async fn ack(client: &JobClient, path: &Path, result_flags: &ResultFlags) -> Result<String, CallError> {
    let fields = prepare_result(client, path, result_flags).await?;
    match client.outcome("ack", &fields).await {
        // Larger than this server takes with an ack.
        Err(CallError::TooLarge(_)) => {
            upload(client, path, result_flags, JSON).await?;
            client.outcome("ack", &Fields::default()).await
        }
        result => result,
    }
}

/// Uploads the file where it has to be; gives the fields of the ack.
async fn prepare_result(client: &JobClient, path: &Path, result_flags: &ResultFlags) -> Result<Fields, CallError> {
    let refuse = |error: std::io::Error| CallError::Refused(format!("cannot read the result: {error}"));
    let length = match tokio::fs::metadata(path).await {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Fields::default()),
        Err(error) => return Err(refuse(error)),
    };
    if length == 0 {
        return Ok(Fields::default());
    }
    let is_named = result_flags.result_filename.is_some() || result_flags.result_type.is_some();
    let mut kind = BYTES;
    if usize::try_from(length).is_ok_and(|length| length <= INLINE_BYTES_MAX) {
        let bytes = tokio::fs::read(path).await.map_err(refuse)?;
        if let Ok(json) = serde_json::from_slice::<Box<RawValue>>(&bytes) {
            if !is_named {
                let mut fields = Fields::default();
                fields.set("result", &json).map_err(|failure| CallError::Refused(failure.message))?;
                return Ok(fields);
            }
            kind = JSON;
        }
    }
    upload(client, path, result_flags, kind).await?;
    Ok(Fields::default())
}

async fn upload(client: &JobClient, path: &Path, result_flags: &ResultFlags, kind: &str) -> Result<(), CallError> {
    let kind = result_flags.result_type.clone().unwrap_or_else(|| kind.to_owned());
    client.upload(path, &Content { filename: result_flags.result_filename.clone(), kind }).await
}
