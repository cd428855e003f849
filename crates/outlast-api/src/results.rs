//! Results: uploaded by workers, through the server or directly to a bucket, and downloaded by callers that may read
//! the job. Bytes of a user are never served as a page of ours: always as a download, from a link that is good for
//! minutes.

use axum::response::Response;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderValue, StatusCode};
use outlast_core::filename::Filename;
use outlast_core::object::digest_text;
use outlast_core::{Job, Object, State, Status};
use outlast_engine::keys::token::Act;
use outlast_engine::objects::upload::{ExpectedDigest, Finalised, LINK_LIFE, Label, Refused};
use outlast_store::artifacts::StoredObject;
use outlast_store::blobs::UploadedPart;
use outlast_store::job_detail::ResultDetail;
use serde_json::{Value as Json, json};

use crate::answers::Weight;
use crate::error::{Code, Problem};
use crate::request::RequestContext;
use crate::schema::{Value, Values};
use crate::{body, fields, wire, work};

pub(crate) async fn show(request: RequestContext) -> Result<Response, Problem> {
    let id = request.job()?;
    let _turn = request.turn(Weight::Single).await?;
    let found = request.rooms.jobs.job(&request.reach, id).await?.ok_or_else(Problem::job_not_found)?;
    if found.job.status() == Status::Expired {
        let detail = "the result has expired and was deleted; submit the job again if you need it";
        return Err(Problem::new(Code::JobExpired, detail));
    }
    let response = match request.rooms.objects.inline_result(&request.reach, id).await? {
        Some(inline) => wire::ok(StatusCode::OK, inline.body.to_string()),
        None => {
            let none = || format!("the job is {} and has no result", found.job.status());
            let stored = request.rooms.objects.uploaded_result(&found).await?;
            redirect(&request, &stored.ok_or_else(|| Problem::new(Code::ResultNotFound, none()))?).await?
        }
    };
    request.rooms.objects.count_download(id);
    Ok(response)
}

/// To the object store itself where it can, else to us.
async fn redirect(request: &RequestContext, stored: &StoredObject) -> Result<Response, Problem> {
    let location = match request.rooms.objects.link(stored, request.life(LINK_LIFE)).await? {
        Some(url) => url,
        None => {
            let key = stored.object.key;
            let (link, _) = request.rooms.keys.mint_link(request.caller()?.key, key, Act::Get, request.life(LINK_LIFE));
            format!("{}/v1/objects/{link}", request.base())
        }
    };
    let mut response = wire::ok(StatusCode::TEMPORARY_REDIRECT, String::new());
    let headers = response.headers_mut();
    headers.remove(CONTENT_TYPE);
    headers.insert("referrer-policy", HeaderValue::from_static("no-referrer"));
    // An object store that gives links which are no URLs cannot be used.
    let unusable = |_| Problem::new(Code::BlobsUnavailable, "the object store gave a link that cannot be used");
    headers.insert(LOCATION, HeaderValue::try_from(location).map_err(unusable)?);
    Ok(response)
}

/// The metadata of a result that a job shows.
pub(crate) fn meta(job: &Job, result: &ResultDetail) -> Json {
    match result {
        ResultDetail::Inline { downloads } => {
            let length = match &job.state {
                State::Succeeded { result: Some(result), .. } => Some(result.length),
                _ => None,
            };
            json!({
                "length": length, "contentType": "application/json", "filename": null, "sha256": null,
                "downloadCount": downloads, "partial": false,
            })
        }
        ResultDetail::Object(stored) => {
            let mut meta = described(&stored.object);
            if let Json::Object(map) = &mut meta {
                map.insert("downloadCount".to_owned(), json!(stored.downloads));
                map.insert("partial".to_owned(), json!(job.work_summary.has_upload));
            }
            meta
        }
    }
}

fn described(object: &Object) -> Json {
    json!({
        "length": object.length, "contentType": object.content_type, "filename": object.filename,
        "sha256": digest_text(&object.sha256),
    })
}

/// The whole result in the body, of any length.
pub(crate) async fn put(mut request: RequestContext) -> Result<Response, Problem> {
    let worker = work::worker(&request, &mut Values::default())?;
    let content_type = content_type(request.header("content-type"))?;
    let label =
        Label { filename: request.query.text("filename").and_then(|name| Filename::clean(&name)), content_type };
    let stream = body::stream(&request.headers, request.take_upload(), &request.limits)?;
    let finalised = request.rooms.objects.upload_result(&worker, label, stream).await?;
    Ok(answer(&finalised))
}

/// Links for an upload that does not have to go through us.
pub(crate) async fn begin(request: RequestContext) -> Result<Response, Problem> {
    let mut values = request.read(&fields::UPLOAD)?;
    let worker = work::worker(&request, &mut values)?;
    let label = Label {
        filename: values.text("filename").and_then(|name| Filename::clean(&name)),
        content_type: values.text("contentType").map(Into::into),
    };
    let parts = values.int("parts").and_then(|parts| u16::try_from(parts).ok()).unwrap_or(1);
    let upload = request.rooms.objects.begin_upload(&worker, label, parts).await?;
    let (urls, headers) = match upload.direct {
        Some(direct) => (direct.urls.into_iter().map(String::from).collect(), direct.headers),
        None => {
            let (link, _) = request.rooms.keys.mint_link(request.caller()?.key, upload.object, Act::Put, LINK_LIFE);
            (vec![format!("{}/v1/objects/{link}", request.base())], Vec::new())
        }
    };
    let headers: serde_json::Map<String, Json> =
        headers.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
    let numbered = |(url, number): (&String, u32)| json!({"number": number, "url": url});
    let parts: Vec<Json> = urls.iter().zip(1..).map(numbered).collect();
    let body = json!({
        "uploadId": format!("{:016x}", upload.object.random),
        "method": "PUT",
        "url": urls.first(),
        "headers": headers,
        "parts": parts,
        "expiresAt": request.rooms.clock.now().plus(LINK_LIFE).to_string(),
    });
    Ok(wire::json_ok(StatusCode::CREATED, &body))
}

/// Makes the upload the result.
pub(crate) async fn finalize(request: RequestContext) -> Result<Response, Problem> {
    let mut values = request.read(&fields::FINALIZE)?;
    let worker = work::worker(&request, &mut values)?;
    let upload = values.text("uploadId").and_then(|text| u64::from_str_radix(&text, 16).ok()).unwrap_or(0);
    let claim = ExpectedDigest {
        length: values.int("length").and_then(|length| u64::try_from(length).ok()),
        sha256: values.text("sha256").and_then(|text| digest(&text)),
    };
    let parts = values.list("parts").unwrap_or_default().into_iter().filter_map(part).collect();
    let finalised = request.rooms.objects.finalize_upload(&worker, upload, parts, &claim).await?;
    Ok(answer(&finalised))
}

fn answer(finalised: &Finalised) -> Response {
    let mut body = described(&finalised.object);
    if let Json::Object(map) = &mut body {
        map.insert("id".to_owned(), json!(finalised.applied.id.to_string()));
        map.insert("accepted".to_owned(), json!(true));
        map.insert("version".to_owned(), json!(finalised.applied.version));
    }
    wire::json_ok(StatusCode::CREATED, &body)
}

fn part(value: Value<'_>) -> Option<UploadedPart> {
    let Value::Object(mut part) = value else {
        return None;
    };
    let number = part.int("number").and_then(|number| u16::try_from(number).ok())?;
    Some(UploadedPart { number, etag: part.text("etag")? })
}

fn digest(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * place..2 * place + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// It is sent on with every download, so it must be a type and nothing else.
fn content_type(text: Option<&str>) -> Result<Option<Box<str>>, Problem> {
    let Some(text) = text else {
        return Ok(None);
    };
    if text.len() > 255 || !fields::is_media_type(text) {
        return Err(Problem::field("Content-Type", "must be a media type such as \"text/csv\""));
    }
    Ok(Some(text.into()))
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Problem {
        match refused {
            Refused::Declined(declined) => declined.into(),
            Refused::Store(error) => error.into(),
            Refused::Blobs(error) => error.into(),
            Refused::TooMany => {
                Problem::new(Code::UploadsFull, "this attempt has announced 100 uploads; finalize or release it")
            }
            Refused::NoUpload => {
                let detail = "no upload with this uploadId is expected in this attempt; begin one with result/upload";
                Problem::new(Code::UploadNotFound, detail)
            }
            Refused::NotSent => {
                let detail = "nothing has been sent to the link of this upload yet; PUT the bytes there first";
                Problem::new(Code::UploadNotFound, detail)
            }
            Refused::Gaps => {
                Problem::field("parts", "must name every part of the upload once, from 1 on without a gap")
            }
            Refused::MissingParts { announced, missing } => Problem::field("parts", missing_parts(announced, &missing)),
            Refused::Different(written) => {
                let (length, digest) = (written.length, digest_text(&written.sha256));
                let detail = format!("what was uploaded has {length} bytes and the SHA-256 {digest}");
                Problem::field("sha256", format!("and length must be those of what was uploaded; {detail}"))
            }
        }
    }
}

/// Names the first of the missing parts; there may be thousands.
fn missing_parts(announced: u16, missing: &[u16]) -> String {
    const NAMED_MAX: usize = 20;
    let named: Vec<String> = missing.iter().take(NAMED_MAX).map(u16::to_string).collect();
    let more = if missing.len() > NAMED_MAX { " and more" } else { "" };
    format!("must name all {announced} parts that were announced; missing: {}{more}", named.join(", "))
}

impl From<outlast_store::blobs::Error> for Problem {
    fn from(error: outlast_store::blobs::Error) -> Problem {
        use outlast_store::blobs::Error;
        match error {
            Error::Missing => {
                tracing::error!("object is missing from the object store; restore it or replay the job");
                Problem::new(Code::ResultMissing, "the object is missing from the object store; contact your operator")
            }
            // Logged where it was found.
            Error::Damaged => {
                let detail = "the stored bytes are damaged and are not served; restore them, or replay the job";
                Problem::new(Code::ResultDamaged, detail)
            }
            Error::Interrupted(_) => Problem::field("body", "ended before it was complete; nothing was stored"),
            Error::Full(_) => {
                tracing::error!(error = error.with_causes(), "object store is full; upload refused; free disk space");
                Problem::new(Code::DiskFull, "the server's object store is full; nothing was stored")
            }
            Error::Unavailable(_) => {
                tracing::warn!(error = error.with_causes(), "object store is unreachable; answered 503");
                Problem::new(
                    Code::BlobsUnavailable,
                    "the object store cannot be reached; nothing was stored, try again",
                )
            }
            Error::Refused(_) => {
                tracing::error!(
                    error = error.with_causes(),
                    "object store refused the request; check its credentials and permissions"
                );
                Problem::new(
                    Code::BlobsUnavailable,
                    "the object store refused the request; nothing was stored; contact your operator",
                )
            }
        }
    }
}
