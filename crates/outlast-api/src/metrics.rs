//! `/metrics`, as Prometheus text or OpenMetrics. Labels are names of queues and namespaces, states and reasons, never ids or
//! user text. The values are kept elsewhere: in the store, in the engine's counters and in the budgets.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use outlast_core::gate::HoldCause;
use outlast_core::{Queue, QueueId, Status, Timestamp};
use outlast_engine::Rooms;
use outlast_engine::queue_metrics::QueueFigures;
use outlast_store::Error;
use outlast_store::histogram::HistogramReading;
use outlast_store::jobs::Reach;
use outlast_store::peer_bus::PeerLink;
use outlast_store::queues::QueueCounts;
use tokio::time::timeout;

use crate::error::Problem;
use crate::exposition::{Exposition, Format};

/// Answers by class of status.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    success: AtomicU64,
    client_error: AtomicU64,
    server_error: AtomicU64,
}

impl Requests {
    pub(crate) fn count(&self, status: StatusCode) {
        let counter = match status.as_u16() {
            400..=499 => &self.client_error,
            500..=599 => &self.server_error,
            _ => &self.success,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Metrics of all namespaces: for an operator, and for the private listener.
pub(crate) struct OfProcess<'a> {
    pub(crate) requests: &'a Requests,
    /// Name, help and value.
    pub(crate) gauges: &'a [(&'static str, &'static str, usize)],
}

/// The label of queues that have no figures of their own. No queue can be named so.
const OTHERS: &str = "(others)";
/// A store that does not say within this time whether it is full is shown as not full: another metric tells that it is away.
const PING_MAX: Duration = Duration::from_secs(2);

/// Queues beyond the caller's reach are left out, and what counts the work of all namespaces is shown only to those who may
/// see all of them.
pub(crate) async fn render(
    rooms: &Rooms,
    of_process: Option<OfProcess<'_>>,
    reach: &Reach,
    format: Format,
) -> Result<Response, Problem> {
    let census = rooms.queues.census().await?;
    let namespaces = rooms.status.namespace_names(census.iter().map(|(queue, _)| queue.namespace)).await?;
    let oldest = rooms.queues.oldest_waiting().await?.into_iter().collect();
    let mut rows = Vec::new();
    for (queue, counts) in census.into_iter().filter(|(queue, _)| reach.covers(queue)) {
        let namespace = namespaces.get(&queue.namespace);
        let namespace = namespace.map_or_else(|| queue.namespace.0.to_string(), |name| name.to_string());
        rows.push(QueueRow { namespace, queue, counts });
    }
    let mut page = Exposition::new(format);
    write_states(&mut page, &rows);
    write_ages(&mut page, &rows, &oldest, rooms.clock.now());
    write_figures(&mut page, rooms, &rows, of_process.is_some());
    if let Some(of_process) = of_process {
        let is_full = matches!(timeout(PING_MAX, rooms.status.ping()).await, Ok(Err(Error::DiskFull)));
        page.gauge("disk_full", "1 while the store refuses publishes because its disk is full", u64::from(is_full));
        write_process(&mut page, rooms, &of_process);
    }
    let mut response = Response::new(Body::from(page.finish()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    Ok(response)
}

struct QueueRow {
    /// By name.
    namespace: String,
    queue: Arc<Queue>,
    counts: QueueCounts,
}

impl QueueRow {
    fn labels(&self) -> [(&str, &str); 2] {
        [("namespace", &self.namespace), ("queue", &self.queue.name)]
    }

    fn labels_and<'l>(&'l self, name: &'l str, value: &'l str) -> [(&'l str, &'l str); 3] {
        let [namespace, queue] = self.labels();
        [namespace, queue, (name, value)]
    }
}

fn write_states(page: &mut Exposition, rows: &[QueueRow]) {
    page.gauges("jobs", "Jobs by queue and status");
    for row in rows {
        for status in Status::ALL {
            page.value(&row.labels_and("status", status.as_str()), row.counts.get(status));
        }
    }
    page.gauges("queue_paused", "1 while a queue is paused");
    for row in rows {
        page.value(&row.labels(), u64::from(row.queue.paused));
    }
    page.gauges("queue_held", "1 while a queue is on hold, by reason");
    for row in rows {
        for cause in HoldCause::ALL {
            let is_held = row.queue.hold.is_some_and(|hold| hold.cause == cause);
            page.value(&row.labels_and("reason", cause.as_str()), u64::from(is_held));
        }
    }
}

fn write_ages(page: &mut Exposition, rows: &[QueueRow], oldest: &HashMap<QueueId, Timestamp>, now: Timestamp) {
    page.gauges("queue_oldest_waiting_seconds", "How long the oldest queued job has waited; 0 without one");
    for row in rows {
        let age = oldest.get(&row.queue.id).map_or(Duration::ZERO, |since| now.since(*since));
        page.seconds(&row.labels(), age);
    }
}

type Reading = fn(&QueueFigures) -> HistogramReading;

/// Only of queues that something was counted for.
fn write_figures(page: &mut Exposition, rooms: &Rooms, rows: &[QueueRow], with_others: bool) {
    let metrics = &rooms.status.counters.queues;
    let own = rows.iter().filter_map(|row| Some((row.labels(), metrics.own(row.queue.id)?)));
    let others = with_others.then(|| ([("namespace", OTHERS), ("queue", OTHERS)], metrics.others()));
    let shown: Vec<_> = own.chain(others).collect();
    let histograms: [(&'static str, &str, Reading); 3] = [
        ("job_wait_seconds", "From when a job could be handed out until this node did so", |own| own.wait.read()),
        ("job_work_seconds", "From a hand-out to its end, where the end reached this node", |own| own.work.read()),
        ("job_commit_seconds", "From a publish or report to its commit on this node", |own| own.commit.read()),
    ];
    for (name, help, read) in histograms {
        page.histograms(name, help);
        for (labels, figures) in &shown {
            page.histogram(labels, &read(figures));
        }
    }
    page.counters("leases_lost", "Hand-outs that this node ended because the lease ran out or heartbeats stopped");
    for (labels, figures) in &shown {
        page.count(labels, figures.leases_lost.get());
    }
}

fn write_process(page: &mut Exposition, rooms: &Rooms, of_process: &OfProcess<'_>) {
    let OfProcess { requests, gauges } = of_process;
    let damaged = usize::try_from(rooms.status.damage().count()).unwrap_or(usize::MAX);
    let own = [
        ("deliveries_in_flight", "Deliveries under way on this node", rooms.push.deliveries()),
        ("circuits_open", "Endpoints this node sends nothing to after failures", rooms.push.open_breakers()),
        ("damaged_rows", "Rows that this node found damaged and set aside", damaged),
    ];
    for (name, help, value) in own.into_iter().chain(gauges.iter().copied()) {
        page.gauge(name, help, u64::try_from(value).unwrap_or(u64::MAX));
    }
    if let Some(times) = rooms.status.commit_times() {
        page.histograms("store_commit_seconds", "Commits of this node to the store, with the sync");
        page.histogram(&[], &times.read());
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
        ("objects_deleted", "Results and checkpoints that were deleted", &counters.objects_deleted),
        ("objects_damaged", "Times that stored bytes were found to be damaged", &counters.objects_damaged),
        ("jobs_stalled", "Times that work on a job did not move for its stallTimeout", &counters.stalled),
        ("events", "Events of sources that were stored", &counters.events),
        ("events_repeated", "Events that had come before", &counters.events_repeated),
        ("events_refused", "Webhooks that were not believed", &counters.events_refused),
        ("filters_exhausted", "Filters that were given up on an event", &counters.filters_exhausted),
        ("job_reads", "Reads of single jobs and their logs for polls, streams and reports", &counters.job_reads),
        ("loop_failures", "Background steps that failed and were repeated", &counters.loop_failures),
    ] {
        page.counter(name, help, value.get());
    }
    let set_aside = rooms.status.damage().violations();
    page.counter("jobs_set_aside", "Times that a job broke a rule of the server and was set aside", set_aside);
    write_link(page, rooms.status.link());
    page.counters("http_answers", "HTTP answers by class of status");
    for (class, count) in [("2xx", &requests.success), ("4xx", &requests.client_error), ("5xx", &requests.server_error)]
    {
        page.count(&[("class", class)], count.load(Ordering::Relaxed));
    }
}

/// Only where there is a link to have: a node without one is not shown as disconnected.
fn write_link(page: &mut Exposition, link: Option<PeerLink>) {
    let Some(link) = link else { return };
    page.gauge("redis_connected", "1 while wake-ups between nodes go through Redis", u64::from(link.is_connected));
    page.counter("redis_messages_sent", "Messages to other nodes", link.sent);
    page.counter("redis_messages_received", "Messages of other nodes", link.received);
    page.counter("redis_messages_dropped", "Messages that made no sense", link.garbage);
}
