//! URLs of object stores: what is understood, what is refused, and that nothing secret is ever shown.

use super::*;

fn parse(url: &str, environment: &[(&str, &str)]) -> Result<Location, WrongUrl> {
    Location::parse(url, environment.iter().copied())
}

fn bucket(url: &str, environment: &[(&str, &str)]) -> BucketSettings {
    match parse(url, environment) {
        Ok(Location::Bucket(settings)) => settings,
        other => panic!("{url} is a bucket: {other:?}"),
    }
}

#[test]
fn a_file_url_is_a_folder() {
    for (url, path) in [("file:///srv/objects", "/srv/objects"), ("file:///srv/two%20words/", "/srv/two words/")] {
        assert!(
            matches!(parse(url, &[]), Ok(Location::Folder(found)) if found.as_path() == std::path::Path::new(path)),
            "{url}"
        );
    }
}

#[test]
fn a_bucket_has_a_name_a_prefix_and_settings() {
    let settings = bucket("s3://results/eu/jobs/?region=eu-west-1&endpoint=http://127.0.0.1:9000", &[]);

    assert_eq!(
        (settings.kind, settings.name.as_str(), settings.prefix.as_ref()),
        (BucketKind::S3, "results", "eu/jobs")
    );
    assert_eq!(settings.options.len(), 2);
    assert_eq!(bucket("gs://results", &[]).kind, BucketKind::Google);
    assert_eq!(bucket("az://results/a", &[]).kind, BucketKind::Azure);
}

#[test]
fn credentials_come_from_the_environment_of_the_kind_and_the_url_wins() {
    let environment = [
        ("AWS_ACCESS_KEY_ID", "me"),
        ("AWS_REGION", "one"),
        ("AWS_NONSENSE", "x"),
        ("GOOGLE_BUCKET", "x"),
        ("HOME", "x"),
    ];

    let settings = bucket("s3://results?region=two", &environment);

    let pairs: Vec<_> = settings.options.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(pairs, [("aws_access_key_id", "me"), ("aws_region", "one"), ("region", "two")]);
}

#[test]
fn what_is_no_place_for_objects_is_refused_without_repeating_values() {
    for (url, wrong) in [
        ("results", WrongUrl::NotAUrl),
        ("", WrongUrl::NotAUrl),
        ("http://example.com/x", WrongUrl::Scheme),
        ("memory:///", WrongUrl::Scheme),
        ("file:///", WrongUrl::Folder),
        ("file://host/path", WrongUrl::Folder),
        ("file:///a?b=c", WrongUrl::Folder),
        ("s3:///prefix", WrongUrl::NoBucket),
        ("s3://me:hunter2@results", WrongUrl::UserInfo),
        ("s3://results/a%2F%2Fb", WrongUrl::Prefix),
        ("s3://results?regoin=hunter2", WrongUrl::Setting("regoin".to_owned())),
        ("s3://results?bucket=hunter2", WrongUrl::Setting("bucket".to_owned())),
        ("gs://results?region=hunter2", WrongUrl::Setting("region".to_owned())),
    ] {
        let found = parse(url, &[]).expect_err(url);
        assert_eq!(found, wrong, "{url}");
        assert!(!found.to_string().contains("hunter2"));
    }
}

#[test]
fn a_place_is_shown_without_its_settings() {
    let location = parse("s3://results/a?secret_access_key=hunter2", &[("AWS_SESSION_TOKEN", "hunter2")]).unwrap();

    assert_eq!(location.to_string(), "s3://results/a");
    assert!(!format!("{location:?}").contains("hunter2"));
}
