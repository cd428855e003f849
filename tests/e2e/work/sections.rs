//! Named sections: each kept once it is finished, replaced by a later one of the same name, listed by name, and bounded.

use reqwest::Method;
use serde_json::{Value, json};

use super::{Work, raw};
use crate::api::{events, text};

#[tokio::test(flavor = "multi_thread")]
async fn a_section_is_kept_as_it_came_and_replaced_by_name() {
    let work = Work::begin(json!({})).await;
    let exact = r#"{"n": 12345678901234567890123 , "s":"\u00e9"}"#;

    let first = work.section("chapter:1.a_b-c", json!("draft")).await;
    let again = work.call_raw(Method::PUT, "sections/chapter:1.a_b-c", exact.to_owned()).await.expect(200);
    for value in ["null", "0", "\"\"", "[]", "  {}  "] {
        work.call_raw(Method::PUT, &format!("sections/v{}", value.trim().len()), value.to_owned()).await.expect(200);
    }

    assert_eq!(
        (&first["accepted"], &first["status"], &first["id"]),
        (&json!(true), &json!("running"), &json!(work.id))
    );
    assert!(again["version"].as_u64() > first["version"].as_u64());
    let one = raw(&work.client, &work.path("sections/chapter:1.a_b-c")).await;
    assert_eq!(one, exact, "byte for byte");
    let page = raw(&work.client, &work.path("sections")).await;
    assert!(page.contains(&format!("\"value\":{exact}")), "{page}");
    let page: Value = serde_json::from_str(&page).unwrap();
    let item = &page["items"][0];
    assert_eq!((&item["name"], &item["length"]), (&json!("chapter:1.a_b-c"), &json!(exact.len())));
    assert!(item["at"].is_string());
    let log = events(&work.client, &work.id).await;
    let kept: Vec<&Value> = log.iter().filter(|event| event["type"] == "checkpoint").collect();
    assert_eq!(kept.len(), 7, "each one is an event");
    assert_eq!(kept[0]["section"], json!("chapter:1.a_b-c"));
    assert_eq!(work.job().await["checkpoint"]["sections"], json!(4));
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_checked_and_what_is_not_there_is_not_found() {
    let mut work = Work::begin(json!({})).await;
    // A proxy would refuse some of them itself.
    work.client = work.client.at(&work.server.own_base);
    let longest = "n".repeat(128);

    work.section(&longest, json!(1)).await;
    for wrong in [&"n".repeat(129), "-a", ".a", "_a", ":a", "a%20b", "a%2Fb", "%C3%A9", "a%00"] {
        let reply = work.call(Method::PUT, &format!("sections/{wrong}"), &json!(1)).await;
        assert!(matches!(reply.status, 400 | 404), "{wrong}: {} {}", reply.status, reply.body);
        assert!(!reply.code().is_empty());
    }
    for wrong in ["", "{", "1 2", "nul", "'a'", "{\"a\":1,}"] {
        let reply = work.call_raw(Method::PUT, "sections/a", wrong.to_owned()).await;
        reply.expect_problem(400, "invalid_request");
    }
    work.call_raw(Method::PUT, "sections/a", format!("\"{}\"", "x".repeat(256 << 10)))
        .await
        .expect_problem(413, "payload_too_large");

    work.client.get(&work.path("sections/a")).await.unwrap().expect_problem(404, "section_not_found");
    assert_eq!(work.section_names().await, [longest]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_sections_are_listed_in_pages_by_name_and_there_is_no_more_room() {
    let mut work = Work::begin(json!({})).await;
    let mut names: Vec<String> = (0..1000).map(|number| format!("s{}", number * 7919 % 1000)).collect();
    for name in &names {
        work.section(name, json!({ "of": name })).await;
    }
    names.sort();

    let full = work.call(Method::PUT, "sections/one-more", &json!(1)).await;
    work.section("s0", json!("replaced")).await;
    let mut listed: Vec<(String, Value)> = Vec::new();
    let mut path = work.path("sections?limit=77");
    let mut pages = 0;
    loop {
        pages += 1;
        let page = work.client.get(&path).await.unwrap().expect(200);
        let items = page["items"].as_array().unwrap();
        listed.extend(items.iter().map(|item| (text(&item["name"]), item["value"].clone())));
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        path = work.path(&format!("sections?limit=77&cursor={cursor}"));
    }
    work.fail().await;
    let held = work.take().await;

    full.expect_problem(409, "sections_full");
    assert_eq!(pages, 13);
    assert_eq!(listed.iter().map(|(name, _)| name).collect::<Vec<_>>(), names.iter().collect::<Vec<_>>());
    for (name, value) in &listed {
        let wanted = if name == "s0" { json!("replaced") } else { json!({ "of": name }) };
        assert_eq!(*value, wanted);
    }
    assert_eq!(held["sections"], json!(names), "the next attempt gets all names");
    work.client.get(&work.path("sections?limit=201")).await.unwrap().expect_problem(400, "invalid_request");
}
