//! Results and large checkpoints: an upload comes back unchanged, is visible to no other tenant, is deleted when it
//! expires, and whatever fails in between, no job ever has a result that is not there. Objects are in a folder that all
//! nodes share, or in a bucket that checks signatures; every test ends with an audit of rows against bytes.

mod round_trip;
mod direct;
mod checkpoints;

mod losers;
mod expiry;
mod broken;
mod damage;
mod outages;

mod hostile;
mod links;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use outlast_tests::http::{Client, Reply};
use outlast_tests::s3::{CREDENTIALS, S3};
use outlast_tests::server::{Launch, Server};
use outlast_tests::wait;
use reqwest::Method;
use reqwest::header::HeaderMap;
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::api::{make_queue, publish, receive, receive_one, settle, text};

pub(crate) const MIB: usize = 1024 * 1024;
/// For background work of the server, on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) struct Rig {
    // Before `place`: the server must be gone when its objects go.
    pub server: Server,
    pub client: Client,
    pub place: Place,
    /// Follows one redirect.
    plain: reqwest::Client,
}

pub(crate) enum Place {
    Folder(PathBuf),
    Bucket(S3),
}

/// A row of the table of objects.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub key: String,
    pub kept: bool,
    pub doomed: bool,
    pub length: u64,
    pub sha256: String,
}

/// The response to a link.
pub(crate) struct Got {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A job in the hands of a worker.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub id: String,
    pub lease: String,
}

impl Rig {
    /// Objects in a folder that the nodes share.
    pub(crate) async fn on_folder() -> Rig {
        Rig::with(Launch::fresh()).await
    }

    pub(crate) async fn with(launch: Launch) -> Rig {
        let folder = launch.scratch().join("objects");
        let url = format!("file://{}", folder.display());
        Rig::start(launch.with_env("OUTLAST_BLOBS_URL", &url), Place::Folder(folder)).await
    }

    /// Objects in a bucket of an S3 server.
    pub(crate) async fn on_bucket() -> Rig {
        let s3 = S3::start().await;
        let launch = CREDENTIALS.iter().fold(Launch::fresh(), |launch, (name, value)| launch.with_env(name, value));
        Rig::start(launch.with_env("OUTLAST_BLOBS_URL", &s3.url()), Place::Bucket(s3)).await
    }

    pub(crate) async fn start(launch: Launch, place: Place) -> Rig {
        let server = launch.start().await;
        let client = server.client();
        let plain = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        let plain = plain.build().expect("the client has no settings that can fail");
        make_queue(&client, "work", json!({"visibilityTimeout": 3600})).await;
        Rig { server, client, place, plain }
    }

    pub(crate) fn s3(&self) -> &S3 {
        match &self.place {
            Place::Bucket(s3) => s3,
            Place::Folder(_) => panic!("this rig has a folder"),
        }
    }

    /// Kill -9 and a new start, on other ports.
    pub(crate) async fn restart(&mut self) {
        self.server.crash_and_restart().await;
        self.client = self.server.client();
    }

    /// A new job of the queue, handed out.
    pub(crate) async fn held(&self) -> Held {
        self.held_of("work").await
    }

    pub(crate) async fn held_of(&self, queue: &str) -> Held {
        publish(&self.client, queue, json!(1)).await;
        let held = receive_one(&self.client, queue).await;
        Held { id: text(&held["id"]), lease: text(&held["lease"]) }
    }

    /// The next job of the queue, handed out for long, whatever the queue says.
    pub(crate) async fn next(&self, queue: &str) -> Held {
        let held = receive(&self.client, queue, json!({"batch": 1, "wait": 30, "visibilityTimeout": 600})).await;
        assert_eq!(held.len(), 1, "one job is due");
        Held { id: text(&held[0]["id"]), lease: text(&held[0]["lease"]) }
    }

    /// Uploads a result through the server.
    pub(crate) async fn put(&self, held: &Held, body: impl Into<Bytes>) -> Reply {
        self.put_as(held, "/result", "text/plain", body).await
    }

    pub(crate) async fn put_as(&self, held: &Held, rest: &str, kind: &str, body: impl Into<Bytes>) -> Reply {
        let request = self.client.request(Method::PUT, &format!("/v1/jobs/{}{rest}", held.id));
        let request = request.header("x-outlast-lease", &held.lease).header("content-type", kind);
        self.client.send(request.body(body.into())).await.expect("an upload is answered")
    }

    pub(crate) async fn ack(&self, held: &Held) -> Value {
        settle(&self.client, &held.id, "ack", json!({"lease": held.lease})).await
    }

    /// A job that has succeeded with these bytes.
    pub(crate) async fn succeeded(&self, queue: &str, body: impl Into<Bytes>) -> Held {
        let held = self.held_of(queue).await;
        self.put(&held, body).await.expect(201);
        assert_eq!(self.ack(&held).await["status"], "succeeded");
        held
    }

    /// Asks for the result, without going where that leads.
    pub(crate) async fn result(&self, id: &str) -> Got {
        self.fetch(Method::GET, &format!("{}/v1/jobs/{id}/result", self.client.base), &[], Some(&self.client.key)).await
    }

    /// A fresh link to the result, as a whole URL.
    pub(crate) async fn link(&self, id: &str) -> String {
        let answer = self.result(id).await;
        assert_eq!(answer.status, 307, "{}", String::from_utf8_lossy(&answer.body));
        self.whole(answer.headers["location"].to_str().expect("a link is plain text"))
    }

    pub(crate) fn whole(&self, link: &str) -> String {
        if link.starts_with('/') { format!("{}{link}", self.client.base) } else { link.to_owned() }
    }

    /// By link, as anybody could who has it.
    pub(crate) async fn open(&self, link: &str) -> Got {
        self.fetch(Method::GET, link, &[], None).await
    }

    pub(crate) async fn fetch(&self, method: Method, url: &str, headers: &[(&str, &str)], key: Option<&str>) -> Got {
        let mut request = self.plain.request(method, url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        got(request).await
    }

    /// Sends bytes over a link, without a key.
    pub(crate) async fn send(&self, link: &str, body: impl Into<Bytes>) -> Got {
        got(self.plain.put(self.whole(link)).body(body.into())).await
    }

    /// All objects the database knows of.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let launch = self.server.launch();
        if let Some(database) = launch.database() {
            let sql = "SELECT key, attached, delete_after IS NOT NULL, length, encode(sha256, 'hex') FROM object";
            return tokio::task::block_in_place(|| database.psql(sql)).lines().map(parsed).collect();
        }
        let database = Connection::open(launch.data.join("outlast.db")).expect("the database can be opened");
        let sql = "SELECT key, attached, delete_after IS NOT NULL, length, lower(hex(sha256)) FROM object";
        let mut statement = database.prepare(sql).expect("the table is there");
        let rows = statement.query_map([], |row| {
            Ok(Row {
                key: row.get(0)?,
                kept: row.get(1)?,
                doomed: row.get(2)?,
                length: row.get::<_, i64>(3)? as u64,
                sha256: row.get(4)?,
            })
        });
        rows.expect("rows can be read").map(|row| row.expect("a row can be read")).collect()
    }

    /// All objects that are there, by key. Incomplete files end in `.part`.
    pub(crate) fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        match &self.place {
            Place::Folder(folder) => {
                let mut objects = BTreeMap::new();
                gather(folder, folder, &mut objects);
                objects
            }
            Place::Bucket(s3) => {
                let keys = s3.objects();
                let key = |name: &String| name.strip_prefix("of/tests/").expect("all keys have the prefix").to_owned();
                keys.iter().map(|name| (key(name), s3.read(name))).collect()
            }
        }
    }

    /// Puts other bytes in the place of an object's.
    pub(crate) fn replace(&self, key: &str, bytes: Vec<u8>) {
        match &self.place {
            Place::Folder(folder) => fs::write(folder.join(key), bytes).expect("an object can be overwritten"),
            Place::Bucket(s3) => s3.replace(&format!("of/tests/{key}"), &bytes),
        }
    }

    /// I-36: whatever a job has is there, whole; whatever is there is known by name. Gives the number of live objects.
    pub(crate) fn audit(&self) -> usize {
        // Objects that are deleted meanwhile were known before and are not live after.
        let (before, objects, after) = (self.rows(), self.objects(), self.rows());
        let is_live = |rows: &[Row], key: &str| rows.iter().any(|row| row.key == key && row.kept && !row.doomed);
        let live: Vec<&Row> =
            after.iter().filter(|row| is_live(&after, &row.key) && is_live(&before, &row.key)).collect();
        for row in &live {
            let bytes = objects.get(&row.key).unwrap_or_else(|| panic!("{row:?} has no object"));
            assert_eq!((bytes.len() as u64, digest(bytes)), (row.length, row.sha256.clone()), "{}", row.key);
        }
        for key in objects.keys() {
            let whose = key.strip_suffix(".part").unwrap_or(key);
            assert!(before.iter().chain(&after).any(|row| row.key == whose), "no row has the object {key}");
        }
        live.len()
    }

    /// Waits until nothing is left but what jobs have.
    pub(crate) async fn until_only_live(&self, count: usize) {
        wait::until("everything else to be collected", DEADLINE, async || {
            let (rows, objects) = (self.rows(), self.objects());
            (rows.len() == count && objects.len() == count).then_some(())
        })
        .await;
        assert_eq!(self.audit(), count);
    }

    /// A doomed object waits for an hour, for clients that still write. Here the hour ends at once: the rows are moved
    /// in time while the server is down, and the next start finds them due.
    pub(crate) async fn let_the_grace_pass(&mut self) {
        self.change_objects("delete_after = 1, checksum = NULL WHERE delete_after IS NOT NULL").await;
    }

    /// Changes rows of the table of objects while the server is down.
    pub(crate) async fn change_objects(&mut self, change: &str) {
        self.server.kill9().await;
        let launch = self.server.launch().clone();
        let sql = format!("UPDATE object SET {change}");
        match launch.database() {
            Some(database) => drop(tokio::task::block_in_place(|| database.psql(&sql))),
            None => {
                let database = Connection::open(launch.data.join("outlast.db")).expect("the database can be opened");
                // The server was killed and expects its log to be there at the next start.
                let keeps_log = database.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
                assert!(keeps_log.expect("the log can be kept"));
                database.execute(&sql, []).expect("rows can be changed");
            }
        }
        self.server = launch.start().await;
        self.client = self.server.client();
    }
}

fn parsed(line: &str) -> Row {
    let columns: Vec<&str> = line.split('|').collect();
    Row {
        key: columns[0].to_owned(),
        kept: columns[1] == "t",
        doomed: columns[2] == "t",
        length: columns[3].parse().expect("a length is a number"),
        sha256: columns[4].to_owned(),
    }
}

async fn got(request: reqwest::RequestBuilder) -> Got {
    let response = request.send().await.expect("a link is answered");
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Got { status, headers, body: response.bytes().await.expect("the whole body") }
}

/// Files may go while they are looked for.
fn gather(root: &Path, folder: &Path, objects: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            gather(root, &path, objects);
        } else if let Ok(bytes) = fs::read(&path) {
            let key = path.strip_prefix(root).expect("it is below").to_string_lossy().into_owned();
            objects.insert(key, bytes);
        }
    }
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that are not the same everywhere.
pub(crate) fn bytes(length: usize) -> Bytes {
    (0..length).map(|at| (at * 31 / 7 % 251) as u8).collect()
}

pub(crate) fn header<'g>(got: &'g Got, name: &str) -> &'g str {
    got.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
