//! Running means of how long things take.
//!
//! Not the model of what a pass costs: that one predicts, this one reports.

use std::time::Duration;

use crate::Pace;

/// Weight of the newest step in the mean.
const NEW_STEP: f64 = 0.05;
/// Weight of the newest answer in the mean.
const NEW_ANSWER: f64 = 0.1;

impl Pace {
    pub(crate) fn add_step(&mut self, took: Duration) {
        self.last_step = took;
        self.mean_step = mean(self.mean_step, took, NEW_STEP);
    }

    pub(crate) fn add_answer(&mut self, took: Duration) {
        self.mean_answer = mean(self.mean_answer, took, NEW_ANSWER);
    }

    /// When one of `running` answers should have ended: they end one after the other, evenly, as
    /// far as anyone can know. A second as long as nothing was measured.
    pub(crate) fn next_end(&self, running: usize) -> Duration {
        if self.mean_answer.is_zero() {
            return Duration::from_secs(1);
        }
        self.mean_answer / u32::try_from(running).unwrap_or(u32::MAX).max(1)
    }
}

/// The first measurement counts whole.
fn mean(old: Duration, new: Duration, weight: f64) -> Duration {
    if old.is_zero() {
        return new;
    }
    Duration::from_secs_f64(old.as_secs_f64() * (1.0 - weight) + new.as_secs_f64() * weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_becomes_free_as_often_as_answers_end() {
        let mut pace = Pace::default();
        assert_eq!(pace.next_end(4), Duration::from_secs(1));
        pace.add_answer(Duration::from_secs(8));
        assert_eq!(pace.next_end(4), Duration::from_secs(2));
        assert_eq!(pace.next_end(0), Duration::from_secs(8));
        (0..100).for_each(|_| pace.add_answer(Duration::from_secs(2)));
        let found = pace.next_end(1).as_secs_f64();
        assert!((2.0..2.01).contains(&found), "{found}");
    }

    #[test]
    fn one_slow_step_hardly_moves_the_mean() {
        let mut pace = Pace::default();
        pace.add_step(Duration::from_millis(10));
        pace.add_step(Duration::from_millis(110));
        assert_eq!(pace.last_step, Duration::from_millis(110));
        assert_eq!(pace.mean_step, Duration::from_millis(15));
    }
}
