//! The layers of the configuration, and the messages of everything that can be wrong in it.

mod queues;
mod sources;

use std::path::PathBuf;
use std::time::Duration;

use super::sections::PreparedStatements;
use super::*;

fn environment(variables: &[(&str, &str)]) -> Environment {
    Environment::of(variables)
}

/// Loads a file with the given contents and variables.
fn load(yaml: &str, variables: &[(&str, &str)]) -> Result<Config, Vec<String>> {
    load_with(yaml, variables, Flags::default())
}

fn load_with(yaml: &str, variables: &[(&str, &str)], flags: Flags) -> Result<Config, Vec<String>> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("outlast.yaml");
    std::fs::write(&path, yaml).unwrap();
    let prefix = format!("{}/", directory.path().display());
    let flags = Flags { config: Some(path), ..flags };
    Config::load(&flags, &environment(variables))
        .map_err(|problems| problems.iter().map(|problem| problem.to_string().replace(&prefix, "")).collect())
}

fn check_refused(yaml: &str, expected: &[&str]) {
    let problems = load(yaml, &[]).unwrap_err();

    assert_eq!(problems, expected, "{yaml}");
}

#[test]
fn the_embedded_defaults_are_complete_and_valid() {
    let config = Config::load(&Flags::default(), &Environment::default()).unwrap();

    assert_eq!(config.data, PathBuf::from(DATA_DEFAULT));
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.listen, ListenAddress::default());
    assert_eq!(config.metrics_listen, None);
    assert_eq!(config.admin_key, None);
    assert_eq!(config.limits.payload_bytes, 262_144);
    assert_eq!(config.limits.batch_bytes, 8_388_608);
    assert_eq!(config.limits.namespace_queued, 10_000_000);
    assert_eq!(config.timeouts.body_total, Duration::from_secs(60));
    assert_eq!(config.store.page_cache_bytes, 16_777_216);
    assert_eq!(config.blobs().to_string(), format!("{DATA_DEFAULT}/objects"));
}

#[test]
fn every_default_has_a_comment_above_it() {
    let mut above = "";
    for line in DEFAULTS.lines() {
        let is_option = line.contains(": ") && !line.trim_start().starts_with('#');
        assert!(!is_option || above.trim_start().starts_with('#'), "{line}");
        above = line;
    }
}

#[test]
fn flags_win_over_environment_over_file_over_defaults() {
    let yaml = "data: /file\nlisten: 127.0.0.1:1\nlog:\n  level: warn\n";
    let variables = [("OUTLAST_LISTEN", "127.0.0.1:2"), ("OUTLAST_DATA", "/environment"), ("OUTLAST_LOG", "debug")];
    let flags = Flags { data: Some(PathBuf::from("/flag")), ..Flags::default() };

    let from_file = load(yaml, &[]).unwrap();
    let from_environment = load(yaml, &variables).unwrap();
    let from_flags = load_with(yaml, &variables, flags).unwrap();

    assert_eq!((from_file.data, from_file.listen.port), (PathBuf::from("/file"), 1));
    assert_eq!((from_environment.data, from_environment.listen.port), (PathBuf::from("/environment"), 2));
    assert_eq!((from_flags.data, from_flags.listen.port), (PathBuf::from("/flag"), 2));
    assert_eq!((from_file.log.level.as_str(), from_flags.log.level.as_str()), ("warn", "debug"));
    assert_eq!(from_flags.log.format, sections::LogFormat::Auto);
    assert_eq!(from_flags.timeouts.drain, Duration::from_secs(30));
}

#[test]
fn the_file_can_be_named_by_the_environment_and_an_empty_variable_counts_as_unset() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("outlast.yaml");
    std::fs::write(&path, "listen: '[::1]:9000'\n").unwrap();
    let variables = [("OUTLAST_CONFIG", path.to_str().unwrap()), ("OUTLAST_LISTEN", "")];

    let config = Config::load(&Flags::default(), &environment(&variables)).unwrap();

    assert_eq!((config.listen.host.as_str(), config.listen.port), ("::1", 9000));
    assert_eq!(config.listen.to_string(), "[::1]:9000");
}

#[test]
fn an_empty_file_and_empty_sections_change_nothing() {
    for yaml in ["", "# only a comment\n", "limits:\n", "listen:\nlog: null\n"] {
        let config = load(yaml, &[]).unwrap();
        assert_eq!(config.limits.batch_jobs, 1000, "{yaml}");
    }
}

#[test]
fn unknown_keys_are_refused_with_file_and_line() {
    check_refused(
        "data: ./x\nlimits:\n  payload_byte: 1KiB\nwatermelon: 1\n",
        &[
            "outlast.yaml:3:3: unknown key \"limits.payload_byte\" (did you mean \"payload_bytes\"?)",
            "outlast.yaml:4:1: unknown key \"watermelon\"",
        ],
    );
    for section in ["queues", "sources"] {
        let message = format!("outlast.yaml:1:10: {section} must be a section with options below it");
        check_refused(&format!("{section:7}: []\n"), &[&message]);
    }
}

#[test]
fn every_problem_is_reported_in_the_order_of_the_file() {
    check_refused(
        "listen: nowhere\nlimits:\n  payload_bytes: 2MiB\n  batch_jobs: many\ntimeouts:\n  head: 5y\nlog:\n  format: xml\nstore: 5\n",
        &[
            "outlast.yaml:1:9: listen must be HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080",
            "outlast.yaml:3:18: limits.payload_bytes must be a size from 1KiB to 1MiB such as 256KiB, not \"2MiB\"",
            "outlast.yaml:4:15: limits.batch_jobs must be a whole number from 1 to 10000, not \"many\"",
            "outlast.yaml:6:9: timeouts.head must be a duration from 100ms to 3600s such as 30s, not \"5y\"",
            "outlast.yaml:8:11: log.format must be one of auto, json, text, not \"xml\"",
            "outlast.yaml:9:8: store must be a section with options below it",
        ],
    );
}

#[test]
fn broken_yaml_is_refused_with_its_line() {
    for yaml in ["data: [1\n", "data: a\ndata: b\n", "a: b: c\n", "data: 'x\n", "- a\n"] {
        let problems = load(yaml, &[]).unwrap_err();
        assert_eq!(problems.len(), 1, "{yaml}");
        assert!(problems[0].starts_with("outlast.yaml:"), "{}", problems[0]);
    }
}

#[test]
fn a_missing_file_is_a_problem_with_its_name() {
    let flags = Flags { config: Some(PathBuf::from("/does/not/exist.yaml")), ..Flags::default() };

    let problems = Config::load(&flags, &Environment::default()).unwrap_err();

    assert!(problems[0].to_string().starts_with("/does/not/exist.yaml: cannot be read"), "{}", problems[0]);
}

#[test]
fn durations_are_numbers_of_seconds_or_texts_with_a_unit() {
    for (text, millis) in [
        ("500ms", 500),
        ("30s", 30_000),
        ("5m", 300_000),
        ("1h", 3_600_000),
        ("7", 7000),
        ("1.5", 1500),
        ("'2s'", 2000),
    ] {
        let config = load(&format!("timeouts: {{keep_alive: {text}}}\n"), &[]).unwrap();
        assert_eq!(config.timeouts.keep_alive, Duration::from_millis(millis), "{text}");
    }
    for text in ["-1", "2h", "7d", "soon", "true", "[1]", "''", "1e300"] {
        assert!(load(&format!("timeouts: {{keep_alive: {text}}}\n"), &[]).is_err(), "{text}");
    }
}

#[test]
fn variables_are_put_in_with_and_without_quotes() {
    let variables = [("HOST", "0.0.0.0"), ("PORT", "9000"), ("EMPTY", ""), ("SIZE", "512KiB"), ("JOBS", "50")];
    for (text, listen) in [
        ("${HOST}:${PORT}", "0.0.0.0:9000"),
        ("\"${HOST}:${PORT}\"", "0.0.0.0:9000"),
        ("'${HOST}:1'", "0.0.0.0:1"),
        ("${NONE:-localhost}:${PORT}", "localhost:9000"),
        ("\"${EMPTY:-localhost}:${PORT}\"", "localhost:9000"),
    ] {
        let config = load(&format!("# ${{COMMENT}}\nlisten: {text}\n"), &variables).unwrap();
        assert_eq!(config.listen.to_string(), listen, "{text}");
    }

    let config = load("limits: {payload_bytes: \"${SIZE}\", batch_jobs: \"${JOBS}\"}\n", &variables).unwrap();
    assert_eq!((config.limits.payload_bytes, config.limits.batch_jobs), (524_288, 50));
}

#[test]
fn an_unset_variable_without_a_default_is_refused_by_name() {
    for text in ["${SECRET}", "\"${SECRET}\"", "'${SECRET}'", "x${SECRET}y"] {
        check_refused(
            &format!("data: x\nadmin_key: {text}\n"),
            &["outlast.yaml:2:12: environment variable SECRET is not set; set it, or write ${SECRET:-default}"],
        );
    }
}

#[test]
fn a_dollar_sign_alone_stays_and_can_be_escaped() {
    for (text, data) in [("'$HOME/x'", "$HOME/x"), ("'$${HOME}/x'", "${HOME}/x"), ("'a$b'", "a$b")] {
        let config = load(&format!("data: {text}\n"), &[("HOME", "/home")]).unwrap();
        assert_eq!(config.data, PathBuf::from(data));
    }
    for text in ["'${HOME'", "'${HO ME}'", "'${}'", "'${HOME?x}'"] {
        assert!(load(&format!("data: {text}\n"), &[("HOME", "/home")]).is_err(), "{text}");
    }
}

#[test]
fn a_variable_cannot_add_yaml_of_its_own() {
    let config = load("data: ${EVIL}\n", &[("EVIL", "x\nlisten: 0.0.0.0:1")]).unwrap();

    assert_eq!(config.listen.port, 8080);
}

#[test]
fn secrets_never_appear_in_messages() {
    let yaml = "admin_key: \"hunter 2\"\ndatabase_url: hunter2://x\nblobs_url: file:///srv/objects\nlimits: {batch_jobs: \"${PASSWORD}\"}\n";

    let problems = load(yaml, &[("PASSWORD", "hunter2")]).unwrap_err();

    assert_eq!(problems.len(), 3, "{problems:?}");
    assert!(!problems.join("\n").contains("hunter"), "{problems:?}");
    let key = format!("ol_{}", "hunter2".repeat(5));
    let config = load(&format!("admin_key: {key}\n"), &[]).unwrap();
    assert!(!format!("{config:?}").contains("hunter2"));
    assert_eq!(config.admin_key.unwrap().expose(), key);
}

#[test]
fn an_admin_key_that_a_start_would_refuse_is_refused_with_its_place() {
    let message = "admin_key must start with \"ol_\", have 32 to 255 characters, and only letters, digits and \"_\"";
    for key in ["a".to_owned(), "ol_short".to_owned(), "x".repeat(40), format!("ol_{}", "x".repeat(253))] {
        check_refused(&format!("data: x\nadmin_key: {key}\n"), &[&format!("outlast.yaml:2:12: {message}")]);
    }
}

#[test]
fn a_database_and_a_redis_are_taken_from_every_layer() {
    let variables =
        [("OUTLAST_DATABASE_URL", "postgres://user:hunter2@db/outlast"), ("OUTLAST_ALLOW_UNSAFE_DATABASE", "true")];
    let flags = Flags { redis_url: Some(Secret::new("rediss://:hunter2@cache")), ..Flags::default() };

    let defaults = load("", &[]).unwrap();
    let config = load_with(
        "database_url: postgres://file\nredis_url: redis://file\nblobs_url: s3://results\n",
        &variables,
        flags,
    )
    .unwrap();

    assert_eq!((defaults.store.database_connections, defaults.store.allow_unsafe_database), (16, false));
    assert_eq!(defaults.external.database_url, None);
    assert_eq!(config.external.database_url.as_ref().unwrap().expose(), "postgres://user:hunter2@db/outlast");
    assert_eq!(config.external.redis_url.as_ref().unwrap().expose(), "rediss://:hunter2@cache");
    assert!(config.store.allow_unsafe_database);
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn a_redis_without_a_database_is_refused() {
    check_refused(
        "redis_url: redis://cache\n",
        &["outlast.yaml:1:12: redis_url is of no use without database_url: the embedded store has one node only"],
    );
}

#[test]
fn objects_are_kept_where_the_url_says_or_in_the_data_directory() {
    let credentials = [("AWS_SECRET_ACCESS_KEY", "hunter2"), ("OUTLAST_BLOBS_URL", "s3://bucket/env?region=x")];
    let flags = Flags { blobs_url: Some(Secret::new("s3://bucket/flag")), ..Flags::default() };

    let from_file = load("blobs_url: file:///srv/objects\n", &[]).unwrap();
    let from_environment = load("blobs_url: file:///srv/objects\n", &credentials).unwrap();
    let from_flag = load_with("blobs_url: file:///srv/objects\n", &credentials, flags).unwrap();
    let from_data = load("data: /srv/data\n", &[]).unwrap();

    assert_eq!(from_file.blobs().to_string(), "/srv/objects");
    assert_eq!(from_environment.blobs().to_string(), "s3://bucket/env");
    assert_eq!(from_flag.blobs().to_string(), "s3://bucket/flag");
    assert_eq!(from_data.blobs().to_string(), "/srv/data/objects");
    assert!(!format!("{from_environment:?}").contains("hunter2"));
}

#[test]
fn a_place_for_objects_that_makes_no_sense_is_refused_without_showing_it() {
    check_refused(
        "blobs_url: s3://me:hunter2@bucket\n",
        &[
            "outlast.yaml:1:12: blobs_url cannot be used: it has no user and no password; credentials come from the environment",
        ],
    );
    check_refused(
        "blobs_url: s3://bucket?regoin=hunter2\n",
        &["outlast.yaml:1:12: blobs_url cannot be used: `regoin` is no setting of such a bucket"],
    );
}

#[test]
fn switches_and_words_are_read_however_yaml_takes_them() {
    for (text, word) in
        [("auto", PreparedStatements::Auto), ("on", PreparedStatements::On), ("'off'", PreparedStatements::Off)]
    {
        let config = load(&format!("store: {{prepared_statements: {text}}}\n"), &[]).unwrap();
        assert_eq!(config.store.prepared_statements, word, "{text}");
    }
    for (text, value) in [("true", true), ("'true'", true), ("false", false)] {
        let config = load(&format!("store: {{allow_unsafe_database: {text}}}\n"), &[]).unwrap();
        assert_eq!(config.store.allow_unsafe_database, value, "{text}");
    }
    check_refused(
        "store:\n  database_connections: 7\n  allow_unsafe_database: 1\n",
        &[
            "outlast.yaml:2:25: store.database_connections must be a whole number from 8 to 1000, not 7",
            "outlast.yaml:3:26: store.allow_unsafe_database must be true or false, not 1",
        ],
    );
}

#[test]
fn private_targets_come_from_the_file_as_a_list_and_from_the_environment_with_commas() {
    let yaml =
        "egress:\n  allow_private_targets: [10.0.0.0/8, '::1', 192.168.1.7]\n  ports: [443]\n  https_only: true\n";
    let variables = [("OUTLAST_ALLOW_PRIVATE_TARGETS", "127.0.0.0/8, fd00::/8,")];
    let shown = |config: &Config| {
        config.egress.allow_private_targets.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };

    let (defaults, from_file, from_environment) =
        (load("", &[]).unwrap(), load(yaml, &[]).unwrap(), load(yaml, &variables).unwrap());

    assert_eq!(shown(&defaults), "");
    assert_eq!(defaults.egress.ports, [80, 443, 8080, 8443]);
    assert_eq!((defaults.egress.per_host_concurrency, defaults.egress.per_host_rate), (500, None));
    assert_eq!(shown(&from_file), "10.0.0.0/8 ::1/128 192.168.1.7/32");
    assert_eq!((from_file.egress.ports.as_slice(), from_file.egress.https_only), (&[443][..], true));
    assert_eq!(shown(&from_environment), "127.0.0.0/8 fd00::/8");
}

#[test]
fn the_other_options_of_the_way_out_are_read() {
    let yaml = "egress:\n  nameservers: [10.0.0.53, '[::1]:5353']\n  denied_hosts: ['*.evil.example', bad.example]\n  \
                ca_file: ca.pem\n  per_host_rate: 50\n";

    let egress = load(yaml, &[]).unwrap().egress;

    assert_eq!(egress.nameservers, ["10.0.0.53:53".parse().unwrap(), "[::1]:5353".parse().unwrap()]);
    assert_eq!(egress.denied_hosts, ["*.evil.example", "bad.example"]);
    assert_eq!((egress.ca_file, egress.per_host_rate), (Some(PathBuf::from("ca.pem")), Some(50)));
}

#[test]
fn invalid_egress_entries_are_refused_one_by_one() {
    check_refused(
        "egress:\n  allow_private_targets: [10.0.0.0/33, lan]\n  ports: [0, 443, 65536]\n  nameservers: dns.example\n  \
         denied_hosts: ['http://x']\n  per_host_rate: 0\n",
        &[
            "outlast.yaml:2:26: egress.allow_private_targets must be a list of address blocks such as 10.0.0.0/8 or fd00::/8, not \"10.0.0.0/33\"",
            "outlast.yaml:2:26: egress.allow_private_targets must be a list of address blocks such as 10.0.0.0/8 or fd00::/8, not \"lan\"",
            "outlast.yaml:3:10: egress.ports must be a list of ports from 1 to 65535, not 0",
            "outlast.yaml:3:10: egress.ports must be a list of ports from 1 to 65535, not 65536",
            "outlast.yaml:4:16: egress.nameservers must be a list of addresses such as 10.0.0.53 or 10.0.0.53:5353, not \"dns.example\"",
            "outlast.yaml:5:17: egress.denied_hosts must be a list of host names such as example.com or *.example.com, not \"http://x\"",
            "outlast.yaml:6:18: egress.per_host_rate must be a whole number from 1 to 1000000, not 0",
        ],
    );
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    check_refused(
        "limits: {payload_bytes: 1MiB, batch_bytes: 64KiB}\n",
        &["outlast.yaml:1:44: limits.batch_bytes must be at least payload_bytes"],
    );
    check_refused(
        "timeouts:\n  body_idle: 30s\n  body_total: 10s\n",
        &["outlast.yaml:3:15: timeouts.body_total must be at least body_idle"],
    );
    check_refused("metrics_listen: 127.0.0.1:8080\n", &["outlast.yaml:1:17: metrics_listen must differ from listen"]);
}

#[test]
fn a_misspelt_log_level_is_refused() {
    for level in ["info", "off", "info,outlast_store=debug"] {
        assert!(load(&format!("log: {{level: '{level}'}}\n"), &[]).is_ok(), "{level}");
    }
    for level in ["inof", "info,", "outlast=loud", "=info"] {
        assert!(load(&format!("log: {{level: '{level}'}}\n"), &[]).is_err(), "{level}");
    }
}

// Without one object store for all nodes, a result would be readable on one node only.
#[test]
fn a_database_needs_an_object_store_unless_there_is_one_node() {
    let database = "database_url: postgres://db/outlast\n";
    let shared = format!("{database}blobs_url: file:///srv/shared\n");
    let alone = format!("{database}store: {{allow_local_objects: true}}\n");

    let problems = load(database, &[]).unwrap_err();
    assert_eq!(problems.len(), 1);
    let text = &problems[0];
    for named in ["outlast.yaml:1", "blobs_url", "store.allow_local_objects", "OUTLAST_ALLOW_LOCAL_OBJECTS"] {
        assert!(text.contains(named), "{named} is not in {text}");
    }
    assert!(load(&shared, &[]).is_ok() && load(&alone, &[]).is_ok() && load("", &[]).is_ok());
    assert!(load(database, &[("OUTLAST_ALLOW_LOCAL_OBJECTS", "true")]).is_ok());
}
