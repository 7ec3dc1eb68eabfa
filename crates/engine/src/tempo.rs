//! What a pass takes, learned from the passes that were made.
//!
//! Decides nothing: it says how many rows fit into a time. Whatever it says, and however wrong,
//! answers stay the same.
//!
//! The model is linear: a fixed part (all weights are read once), a part per row (arithmetic), a
//! part per position that a row sees (attention). The three are tracked by a Kalman filter, that
//! is, least squares that forgets: every pass corrects them as far as it contradicts them and as
//! far as they are uncertain.
//!
//! A model of the mean is no promise, so the latest passes are kept: a pass is expected to take as
//! many times what the model says as the worst of them did, and as much more as the next record may be
//! expected to be beyond it. That follows a machine that is suddenly slower with the next pass, and a
//! model that is wrong for whatever reason.

use std::collections::VecDeque;
use std::time::Duration;

/// Work of a pass, as far as its duration depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    pub rows: usize,
    /// Positions that its rows see, summed over the rows.
    pub seen: usize,
    /// Sequences that the rows belong to.
    pub spans: usize,
}

impl Work {
    /// With `rows` more rows of one sequence, the first at position `start`.
    pub(crate) fn add(&mut self, start: usize, rows: usize) {
        self.rows += rows;
        self.seen += rows * start + rows * (rows + 1) / 2;
        self.spans += 1;
    }

    /// It is not only answers going on.
    fn has_prompts(self) -> bool {
        self.rows > self.spans
    }

    fn features(self) -> [f64; N] {
        [1.0, self.rows as f64, self.seen as f64]
    }
}

const N: usize = 3;

/// Standard deviation of a measurement, as a part of it.
const NOISE: f64 = 0.15;
/// How far the machine's speed may drift from one pass to the next, and each of the three beside it,
/// as a part of them.
const DRIFT: f64 = 0.03;
const OWN_DRIFT: f64 = 0.01;
/// A pass that took so many times what was expected, or so many times less, is taken for one that
/// took this much: something else held it up.
const SURPRISE: f64 = 2.0;
/// So many surprises of one kind in a row are none: the machine has changed.
const CHANGE: i32 = 3;
/// How many times more variance there is after a change.
const LOOSENED: f64 = 4.0;
/// Passes after which there are surprises.
const WARM: usize = 8;
/// Positions of attention that may well cost as much as a row, for all that is known before anything
/// is measured. In small models it is some hundreds.
const POSITIONS_PER_ROW: f64 = 256.0;

/// Passes with prompts that are remembered.
const MEMORY: usize = 128;
/// For so many passes a surprise counts as one that may come again, and as one of so many times what
/// was expected at most.
const SHOCK: usize = 8;
const WORST: f64 = 3.0;
/// A pass tells something about one that should take up to so many times as long.
const SIMILAR: f64 = 4.0;
/// How many times longer than expected a pass may take if none was seen yet, and if very many were
/// seen that kept to it.
const UNSEEN: f64 = 1.35;
const PROVEN: f64 = 1.08;
/// After so many passes the first is half forgotten for the second.
const PROOF: f64 = 10.0;
/// From so many of the worst passes it is told how far a worse one may go.
const TAIL: usize = 4;
/// But no farther than this beyond the worst.
const BEYOND: f64 = 0.25;
/// Part of the target that passes are to be over within. The rest is for a token's way to its reader,
/// who measures it too: threads that wake each other, frames, sockets, beside a device that is busy.
const DELIVERED: f64 = 0.95;
/// Prompts may make a pass so many times as long as the answers in it do, whatever the target.
const LEAST_SHARE: f64 = 1.25;

/// The model. Times are in seconds.
#[derive(Debug, Default)]
pub(crate) struct Tempo {
    mean: [f64; N],
    covariance: [[f64; N]; N],
    n_passes: usize,
    /// Surprises in a row: positive if passes took longer, negative if they were shorter.
    surprises: i32,
    /// The latest passes with prompts and what they took, the newest first.
    recent: VecDeque<(Work, f64)>,
}

impl Tempo {
    /// A pass with this work took so long.
    pub(crate) fn learn(&mut self, work: Work, took: Duration) {
        let x = work.features();
        let mut took = took.as_secs_f64();
        if took <= 0.0 {
            return;
        }
        self.note_surprise(took / self.expect(x));
        let expected = self.expect(x);
        if self.n_passes == 0 {
            self.begin(work, took);
        } else {
            self.drift(expected);
        }
        self.remember(work, took);
        if self.n_passes >= WARM {
            took = took.clamp(expected / SURPRISE, expected * SURPRISE);
        }
        self.n_passes = self.n_passes.saturating_add(1);
        self.correct(x, took);
    }

    /// Counts surprises. Too many of them are a change.
    fn note_surprise(&mut self, ratio: f64) {
        let kind = i32::from(ratio > SURPRISE) - i32::from(ratio < 1.0 / SURPRISE);
        let goes_on = kind == self.surprises.signum();
        self.surprises = if goes_on { self.surprises + kind } else { kind };
        if self.surprises.abs() >= CHANGE && self.n_passes >= WARM && ratio.is_finite() {
            self.change(ratio);
        }
    }

    /// Everything takes `ratio` times what it took, more or less, and what passes took before says
    /// nothing any more.
    fn change(&mut self, ratio: f64) {
        self.mean = self.mean.map(|part| part * ratio);
        let scale = LOOSENED * ratio * ratio;
        self.covariance = self.covariance.map(|row| row.map(|part| part * scale));
        self.recent.clear();
        (self.n_passes, self.surprises) = (1, 0);
    }

    fn remember(&mut self, work: Work, took: f64) {
        if work.has_prompts() {
            self.recent.truncate(MEMORY - 1);
            self.recent.push_front((work, took));
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
            for j in 0..N {
                self.covariance[i][j] += DRIFT * DRIFT * self.mean[i] * self.mean[j];
            }
            self.covariance[i][i] += (OWN_DRIFT * self.mean[i]).powi(2);
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
        let expected = self.expect(x);
        // Of what was expected, so that slow passes count no less than quick ones.
        let scale = if expected > 0.0 { expected } else { took };
        let variance = dot(gain, x) + (NOISE * scale).powi(2);
        let error = took - expected;
        for i in 0..N {
            self.mean[i] += gain[i] / variance * error;
            for j in 0..N {
                self.covariance[i][j] -= gain[i] * gain[j] / variance;
            }
        }
        (0..N).for_each(|i| self.keep_positive(i));
        self.mean = self.mean.map(|part| part.max(0.0));
    }

    /// None of the three is negative. If one were, the others change as they would if it had been
    /// measured to be nothing: they were found together with it, and are as wrong as it is.
    fn keep_positive(&mut self, which: usize) {
        let (value, variance) = (self.mean[which], self.covariance[which][which]);
        if value < 0.0 && variance > 0.0 {
            for i in 0..N {
                self.mean[i] -= self.covariance[i][which] / variance * value;
            }
        }
    }

    /// How long a pass should take.
    fn expect(&self, x: [f64; N]) -> f64 {
        dot(x, self.mean)
    }

    /// Standard deviation of [`Tempo::expect`], by what is not known of the three.
    fn deviation(&self, x: [f64; N]) -> f64 {
        dot(self.covariance.map(|row| dot(row, x)), x).max(0.0).sqrt()
    }

    /// How many times what is expected a pass of `about` this length may take: as much as the worst
    /// of the latest similar ones, by what is known today, and what a new record may add. The fewer
    /// there were, the less it means that none was bad.
    fn caution(&self, about: f64) -> f64 {
        let mut ratios = Vec::with_capacity(self.recent.len());
        for (age, (work, took)) in self.recent.iter().enumerate() {
            let expected = self.expect(work.features());
            let ratio = took / expected;
            if expected * SIMILAR < about || (ratio > SURPRISE && age >= SHOCK) {
                continue;
            }
            ratios.push(ratio.min(WORST));
        }
        let unproven = PROVEN + (UNSEEN - PROVEN) * PROOF / (PROOF + ratios.len() as f64);
        unproven.max(next_record(ratios))
    }

    /// How many rows of prompts, each of which sees about `depth` positions, fit into a pass that
    /// does `base` already and should be over within `target`: up to `most`, and one at least. If
    /// that would be next to none, it is as many as make the pass a little longer.
    pub(crate) fn rows_within(
        &self,
        target: Duration,
        base: Work,
        depth: usize,
        most: usize,
    ) -> usize {
        let caution = self.caution(target.as_secs_f64());
        let target = DELIVERED * target.as_secs_f64();
        let little = LEAST_SHARE * self.expect(base.features());
        let fits = |rows: &usize| {
            let mut work = base;
            work.add(depth, *rows);
            let x = work.features();
            let expected = self.expect(x);
            caution * (expected + self.deviation(x)) <= target || expected <= little
        };
        // Uncertainty is least near what was seen, so there is no order to search by halves.
        (1..=most).rev().find(fits).unwrap_or(1)
    }
}

/// What the next of these that is greater than all before may be. Beyond a high threshold whatever
/// varies by chance falls off about exponentially, and then the mean excess over the threshold is also
/// what a record has over the last one (Balkema and de Haan 1974, Pickands 1975).
fn next_record(mut values: Vec<f64>) -> f64 {
    values.sort_by(|a, b| b.total_cmp(a));
    let Some(&worst) = values.first() else { return 0.0 };
    let excess = match values.get(TAIL) {
        Some(threshold) => values[..TAIL].iter().map(|v| v - threshold).sum::<f64>() / TAIL as f64,
        None => 0.0,
    };
    worst + excess.min(BEYOND)
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
        assert_eq!(work(&[(0, 1)]), Work { rows: 1, seen: 1, spans: 1 });
        assert_eq!(work(&[(10, 3)]), Work { rows: 3, seen: 11 + 12 + 13, spans: 1 });
        assert_eq!(work(&[(10, 3), (0, 2)]), Work { rows: 5, seen: 36 + 3, spans: 2 });
        assert!(work(&[(7, 1), (0, 2)]).has_prompts() && !work(&[(7, 1), (9, 1)]).has_prompts());
    }

    #[test]
    fn nothing_known_is_no_limit_and_no_time_teaches_nothing() {
        let mut tempo = Tempo::default();
        tempo.learn(work(&[(0, 8)]), Duration::ZERO);
        let second = Duration::from_secs(1);
        assert_eq!(tempo.rows_within(second, work(&[(5, 1)]), 100, 256), 256);
    }

    /// Many passes of 100 rows that take 100 ms, and none that took longer.
    fn steady() -> Tempo {
        let mut tempo = Tempo::default();
        for i in 0..200 {
            let machine = Machine { fixed: 0.02, per_row: 8e-4, per_position: 0.0 };
            let pass = work(&[(0, 50 + i % 100), (9, 1)]);
            tempo.learn(pass, Duration::from_secs_f64(machine.takes(pass)));
        }
        tempo
    }

    fn rows_in_100_ms(tempo: &Tempo) -> usize {
        tempo.rows_within(Duration::from_millis(100), work(&[(9, 1)]), 0, 256)
    }

    #[test]
    fn what_kept_to_it_is_trusted_and_one_bad_pass_is_enough() {
        let mut tempo = steady();
        // 99 would fit to the last moment.
        let trusted = rows_in_100_ms(&tempo);
        assert!((68..92).contains(&trusted), "{trusted}");
        let pass = work(&[(0, 99), (9, 1)]);
        tempo.learn(pass, Duration::from_millis(150));
        let wary = rows_in_100_ms(&tempo);
        assert!((30..65).contains(&wary), "{wary} after {trusted}");
        // What may come again is expected for long, what is out of all proportion for a while.
        for (slow, later) in [(150, 30..65), (1000, trusted - 15..trusted + 3)] {
            let mut tempo = steady();
            tempo.learn(pass, Duration::from_millis(slow));
            for _ in 0..60 {
                tempo.learn(pass, Duration::from_millis(100));
            }
            let found = rows_in_100_ms(&tempo);
            assert!(later.contains(&found), "{found} rows, 60 passes after one of {slow} ms");
        }
    }

    #[test]
    fn small_passes_say_nothing_about_large_ones() {
        let mut tempo = steady();
        let before = rows_in_100_ms(&tempo);
        // Half as long again, for pieces of a few rows.
        tempo.remember(work(&[(0, 2), (9, 1)]), 0.03);
        assert_eq!(rows_in_100_ms(&tempo), before);
        tempo.remember(work(&[(0, 99), (9, 1)]), 0.15);
        assert!(rows_in_100_ms(&tempo) < before);
    }

    #[test]
    fn whatever_the_target_prompts_get_a_share() {
        let tempo = steady();
        let base = work(&[(9, 1); 100]);
        // The answers alone take 100 ms; a quarter of that is some 30 rows.
        let found = tempo.rows_within(Duration::from_millis(20), base, 0, 256);
        assert!((25..35).contains(&found), "{found}");
        assert_eq!(tempo.rows_within(Duration::ZERO, work(&[(9, 1)]), 1 << 30, 256), 1);
    }

    /// One prompt in chunks as the model has them, beside four answers. Returns what the passes
    /// took, slowest first, as parts of the target; without those that stood still.
    fn serve(
        tempo: &mut Tempo,
        takes: impl Fn(Work) -> f64,
        target: f64,
        noise: &[f64],
    ) -> Vec<f64> {
        let mut found = Vec::new();
        let (mut at, mut pass) = (0, 0);
        while at < 6000 {
            let base = work(&[(200 + pass, 1), (300 + pass, 1), (50 + pass, 1), (900 + pass, 1)]);
            let rows = tempo.rows_within(Duration::from_secs_f64(target), base, at, 256);
            let mut all = base;
            all.add(at, rows);
            let noise = noise[pass % noise.len()];
            let took = takes(all) * noise;
            tempo.learn(all, Duration::from_secs_f64(took));
            if noise < SURPRISE {
                found.push(took / target);
            }
            (at, pass) = (at + rows, pass + 1);
        }
        found.sort_by(|a, b| b.total_cmp(a));
        found
    }

    /// What 1, 2, 4 and 8 rows take a GPU whose products with packed weights read these once more for every
    /// row, in ms, as published for an M4; beyond that a tile of 32 rows takes as long as 8, by assumption.
    const TILED: [(f64, f64); 6] =
        [(1.0, 0.70), (2.0, 1.20), (4.0, 2.17), (8.0, 3.38), (32.0, 3.38), (1024.0, 108.0)];

    /// What a pass of 20 such products takes, in seconds.
    fn tiled(work: Work) -> f64 {
        let rows = work.rows as f64;
        let (a, b) = TILED.iter().zip(&TILED[1..]).find(|(_, b)| rows <= b.0).expect("few rows");
        0.02 * (a.1 + (b.1 - a.1) * (rows - a.0) / (b.0 - a.0))
    }

    /// A line is a poor picture of a GPU whose first rows cost most. What it is off by is measured too, so
    /// passes keep to the target all the same, and prompts get a fair part of what they might have.
    #[test]
    fn a_machine_whose_first_rows_cost_most_is_not_asked_too_much() {
        for (target, least) in [(0.15, 0.4), (0.3, 0.5), (1.0, 0.5)] {
            let mut tempo = Tempo::default();
            for start in [0, 256] {
                let all = work(&[(start, 256)]);
                tempo.learn(all, Duration::from_secs_f64(tiled(all)));
            }
            for i in 0..10 {
                let all = work(&[(512 + i, 1)]);
                tempo.learn(all, Duration::from_secs_f64(tiled(all)));
            }
            let found = serve(&mut tempo, tiled, target, &[0.9, 1.1, 1.0, 1.15, 0.85]);
            assert!(found[0] < 1.0, "{target} s: {:?}", &found[..5]);
            let middle = found[found.len() / 2];
            assert!(middle > least, "{target} s: half of the passes take less than {middle} of it");
        }
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
            fits in 60.0..150.0f64,
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
            let found = serve(&mut tempo, |work| machine.takes(work), target, &noise);
            let n_over = found.iter().filter(|part| **part > 1.0).count();
            // What is worse than all before is not foreseen.
            prop_assert!(n_over * 40 <= found.len() + 80, "{} of {} passes: {:?}", n_over, found.len(), &found[..5]);
            prop_assert!(found[0] < 1.5, "{:?}", &found[..5]);
            // Nor are they next to nothing: noise of half as much again, taken for what may come at any
            // time and for what a row costs, leaves a third at worst.
            let middle = found[found.len() / 2];
            prop_assert!(middle > 0.2, "half of the passes take less than {} of it", middle);
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
            let expected = tempo.expect(all(40).features()) / (machine.takes(all(40)) * factor);
            prop_assert!((0.85..1.15).contains(&expected), "{} of the truth", expected);
        }
    }
}
