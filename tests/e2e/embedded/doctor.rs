//! The doctor on a data directory.

use outlast_tests::server::Launch;

use crate::cli::Cli;

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_says_what_is_well_and_what_is_not() {
    let mut server = Launch::embedded().start().await;
    let cli = Cli::of(&server);
    let data = server.launch().data.clone();
    let data = data.to_str().unwrap();

    let well = cli.out(&["doctor", "--data", data]);
    let listed = cli.json(&["doctor", "--data", data]);
    server.kill9().await;
    let ill = cli.run(&["doctor", "--data", data]);

    for line in ["configuration   ok", "lock            ok    held", "ready           ok", "key             ok"] {
        assert!(well.contains(line), "{line:?} is not in\n{well}");
    }
    assert!(listed["checks"].as_array().unwrap().iter().all(|check| check["verdict"] != "fail"), "{listed}");
    assert_eq!((ill.code, ill.err.as_str()), (1, "error: 1 check failed\n"));
    assert!(ill.out.contains("lock            ok    free") && ill.out.contains("server          fail"), "{}", ill.out);
}
