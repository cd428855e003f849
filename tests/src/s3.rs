//! An S3 server in the process of the test: objects in a folder, signatures really checked. It counts what it is asked,
//! and can be made to refuse, to delay, or to lose its objects. On loopback only, and gone with the value that holds
//! it.

use std::convert::Infallible;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use s3s::Body;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s_fs::FileSystem;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use url::Url;

pub const BUCKET: &str = "results";
const ACCESS_KEY: &str = "AKOUTLASTTESTS";
const SECRET_KEY: &str = "a-secret-of-the-tests-that-opens-nothing";

/// The environment variables of a client.
pub const CREDENTIALS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY)];

/// How requests are met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Fine,
    /// Every request gets a 503.
    Busy,
    /// So many requests get a 503, then it is fine.
    BusyTimes(usize),
    /// Every request waits that long before it is looked at.
    Slow(Duration),
}

pub struct S3 {
    pub address: SocketAddr,
    folder: TempDir,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    service: S3Service,
    mood: Mutex<Mood>,
    requests: Mutex<Vec<String>>,
    bytes_sent: AtomicU64,
}

impl S3 {
    /// With one empty bucket.
    pub async fn start() -> S3 {
        let folder = TempDir::new().expect("there is room for a folder");
        fs::create_dir(folder.path().join(BUCKET)).expect("a bucket is a folder");
        let mut builder = S3ServiceBuilder::new(FileSystem::new(folder.path()).expect("the folder is there"));
        builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
        let shared = Arc::new(Shared {
            service: builder.build(),
            mood: Mutex::new(Mood::Fine),
            requests: Mutex::default(),
            bytes_sent: AtomicU64::new(0),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        S3 { address, folder, shared, accepting }
    }

    /// The `blobs_url` of a server.
    pub fn url(&self) -> String {
        format!("s3://{BUCKET}/of/tests?region=eu-central-1&endpoint=http://{}", self.address)
    }

    pub fn set(&self, mood: Mood) {
        *self.shared.mood.lock().unwrap() = mood;
    }

    /// Method and path of every request so far, also of those that were refused.
    pub fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Bytes of answers that were handed to the network.
    pub fn bytes_sent(&self) -> u64 {
        self.shared.bytes_sent.load(Ordering::Relaxed)
    }

    /// The keys of all objects.
    pub fn objects(&self) -> Vec<String> {
        let (mut keys, bucket) = (Vec::new(), self.folder.path().join(BUCKET));
        let mut folders = vec![bucket.clone()];
        while let Some(folder) = folders.pop() {
            for path in entries(&folder) {
                match path.is_dir() {
                    true => folders.push(path),
                    false => keys.push(path.strip_prefix(&bucket).unwrap().to_string_lossy().into_owned()),
                }
            }
        }
        keys.sort();
        keys
    }

    /// Parts that were uploaded and belong to no object.
    pub fn loose_parts(&self) -> usize {
        let is_part = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().contains(".part-"));
        entries(self.folder.path()).iter().filter(|path| is_part(path)).count()
    }

    /// Damages an object it has confirmed.
    pub fn replace(&self, key: &str, bytes: &[u8]) {
        fs::write(self.folder.path().join(BUCKET).join(key), bytes).expect("what is replaced is there");
    }

    /// The bytes of an object.
    pub fn read(&self, key: &str) -> Vec<u8> {
        fs::read(self.folder.path().join(BUCKET).join(key)).expect("what is read is there")
    }

    /// Loses an object it has confirmed.
    pub fn lose(&self, key: &str) {
        fs::remove_file(self.folder.path().join(BUCKET).join(key)).expect("what is lost was there");
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn entries(folder: &std::path::Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect()
}

/// Connections end with the task, since it holds them.
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let service = service_fn(move |request| {
                let shared = Arc::clone(&shared);
                async move { Ok::<_, Infallible>(shared.answer(request).await) }
            });
            // A client that goes away in the middle is an ordinary end here.
            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
        while connections.try_join_next().is_some() {}
    }
}

impl Shared {
    async fn answer(self: Arc<Shared>, request: Request<Incoming>) -> Response<Body> {
        self.requests.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
        match self.next_mood() {
            Mood::Fine => {}
            Mood::Slow(pause) => tokio::time::sleep(pause).await,
            Mood::Busy | Mood::BusyTimes(_) => {
                return refusal(StatusCode::SERVICE_UNAVAILABLE, "SlowDown");
            }
        }
        let (method, uri) = (request.method().clone(), request.uri().clone());
        if !uri.path().starts_with(&format!("/{BUCKET}/")) {
            // The server in the box makes a bucket of whatever it is asked for.
            return refusal(StatusCode::NOT_FOUND, "NoSuchBucket");
        }
        let mut answer = match self.service.call(request.map(Body::from)).await {
            Ok(answer) => answer,
            Err(_) => refusal(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
        };
        if method == Method::GET && answer.status().is_success() {
            override_headers(&mut answer, uri.query().unwrap_or_default());
        }
        answer.map(|body| {
            let counted = body.map_frame(move |frame| {
                let length = frame.data_ref().map_or(0, Bytes::len);
                self.bytes_sent.fetch_add(length as u64, Ordering::Relaxed);
                frame
            });
            Body::http_body_unsync(counted)
        })
    }

    fn next_mood(&self) -> Mood {
        let mut mood = self.mood.lock().unwrap();
        let present = *mood;
        if let Mood::BusyTimes(left) = present {
            *mood = if left > 1 { Mood::BusyTimes(left - 1) } else { Mood::Fine };
        }
        present
    }
}

fn refusal(status: StatusCode, code: &str) -> Response<Body> {
    let mut answer = Response::new(Body::from(Bytes::from(format!("<Error><Code>{code}</Code></Error>"))));
    *answer.status_mut() = status;
    answer
}

/// The effect of these parameters in S3, which the test server lacks. The signature that covers them was checked.
fn override_headers(answer: &mut Response<Body>, query: &str) {
    let url = Url::parse(&format!("http://localhost/?{query}")).expect("a query that was served is one");
    for (name, value) in url.query_pairs() {
        let header = match name.as_ref() {
            "response-content-disposition" => CONTENT_DISPOSITION,
            "response-content-type" => CONTENT_TYPE,
            _ => continue,
        };
        answer.headers_mut().insert(header, HeaderValue::from_str(&value).expect("a header's value was asked for"));
    }
}
