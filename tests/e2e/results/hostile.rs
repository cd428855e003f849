//! T16: names of files as an enemy would choose them, and ids of other people. A name is kept to be shown and nothing
//! else; keys of objects are made of numbers.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use outlast_tests::http::Client;
use reqwest::Method;
use serde_json::{Value, json};

use crate::api::{job, text};
use crate::results::{Held, Rig, header};

const NAMES: [&str; 58] = [
    "..",
    "../",
    "../../../../etc/passwd",
    "..\\..\\windows\\system32\\config\\sam",
    "/etc/passwd",
    "//server/share/file",
    "\\\\server\\share\\file",
    "\\\\?\\C:\\file",
    "C:\\autoexec.bat",
    "C:file",
    "file:///etc/passwd",
    "~/.ssh/authorized_keys",
    "....//....//etc/passwd",
    "%2e%2e%2fetc%2fpasswd",
    "..%2f..%2fetc",
    "..%5c..%5cwindows",
    "%252e%252e%252fetc",
    "..%c0%af..%c0%afetc",
    "．．／．．／etc／passwd",
    "..∕..∕etc",
    "a\0b.txt",
    "a\r\nset-cookie: x=y",
    "a\nb",
    "a\tb",
    "\u{1b}[31mred",
    "\u{202e}gpj.exe",
    "\u{200b}",
    "a\u{2028}b",
    "\u{feff}bom",
    "\u{e0041}tag",
    "quote\".txt",
    "a\"; filename=\"evil.exe",
    "a\\\"b",
    "';alert(1)//",
    "<script>alert(1)</script>",
    "%00",
    "%0d%0aSet-Cookie:x=y",
    "|rm -rf /",
    "$(id)",
    "`id`",
    "-rf",
    "*?:",
    "CON",
    "nul.txt",
    "COM1",
    "lpt³.x",
    "aux .txt",
    ".htaccess",
    ".",
    "...",
    " ",
    "a.",
    "a ",
    "naïve.txt",
    "日本語.csv",
    "🦀.tar.gz",
    "a;b=c",
    "semi;colon.txt",
];

// T16: by the query and by the body, all names are taken, and nothing of them gets into a path or out of a header.
#[tokio::test(flavor = "multi_thread")]
async fn hostile_names_are_only_ever_shown() {
    let rig = Rig::on_folder().await;
    let outside = entries(rig.server.launch().scratch());
    let long = "x".repeat(250);
    let names = NAMES.into_iter().chain([long.as_str()]);
    let mut shown = 0;
    for name in names {
        for way in [by_query(&rig, name).await, by_link(&rig, name).await] {
            let Some(held) = way else {
                continue;
            };
            rig.ack(&held).await;
            check_shown(&rig, &held, name).await;
            shown += 1;
        }
    }

    println!("{shown} names were taken and shown");
    assert!(shown >= 100, "only {shown} of {} were taken", 2 * NAMES.len());
    for key in rig.objects().into_keys() {
        let parts: Vec<&str> = key.split('/').collect();
        assert!(parts.len() == 4 && parts[3].len() == 16, "{key}");
        assert!(key.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'/' || byte == b'-'), "{key}");
    }
    assert_eq!(entries(rig.server.launch().scratch()), outside, "nothing was made beside the objects");
    rig.audit();
    assert!(!rig.server.log().contains("panicked"));
}

async fn by_query(rig: &Rig, name: &str) -> Option<Held> {
    let held = rig.held().await;
    let request = rig.client.request(Method::PUT, &format!("/v1/jobs/{}/result", held.id)).query(&[("filename", name)]);
    let reply = rig.client.send(request.header("x-outlast-lease", &held.lease).body("x")).await.unwrap();
    taken(held, reply.status, &reply.body, name)
}

async fn by_link(rig: &Rig, name: &str) -> Option<Held> {
    let held = rig.held().await;
    let path = format!("/v1/jobs/{}/result", held.id);
    let begin = json!({"filename": name, "lease": held.lease});
    let begun = rig.client.post(&format!("{path}/upload"), begin).await.unwrap();
    let held = taken(held, begun.status, &begun.body, name)?;
    assert_eq!(rig.send(&text(&begun.body["url"]), "x").await.status, 200);
    let finalize = json!({"uploadId": begun.body["uploadId"], "lease": held.lease});
    rig.client.post(&format!("{path}/finalize"), finalize).await.unwrap().expect(201);
    Some(held)
}

/// Taken, or refused as what it is.
fn taken(held: Held, status: u16, body: &Value, name: &str) -> Option<Held> {
    assert!(status == 201 || status == 400, "{name:?}: {status} {body}");
    (status == 201).then_some(held)
}

async fn check_shown(rig: &Rig, held: &Held, name: &str) {
    let meta = job(&rig.client, &held.id).await["resultMeta"].clone();
    let kept = meta["filename"].as_str().unwrap_or_default().to_owned();
    let harmless = |letter: char| !letter.is_control() && !"/\\<>:\"|?*\u{202e}\u{200b}".contains(letter);
    assert!(kept.chars().all(harmless) && kept.len() <= 255, "{name:?} became {kept:?}");
    assert!(!kept.starts_with('.') && !kept.ends_with(['.', ' ']), "{name:?} became {kept:?}");
    let got = rig.open(&rig.link(&held.id).await).await;
    assert_eq!((got.status, &got.body[..]), (200, &b"x"[..]), "{name:?}");
    let disposition = header(&got, "content-disposition");
    assert!(disposition.starts_with("attachment"), "{name:?}: {disposition:?}");
    // One quoted name at most, which nothing breaks out of.
    assert!(matches!(disposition.matches('"').count(), 0 | 2), "{name:?}: {disposition:?}");
    assert_eq!((header(&got, "set-cookie"), header(&got, "x-content-type-options")), ("", "nosniff"));
}

fn entries(folder: &Path) -> BTreeSet<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| !name.contains("stderr") && name != "objects").collect()
}

// A type is sent with every download, so it is one and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_content_type_that_is_none_is_refused() {
    let rig = Rig::on_folder().await;
    let held = rig.held().await;
    for wrong in ["text", "/html", " / ", "text/html\u{e9}"] {
        let begin = json!({"contentType": wrong, "lease": held.lease});
        let begun = rig.client.post(&format!("/v1/jobs/{}/result/upload", held.id), begin).await.unwrap();
        begun.expect_problem(400, "invalid_request");
    }

    // Active content is accepted, and served as a download without any rights.
    rig.put_as(&held, "/result", "text/html", "<script>alert(1)</script>").await.expect(201);
    rig.ack(&held).await;
    let got = rig.open(&rig.link(&held.id).await).await;
    assert_eq!(header(&got, "content-type"), "text/html");
    assert_eq!(header(&got, "content-security-policy"), "sandbox; default-src 'none'");
    assert_eq!(
        (header(&got, "content-disposition"), header(&got, "x-content-type-options")),
        ("attachment", "nosniff")
    );
}

// T13, T16: other namespaces' ids are 404, whatever is asked of them.
#[tokio::test(flavor = "multi_thread")]
async fn other_namespaces_get_nothing_and_leave_nothing() {
    let rig = Rig::on_folder().await;
    let finished = rig.succeeded("work", "mine").await;
    let running = rig.held().await;
    rig.put_as(&running, "/checkpoint/blob?schemaVersion=1", "text/plain", "mine").await.expect(200);
    let begun =
        rig.client.post(&format!("/v1/jobs/{}/result/upload", running.id), json!({})).await.unwrap().expect(201);
    let request = json!({"name": "n", "scopes": ["admin"], "namespace": "neighbour"});
    let key = text(&rig.client.post("/v1/keys", request).await.unwrap().expect(201)["key"]);
    let theirs = Client::new(&rig.client.base, &key);
    let before = (rig.rows().len(), rig.objects().len());

    for id in [&finished.id, &running.id] {
        let put = |rest: &str| theirs.request(Method::PUT, &format!("/v1/jobs/{id}{rest}")).body("theirs");
        let post = |rest: &str, body: Value| theirs.request(Method::POST, &format!("/v1/jobs/{id}{rest}")).json(&body);
        let get = |rest: &str| theirs.request(Method::GET, &format!("/v1/jobs/{id}{rest}"));
        for request in [
            get("/result"),
            get("/checkpoint/blob"),
            put("/result"),
            put("/checkpoint/blob?schemaVersion=1"),
            post("/result/upload", json!({})),
            post("/result/finalize", json!({"uploadId": begun["uploadId"]})),
        ] {
            theirs.send(request).await.unwrap().expect_problem(404, "job_not_found");
        }
    }

    assert_eq!((rig.rows().len(), rig.objects().len()), before);
    rig.audit();
}
