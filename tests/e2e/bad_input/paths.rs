//! Hostile URLs, byte for byte over a bare socket: no client library would send them as they are.

use outlast_api::routes::{ROUTES, Route};

use crate::raw::exchange;
use crate::scene::Scene;

/// Invalid names and ids. None of them names an object.
const HOSTILE: [&str; 28] = [
    "%00",
    "a%00b",
    "..",
    "%2e%2e",
    "..%2f..%2fetc%2fpasswd",
    "%2f",
    "a%2fb",
    "%5c..%5c",
    "%ff",
    "%c0%af",
    "%",
    "%zz",
    "%u0041",
    ".",
    "-",
    "_own",
    "~",
    "*",
    "'%20OR%201=1--",
    "%22%3e%3cscript%3e",
    "%0d%0aset-cookie:%20a=b",
    "a%20b",
    "%f0%9f%a6%80",
    "%e2%80%ae",
    ";x=1",
    "a;x=1",
    "{queue}",
    "-1",
];
/// Valid names of a queue that does not exist, and no ids.
const NO_IDS: [&str; 4] = ["99999999999999999999", "00000000-0000-0000-0000-000000000000", "0", "x"];

#[tokio::test(flavor = "multi_thread")]
async fn hostile_names_and_ids_in_the_path_are_not_found_or_refused() {
    let scene = Scene::set().await;
    let mut failures = Vec::new();
    let mut count = 0;
    for route in ROUTES.iter().filter(|route| route.path.contains('{')) {
        // Twice as long is still a URL.
        let long = "a".repeat(1900);
        let no_ids = NO_IDS.iter().filter(|_| route.path.contains("{id}"));
        for hostile in HOSTILE.iter().chain(no_ids).copied().chain([long.as_str()]) {
            count += 1;
            let path = fill(route, hostile);
            let request = request(&scene, route, &path);
            let fault = match exchange(&scene.client.base, request).await {
                None => Some("no answer".to_owned()),
                Some(answer) if matches!(answer.status, 400 | 404 | 405) && !answer.code().is_empty() => {
                    let echo = answer.body.len();
                    (echo > 2000).then(|| format!("an answer of {echo} bytes"))
                }
                // The parser of the HTTP library refuses a broken escape before anything of ours sees it.
                Some(answer) if answer.status == 400 => None,
                Some(answer) => Some(format!("{} {}", answer.status, answer.body)),
            };
            failures.extend(fault.map(|fault| format!("{} {}: {fault}", route.method, shortened(&path))));
        }
    }
    assert!(count > 800, "only {count} cases");
    assert!(failures.is_empty(), "{} of {count}:\n{}", failures.len(), failures.join("\n"));
    scene.assert_unharmed().await;
}

// 3.1: a URL of 4 KiB is the most, on every route and also where there is none.
#[tokio::test(flavor = "multi_thread")]
async fn a_url_over_the_limit_is_414_everywhere() {
    let scene = Scene::set().await;
    for route in ROUTES {
        let path = scene.things.path(route);
        let padding = 4096 - path.len() - 1;
        for (bytes, wanted) in [(padding, 400), (padding + 1, 414), (8000, 414)] {
            let path = format!("{path}?{}", "x".repeat(bytes));
            let answer = exchange(&scene.client.base, request(&scene, route, &path)).await.unwrap();
            assert_eq!(answer.status, wanted, "{} {} with {} bytes", route.method, route.path, path.len());
            assert!(!answer.code().is_empty());
        }
    }
    let nowhere = format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "x".repeat(5000));
    assert_eq!(exchange(&scene.client.base, nowhere).await.unwrap().status, 414);
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_query_parameters_are_refused() {
    let scene = Scene::set().await;
    let many = "a&".repeat(10_000);
    let some = "a&".repeat(1500);

    let huge = exchange(&scene.client.base, get(&scene, &format!("/v1/jobs?{many}"))).await.unwrap();
    let large = exchange(&scene.client.base, get(&scene, &format!("/v1/jobs?{some}"))).await.unwrap();

    assert!(matches!(huge.status, 414 | 431), "{}", huge.status);
    assert_eq!((large.status, large.code()), (400, "invalid_request".to_owned()));
    assert!(large.body.len() < 20_000, "{} bytes of errors", large.body.len());
    scene.assert_unharmed().await;
}

fn fill(route: &Route, value: &str) -> String {
    route.path.replace("{queue}", value).replace("{id}", value).replace("{name}", value)
}

fn request(scene: &Scene, route: &Route, path: &str) -> String {
    let body = scene.body(route).map(|members| super::object_text(&members)).unwrap_or_default();
    format!(
        "{} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        route.method,
        scene.client.key,
        body.len()
    )
}

fn get(scene: &Scene, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n", scene.client.key)
}

fn shortened(path: &str) -> String {
    path.chars().take(120).collect()
}
