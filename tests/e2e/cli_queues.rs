//! The command line of a pull queue's operator: without the word `queues`, and by the configuration file.

use std::fs;

use outlast_tests::server::Server;
use serde_json::json;

use crate::api::{make_queue, publish, receive_one};
use crate::cli::{Cli, dead_letter};

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_a_queue_work_without_their_noun() {
    let server = Server::fresh().await;
    let cli = Cli::of(&server);
    let client = server.client();
    make_queue(&client, "mail", json!({})).await;
    let dead = dead_letter(&client).await;
    let waiting = publish(&client, "mail", json!({"to": "ada"})).await;

    for words in [&["inspect", "mail"][..], &["peek", "mail"]] {
        assert_eq!(cli.out(words), cli.out(&[&["queues"], words].concat()), "{words:?}");
    }
    assert!(cli.out(&["peek", "mail"]).contains("{\"to\":\"ada\"}"));
    assert_eq!(receive_one(&client, "mail").await["id"], json!(waiting), "a peek takes nothing");
    assert_eq!(cli.out(&["dead", "replay", "mail"]), "replay of queue \"mail\" done: 1 processed\n");
    assert_eq!(cli.json(&["peek", "mail"])["items"][0]["id"], json!(dead));
    assert!(cli.fails(2, &["purge", "mail"]).contains("would cancel 1 waiting job"));
    assert_eq!(cli.json(&["purge", "mail", "--force"])["processed"], json!(1));
    assert!(cli.fails(5, &["purge", "nope"]).contains("queue \"nope\" not found"));
    assert!(cli.out(&["queues", "--help"]).contains("also work without the word queues"));
}

#[tokio::test(flavor = "multi_thread")]
async fn some_dead_letters_are_replayed_by_their_ids() {
    let server = Server::fresh().await;
    let cli = Cli::of(&server);
    let client = server.client();
    make_queue(&client, "mail", json!({})).await;
    let [first, second, third] = [dead_letter(&client).await, dead_letter(&client).await, dead_letter(&client).await];

    let both = cli.out(&["dead", "replay", "mail", "--id", &first, "--id", &second, "--id", &first]);
    let again = cli.run(&["dead", "replay", "mail", "--id", &second, "--id", &third]);

    assert_eq!(both, "replay of queue \"mail\" done: 2 processed\n");
    assert_eq!((again.code, again.out.as_str()), (1, "replay of queue \"mail\" done: 1 processed\n"));
    assert!(again.err.contains("1 of 2 jobs are not dead letters of queue \"mail\""), "{}", again.err);
    assert_eq!(cli.out(&["dead", "list", "mail"]), "no dead letters in queue \"mail\"\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_file_leads_to_the_server_and_its_key() {
    let server = Server::fresh().await;
    let cli = Cli::of(&server);
    make_queue(&server.client(), "mail", json!({})).await;
    fs::write(cli.directory.join("admin.key"), &server.launch().key).unwrap();
    let listen = server.base.trim_start_matches("http://");
    // The command reads only the address, so this shell need not know the secrets.
    let yaml =
        format!("listen: {listen}\ndata: .\nsources: {{stripe: {{verify: stripe, secret: '${{NOT_SET_HERE}}'}}}}\n");
    fs::write(cli.directory.join("operator.yaml"), yaml).unwrap();

    for words in [&["queues", "list", "-c", "operator.yaml"][..], &["jobs", "-c", "operator.yaml", "list"]] {
        let by_file = cli.command(words).env_remove("OUTLAST_URL").env_remove("OUTLAST_KEY").output().unwrap();
        assert!(by_file.status.success(), "{words:?}: {}", String::from_utf8_lossy(&by_file.stderr));
    }
    assert!(cli.fails(2, &["peek", "mail", "-c", "missing.yaml"]).contains("missing.yaml"));
}
