//! The bare ceiling: the HTTP stack of the server with a route that reads a publish and one that reads a webhook, which
//! answer like the real ones and store nothing. What the server reaches is given as a ratio to it.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::thread;

use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::{StatusCode, header};
use outlast_api::listen;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::ingest::event;

/// Of the same size as the answer to a real publish.
const ANSWER: &str = concat!(
    r#"{"id":"019a8a5e-6f00-7000-8000-000000000000","queue":"bench","status":"queued","#,
    r#""createdAt":"2025-01-01T00:00:00.000Z","#,
    r#""statusUrl":"/v1/jobs/019a8a5e-6f00-7000-8000-000000000000","#,
    r#""cancelUrl":"/v1/jobs/019a8a5e-6f00-7000-8000-000000000000/cancel","duplicate":false}"#
);

/// Of the same size as the answer to a webhook that makes one job.
const EVENT_ANSWER: &str = r#"{"event_id":"019a8a5e-6f00-7000-8000-000000000000","duplicate":false,"jobs_created":1}"#;

/// Serves until stdin closes, on a runtime set up like the server's.
pub(crate) fn run(listen: SocketAddr) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (closed, shutdown) = oneshot::channel();
    // Ends with the process at the latest: stdin is a pipe of the benchmark.
    thread::spawn(move || {
        io::stdin().read_to_end(&mut Vec::new()).ok();
        closed.send(()).ok();
    });
    runtime.block_on(async {
        let listener = TcpListener::bind(listen).await?;
        println!("ceiling listening on http://{listen}");
        let stop = async {
            shutdown.await.ok();
        };
        listen::serve(listener, router(), listen::Settings::default(), stop).await;
        Ok(())
    })
}

fn router() -> Router {
    Router::new().route("/v1/queues/{queue}/jobs", post(answer)).route(event::PATH, post(answer_event))
}

async fn answer_event(_body: Bytes) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "private, no-store")];
    (StatusCode::OK, headers, EVENT_ANSWER).into_response()
}

async fn answer(Path(_queue): Path<String>, _body: Bytes) -> Response {
    (
        StatusCode::ACCEPTED,
        [
            (header::CONTENT_TYPE, "application/json"),
            (header::CACHE_CONTROL, "private, no-store"),
            (header::LOCATION, "/v1/jobs/019a8a5e-6f00-7000-8000-000000000000"),
            (header::RETRY_AFTER, "2"),
        ],
        ANSWER,
    )
        .into_response()
}
