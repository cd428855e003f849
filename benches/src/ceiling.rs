//! The bare ceiling: the HTTP stack of the server with one route that reads a publish and answers like one, storing
//! nothing. What the server reaches is given as a ratio to it.

use std::future::Future;
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
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Of the same size as the answer to a real publish.
const ANSWER: &str = concat!(
    r#"{"id":"019a8a5e-6f00-7000-8000-000000000000","queue":"bench","status":"queued","#,
    r#""createdAt":"2025-01-01T00:00:00.000Z","#,
    r#""statusUrl":"/v1/jobs/019a8a5e-6f00-7000-8000-000000000000","#,
    r#""streamUrl":"/v1/jobs/019a8a5e-6f00-7000-8000-000000000000/stream","#,
    r#""cancelUrl":"/v1/jobs/019a8a5e-6f00-7000-8000-000000000000/cancel","duplicate":false}"#
);

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
        serve_ceiling(listener, router(), async {
            shutdown.await.ok();
        })
        .await
    })
}

fn router() -> Router {
    Router::new().route("/v1/queues/{queue}/jobs", post(answer))
}

async fn answer(Path(_queue): Path<String>, _body: Bytes) -> Response {
    (
        StatusCode::ACCEPTED,
        [
            (header::CONTENT_TYPE, "application/json"),
            (header::LOCATION, "/v1/jobs/019a8a5e-6f00-7000-8000-000000000000"),
            (header::RETRY_AFTER, "2"),
        ],
        ANSWER,
    )
        .into_response()
}

/// The one place that ties the ceiling to an HTTP stack: it has to be the server's.
async fn serve_ceiling(listener: TcpListener, router: Router, shutdown: impl Future<Output = ()>) -> Result<()> {
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let (stream, _) = tokio::select! {
            accepted = listener.accept() => accepted?,
            () = &mut shutdown => return Ok(()),
        };
        stream.set_nodelay(true)?;
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service));
    }
}
