//! Charts of a value over an axis: contexts, users, rates. Those over the turns of a run are in `turns`.

use std::collections::BTreeMap;

use super::axes::{Frame, Scale, tokens};
use super::svg::{Stroke, Svg};
use super::{COLORS, Drawn, Look, PLOT, Source, WIDTH};
use crate::measure::Measure;
use crate::results::summary;
use crate::stats::Summary;

/// A series.
pub(super) struct Line {
    pub(super) label: String,
    pub(super) look: Look,
    pub(super) stroke: Stroke,
    pub(super) points: Vec<Point>,
}

pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    /// Where the value lies; nothing where that is unknown.
    pub(super) ci: Option<[f64; 2]>,
}

/// What a chart says beside its lines.
pub(super) struct Words {
    pub(super) title: &'static str,
    pub(super) note: &'static str,
    pub(super) x: &'static str,
    pub(super) y: &'static str,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum YScale {
    FromZero,
    Log,
}

impl Source<'_> {
    /// A measure over the longest workload that varies this axis; what each summary becomes says `of`.
    fn over(
        &self,
        axis: &str,
        measure: Measure,
        of: impl Fn(&Summary) -> (f64, Option<[f64; 2]>),
    ) -> Vec<Line> {
        let Some(workload) = self.workload(axis, measure) else { return Vec::new() };
        let lines = self.looks().into_iter().map(|(arm, look)| {
            let cells = self.table.iter().filter(|(place, _)| {
                place.model == self.model
                    && place.measure == measure
                    && place.cell.workload == workload
            });
            let points = cells.filter_map(|(place, arms)| {
                let (y, ci) = of(&summary(arms.get(arm)?)?);
                Some(Point { x: place.cell.at as f64, y, ci })
            });
            let stroke = if look.hollow { Stroke::Thin } else { Stroke::Full };
            Line { label: arm.to_owned(), look, stroke, points: points.collect() }
        });
        lines.filter(|line| !line.points.is_empty()).collect()
    }

    /// The workload with the most cells on an axis, if it has two or more.
    pub(super) fn workload(&self, axis: &str, measure: Measure) -> Option<&str> {
        let mut cells: BTreeMap<&str, usize> = BTreeMap::new();
        for place in self.table.keys() {
            if place.model == self.model && place.measure == measure && place.cell.axis == axis {
                *cells.entry(&place.cell.workload).or_default() += 1;
            }
        }
        cells.into_iter().filter(|(_, n)| *n >= 2).max_by_key(|(_, n)| *n).map(|(name, _)| name)
    }

    fn references(&self, measure: Measure) -> Vec<Line> {
        let name = measure.name();
        let all = self
            .references
            .iter()
            .flat_map(|reference| reference.series.iter().map(move |series| (reference, series)));
        let ours = all.filter(|(_, series)| series.measure == name).enumerate();
        ours.map(|(i, (reference, series))| Line {
            label: format!("{}: {}, {}", reference.source, series.engine, reference.machine),
            look: Look {
                color: COLORS[COLORS.len() - 1 - i % COLORS.len()],
                mark: super::Mark::Circle,
                hollow: true,
            },
            stroke: Stroke::Dashed,
            points: series.points.iter().map(|&[x, y]| Point { x, y, ci: None }).collect(),
        })
        .collect()
    }

    fn chart(&self, words: &Words, lines: &[Line], scale: YScale) -> Option<Drawn> {
        self.chart_with(words, lines, scale, &tokens)
    }

    /// A chart whose places on the axis are called what `x_text` says.
    pub(super) fn chart_with(
        &self,
        words: &Words,
        lines: &[Line],
        scale: YScale,
        x_text: &dyn Fn(f64) -> String,
    ) -> Option<Drawn> {
        let points = || lines.iter().flat_map(|line| &line.points);
        points().next()?;
        let mut steps: Vec<f64> = points().map(|point| point.x).collect();
        steps.sort_by(f64::total_cmp);
        steps.dedup();
        let ends = || points().flat_map(|p| p.ci.unwrap_or([p.y; 2]).into_iter().chain([p.y]));
        let y = match scale {
            YScale::FromZero => Scale::from_zero(ends().fold(0.0, f64::max)),
            YScale::Log => Scale::log(ends()),
        };
        let legend: Vec<_> =
            lines.iter().map(|line| (line.label.clone(), line.look, line.stroke)).collect();
        let mut note =
            words.note.split('|').map(|part| self.lang.say(part)).collect::<Vec<_>>().join(" ");
        if lines.iter().any(|line| line.stroke == Stroke::Dashed) {
            note =
                format!("{note} {}", self.say("Dashed: published by others, on other machines."));
        }
        let (mut svg, top) = self.begin(words.title, &note, &legend);
        let x = Scale::Steps(steps);
        let frame = Frame { x, y, left: 84.0, right: WIDTH - 24.0, top, bottom: top + PLOT };
        frame.draw(&mut svg, x_text, [self.say(words.x), self.say(words.y)]);
        let n = lines.iter().filter(|line| line.stroke != Stroke::Dashed).count();
        for (i, line) in lines.iter().enumerate() {
            // Intervals at the same place stand side by side.
            let aside = match line.stroke {
                Stroke::Dashed => 0.0,
                _ => (i as f64 - (n as f64 - 1.0) / 2.0) * 4.0,
            };
            draw(&mut svg, &frame, line, aside);
        }
        Some(Drawn { title: words.title, svg })
    }
}

fn draw(svg: &mut Svg, frame: &Frame, line: &Line, aside: f64) {
    let place = |x, y| {
        let [x, y] = frame.place(x, y);
        [x + aside, y]
    };
    let points: Vec<[f64; 2]> = line.points.iter().map(|p| place(p.x, p.y)).collect();
    svg.line(&points, line.look.color, line.stroke);
    for point in &line.points {
        if let Some([low, high]) = point.ci {
            let ([x, low], [_, high]) = (place(point.x, low), place(point.x, high));
            svg.line(&[[x, low], [x, high]], line.look.color, Stroke::Thin);
            for y in [low, high] {
                svg.line(&[[x - 3.0, y], [x + 3.0, y]], line.look.color, Stroke::Thin);
            }
        }
        if line.stroke != Stroke::Dashed {
            let at = place(point.x, point.y);
            svg.mark(line.look.mark, at, 4.5, line.look.color, line.look.hollow);
        }
    }
}

fn with_interval(summary: &Summary) -> (f64, Option<[f64; 2]>) {
    (summary.median, Some(summary.ci))
}

const HIGHER: &str = "Marks are medians; bars are 95 % intervals.|Higher is better.";
pub(super) const LOWER_LOG: &str =
    "Marks are medians; bars are 95 % intervals.|Lower is better.|The scale is logarithmic.";

pub(super) fn decode(source: &Source) -> Option<Drawn> {
    let words =
        Words { title: "Decode speed by context", note: HIGHER, x: "prompt tokens", y: "tok/s" };
    let mut lines = source.over("context", Measure::DecodeTps, with_interval);
    if !lines.is_empty() {
        lines.extend(source.references(Measure::DecodeTps));
    }
    source.chart(&words, &lines, YScale::FromZero)
}

pub(super) fn degradation(source: &Source) -> Option<Drawn> {
    let words = Words {
        title: "Decode speed kept as the context grows",
        note: "Higher is better.",
        x: "prompt tokens",
        y: "% of the shortest context",
    };
    let mut lines = source.over("context", Measure::DecodeTps, |summary| (summary.median, None));
    for line in &mut lines {
        let first = line.points[0].y;
        line.points.iter_mut().for_each(|point| point.y *= 100.0 / first);
    }
    source.chart(&words, &lines, YScale::FromZero)
}

pub(super) fn spread(source: &Source) -> Option<Drawn> {
    let words = Words {
        title: "Spread of decode speed between runs",
        note: "Lower is better.",
        x: "prompt tokens",
        y: "coefficient of variation, %",
    };
    let cv = |summary: &Summary| (100.0 * summary.sd / summary.mean, None);
    let lines = source.over("context", Measure::DecodeTps, cv);
    source.chart(&words, &lines, YScale::FromZero)
}

pub(super) fn prefill(source: &Source) -> Option<Drawn> {
    let words =
        Words { title: "Prefill speed by context", note: HIGHER, x: "prompt tokens", y: "tok/s" };
    let mut lines = source.over("context", Measure::PrefillTps, with_interval);
    if !lines.is_empty() {
        lines.extend(source.references(Measure::PrefillTps));
    }
    source.chart(&words, &lines, YScale::FromZero)
}

pub(super) fn ttft(source: &Source) -> Option<Drawn> {
    let words =
        Words { title: "Time to first token, cold", note: LOWER_LOG, x: "prompt tokens", y: "ms" };
    let lines = source.over("context", Measure::TtftCold, with_interval);
    source.chart(&words, &lines, YScale::Log)
}

pub(super) fn throughput(source: &Source) -> Option<Drawn> {
    let words =
        Words { title: "Throughput of all users", note: HIGHER, x: "users at once", y: "tok/s" };
    let mut lines = source.over("users", Measure::Aggregate, with_interval);
    // One user alone has no aggregate: there it is what the user gets.
    lines.iter_mut().for_each(|line| line.points.sort_by(|a, b| a.x.total_cmp(&b.x)));
    source.chart(&words, &lines, YScale::FromZero)
}

pub(super) fn per_user(source: &Source) -> Option<Drawn> {
    let words = Words {
        title: "Speed of one user among many",
        note: HIGHER,
        x: "users at once",
        y: "tok/s",
    };
    let lines = source.over("users", Measure::PerUser, with_interval);
    source.chart(&words, &lines, YScale::FromZero)
}

pub(super) fn roofline(source: &Source) -> Option<Drawn> {
    let words = Words {
        title: "Share of the memory bandwidth used by decoding",
        note: HIGHER,
        x: "prompt tokens",
        y: "% of bandwidth",
    };
    let lines = source.over("context", Measure::Roofline, with_interval);
    source.chart(&words, &lines, YScale::FromZero)
}

pub(super) fn arrivals(source: &Source) -> Option<Drawn> {
    let words = Words {
        title: "Slowest twentieth of first tokens by rate of arrival",
        note: LOWER_LOG,
        x: "requests per minute",
        y: "ms",
    };
    let lines = source.over("rate", Measure::TtftP95, with_interval);
    source.chart(&words, &lines, YScale::Log)
}

pub(super) fn goodput(source: &Source) -> Option<Drawn> {
    let words = Words {
        title: "Answers that kept the target by rate of arrival",
        note: HIGHER,
        x: "requests per minute",
        y: "answers per second",
    };
    let lines = source.over("rate", Measure::Goodput, with_interval);
    source.chart(&words, &lines, YScale::FromZero)
}
