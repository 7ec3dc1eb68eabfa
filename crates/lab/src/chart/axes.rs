//! Scales, ticks and the frame of a chart.

use super::svg::{Anchor, Svg};

/// From values to places.
#[derive(Clone, Debug)]
pub(super) enum Scale {
    /// Equal steps.
    Linear { from: f64, to: f64, ticks: Vec<f64> },
    /// Equal factors.
    Log { from: f64, to: f64, ticks: Vec<f64> },
    /// One place for each of these values.
    Steps(Vec<f64>),
}

impl Scale {
    /// From zero to a little above the largest value.
    pub(super) fn from_zero(largest: f64) -> Scale {
        let largest = if largest.is_finite() && largest > 0.0 { largest } else { 1.0 };
        let step = nice(largest / 5.0);
        let to = (largest * 1.06 / step).ceil() * step;
        let n = (to / step).round() as usize;
        Scale::Linear { from: 0.0, to, ticks: (0..=n).map(|i| i as f64 * step).collect() }
    }

    /// Around all of these positive values.
    pub(super) fn log(values: impl Iterator<Item = f64>) -> Scale {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| *value > 0.0) {
            (low, high) = (low.min(value), high.max(value));
        }
        if !low.is_finite() {
            (low, high) = (1.0, 10.0);
        }
        let (from, to) = (low / 1.25, high * 1.25);
        let mut ticks = log_ticks(from, to, &[1.0, 2.0, 5.0]);
        if ticks.len() > 8 {
            ticks = log_ticks(from, to, &[1.0]);
        }
        if ticks.len() < 2 {
            ticks = vec![low, high];
        }
        Scale::Log { from, to, ticks }
    }

    fn ticks(&self) -> &[f64] {
        match self {
            Scale::Linear { ticks, .. } | Scale::Log { ticks, .. } | Scale::Steps(ticks) => ticks,
        }
    }

    /// Where a value is, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        match self {
            Scale::Linear { from, to, .. } => (value - from) / (to - from),
            Scale::Log { from, to, .. } => (value.max(*from) / from).ln() / (to / from).ln(),
            Scale::Steps(steps) => {
                let i = steps.iter().position(|step| *step == value).unwrap_or(0);
                (i as f64 + 0.5) / steps.len().max(1) as f64
            }
        }
    }
}

fn nice(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|f| f * power >= step * 0.999);
    factor.unwrap_or(10.0) * power
}

fn log_ticks(from: f64, to: f64, factors: &[f64]) -> Vec<f64> {
    let decades = from.log10().floor() as i32..=to.log10().ceil() as i32;
    let all = decades.flat_map(|decade| factors.iter().map(move |f| f * 10f64.powi(decade)));
    all.filter(|tick| (from..=to).contains(tick)).collect()
}

/// A number as short as it can be read.
pub(super) fn short(value: f64) -> String {
    match value.abs() {
        n if n >= 10_000.0 => format!("{}k", trim(value / 1000.0, 1)),
        n if n >= 100.0 || n == 0.0 => format!("{value:.0}"),
        n if n >= 1.0 => trim(value, 2),
        _ => trim(value, 3),
    }
}

fn trim(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// A length in tokens.
pub(super) fn tokens(value: f64) -> String {
    if value >= 1024.0 && value % 1024.0 == 0.0 {
        format!("{}K", value / 1024.0)
    } else {
        format!("{value}")
    }
}

/// The rectangle in which values are drawn.
pub(super) struct Frame {
    pub(super) x: Scale,
    pub(super) y: Scale,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Frame {
    pub(super) fn place(&self, x: f64, y: f64) -> [f64; 2] {
        [self.x_of(x), self.y_of(y)]
    }

    pub(super) fn x_of(&self, x: f64) -> f64 {
        self.left + self.x.share(x) * (self.right - self.left)
    }

    pub(super) fn y_of(&self, y: f64) -> f64 {
        self.bottom - self.y.share(y).clamp(-0.02, 1.02) * (self.bottom - self.top)
    }

    /// Half of the room that one step of the horizontal axis has.
    pub(super) fn half_step(&self) -> f64 {
        let n = match &self.x {
            Scale::Steps(steps) => steps.len().max(1),
            Scale::Linear { .. } | Scale::Log { .. } => 1,
        };
        (self.right - self.left) / n as f64 / 2.0
    }

    /// Grid, ticks and labels.
    pub(super) fn draw(&self, svg: &mut Svg, x_text: &dyn Fn(f64) -> String, labels: [&str; 2]) {
        for &tick in self.y.ticks() {
            let y = self.y_of(tick);
            svg.ruled([self.left, y], [self.right, y], "grid");
            svg.text([self.left - 8.0, y + 4.0], 12.0, Anchor::End, "soft", &short(tick));
        }
        svg.ruled([self.left, self.bottom], [self.right, self.bottom], "axis");
        for &tick in self.x.ticks() {
            let x = self.x_of(tick);
            svg.ruled([x, self.bottom], [x, self.bottom + 5.0], "axis");
            svg.text([x, self.bottom + 20.0], 12.0, Anchor::Middle, "soft", &x_text(tick));
        }
        let middle = (self.left + self.right) / 2.0;
        svg.text([middle, self.bottom + 40.0], 13.0, Anchor::Middle, "soft", labels[0]);
        svg.upright([self.left - 50.0, (self.top + self.bottom) / 2.0], labels[1]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_values() {
        let Scale::Linear { to, ticks, .. } = Scale::from_zero(193.0) else { panic!() };
        assert_eq!((to, ticks.len()), (250.0, 6));
        let Scale::Log { ticks, .. } = Scale::log([3.0, 700.0].into_iter()) else { panic!() };
        assert_eq!(ticks, [5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0]);
        // Nothing to draw is no reason to fail.
        assert!(matches!(Scale::log(std::iter::empty()), Scale::Log { .. }));
        assert!(matches!(Scale::from_zero(f64::NAN), Scale::Linear { .. }));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0.0, 0.25, 7.0, 12.5, 250.0, 32_000.0].map(short),
            ["0", "0.25", "7", "12.5", "250", "32k"]
        );
        assert_eq!([64.0, 512.0, 2048.0, 32768.0].map(tokens), ["64", "512", "2K", "32K"]);
    }
}
