//! Prometheus' text format, version 0.0.4. The newer OpenMetrics form, which crates write, is not
//! what the tools read that were made for vLLM's page: they look for counters under their full name.

use std::fmt::Write as _;

use super::histogram::{Counts, Histogram};

/// What the page is sent as.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Names and values of a sample.
pub(crate) type Labels<'a> = &'a [(&'static str, &'a str)];

/// What the numbers of a family mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only goes up.
    Counter,
    /// Buckets, their sum and their count.
    Histogram,
}

/// A page that is being written, family by family.
#[derive(Default)]
pub(crate) struct Page {
    text: String,
}

impl Page {
    /// Begins a family; its samples follow.
    pub(crate) fn family(&mut self, name: &'static str, kind: Kind, help: &str) -> Family<'_> {
        let kind = match kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Histogram => "histogram",
        };
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        Family { page: self, name }
    }

    /// The whole page.
    pub(crate) fn finish(self) -> String {
        self.text
    }
}

/// One family of a page.
pub(crate) struct Family<'a> {
    page: &'a mut Page,
    name: &'static str,
}

impl Family<'_> {
    /// One number.
    pub(crate) fn sample(&mut self, labels: Labels, value: f64) {
        self.line("", labels, None, value);
    }

    /// One histogram.
    pub(crate) fn histogram(&mut self, labels: Labels, histogram: &Histogram) {
        self.buckets(labels, histogram.bounds(), &histogram.counts());
    }

    /// The numbers of a histogram, its buckets cumulative as the format has it.
    pub(crate) fn buckets(&mut self, labels: Labels, bounds: &[f64], counts: &Counts) {
        let mut so_far = 0;
        for (bound, n) in bounds.iter().zip(&counts.buckets) {
            so_far += n;
            self.line("_bucket", labels, Some(&number(*bound)), so_far as f64);
        }
        so_far += counts.buckets.last().copied().unwrap_or(0);
        self.line("_bucket", labels, Some("+Inf"), so_far as f64);
        self.line("_sum", labels, None, counts.sum);
        self.line("_count", labels, None, so_far as f64);
    }

    fn line(&mut self, suffix: &str, labels: Labels, le: Option<&str>, value: f64) {
        let text = &mut self.page.text;
        let _ = write!(text, "{}{suffix}", self.name);
        let labels = labels.iter().copied().chain(le.map(|le| ("le", le)));
        let mut open = '{';
        for (name, value) in labels {
            let _ = write!(text, "{open}{name}=\"{}\"", escaped(value));
            open = ',';
        }
        if open == ',' {
            text.push('}');
        }
        let _ = writeln!(text, " {}", number(value));
    }
}

/// A number as the format wants it.
fn number(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        (if value > 0.0 { "+Inf" } else { "-Inf" }).to_owned()
    } else {
        // The shortest decimal that reads back as the same number, never with an exponent.
        value.to_string()
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After the examples in the description of the format.
    #[test]
    fn a_page_is_written_as_the_format_has_it() {
        let mut page = Page::default();
        let mut family = page.family("msdos_file_access_time_seconds", Kind::Gauge, "A trap.");
        family.sample(&[("path", r"C:\DIR"), ("error", "no\n\"FILE\"")], 1.458e9);
        let mut family = page.family("plain_total", Kind::Counter, "No labels.");
        family.sample(&[], 3.0);
        let histogram = Histogram::new([0.05, 0.5]);
        for value in [0.01, 0.25, 4.0] {
            histogram.observe(value);
        }
        let mut family = page.family("seconds", Kind::Histogram, "Buckets.");
        family.histogram(&[("model_name", "m")], &histogram);
        let expected = r#"# HELP msdos_file_access_time_seconds A trap.
# TYPE msdos_file_access_time_seconds gauge
msdos_file_access_time_seconds{path="C:\\DIR",error="no\n\"FILE\""} 1458000000
# HELP plain_total No labels.
# TYPE plain_total counter
plain_total 3
# HELP seconds Buckets.
# TYPE seconds histogram
seconds_bucket{model_name="m",le="0.05"} 1
seconds_bucket{model_name="m",le="0.5"} 2
seconds_bucket{model_name="m",le="+Inf"} 3
seconds_sum{model_name="m"} 4.26
seconds_count{model_name="m"} 3
"#;
        assert_eq!(page.finish(), expected);
    }
}
