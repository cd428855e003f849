//! The key that signing secrets are sealed with: made at the first start, readable by its owner only, and never
//! replaced behind anybody's back. (T11)

use std::fs;
use std::os::unix::fs::PermissionsExt;

use outlast_tests::receiver::Receiver;
use outlast_tests::server::Launch;
use serde_json::json;

use crate::api::{publish, text};

const OTHER_KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// A directory with one sealed secret in it, of a server that has stopped.
async fn sealed() -> Launch {
    let launch = Launch::embedded();
    let mut server = launch.start().await;
    let queue = json!({"webhookUrl": "http://127.0.0.1:9/"});
    server.client().put("/v1/queues/mail", queue).await.unwrap().expect(201);
    assert!(server.terminate().await.success());
    launch
}

/// The last words of a server that does not start.
async fn refusal(launch: &Launch) -> String {
    match launch.try_start().await {
        Ok(_) => panic!("the server started with a key that opens nothing"),
        Err(early) => {
            assert_eq!(early.status.code(), Some(1), "{}", early.log);
            early.log
        }
    }
}

// T11: the key is a file of its owner, and is not in the store.
#[tokio::test(flavor = "multi_thread")]
async fn the_key_is_made_at_the_first_start_for_its_owner_only() {
    let launch = sealed().await;
    let path = launch.data.join("secret.key");

    let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    let key = fs::read_to_string(&path).unwrap().trim().to_owned();

    assert_eq!(mode, 0o600, "{mode:o}");
    assert!(key.len() == 64 && key.bytes().all(|byte| byte.is_ascii_hexdigit()));
    for (name, content) in crate::authority::secrets::files(&launch.data) {
        assert!(name == "secret.key" || !content.contains(&key), "{name} holds the key");
    }
}

// T11: a start on the same directory opens what was sealed.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_signs_with_the_same_secret() {
    let receiver = Receiver::start().await;
    let mut server = Launch::embedded().start().await;
    let made = server.client().put("/v1/queues/mail", json!({"webhookUrl": receiver.url("/mail")})).await.unwrap();
    let secret = text(&made.expect(201)["signingSecret"]);
    receiver.trust("/mail", &secret);

    server.crash_and_restart().await;
    publish(&server.client(), "mail", json!(1)).await;

    let delivery = receiver.arrivals("/mail", 1, std::time::Duration::from_secs(20)).await.remove(0);
    assert!(delivery.is_signed_with(&secret));
}

// T11: without its key the server does not start, says which key it needs and where to put it, and makes no new one.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_its_key_does_not_start() {
    let launch = sealed().await;
    let path = launch.data.join("secret.key");
    let key = fs::read_to_string(&path).unwrap();
    fs::remove_file(&path).unwrap();

    let log = refusal(&launch).await;

    assert!(
        log.contains("cannot be opened") && log.contains("secret.key") && log.contains("OUTLAST_SECRET_KEY"),
        "{log}"
    );
    assert!(!path.exists(), "a new key would hide that the old one is lost");
    fs::write(&path, key).unwrap();
    launch.start().await.client().get("/v1/queues/mail").await.unwrap().expect(200);
}

// T11: the same with another key, be it in the file or in the environment; and no key is shown.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_another_key_does_not_start() {
    let launch = sealed().await;
    let path = launch.data.join("secret.key");
    let key = fs::read_to_string(&path).unwrap().trim().to_owned();

    let by_environment = refusal(&launch.clone().with_env("OUTLAST_SECRET_KEY", OTHER_KEY)).await;
    fs::write(&path, OTHER_KEY).unwrap();
    let by_file = refusal(&launch).await;

    for log in [by_environment, by_file] {
        assert!(log.contains("cannot be opened") && log.contains("OUTLAST_SECRET_KEY"), "{log}");
        assert!(!log.contains(&key) && !log.contains(OTHER_KEY), "a key is in the log");
    }
    let both = format!("{OTHER_KEY},{key}");
    let server = launch.clone().with_env("OUTLAST_SECRET_KEY", &both).start().await;
    server.client().get("/v1/queues/mail").await.unwrap().expect(200);
}

// With the key lost and --forget-secrets the server starts, without the headers whose value cannot be opened any more.
#[tokio::test(flavor = "multi_thread")]
async fn forget_secrets_starts_without_the_headers_it_cannot_open() {
    let launch = Launch::embedded();
    let mut server = launch.start().await;
    let queue = json!({"webhookUrl": "http://127.0.0.1:9/", "headers": {"authorization": "x"}});
    server.client().put("/v1/queues/mail", queue).await.unwrap().expect(201);
    server.client().put("/v1/queues/pulled", json!({"headers": {"x-a": "1"}})).await.unwrap().expect(201);
    assert!(server.terminate().await.success());
    fs::write(launch.data.join("secret.key"), OTHER_KEY).unwrap();
    let forget = ["sh", "-c", "exec \"$@\" --forget-secrets", "sh"].map(str::to_owned);

    let server = launch.clone().wrapped_by(forget.to_vec()).start().await;
    for queue in ["mail", "pulled"] {
        let shown = server.client().get(&format!("/v1/queues/{queue}")).await.unwrap().expect(200);
        assert_eq!(shown["headers"], json!({}), "{queue}");
    }
}

// A key that is none is refused, with what a key is.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_none_is_refused() {
    let launch = sealed().await;
    let path = launch.data.join("secret.key");
    for text in ["", "short", &OTHER_KEY[1..], &format!("{OTHER_KEY}zz")] {
        fs::write(&path, text).unwrap();
        let log = refusal(&launch).await;
        assert!(log.contains("secret.key"), "{text:?}: {log}");
    }
}
