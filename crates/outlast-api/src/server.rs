//! The way of every request: find the route, check the key and the scope, read the body, call the handler, answer. A
//! panic in a handler costs one 500, not the process.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use axum::body::{Body, HttpBody};
use axum::extract::{RawPathParams, Request};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter};
use axum::{RequestPartsExt, Router};
use bytes::Bytes;
use futures_util::FutureExt;
use http::header::{CONNECTION, EXPECT};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, Uri};
use outlast_engine::Engine;
use outlast_engine::inbound::declared::Source;
use outlast_engine::scope::Word;
use outlast_store::jobs::Reach;

use crate::auth::{Credentials, Pass, admit, without_token};
use crate::call::Call;
use crate::error::{Code, Problem};
use crate::failed_keys::FailedKeys;
use crate::limits::Limits;
use crate::metrics::Requests;
use crate::reload::Reload;
use crate::routes::{Need, ROUTES, Raw, Route, Size};
use crate::schema::{Values, read, read_query};
use crate::stream::seats::Seats;
use crate::view::Views;
use crate::{body, cors, fields, sources};

/// What all requests share.
#[derive(Clone)]
pub struct Api {
    shared: Arc<Shared>,
}

struct Shared {
    engine: Engine,
    limits: Arc<Limits>,
    in_flight: AtomicUsize,
    in_flight_bytes: AtomicUsize,
    requests: Requests,
    seats: Arc<Seats>,
    views: Arc<Views>,
    failed_keys: FailedKeys,
    /// Set once, before requests are served.
    reload: OnceLock<Reload>,
}

impl Api {
    pub fn new(engine: Engine, limits: Limits) -> Api {
        let shared = Shared {
            engine,
            failed_keys: FailedKeys::new(limits.failed_keys_per_address),
            limits: Arc::new(limits),
            in_flight: AtomicUsize::new(0),
            in_flight_bytes: AtomicUsize::new(0),
            requests: Requests::default(),
            seats: Arc::default(),
            views: Arc::default(),
            reload: OnceLock::new(),
        };
        Api { shared: Arc::new(shared) }
    }

    /// The same, which can read its configuration again.
    pub fn reloading(self, reload: Reload) -> Api {
        let _ = self.shared.reload.set(reload);
        self
    }

    /// The router of the public listener.
    pub fn router(&self) -> Router {
        let paths: std::collections::BTreeSet<&str> = ROUTES.iter().map(|route| route.path).collect();
        let mut router = Router::new();
        for path in paths {
            let routes: Vec<&'static Route> = ROUTES.iter().filter(|route| route.path == path).collect();
            router = router.route(path, self.methods(&routes));
        }
        let api = self.clone();
        router.fallback(move |request: Request| async move { api.answer_elsewhere(request).await })
    }

    /// The router of the private listener: metrics without a key, and health.
    pub fn private_router(&self) -> Router {
        let api = self.clone();
        let metrics = axum::routing::get(move || {
            let api = api.clone();
            async move { api.render_metrics(&Reach::Everything).await.unwrap_or_else(Problem::into_response) }
        });
        Router::new().route("/metrics", metrics)
    }

    fn methods(&self, routes: &[&'static Route]) -> MethodRouter {
        let mut allow: Vec<&str> = routes.iter().map(|route| route.method.as_str()).collect();
        let takes_head = routes.iter().any(|route| takes_head(route));
        if takes_head {
            allow.push("HEAD");
        }
        let by_token = routes.iter().any(|route| route.token.is_some());
        if by_token {
            allow.push("OPTIONS");
        }
        let (api, allow) = (self.clone(), allow.join(", "));
        let refuse = |request: Request| async move { api.refuse(request, Problem::method_not_allowed(allow)).await };
        let mut methods = MethodRouter::new().fallback(refuse.clone());
        if by_token {
            let (api, routes) = (self.clone(), routes.to_vec());
            let preflight = move |request: Request| async move { api.preflight(&routes, request).await };
            methods = methods.on(MethodFilter::OPTIONS, preflight);
        }
        if !takes_head {
            methods = methods.on(MethodFilter::HEAD, refuse);
        }
        for route in routes {
            let (api, route) = (self.clone(), *route);
            let handler = move |request: Request| {
                let api = api.clone();
                async move { api.answer(route, request).await }
            };
            methods = methods.on(filter(&route.method), handler);
        }
        methods
    }

    /// The answer where none of our routes is: the path of a source, or nothing.
    async fn answer_elsewhere(&self, request: Request) -> Response {
        let source = self.shared.engine.declared().source_at(request.uri().path()).cloned();
        let Some(source) = source else {
            let detail = "there is nothing at this URL; GET /openapi.json lists what there is";
            return self.refuse(request, Problem::new(Code::RouteNotFound, detail)).await;
        };
        if request.method() != Method::POST {
            return self.refuse(request, Problem::method_not_allowed("POST".to_owned())).await;
        }
        let (parts, mut body) = request.into_parts();
        let result = self.take_event(&source, &parts, &mut body).await;
        self.finish(result, parts.headers.contains_key(EXPECT), &mut body).await
    }

    async fn take_event(&self, source: &Arc<Source>, parts: &Parts, body: &mut Body) -> Result<Response, Problem> {
        let shared = &self.shared;
        self.check_target(&parts.uri)?;
        let _in_flight = self.seat(shared.limits.in_flight_requests)?;
        let expected = body::declared_length(&parts.headers).unwrap_or(source.body_max).min(source.body_max);
        let _held = self.hold(expected)?;
        let taken = AssertUnwindSafe(sources::take(&shared.engine, &shared.limits, source, parts, body));
        taken.catch_unwind().await.unwrap_or_else(|_| {
            tracing::error!(source = &*source.name, "a handler panicked");
            Err(Problem::indeterminate())
        })
    }

    /// A place among the requests that are answered at the same time.
    fn seat(&self, most: usize) -> Result<Guard<'_>, Problem> {
        Guard::take(&self.shared.in_flight, 1, most).ok_or_else(|| {
            Problem::new(Code::Overloaded, "too many requests are in flight; nothing was stored, try again")
        })
    }

    /// Room for a body of so many bytes.
    fn hold(&self, bytes: usize) -> Result<Guard<'_>, Problem> {
        let shared = &self.shared;
        Guard::take(&shared.in_flight_bytes, bytes, shared.limits.in_flight_bytes).ok_or_else(|| {
            Problem::new(Code::Overloaded, "too many large requests are in flight; nothing was stored, try again")
        })
    }

    /// The answer where no route fits. A URL that is too long is told first, as everywhere.
    async fn refuse(&self, request: Request, otherwise: Problem) -> Response {
        let (parts, mut body) = request.into_parts();
        let problem = self.check_target(&parts.uri).err().unwrap_or(otherwise);
        self.finish(Err(problem), parts.headers.contains_key(EXPECT), &mut body).await
    }

    /// A browser asks whether a page may call; it may, where a token will do.
    async fn preflight(&self, routes: &[&'static Route], request: Request) -> Response {
        let (parts, mut body) = request.into_parts();
        let result = self.check_target(&parts.uri).map(|()| cors::preflight(routes));
        self.finish(result, parts.headers.contains_key(EXPECT), &mut body).await
    }

    async fn answer(&self, route: &'static Route, request: Request) -> Response {
        let (parts, mut body) = request.into_parts();
        let expects = parts.headers.contains_key(EXPECT);
        let credentials = Credentials::of(route, &parts);
        let with_token = matches!(credentials.pass, Pass::Token(_));
        let guarded = AssertUnwindSafe(self.serve(route, credentials, parts, &mut body)).catch_unwind().await;
        let result = guarded.unwrap_or_else(|_| {
            tracing::error!(path = route.path, "a handler panicked");
            // It may have panicked after a commit: only for reads is it certain that nothing was stored.
            Err(match route.method {
                Method::GET => {
                    Problem::new(Code::Internal, "the request could not be handled; the server's log says more")
                }
                _ => Problem::indeterminate(),
            })
        });
        let is_refused = result.is_err();
        let mut response = self.finish(result, expects, &mut body).await;
        if is_refused && route.raw == Some(Raw::Bytes) {
            // Nobody reads the rest of an upload that was refused.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if with_token {
            // Also to a token that is no good: the page has to learn that it needs another one.
            cors::open(response.headers_mut());
        }
        response
    }

    /// A refusal may come before the body was read. Then the rest is read first, or the connection is said to close:
    /// otherwise the next request on it would be lost. One who waits for a "100 Continue" has not sent it yet.
    async fn finish(&self, result: Result<Response, Problem>, expects: bool, body: &mut Body) -> Response {
        let response = match result {
            Ok(response) => response,
            Err(problem) => {
                let mut response = problem.into_response();
                if !body.is_end_stream() && (expects || !body::discard(body).await) {
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                response
            }
        };
        self.shared.requests.count(response.status());
        response
    }

    fn check_target(&self, uri: &Uri) -> Result<(), Problem> {
        let (length, most) =
            (uri.path_and_query().map_or(0, |target| target.as_str().len()), self.shared.limits.url_bytes);
        if length > most {
            return Err(Problem::new(Code::UriTooLong, format!("the URL has more than {most} bytes")));
        }
        Ok(())
    }

    async fn serve(
        &self,
        route: &'static Route,
        credentials: Credentials,
        mut parts: Parts,
        body: &mut Body,
    ) -> Result<Response, Problem> {
        let shared = &self.shared;
        self.check_target(&parts.uri)?;
        let admitted = admit(&shared.engine, &shared.failed_keys, route, credentials).await?;
        // A busy server is not a dead one: what needs no key, health above all, is answered beyond the limit.
        let most = if route.need == Need::Nothing { usize::MAX } else { shared.limits.in_flight_requests };
        let _in_flight = self.seat(most)?;
        let parameters = path_parameters(&mut parts).await;
        admitted.check_job(&parameters)?;
        let (query, tags) = match parts.uri.query() {
            Some(query) if route.token.is_some() => {
                read_query(route.query, &without_token(query)).map_err(Problem::invalid)?
            }
            Some(query) => read_query(route.query, query).map_err(Problem::invalid)?,
            None => (Values::default(), Vec::new()),
        };
        let bytes_max = route.size.bytes(&shared.limits);
        let expected = match body.is_end_stream() || route.raw == Some(Raw::Bytes) {
            true => 0,
            false => body::declared_length(&parts.headers).unwrap_or(bytes_max).min(bytes_max),
        };
        let _held = self.hold(expected)?;
        let (body, upload) = match route.raw {
            Some(Raw::Bytes) => (Bytes::new(), std::mem::take(body)),
            _ => (body::read(&parts.headers, body, bytes_max, &shared.limits).await?, Body::empty()),
        };
        if route.body.is_none() && route.raw.is_none() {
            read(&fields::EMPTY, &body).map_err(Problem::invalid)?;
        }
        let call = Call {
            engine: shared.engine.clone(),
            limits: Arc::clone(&shared.limits),
            seats: Arc::clone(&shared.seats),
            views: Arc::clone(&shared.views),
            reload: shared.reload.get().cloned(),
            principal: admitted.principal,
            reach: admitted.reach,
            token: admitted.token,
            parameters,
            query,
            tags,
            headers: parts.headers,
            version: parts.version,
            body,
            upload: Mutex::new(upload),
        };
        match route.method == Method::GET && route.path == "/metrics" {
            true => self.render_metrics(&call.reach).await,
            false => (route.handler)(call).await,
        }
    }

    async fn render_metrics(&self, reach: &Reach) -> Result<Response, Problem> {
        let shared = &self.shared;
        crate::metrics::render(&shared.engine, &shared.requests, shared.seats.count(), reach).await
    }
}

/// Percent-decoded names and values of the URL's variable parts.
async fn path_parameters(parts: &mut Parts) -> Vec<(String, String)> {
    match parts.extract::<RawPathParams>().await {
        Ok(parameters) => parameters.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        Err(_) => Vec::new(),
    }
}

/// A GET that hands out jobs changes them, so it does not answer a HEAD, which by definition changes nothing; nor does one
/// that switches to another protocol.
fn takes_head(route: &Route) -> bool {
    let switches = route.answer.0 == StatusCode::SWITCHING_PROTOCOLS.as_u16();
    route.method == Method::GET && route.need != Need::Scope(Word::Consume) && !switches
}

fn filter(method: &Method) -> MethodFilter {
    match *method {
        Method::POST => MethodFilter::POST,
        Method::PUT => MethodFilter::PUT,
        Method::PATCH => MethodFilter::PATCH,
        Method::DELETE => MethodFilter::DELETE,
        _ => MethodFilter::GET,
    }
}

impl Size {
    /// Room for the fields around a payload, so that the payload's own limit is what a sender meets.
    fn bytes(self, limits: &Limits) -> usize {
        const AROUND: usize = 64 << 10;
        match self {
            Size::Small => AROUND,
            Size::Job => limits.payload_bytes + AROUND,
            Size::Batch => limits.batch_bytes,
        }
    }
}

/// A share of a bounded whole, given back when dropped.
struct Guard<'a> {
    used: &'a AtomicUsize,
    share: usize,
}

impl<'a> Guard<'a> {
    fn take(used: &'a AtomicUsize, share: usize, whole: usize) -> Option<Guard<'a>> {
        let before = used.fetch_add(share, Ordering::SeqCst);
        let guard = Guard { used, share };
        (before.saturating_add(share) <= whole).then_some(guard)
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.used.fetch_sub(self.share, Ordering::SeqCst);
    }
}
