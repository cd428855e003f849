//! Where a queue delivers, and with what: worked out once per version of the queue, not per delivery.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use outlast_core::queue::Mode;
use outlast_core::{Job, Queue, Timestamp};
use url::Url;

use crate::queues::secrets::Secrets;
use crate::sign::{self, Secret};

use super::body::message_id;

const LEASE: HeaderName = HeaderName::from_static("x-outlast-lease");
const TRACE: HeaderName = HeaderName::from_static("traceparent");
/// The plain signature of callbacks has this name as well.
const CALLBACK_SIGNATURE: HeaderName = HeaderName::from_static("x-signature-256");

pub(super) struct Endpoint {
    pub(super) queue: Arc<Queue>,
    url: Option<Target>,
    /// What every delivery has: the type and the queue's own headers.
    headers: HeaderMap,
    plain_header: Option<HeaderName>,
    secrets: Secrets,
}

/// A URL, and the host that its circuit belongs to, together with the namespace.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) url: Arc<str>,
    pub(super) host: Arc<str>,
}

impl Target {
    fn new(url: &str) -> Target {
        let host = Url::parse(url).map(|url| url.origin().ascii_serialization()).unwrap_or_default();
        Target { url: url.into(), host: host.into() }
    }
}

impl Endpoint {
    /// `own_headers` are those of the queue, opened.
    pub(super) fn new(queue: Arc<Queue>, secrets: Secrets, own_headers: &BTreeMap<String, String>) -> Endpoint {
        let settings = &queue.settings;
        let mut headers = HeaderMap::new();
        for (name, value) in own_headers {
            // What could not be a header was refused when it was saved.
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                headers.insert(name, value);
            }
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Endpoint {
            url: settings.webhook_url.as_deref().map(Target::new),
            headers,
            plain_header: HeaderName::try_from(&settings.signature_header).ok(),
            secrets,
            queue,
        }
    }

    /// Where this job goes.
    pub(super) fn target(&self, job: &Job) -> Option<Target> {
        match self.queue.settings.mode {
            Mode::Callback => job.spec.callback_url.as_deref().map(Target::new),
            Mode::Standard | Mode::Ack | Mode::Pull => self.url.clone(),
        }
    }

    /// The one host of all deliveries, if they have one.
    pub(super) fn host(&self) -> Option<&str> {
        self.url.as_ref().map(|target| &*target.host)
    }

    /// Everything but what the connector sets itself. Signed over exactly these bytes, with the present time.
    pub(super) fn headers(&self, job: &Job, lease: &str, body: &[u8], now: Timestamp) -> HeaderMap {
        let mut headers = self.headers.clone();
        let mut set = |name: HeaderName, value: &str| {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(name, value);
            }
        };
        let secrets: Vec<Secret> = self.secrets.live(now);
        let (id, seconds) = (message_id(job), now.as_millis().div_euclid(1000));
        set(HeaderName::from_static(sign::ID_HEADER), &id);
        set(HeaderName::from_static(sign::TIMESTAMP_HEADER), &seconds.to_string());
        let signature = sign::standard(&secrets, &id, seconds, body);
        set(HeaderName::from_static(sign::SIGNATURE_HEADER), &signature);
        if let (Some(newest), Some(name)) = (secrets.first(), &self.plain_header) {
            let plain = sign::plain(newest, body);
            set(name.clone(), &plain);
            if self.queue.settings.mode == Mode::Callback {
                set(CALLBACK_SIGNATURE, &plain);
            }
        }
        if self.queue.settings.mode != Mode::Callback {
            set(LEASE, lease);
        }
        if let Some(trace) = &job.spec.traceparent {
            set(TRACE, trace);
        }
        headers
    }
}
