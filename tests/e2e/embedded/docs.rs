//! Every command and snippet of README, tutorials and how-to pages, run as a reader would run it, and what the pages show
//! compared with what is printed (tests/scripts/run_docs.py says how). They need one server each, on any engine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use outlast_tests::server::outlast_binary;

use crate::programs::{python, script};

/// The first job of a reader is done within a minute of the server being up.
const FIRST_JOB_SECONDS_MAX: f64 = 60.0;
/// The worker of the tutorial on long jobs, without an SDK.
const WORKER_LINES_MAX: usize = 80;

#[test]
fn the_pages_describe_the_actual_behaviour() {
    let root = repository();
    let mut pages = vec!["README.md".to_owned()];
    for directory in ["docs/tutorials", "docs/how-to"] {
        pages.extend(markdown_in(&root, directory));
    }
    assert!(pages.len() > 10, "only {pages:?} were found");

    let output = run(&root, &pages);

    let printed = String::from_utf8_lossy(&output.stdout);
    println!("{printed}");
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    let first = printed.lines().find(|line| line.starts_with("docs/tutorials/first-queue.md")).unwrap();
    let seconds = first.rsplit(", ").next().unwrap().trim_end_matches(" s");
    assert!(seconds.parse::<f64>().unwrap() < FIRST_JOB_SECONDS_MAX, "{first}");
}

// The negative control of the test above: each of these pages is broken in a way of its own, but for the first.
#[test]
fn a_broken_snippet_is_found() {
    let pages = [
        ("good.md", "```sh\necho a 01 b\n```\n```\na … b\n```\n"),
        ("fails.md", "```sh\nfalse\necho after\n```\n"),
        ("fails-in-a-pipe.md", "```sh\nfalse | true\n```\n"),
        ("shows-another.md", "```sh\necho a\n```\n```\nb\n```\n"),
        ("shows-too-little.md", "```sh\necho a; echo b\n```\n```\na\n```\n"),
        ("shows-what-nothing-printed.md", "```\na\n```\n"),
        ("another-id.md", ANOTHER_ID),
        ("not-run.md", "```python\nprint(1)\n```\n"),
        ("no-reason.md", "<!-- test: skip: x -->\n```sh\nfalse\n```\n"),
        ("no-such-test.md", "<!-- test: elsewhere: tests/nothing.rs -->\n```sh\nfalse\n```\n"),
        ("refused-by-the-server.md", "```sh\noutlast jobs publish no-such-queue 1\n```\n"),
        ("bad-program.md", "Save this as `a.py`:\n```python\nprint(\n```\n```sh\npython3 a.py\n```\n"),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in pages {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let names: Vec<String> = pages.iter().map(|(name, _)| (*name).to_owned()).collect();

    let output = run(folder.path(), &names);

    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let broken: Vec<&str> = printed.lines().filter(|line| line.ends_with("BROKEN")).collect();
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert_eq!(broken.len(), pages.len() - 1, "{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(!broken.iter().any(|line| line.starts_with("good.md")), "{printed}");
}

/// The second command prints another id than the one that the page shows twice.
const ANOTHER_ID: &str = "```sh\necho 01a1e137-fc46-79b6-944e-b3122196293a\n```\n```\n01a1eb1c-eae0-77eb-a9f5-7d41f8b95571\n```\n\
                          ```sh\necho 01a1e138-fc46-79b6-944e-b3122196293a\n```\n```\n01a1eb1c-eae0-77eb-a9f5-7d41f8b95571\n```\n";

#[test]
fn the_worker_for_long_jobs_is_short() {
    let page = fs::read_to_string(repository().join("docs/tutorials/replace-celery.md")).unwrap();
    let worker = page.split("Save this as `worker.py`:").nth(1).and_then(|rest| rest.split("```").nth(1)).unwrap();

    let lines = worker.trim_start_matches("python\n").lines().count();

    assert!((40..=WORKER_LINES_MAX).contains(&lines), "{lines} lines");
    assert!(worker.contains("heartbeat") && worker.contains("checkpoint") && worker.contains("SIGTERM"));
}

fn run(root: &Path, pages: &[String]) -> Output {
    let mut command = Command::new(python());
    command.arg(script("run_docs.py")).arg("--bin").arg(outlast_binary()).arg("--root").arg(root).args(pages);
    command.output().expect("there is Python")
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The pages of a directory, from the root.
fn markdown_in(root: &Path, directory: &str) -> Vec<String> {
    let entries = fs::read_dir(root.join(directory)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let mut pages: Vec<String> =
        names.filter(|name| name.ends_with(".md")).map(|name| format!("{directory}/{name}")).collect();
    pages.sort();
    pages
}
