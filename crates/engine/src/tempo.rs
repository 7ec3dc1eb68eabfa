//! What a pass takes, learned from the passes that were made.
//!
//! Decides nothing: it says how many rows fit into a time. Whatever it says, and however wrong,
//! answers stay the same.
//!
//! The model is linear: a fixed part (all weights are read once), a part per row (arithmetic), a
//! part per position that a row sees (attention). The three are tracked by a Kalman filter, that
//! is, least squares that forgets: every pass corrects them as far as it contradicts them and as
//! far as they are uncertain.

use std::time::Duration;

/// Work of a pass, as far as its duration depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    pub rows: usize,
    /// Positions that its rows see, summed over the rows.
    pub seen: usize,
}

impl Work {
    /// With `rows` more rows of one sequence, the first at position `start`.
    pub(crate) fn add(&mut self, start: usize, rows: usize) {
        self.rows += rows;
        self.seen += rows * start + rows * (rows + 1) / 2;
    }

    fn features(self) -> [f64; N] {
        [1.0, self.rows as f64, self.seen as f64]
    }
}

const N: usize = 3;

/// Standard deviation of a measurement, as a part of it.
const NOISE: f64 = 0.15;
/// How far the three may drift from one pass to the next, as a part of each.
const DRIFT: f64 = 0.03;
/// A pass that took so many times what was expected, or so many times less, is taken for one that
/// took this much: something else held it up.
const SURPRISE: f64 = 2.0;
/// So many surprises of one kind in a row are none: the machine has changed, and the model starts
/// anew.
const CHANGE: i32 = 3;
/// Passes after which there are surprises.
const WARM: usize = 8;
/// Positions of attention that are thought to cost as much as a row, before anything is known.
const POSITIONS_PER_ROW: f64 = 4096.0;

/// The model. Times are in seconds.
#[derive(Debug, Default)]
pub(crate) struct Tempo {
    mean: [f64; N],
    covariance: [[f64; N]; N],
    n_passes: usize,
    /// Surprises in a row: positive if passes took longer, negative if they were shorter.
    surprises: i32,
}

impl Tempo {
    /// A pass with this work took so long.
    pub(crate) fn learn(&mut self, work: Work, took: Duration) {
        let x = work.features();
        let mut took = took.as_secs_f64();
        if took <= 0.0 {
            return;
        }
        let expected = dot(x, self.mean);
        self.note_surprise(took / expected);
        if self.n_passes == 0 {
            self.begin(work, took);
        } else {
            self.drift(expected);
        }
        if self.n_passes >= WARM {
            took = took.clamp(expected / SURPRISE, expected * SURPRISE);
        }
        self.n_passes = self.n_passes.saturating_add(1);
        self.correct(x, took);
    }

    /// Counts surprises, and forgets how many passes there were when there are too many.
    fn note_surprise(&mut self, ratio: f64) {
        let kind = i32::from(ratio > SURPRISE) - i32::from(ratio < 1.0 / SURPRISE);
        let goes_on = kind == self.surprises.signum();
        self.surprises = if goes_on { self.surprises + kind } else { kind };
        if self.surprises.abs() >= CHANGE && self.n_passes >= WARM {
            (self.n_passes, self.surprises) = (0, 0);
        }
    }

    /// Nothing is known but the scale.
    fn begin(&mut self, work: Work, took: f64) {
        let per_row = took / work.rows.max(1) as f64;
        self.mean = [0.0; N];
        self.covariance = [[0.0; N]; N];
        for (i, deviation) in [took, per_row, per_row / POSITIONS_PER_ROW].into_iter().enumerate() {
            self.covariance[i][i] = deviation * deviation;
        }
    }

    /// Makes everything a little less certain.
    fn drift(&mut self, expected: f64) {
        for i in 0..N {
            let deviation = DRIFT * self.mean[i];
            self.covariance[i][i] += deviation * deviation;
        }
        // What no pass tells apart must not become arbitrarily uncertain.
        let most = expected * expected;
        let excess = self.covariance[0][0] / most;
        if excess > 1.0 {
            self.scale(0, excess.sqrt().recip());
        }
    }

    /// Shrinks the deviation of one of the three by `factor`, keeping all correlations.
    fn scale(&mut self, which: usize, factor: f64) {
        for i in 0..N {
            self.covariance[which][i] *= factor;
            self.covariance[i][which] *= factor;
        }
    }

    fn correct(&mut self, x: [f64; N], took: f64) {
        let gain = self.covariance.map(|row| dot(row, x));
        let noise = NOISE * took;
        let variance = dot(gain, x) + noise * noise;
        let error = took - dot(x, self.mean);
        for i in 0..N {
            self.mean[i] = (self.mean[i] + gain[i] / variance * error).max(0.0);
            for j in 0..N {
                self.covariance[i][j] -= gain[i] * gain[j] / variance;
            }
        }
    }

    /// How long a pass should take.
    pub(crate) fn expect(&self, work: Work) -> Duration {
        Duration::try_from_secs_f64(dot(work.features(), self.mean)).unwrap_or(Duration::MAX)
    }

    /// How many rows, each of which sees about `depth` positions, fit into a pass that does `base`
    /// already and should be over within `target`.
    pub(crate) fn rows_within(&self, target: Duration, base: Work, depth: usize) -> usize {
        let left = target.saturating_sub(self.expect(base)).as_secs_f64();
        let per_row = self.mean[1] + self.mean[2] * depth as f64;
        // Saturates; nothing measured means no limit.
        if per_row > 0.0 { (left / per_row) as usize } else { usize::MAX }
    }
}

fn dot(a: [f64; N], b: [f64; N]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A machine: what its passes really take, in seconds.
    #[derive(Clone, Copy, Debug)]
    struct Machine {
        fixed: f64,
        per_row: f64,
        per_position: f64,
    }

    impl Machine {
        fn takes(self, work: Work) -> f64 {
            self.fixed + self.per_row * work.rows as f64 + self.per_position * work.seen as f64
        }
    }

    fn work(spans: &[(usize, usize)]) -> Work {
        let mut work = Work::default();
        spans.iter().for_each(|(start, rows)| work.add(*start, *rows));
        work
    }

    #[test]
    fn work_counts_what_each_row_sees() {
        assert_eq!(work(&[(0, 1)]), Work { rows: 1, seen: 1 });
        assert_eq!(work(&[(10, 3)]), Work { rows: 3, seen: 11 + 12 + 13 });
        assert_eq!(work(&[(10, 3), (0, 2)]), Work { rows: 5, seen: 36 + 3 });
    }

    #[test]
    fn nothing_known_is_no_limit_and_no_time_teaches_nothing() {
        let mut tempo = Tempo::default();
        tempo.learn(work(&[(0, 8)]), Duration::ZERO);
        let second = Duration::from_secs(1);
        assert_eq!(tempo.rows_within(second, work(&[(5, 1)]), 100), usize::MAX);
    }

    /// One prompt in chunks as the model has them, beside four answers. Returns the passes that
    /// take longest, slowest first, as parts of the target.
    fn serve(tempo: &mut Tempo, machine: Machine, target: f64, noise: &[f64]) -> Vec<f64> {
        let mut found = Vec::new();
        let (mut at, mut pass) = (0, 0);
        while at < 6000 {
            let base = work(&[(200 + pass, 1), (300 + pass, 1), (50 + pass, 1), (900 + pass, 1)]);
            let rows = tempo.rows_within(Duration::from_secs_f64(target), base, at).clamp(1, 256);
            let mut all = base;
            all.add(at, rows);
            let took = machine.takes(all) * noise[pass % noise.len()];
            tempo.learn(all, Duration::from_secs_f64(took));
            found.push(machine.takes(all) / target);
            (at, pass) = (at + rows, pass + 1);
        }
        found.sort_by(|a, b| b.total_cmp(a));
        found
    }

    fn machines() -> impl Strategy<Value = Machine> {
        // From a fast accelerator to a slow processor.
        (0.001..0.1f64, 0.02..0.2f64, 0.0..1.0f64).prop_map(|(fixed, row, position)| Machine {
            fixed,
            per_row: fixed * row,
            per_position: fixed * row * position / 3000.0,
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

        /// After a pass or two of prompts and a few of answers, chunks keep to the target, on
        /// machines whose times are off by a fifth either way and that now and then stand still.
        #[test]
        fn passes_keep_to_the_target(
            machine in machines(),
            fits in 20.0..150.0f64,
            mut noise in prop::collection::vec(0.8..1.2f64, 50..90),
            stop in 5.0..2000.0f64,
        ) {
            let mut tempo = Tempo::default();
            for start in [0, 256] {
                let all = work(&[(start, 256)]);
                tempo.learn(all, Duration::from_secs_f64(machine.takes(all)));
            }
            for (i, noise) in noise.iter().take(10).enumerate() {
                let all = work(&[(512 + i, 1)]);
                tempo.learn(all, Duration::from_secs_f64(machine.takes(all) * noise));
            }
            noise[20] = stop;
            let target = machine.fixed + machine.per_row * fits;
            let found = serve(&mut tempo, machine, target, &noise);
            let n_over = found.iter().filter(|part| **part > 1.25).count();
            prop_assert!(n_over * 20 <= found.len(), "{} of {} passes: {:?}", n_over, found.len(), &found[..5]);
            prop_assert!(found[0] < 2.5, "{:?}", &found[..5]);
            // Nor are they much shorter than they might be.
            let middle = found[found.len() / 2];
            prop_assert!(middle > 0.6, "half of the passes take less than {} of it", middle);
        }

        /// A machine that becomes slower or faster is followed.
        #[test]
        fn what_changes_is_followed(machine in machines(), factor in 0.2..5.0f64) {
            let mut tempo = Tempo::default();
            let all = |i: usize| work(&[(i * 64, 64), (300, 1)]);
            for i in 0..60 {
                tempo.learn(all(i % 30), Duration::from_secs_f64(machine.takes(all(i % 30))));
            }
            for i in 0..40 {
                tempo.learn(all(i), Duration::from_secs_f64(machine.takes(all(i)) * factor));
            }
            let expected = tempo.expect(all(40)).as_secs_f64() / (machine.takes(all(40)) * factor);
            prop_assert!((0.85..1.15).contains(&expected), "{} of the truth", expected);
        }
    }
}
