//! Charts. Each is a function from results to a picture, and a line in the list below.
//!
//! Colours are told apart by all common kinds of colour blindness (Okabe and Ito 2008), every series has a
//! mark of its own besides, and a series looks the same in all charts.

mod axes;
mod distributions;
mod lines;
mod png;
mod svg;
mod timeline;
mod turns;

use std::path::Path;

use serde::Deserialize;

pub use png::{Fonts, png};
pub(crate) use svg::escape;

use crate::error::Error;
use crate::lang::Lang;
use crate::results::{Results, Table};
use svg::{Anchor, DARK_STYLE, Mark, STYLE, Stroke, Svg};

/// Width of a chart.
const WIDTH: f64 = 800.0;
/// Height of the part with the values.
const PLOT: f64 = 330.0;

/// A chart.
#[derive(Debug)]
pub struct Chart {
    /// Its name in files, of model, chart and language.
    pub id: String,
    /// What it shows.
    pub title: String,
    svg: Svg,
}

impl Chart {
    /// As a file that stands alone, for light and dark screens and for paper.
    pub fn alone(&self) -> String {
        self.svg.finish(&self.title, &format!("{STYLE}{DARK_STYLE}"))
    }

    /// As a file for paper.
    pub fn light(&self) -> String {
        self.svg.finish(&self.title, STYLE)
    }

    /// Where its file is, beside a report.
    pub fn file(&self) -> String {
        format!("charts/{}.svg", self.id)
    }

    /// As part of a page that has [`style`].
    pub fn inline(&self) -> String {
        self.svg.finish(&self.title, "")
    }
}

/// What pages with charts have among their styles.
pub fn style() -> String {
    format!("{STYLE}{DARK_STYLE}")
}

/// A series that others published, to be drawn beside ours.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Who published it, and where.
    pub source: String,
    /// On which machine.
    pub machine: String,
    /// Of which model.
    pub model: String,
    /// The series.
    pub series: Vec<ReferenceSeries>,
}

/// Values of one engine.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReferenceSeries {
    /// The engine.
    pub engine: String,
    /// Name of the measure.
    pub measure: String,
    /// Tokens of prompt, and the value.
    pub points: Vec<[f64; 2]>,
}

impl Reference {
    /// Of a file in TOML.
    ///
    /// # Errors
    /// [`Error`] if it is not one.
    pub fn read(path: &Path) -> Result<Reference, Error> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::file(path, source))?;
        toml::from_str(&text).map_err(|error| Error::malformed(path, error))
    }
}

/// What charts are drawn of.
pub(crate) struct Source<'a> {
    results: &'a Results,
    table: Table,
    model: &'a str,
    lang: Lang,
    references: &'a [Reference],
}

/// Draws a chart, if there are values for it.
type Draw = fn(&Source) -> Option<Drawn>;

/// Every chart there is.
const CHARTS: &[(&str, Draw)] = &[
    ("decode", lines::decode),
    ("degradation", lines::degradation),
    ("spread", lines::spread),
    ("boxes", distributions::boxes),
    ("prefill", lines::prefill),
    ("ttft", lines::ttft),
    ("gaps", distributions::gaps),
    ("throughput", lines::throughput),
    ("per-user", lines::per_user),
    ("arrivals", lines::arrivals),
    ("goodput", lines::goodput),
    ("chat", turns::chat),
    ("rag", turns::rag),
    ("tools", turns::tools),
    ("restart", turns::restart),
    ("roofline", lines::roofline),
    ("timeline", timeline::timeline),
];

/// A picture and what it shows.
struct Drawn {
    title: &'static str,
    svg: Svg,
}

/// All charts of a model for which there are values.
pub fn charts(results: &Results, model: &str, lang: Lang, references: &[Reference]) -> Vec<Chart> {
    let source = Source { results, table: results.table(), model, lang, references };
    let drawn = CHARTS.iter().filter_map(|(id, draw)| Some((*id, draw(&source)?)));
    drawn
        .map(|(id, Drawn { title, svg })| {
            let title = format!("{} · {model}", lang.say(title));
            let language =
                if lang == Lang::En { String::new() } else { format!(".{}", lang.tag()) };
            Chart { id: format!("{}-{id}{language}", file_name(model)), title, svg }
        })
        .collect()
}

/// A name without anything that file systems dislike.
fn file_name(name: &str) -> String {
    let kept =
        |c: char| if c.is_ascii_alphanumeric() || c == '.' { c.to_ascii_lowercase() } else { '-' };
    name.chars().map(kept).collect()
}

/// How a series looks, in every chart.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Look {
    color: &'static str,
    mark: Mark,
    hollow: bool,
}

/// Okabe and Ito's, without black and yellow, which one of the papers swallows; and a grey.
const COLORS: [&str; 7] =
    ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A828E"];

impl Source<'_> {
    fn say(&self, english: &'static str) -> &'static str {
        self.lang.say(english)
    }

    /// Arms, first ones first; a twin has the look of its other, in outline.
    fn looks(&self) -> Vec<(&str, Look)> {
        let arms = &self.results.arms;
        let of = |i: usize, hollow| Look {
            color: COLORS[i % COLORS.len()],
            mark: Mark::ALL[i % Mark::ALL.len()],
            hollow,
        };
        let look = |(i, arm): (usize, &String)| match &self.results.lab.null {
            Some([first, twin]) if twin == arm => {
                of(arms.iter().position(|other| other == first).unwrap_or(i), true)
            }
            _ => of(i, false),
        };
        arms.iter().enumerate().map(|pair| (pair.1.as_str(), look(pair))).collect()
    }

    /// A picture with a title, a line of explanation and a legend; and where its values begin.
    fn begin(&self, title: &str, note: &str, legend: &[(String, Look, Stroke)]) -> (Svg, f64) {
        // Wide letters count twice.
        let width = |text: &str| {
            text.chars().map(|c| if c.is_ascii() { 7.2 } else { 13.5 }).sum::<f64>() + 46.0
        };
        let (mut rows, mut x) = (1, 24.0);
        let mut places = Vec::new();
        for (label, ..) in legend {
            if x + width(label) > WIDTH - 16.0 && x > 24.0 {
                (rows, x) = (rows + 1, 24.0);
            }
            places.push([x, 62.0 + 20.0 * f64::from(rows)]);
            x += width(label);
        }
        let top = 84.0 + 20.0 * f64::from(rows);
        let mut svg = Svg::new(WIDTH, top + PLOT + 56.0);
        svg.title([24.0, 32.0], &format!("{} · {}", self.lang.say(title), self.model));
        svg.text([24.0, 53.0], 12.5, Anchor::Start, "soft", note);
        for ((label, look, stroke), [x, y]) in legend.iter().zip(places) {
            svg.line(&[[x, y - 4.0], [x + 24.0, y - 4.0]], look.color, *stroke);
            if *stroke != Stroke::Dashed {
                svg.mark(look.mark, [x + 12.0, y - 4.0], 4.5, look.color, look.hollow);
            }
            svg.text([x + 30.0, y], 13.0, Anchor::Start, "ink", label);
        }
        (svg, top)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_that_measured_less_stand_only_beside_the_same() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/results/small");
        let results = Results::read(&path).unwrap();
        let model = "Qwen2.5-Coder-0.5B Q4_K_M";
        let all = charts(&results, model, Lang::En, &[]);
        let has = |id: &str, engine: &str| {
            let chart = all.iter().find(|chart| chart.id.ends_with(&format!("-{id}"))).unwrap();
            chart.alone().contains(&format!(">{engine}<"))
        };
        // Of mistral.rs there are short prompts alone, of mlx-lm nothing with this model.
        for (id, mistral) in
            [("decode", true), ("boxes", true), ("gaps", true), ("timeline", false)]
        {
            assert!(has(id, "llama.cpp"), "{id}");
            assert_eq!(has(id, "mistral.rs"), mistral, "{id}");
            assert!(!has(id, "mlx-lm"), "{id}");
        }
        // Gaps are of the sizes that mistral.rs has too: as if there had been no others.
        let mut short = Results::read(&path).unwrap();
        short
            .runs
            .retain(|judged| judged.run.cell.workload != "context" || judged.run.cell.at <= 512);
        let gaps = |charts: &[Chart]| {
            charts.iter().find(|chart| chart.id.ends_with("-gaps")).unwrap().alone()
        };
        assert_eq!(gaps(&charts(&short, model, Lang::En, &[])), gaps(&all));
    }
}
