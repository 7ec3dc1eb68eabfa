//! Charts of the time to the first token over the turns of a run: a conversation, questions about the same
//! documents, the steps of an agent, and the two sides of a restart. Of every turn, where tables have the
//! middle one of a run.

use std::collections::BTreeMap;

use super::axes::tokens;
use super::lines::{LOWER_LOG, Line, Point, Words, YScale};
use super::svg::Stroke;
use super::{Drawn, Source};
use crate::record::{Expects, Turn};
use crate::results::Judged;
use crate::stats::{Summary, median};

impl Source<'_> {
    /// Milliseconds to the first token by turn, of runs that `of` takes. Only of sound requests.
    fn by_turn(&self, of: impl Fn(&Judged) -> bool) -> Vec<Line> {
        let lines = self.looks().into_iter().map(|(arm, look)| {
            let mut turns: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
            let runs = self.results.runs.iter();
            let ours = runs.filter(|one| one.run.model == self.model && one.run.arm == arm);
            for judged in ours.filter(|one| of(one)) {
                for turn in judged.sound() {
                    let ms = turn.ttft_ms();
                    ms.into_iter().for_each(|ms| turns.entry(turn.turn + 1).or_default().push(ms));
                }
            }
            let point = |(turn, values): (u32, Vec<f64>)| {
                let ci = Summary::of(values.clone()).map(|summary| summary.ci);
                Point { x: f64::from(turn), y: median(&values), ci }
            };
            let points: Vec<Point> = turns.into_iter().map(point).collect();
            let stroke = if look.hollow { Stroke::Thin } else { Stroke::Full };
            Line { label: arm.to_owned(), look, stroke, points }
        });
        lines.filter(|line| !line.points.is_empty()).collect()
    }

    fn turns_of(&self, workload: &str, title: &'static str, x: &'static str) -> Option<Drawn> {
        let words = Words { title, note: LOWER_LOG, x, y: "ms" };
        let lines = self.by_turn(|judged| judged.run.cell.workload == workload);
        self.chart_with(&words, &lines, YScale::Log, &tokens)
    }
}

pub(super) fn chat(source: &Source) -> Option<Drawn> {
    source.turns_of("chat", "Time to first token by turn of a chat", "turn")
}

pub(super) fn rag(source: &Source) -> Option<Drawn> {
    let title = "Time to first token by question about the same documents";
    source.turns_of("rag", title, "question")
}

pub(super) fn tools(source: &Source) -> Option<Drawn> {
    source.turns_of("tools", "Time to first token by step of a tool loop", "step")
}

pub(super) fn restart(source: &Source) -> Option<Drawn> {
    let words = Words {
        title: "Time to first token before and after a restart",
        note: LOWER_LOG,
        x: "the same prompt",
        y: "ms",
    };
    let restarted = |turn: &Turn| turn.expects == Expects::Restarted;
    let lines = source.by_turn(|judged| judged.run.turns.iter().any(restarted));
    let name = |turn: f64| {
        let name = if turn < 2.0 { "first asked" } else { "after the restart" };
        source.say(name).to_owned()
    };
    source.chart_with(&words, &lines, YScale::Log, &name)
}
