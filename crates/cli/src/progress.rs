//! Progress of long work on standard error: a bar on a terminal, silence elsewhere.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How far a piece of work is. Cheap to advance.
pub(crate) struct Meter(ProgressBar);

impl Meter {
    /// A bar that counts `total` bytes.
    pub(crate) fn bytes(what: &str, total: u64) -> Meter {
        Meter::new(what, total, "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}")
    }

    /// A bar that counts `total` steps.
    pub(crate) fn steps(what: &str, total: u64) -> Meter {
        Meter::new(what, total, "{msg} {wide_bar} {pos}/{len} {eta}")
    }

    /// Work whose length nobody knows.
    pub(crate) fn spinner(what: &str) -> Meter {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(120));
        Meter(bar)
    }

    fn new(what: &str, total: u64, template: &str) -> Meter {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("━╸ "));
        }
        bar.set_message(what.to_owned());
        Meter(bar)
    }

    /// `n` more are done.
    pub(crate) fn advance(&self, n: u64) {
        self.0.inc(n);
    }

    /// `n` of `total` are done.
    pub(crate) fn set_of(&self, n: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(n);
    }

    /// What is being done now.
    pub(crate) fn say(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    /// A line that stays; also where there is no terminal.
    pub(crate) fn above(&self, line: &str) {
        self.0.suspend(|| eprintln!("{line}"));
    }

    /// `n` in all are done.
    pub(crate) fn set(&self, n: u64) {
        self.0.set_position(n);
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
