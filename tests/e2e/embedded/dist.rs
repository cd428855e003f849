//! The files that `make dist` makes of a binary: whole, with right sums, and the binary in it runs.

use std::path::Path;
use std::process::Command;

use outlast_tests::server::Launch;

fn out(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn the_archive_the_package_and_the_context_hold_a_binary_that_runs() {
    let launch = Launch::embedded();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (made, opened) = (launch.scratch().join("dist"), launch.scratch().join("opened"));

    out(Command::new(root.join("scripts/dist.sh")).arg(&made).env("OUTLAST_BINARY", &launch.program));

    let checked = out(Command::new("sha256sum").args(["--check", "SHA256SUMS"]).current_dir(&made));
    assert_eq!(checked.lines().filter(|line| line.ends_with(": OK")).count(), 3, "{checked}");
    let mut binaries = Vec::new();
    for file in checked.lines().filter_map(|line| line.strip_suffix(": OK")) {
        let target = opened.join(file);
        std::fs::create_dir_all(&target).unwrap();
        let (path, name) = (made.join(file), file.trim_end_matches(".tar.gz"));
        if file.ends_with(".deb") {
            out(Command::new("dpkg-deb").arg("--extract").arg(&path).arg(&target));
            binaries.push(target.join("usr/bin/outlast"));
            let fields = out(Command::new("dpkg-deb").arg("--field").arg(&path));
            assert!(fields.contains("Package: outlast\n") && !fields.contains("@VERSION@"), "{fields}");
            assert!(target.join("lib/systemd/system/outlast.service").exists());
        } else {
            out(Command::new("tar").arg("-xzf").arg(&path).arg("-C").arg(&target));
            binaries.push(target.join(name).join("outlast"));
        }
    }
    let version = out(Command::new(&launch.program).arg("--version"));
    for binary in &binaries {
        assert_eq!(out(Command::new(binary).arg("--version")), version);
    }
    let context = opened.join(format!("outlast-{}-docker.tar.gz", env!("CARGO_PKG_VERSION")));
    assert!(context.join(format!("outlast-{}-docker", env!("CARGO_PKG_VERSION"))).join("Dockerfile").exists());
    let server = Launch::of(binaries.remove(0)).start().await;
    server.client().get("/readyz").await.unwrap().expect(200);
}
