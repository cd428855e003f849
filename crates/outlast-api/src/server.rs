//! The way of every request: find the route, check the key and the scope, read the body, call the handler, answer. A
//! panic in a handler costs one 500, not the process.

use std::net::{IpAddr, Ipv4Addr};
use std::panic::AssertUnwindSafe;
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
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use outlast_engine::Rooms;
use outlast_engine::inbound::catalog::Source;
use outlast_engine::keys::scope::{Principal, Word};
use outlast_store::jobs::Reach;

use crate::answers::{Answers, RouteEffect, Weight};
use crate::auth::{Admission, Credential, Credentials, admit, without_token};
use crate::budget::{Holder, Priority};
use crate::budgets::Budgets;
use crate::dev_clock::DevClock;
use crate::error::{Code, Problem, SERVER_VERSION, VERSION};
use crate::exposition::Format;
use crate::failed_keys::FailedKeys;
use crate::limits::Limits;
use crate::metrics::{OfProcess, Requests};
use crate::reload::Reload;
use crate::request::{RequestCharges, RequestContext};
use crate::routes::{DEV_ROUTES, Need, ROUTES, Raw, Route, Size};
use crate::schema::{Values, read, read_query};
use crate::sources::Peer;
use crate::view::Views;
use crate::{body, cors, fields, sources};

/// State that all requests share.
#[derive(Clone)]
pub struct Api {
    shared: Arc<ApiState>,
}

struct ApiState {
    rooms: Arc<Rooms>,
    limits: Arc<Limits>,
    budgets: Arc<Budgets>,
    requests: Requests,
    answers: Arc<Answers>,
    views: Arc<Views>,
    failed_keys: FailedKeys,
    /// Set once, before requests are served.
    reload: OnceLock<Reload>,
    /// Set once, before requests are served, where the clock is moved by hand.
    dev_clock: OnceLock<DevClock>,
}

impl Api {
    pub fn new(rooms: Arc<Rooms>, limits: Limits) -> Api {
        let shared = ApiState {
            rooms,
            failed_keys: FailedKeys::new(limits.failed_keys_per_address),
            budgets: Arc::new(Budgets::new(&limits)),
            answers: Arc::new(Answers::new(&limits)),
            limits: Arc::new(limits),
            requests: Requests::default(),
            views: Arc::default(),
            reload: OnceLock::new(),
            dev_clock: OnceLock::new(),
        };
        Api { shared: Arc::new(shared) }
    }

    /// The same, which can read its configuration again.
    pub fn reloading(self, reload: Reload) -> Api {
        let _ = self.shared.reload.set(reload);
        self
    }

    /// The same, whose clock is moved by hand.
    pub fn with_dev_clock(self, clock: DevClock) -> Api {
        let _ = self.shared.dev_clock.set(clock);
        self
    }

    /// The router of the public listener.
    pub fn router(&self) -> Router {
        let dev_routes = self.shared.dev_clock.get().map_or(&[][..], |_| DEV_ROUTES);
        let all = || ROUTES.iter().chain(dev_routes);
        let paths: std::collections::BTreeSet<&str> = all().map(|route| route.path).collect();
        let mut router = Router::new();
        for path in paths {
            let routes: Vec<&'static Route> = all().filter(|route| route.path == path).collect();
            router = router.route(path, self.methods(&routes));
        }
        let api = self.clone();
        router.fallback(move |request: Request| async move { api.answer_elsewhere(request).await })
    }

    /// The router of the private listener: metrics without a key, and health.
    pub fn private_router(&self) -> Router {
        let api = self.clone();
        let metrics = axum::routing::get(move |headers: HeaderMap| {
            let api = api.clone();
            async move {
                let rendered = api.render_metrics(&Reach::Everything, true, Format::wanted(&headers)).await;
                rendered.unwrap_or_else(Problem::into_response)
            }
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
        let source = self.shared.rooms.inbound.catalog().source_at(request.uri().path()).cloned();
        let Some(source) = source else {
            let detail = "there is no such URL; GET /openapi.json lists all routes";
            return self.refuse(request, Problem::new(Code::RouteNotFound, detail)).await;
        };
        if request.method() != Method::POST {
            return self.refuse(request, Problem::method_not_allowed("POST".to_owned())).await;
        }
        let (parts, mut body) = request.into_parts();
        let result = self.take_event(&source, &parts, &mut body).await;
        self.finish(result, Sender::of(&parts), &mut body).await
    }

    async fn take_event(&self, source: &Arc<Source>, parts: &Parts, body: &mut Body) -> Result<Response, Problem> {
        let shared = &self.shared;
        self.check_target(&parts.uri)?;
        // Until its signature is checked, a webhook is charged to where it comes from.
        let address = peer(parts);
        let mut held = self.hold(Holder::Address(address), Priority::Ordinary)?;
        sources::check_peer(&shared.rooms, source, address)?;
        // Its size is bounded before anything is worked out over it.
        let read = body::read(&parts.headers, body, source.body_max, &shared.limits, &mut held.bytes);
        let bytes = read.await?;
        let taken = AssertUnwindSafe(sources::take(&shared.rooms, source, parts, bytes));
        taken.catch_unwind().await.unwrap_or_else(|_| {
            tracing::error!(source = &*source.name, "request handler panicked; answered 500");
            Err(Problem::indeterminate())
        })
    }

    /// A slot among the requests that are worked on, and no bytes yet.
    fn hold(&self, holder: Holder, priority: Priority) -> Result<RequestCharges, Problem> {
        let budgets = &self.shared.budgets;
        let slot = budgets.slots.take(holder, priority, 1)?;
        Ok(RequestCharges { holder, slot, bytes: budgets.bytes.open(holder, priority) })
    }

    fn hold_nothing(&self) -> RequestCharges {
        let holder = Holder::Address(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let [slot, bytes] = [&self.shared.budgets.slots, &self.shared.budgets.bytes]
            .map(|budget| budget.open(holder, Priority::Ordinary));
        RequestCharges { holder, slot, bytes }
    }

    /// The answer where no route fits. A URL that is too long is refused first, as everywhere.
    async fn refuse(&self, request: Request, otherwise: Problem) -> Response {
        let (parts, mut body) = request.into_parts();
        let problem = self.check_target(&parts.uri).err().unwrap_or(otherwise);
        self.finish(Err(problem), Sender::of(&parts), &mut body).await
    }

    /// A browser asks whether a page may call; it may, where a token will do.
    async fn preflight(&self, routes: &[&'static Route], request: Request) -> Response {
        let (parts, mut body) = request.into_parts();
        let result = self.check_target(&parts.uri).map(|()| cors::preflight(routes));
        self.finish(result, Sender::of(&parts), &mut body).await
    }

    async fn answer(&self, route: &'static Route, request: Request) -> Response {
        let (parts, mut body) = request.into_parts();
        let sender = Sender::of(&parts);
        let credentials = Credentials::of(route, &parts);
        let with_token = matches!(credentials.pass, Credential::Token(_));
        let guarded = AssertUnwindSafe(self.serve(route, credentials, parts, &mut body)).catch_unwind().await;
        let result = guarded.unwrap_or_else(|_| {
            tracing::error!(path = route.path, "request handler panicked; answered 500");
            // It may have panicked after a commit: only for reads is it certain that nothing was stored.
            Err(match route.method {
                Method::GET => {
                    Problem::new(Code::Internal, "the request could not be handled; the server's log says more")
                }
                _ => Problem::indeterminate(),
            })
        });
        let is_refused = result.is_err();
        let mut response = self.finish(result, sender, &mut body).await;
        if is_refused && route.raw == Some(Raw::Bytes) {
            // The server does not read the rest of a refused upload.
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
    async fn finish(&self, result: Result<Response, Problem>, sender: Sender, body: &mut Body) -> Response {
        let response = match result {
            Ok(mut response) => {
                response.headers_mut().insert(SERVER_VERSION, VERSION);
                response
            }
            Err(problem) => {
                let mut response = problem.into_response();
                if !body.is_end_stream() && !self.discard(sender, body).await {
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                response
            }
        };
        self.shared.requests.count(response.status());
        response
    }

    /// Reads the rest of a refused body, where that is worth it. `false`: the connection must close.
    async fn discard(&self, sender: Sender, body: &mut Body) -> bool {
        if sender.expects_continue {
            return false;
        }
        let place = self.shared.budgets.discards.take(Holder::Address(sender.address), Priority::Ordinary, 1);
        match place {
            Ok(_place) => Box::pin(body::discard(body)).await,
            Err(_) => false,
        }
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
        parts: Parts,
        body: &mut Body,
    ) -> Result<Response, Problem> {
        // On the heap, and gone before the handler runs: a request that waits would keep all its room.
        let request = Box::pin(self.prepare(route, credentials, parts, body)).await?;
        let holder = request.holder();
        let response = match route.method == Method::GET && route.path == "/metrics" {
            true => Box::pin(self.answer_metrics(request)).await,
            false => (route.handler)(request).await,
        }?;
        self.shared.answers.seal(response, holder, effect(route))
    }

    /// Everything before the handler: who calls, whether there is room, and what was sent.
    async fn prepare(
        &self,
        route: &'static Route,
        credentials: Credentials,
        mut parts: Parts,
        body: &mut Body,
    ) -> Result<RequestContext, Problem> {
        let shared = &self.shared;
        self.check_target(&parts.uri)?;
        let admission = admit(&shared.rooms.keys, &shared.failed_keys, route, credentials).await?;
        let mut held = match route.path {
            // A busy server is not a dead one: health is answered beyond the limit.
            "/" | "/healthz" | "/livez" | "/readyz" | "/openapi.json" => self.hold_nothing(),
            _ => self.hold(holder(&admission, &parts), route.priority)?,
        };
        let parameters = path_parameters(&mut parts).await;
        admission.check_job(&parameters)?;
        let (query, tags) = match parts.uri.query() {
            Some(query) if route.token.is_some() => {
                read_query(route.query, &without_token(query)).map_err(Problem::invalid)?
            }
            Some(query) => read_query(route.query, query).map_err(Problem::invalid)?,
            None => (Values::default(), Vec::new()),
        };
        let bytes_max = route.size.bytes(&shared.limits);
        let (body, upload) = match route.raw {
            Some(Raw::Bytes) => (Bytes::new(), std::mem::take(body)),
            _ => {
                let read = body::read(&parts.headers, body, bytes_max, &shared.limits, &mut held.bytes);
                (read.await?, Body::empty())
            }
        };
        // The URL and what the router noted share a buffer with the connection; a request that waits must not keep it.
        let Parts { headers, version, uri, extensions, .. } = parts;
        drop((uri, extensions));
        if route.body.is_none() && route.raw.is_none() {
            read(&fields::EMPTY, &body).map_err(Problem::invalid)?;
        }
        Ok(RequestContext {
            rooms: Arc::clone(&shared.rooms),
            limits: Arc::clone(&shared.limits),
            budgets: Arc::clone(&shared.budgets),
            answers: Arc::clone(&shared.answers),
            views: Arc::clone(&shared.views),
            reload: shared.reload.get().cloned(),
            dev_clock: shared.dev_clock.get().cloned(),
            principal: admission.principal,
            reach: admission.reach,
            token: admission.token,
            parameters,
            query,
            tags,
            headers,
            version,
            body,
            upload: Mutex::new(upload),
            held,
        })
    }

    async fn answer_metrics(&self, request: RequestContext) -> Result<Response, Problem> {
        let _turn = request.turn(Weight::Page).await?;
        let is_operator = request.principal.as_ref().is_some_and(Principal::is_operator);
        self.render_metrics(&request.reach, is_operator, Format::wanted(&request.headers)).await
    }

    /// `of_process`: with what concerns all namespaces.
    async fn render_metrics(&self, reach: &Reach, of_process: bool, format: Format) -> Result<Response, Problem> {
        let shared = &self.shared;
        let budgets = &shared.budgets;
        let held = [
            ("streams_open", "Streams open on this node", budgets.streams.used()),
            ("requests_in_flight", "Requests this node is working on", budgets.slots.used()),
            ("request_bytes", "Bytes of request bodies in the memory of this node", budgets.bytes.used()),
            ("waiting_requests", "Long polls that wait on this node", budgets.waiters.used()),
            ("answer_bytes", "Bytes of large answers that this node has not sent yet", shared.answers.used()),
        ];
        let of_process = of_process.then_some(OfProcess { requests: &shared.requests, gauges: &held });
        crate::metrics::render(&shared.rooms, of_process, reach, format).await
    }
}

/// The sender of a request that may be refused, as far as known.
#[derive(Clone, Copy)]
struct Sender {
    address: IpAddr,
    /// It has not sent the body yet.
    expects_continue: bool,
}

impl Sender {
    fn of(parts: &Parts) -> Sender {
        Sender { address: peer(parts), expects_continue: parts.headers.contains_key(EXPECT) }
    }
}

/// Every request of the accept loop has one.
fn peer(parts: &Parts) -> IpAddr {
    parts.extensions.get::<Peer>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |Peer(address)| *address)
}

/// Which shares a request is counted against.
fn holder(admission: &Admission, parts: &Parts) -> Holder {
    match (&admission.principal, &admission.token) {
        (Some(principal), None) => Holder::Key { namespace: principal.namespace, key: principal.key },
        (Some(principal), Some(token)) => {
            Holder::Token { namespace: principal.namespace, key: principal.key, job: token.job }
        }
        (None, _) => Holder::Address(peer(parts)),
    }
}

/// A GET that hands out jobs changes them; a call that needs no more than the right to read does not.
fn effect(route: &Route) -> RouteEffect {
    let is_read = route.method == Method::GET && route.need != Need::Scope(Word::Consume);
    match is_read || route.need == Need::Scope(Word::Read) {
        true => RouteEffect::Read,
        false => RouteEffect::Write,
    }
}

/// Percent-decoded names and values of the URL's variable parts.
async fn path_parameters(parts: &mut Parts) -> Vec<(String, String)> {
    match parts.extract::<RawPathParams>().await {
        Ok(parameters) => parameters.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        Err(_) => Vec::new(),
    }
}

/// A GET that hands out jobs changes them, so it does not answer a HEAD, which by definition changes nothing; nor does
/// one that switches to another protocol.
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
