//! The two text formats of metrics: Prometheus text 0.0.4 and OpenMetrics 1.0, chosen by `Accept`. Families are written one
//! after the other; nothing is kept but the text.

use std::fmt::Write;

use http::HeaderMap;
use http::header::ACCEPT;
use outlast_store::histogram::HistogramReading;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Prometheus,
    OpenMetrics,
}

const OPEN_METRICS: &str = "application/openmetrics-text";

impl Format {
    /// The one that the caller likes best; Prometheus text for callers that do not say.
    pub(crate) fn wanted(headers: &HeaderMap) -> Format {
        let (mut open, mut text) = (0.0, 0.0);
        for value in headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()) {
            for range in value.split(',') {
                let mut parts = range.split(';').map(str::trim);
                let kind = parts.next().unwrap_or_default();
                let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok()).unwrap_or(1.0_f64);
                if kind.eq_ignore_ascii_case(OPEN_METRICS) {
                    open = weight.max(open);
                } else if ["text/plain", "text/*", "*/*"].iter().any(|known| kind.eq_ignore_ascii_case(known)) {
                    text = weight.max(text);
                }
            }
        }
        // Prometheus names both; the newer one wins where they are liked as well.
        if open > 0.0 && open >= text { Format::OpenMetrics } else { Format::Prometheus }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

pub(crate) type Labels<'l> = &'l [(&'l str, &'l str)];

pub(crate) struct Exposition {
    format: Format,
    text: String,
    /// Of the family that is being written.
    name: &'static str,
}

impl Exposition {
    pub(crate) fn new(format: Format) -> Exposition {
        Exposition { format, text: String::new(), name: "" }
    }

    /// Begins a family of counters; `name` has neither prefix nor `_total`.
    pub(crate) fn counters(&mut self, name: &'static str, help: &str) {
        self.begin(name, Kind::Counter, help);
    }

    pub(crate) fn gauges(&mut self, name: &'static str, help: &str) {
        self.begin(name, Kind::Gauge, help);
    }

    pub(crate) fn histograms(&mut self, name: &'static str, help: &str) {
        self.begin(name, Kind::Histogram, help);
    }

    /// A whole family with one counter.
    pub(crate) fn counter(&mut self, name: &'static str, help: &str, value: u64) {
        self.counters(name, help);
        self.count(&[], value);
    }

    /// A whole family with one gauge.
    pub(crate) fn gauge(&mut self, name: &'static str, help: &str, value: u64) {
        self.gauges(name, help);
        self.value(&[], value);
    }

    /// A counter of the present family.
    pub(crate) fn count(&mut self, labels: Labels<'_>, value: u64) {
        self.sample("_total", labels, &value.to_string());
    }

    /// A gauge of the present family.
    pub(crate) fn value(&mut self, labels: Labels<'_>, value: u64) {
        self.sample("", labels, &value.to_string());
    }

    /// A gauge in seconds.
    pub(crate) fn seconds(&mut self, labels: Labels<'_>, value: std::time::Duration) {
        self.sample("", labels, &format!("{:?}", value.as_secs_f64()));
    }

    /// A histogram of the present family.
    pub(crate) fn histogram(&mut self, labels: Labels<'_>, reading: &HistogramReading) {
        for (bound, count) in &reading.buckets {
            let bound = if bound.is_finite() { format!("{bound:?}") } else { "+Inf".to_owned() };
            self.sample_with_bound(labels, &bound, *count);
        }
        self.sample("_sum", labels, &format!("{:?}", reading.sum_seconds));
        self.sample("_count", labels, &reading.count().to_string());
    }

    pub(crate) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }

    fn begin(&mut self, name: &'static str, kind: Kind, help: &str) {
        // Prometheus text names a counter as its samples are named, OpenMetrics without their suffix.
        let suffix = if kind == Kind::Counter && self.format == Format::Prometheus { "_total" } else { "" };
        let word = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.name = name;
        // Writing to a string cannot fail.
        let _ = write!(self.text, "# HELP outlast_{name}{suffix} {help}\n# TYPE outlast_{name}{suffix} {word}\n");
    }

    fn sample_with_bound(&mut self, labels: Labels<'_>, bound: &str, count: u64) {
        let labels: Vec<(&str, &str)> = labels.iter().copied().chain([("le", bound)]).collect();
        self.sample("_bucket", &labels, &count.to_string());
    }

    fn sample(&mut self, suffix: &str, labels: Labels<'_>, value: &str) {
        let _ = write!(self.text, "outlast_{}{suffix}", self.name);
        for (at, (name, value)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{name}=\"{}\"", escaped(value));
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use outlast_store::histogram::Histogram;

    use super::*;

    fn wanted(accept: &'static str) -> Format {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        Format::wanted(&headers)
    }

    #[test]
    fn the_caller_chooses_the_format() {
        assert_eq!(Format::wanted(&HeaderMap::new()), Format::Prometheus);
        assert_eq!(wanted("*/*"), Format::Prometheus);
        assert_eq!(wanted("text/plain"), Format::Prometheus);
        assert_eq!(wanted("application/openmetrics-text; version=1.0.0"), Format::OpenMetrics);
        assert_eq!(wanted("application/openmetrics-text;q=0.4, text/plain;q=0.5"), Format::Prometheus);
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        assert_eq!(wanted(prometheus), Format::OpenMetrics);
    }

    fn written(format: Format) -> String {
        let histogram = Histogram::new(&[1_000_000]);
        histogram.record(std::time::Duration::from_millis(1_500));
        let mut page = Exposition::new(format);
        page.counter("jobs_published", "Jobs published", 7);
        page.gauges("queue_paused", "1 while paused");
        page.value(&[("queue", "a\"b\\c\nd")], 1);
        page.histograms("job_wait_seconds", "Waiting");
        page.histogram(&[("queue", "mail")], &histogram.read());
        page.finish()
    }

    #[test]
    fn both_formats_are_written_by_their_rules() {
        let rest = "# HELP outlast_queue_paused 1 while paused\n\
                    # TYPE outlast_queue_paused gauge\n\
                    outlast_queue_paused{queue=\"a\\\"b\\\\c\\nd\"} 1\n\
                    # HELP outlast_job_wait_seconds Waiting\n\
                    # TYPE outlast_job_wait_seconds histogram\n\
                    outlast_job_wait_seconds_bucket{queue=\"mail\",le=\"1.0\"} 0\n\
                    outlast_job_wait_seconds_bucket{queue=\"mail\",le=\"+Inf\"} 1\n\
                    outlast_job_wait_seconds_sum{queue=\"mail\"} 1.5\n\
                    outlast_job_wait_seconds_count{queue=\"mail\"} 1\n";
        let first = |name: &str| {
            format!(
                "# HELP outlast_{name} Jobs published\n# TYPE outlast_{name} counter\noutlast_jobs_published_total 7\n"
            )
        };

        assert_eq!(written(Format::Prometheus), format!("{}{rest}", first("jobs_published_total")));
        assert_eq!(written(Format::OpenMetrics), format!("{}{rest}# EOF\n", first("jobs_published")));
    }
}
