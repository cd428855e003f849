//! The key that a first start makes up.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use outlast_tests::http::Client;
use outlast_tests::server::Launch;

use crate::authority::secrets::files;

// The made-up admin key of a first start is in its own file, for its owner only, and nowhere else.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_key_is_in_its_file_and_nowhere_else() {
    let launch = Launch::embedded().with_env("OUTLAST_ADMIN_KEY", "");
    let server = launch.start().await;
    let path = launch.data.join("admin.key");

    let key = fs::read_to_string(&path).expect("the first start writes the key").trim().to_owned();
    let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    let reply = Client::new(&server.base, &key).get("/v1/keys").await.unwrap();

    reply.expect(200);
    assert_eq!(mode, 0o600);
    for (name, content) in files(&launch.data).iter().filter(|(name, _)| name != "admin.key") {
        assert!(!content.contains(&key[16..]), "{name} holds the key");
    }
    assert!(!server.log().contains(&key[16..]), "the log holds the key");
}
