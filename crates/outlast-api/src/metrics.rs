//! `/metrics` in the OpenMetrics text format. Labels are queue names, namespaces and states, never ids or user text.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use outlast_core::Status;
use outlast_core::gate::Cause;
use outlast_engine::Rooms;
use outlast_store::jobs::Reach;
use outlast_store::live::Link;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::error::{Code, Problem};

/// Answers by class of status.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    success: AtomicU64,
    client_error: AtomicU64,
    server_error: AtomicU64,
}

impl Requests {
    pub(crate) fn count(&self, status: StatusCode) {
        let meter = match status.as_u16() {
            400..=499 => &self.client_error,
            500..=599 => &self.server_error,
            _ => &self.success,
        };
        meter.fetch_add(1, Ordering::Relaxed);
    }
}

type Labels = Vec<(&'static str, String)>;

/// Metrics of all namespaces: for an operator, and for the private listener.
pub(crate) struct OfProcess<'a> {
    pub(crate) requests: &'a Requests,
    /// Name, help and value.
    pub(crate) gauges: &'a [(&'static str, &'static str, usize)],
}

/// The registry is filled for each request: the values are kept elsewhere. Queues beyond the caller's reach are
/// left out, and what counts the work of all namespaces is shown only to those who may see all of them.
pub(crate) async fn render(
    rooms: &Rooms,
    of_process: Option<OfProcess<'_>>,
    reach: &Reach,
) -> Result<Response, Problem> {
    let mut registry = Registry::with_prefix("outlast");
    let jobs: Family<Labels, Gauge> = Family::default();
    let paused: Family<Labels, Gauge> = Family::default();
    let held: Family<Labels, Gauge> = Family::default();
    for (queue, counts) in rooms.queues.census().await?.into_iter().filter(|(queue, _)| reach.covers(queue)) {
        let labels = vec![("namespace", queue.namespace.0.to_string()), ("queue", queue.name.clone())];
        for status in Status::ALL {
            let mut labels = labels.clone();
            labels.push(("status", status.as_str().to_owned()));
            jobs.get_or_create(&labels).set(i64::try_from(counts.get(status)).unwrap_or(i64::MAX));
        }
        paused.get_or_create(&labels).set(i64::from(queue.paused));
        for cause in Cause::ALL {
            let mut labels = labels.clone();
            labels.push(("reason", cause.as_str().to_owned()));
            held.get_or_create(&labels).set(i64::from(queue.hold.is_some_and(|hold| hold.cause == cause)));
        }
    }
    registry.register("jobs", "Jobs by queue and status", jobs);
    registry.register("queue_paused", "1 while a queue is paused", paused);
    registry.register("queue_held", "1 while a queue is on hold, by reason", held);
    if let Some(of_process) = of_process {
        register_process(&mut registry, rooms, &of_process);
    }
    let mut text = String::new();
    encode(&mut text, &registry).map_err(|_| Problem::new(Code::Internal, "the metrics could not be written"))?;
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

fn register_process(registry: &mut Registry, rooms: &Rooms, of_process: &OfProcess<'_>) {
    let OfProcess { requests, gauges } = of_process;
    let damaged = usize::try_from(rooms.status.damage().count()).unwrap_or(usize::MAX);
    let own = [
        ("deliveries_in_flight", "Deliveries under way on this node", rooms.push.deliveries()),
        ("circuits_open", "Endpoints this node sends nothing to after failures", rooms.push.open_breakers()),
        ("damaged_rows", "Rows that this node found damaged and set aside", damaged),
    ];
    for (name, help, value) in own.into_iter().chain(gauges.iter().copied()) {
        let gauge: Gauge = Gauge::default();
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        registry.register(name, help, gauge);
    }
    let counters = &rooms.status.counters;
    for (name, help, value) in [
        ("jobs_published", "Jobs published", &counters.published),
        ("publish_duplicates", "Publishes that found their job by key", &counters.duplicates),
        ("jobs_handed_out", "Hand-outs", &counters.handed_out),
        ("deliveries", "Deliveries to endpoints that were begun", &counters.deliveries),
        ("outcomes_acked", "Reports of success", &counters.acked),
        ("outcomes_nacked", "Reports of failure", &counters.nacked),
        ("outcomes_deferred", "Deferrals", &counters.deferred),
        ("outcomes_released", "Jobs handed back", &counters.released),
        ("reports_refused", "Reports that were refused", &counters.refused_reports),
        ("alarms_served", "Jobs moved by time", &counters.woken),
        ("objects_damaged", "Times that stored bytes were found to be damaged", &counters.objects_damaged),
        ("jobs_stalled", "Times that work on a job did not move for its stallTimeout", &counters.stalled),
        ("events", "Events of sources that were stored", &counters.events),
        ("events_repeated", "Events that had come before", &counters.events_repeated),
        ("events_refused", "Webhooks that were not believed", &counters.events_refused),
        ("filters_exhausted", "Filters that were given up on an event", &counters.filters_exhausted),
        ("job_reads", "Reads of single jobs and their logs for polls, streams and reports", &counters.job_reads),
        ("loop_failures", "Background steps that failed and were repeated", &counters.loop_failures),
    ] {
        register(registry, name, help, value.get());
    }
    let set_aside = rooms.status.damage().violations();
    register(registry, "jobs_set_aside", "Times that a job broke a rule of the server and was set aside", set_aside);
    register_link(registry, rooms.status.link());
    let answers: Family<Labels, Counter> = Family::default();
    for (class, count) in [("2xx", &requests.success), ("4xx", &requests.client_error), ("5xx", &requests.server_error)]
    {
        answers.get_or_create(&vec![("class", class.to_owned())]).inc_by(count.load(Ordering::Relaxed));
    }
    registry.register("http_answers", "HTTP answers by class of status", answers);
}

/// Only where there is a link to have: a node without one is not shown as disconnected.
fn register_link(registry: &mut Registry, link: Option<Link>) {
    let Some(link) = link else { return };
    let connected: Gauge = Gauge::default();
    connected.set(i64::from(link.is_connected));
    registry.register("redis_connected", "1 while wake-ups between nodes go through Redis", connected);
    register(registry, "redis_messages_sent", "Messages to other nodes", link.sent);
    register(registry, "redis_messages_received", "Messages of other nodes", link.received);
    register(registry, "redis_messages_dropped", "Messages that made no sense", link.garbage);
}

fn register(registry: &mut Registry, name: &str, help: &str, value: u64) {
    let counter: Counter = Counter::default();
    counter.inc_by(value);
    registry.register(name, help, counter);
}
