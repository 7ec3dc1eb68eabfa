//! A run as it went: who waited, who got tokens, when. The cell with the most users, of each arm that has it.

use super::axes::{Frame, Scale, short};
use super::svg::{Anchor, Stroke};
use super::{Drawn, Look, PLOT, Source, WIDTH};
use crate::record::{Cell, Phase, Run, Turn};

/// Most arms for which there is room.
const ARMS: usize = 3;

pub(super) fn timeline(source: &Source) -> Option<Drawn> {
    let title = "One run in time";
    let looks = source.looks();
    let cell = busiest(source)?;
    let mut lanes: Vec<(&str, Look, &Run)> = looks
        .iter()
        .filter(|(_, look)| !look.hollow)
        .filter_map(|(arm, look)| Some((*arm, *look, run_of(source, arm, cell)?)))
        .collect();
    lanes.truncate(ARMS);
    let end = lanes.iter().flat_map(|lane| &lane.2.turns).map(|turn| turn.ended_us).max()?;
    let rows: usize = lanes.iter().map(|lane| lane.2.turns.len()).sum();
    let legend: Vec<_> =
        lanes.iter().map(|(arm, look, _)| ((*arm).to_owned(), *look, Stroke::Full)).collect();
    let note = format!(
        "{} {} · {}: ── · {}: ▮",
        source.lang.say(&cell.workload),
        cell.at,
        source.say("waiting"),
        source.say("answering")
    );
    let (mut svg, top) = source.begin(title, &note, &legend);
    let x = Scale::from_zero(end as f64 / 1e6);
    let y = Scale::Linear { from: 0.0, to: rows as f64, ticks: Vec::new() };
    let frame = Frame { x, y, left: 84.0, right: WIDTH - 24.0, top, bottom: top + PLOT };
    frame.draw(&mut svg, &short, [source.say("seconds"), source.say("user")]);
    let height = PLOT / rows as f64;
    let mut row = 0.0;
    for (_, look, run) in lanes {
        for turn in &run.turns {
            let y = top + height * (row + 0.5);
            draw(&mut svg, &frame, turn, look, [y, height]);
            if height >= 11.0 {
                let label = format!("{}", turn.user + 1);
                svg.text([frame.left - 10.0, y + 4.0], 11.0, Anchor::End, "soft", &label);
            }
            row += 1.0;
        }
        svg.ruled([frame.left, top + height * row], [frame.right, top + height * row], "grid");
    }
    Some(Drawn { title, svg })
}

fn draw(svg: &mut super::Svg, frame: &Frame, turn: &Turn, look: Look, [y, height]: [f64; 2]) {
    let x = |us: u64| frame.x_of(us as f64 / 1e6);
    let first = turn.arrivals.first().map_or(turn.ended_us, |arrival| arrival.0);
    svg.line(&[[x(turn.asked_us), y], [x(first), y]], look.color, Stroke::Thin);
    let half = (height * 0.36).min(9.0);
    if let Some(last) = turn.arrivals.last() {
        svg.bar([x(first), y - half], [x(last.0), y + half], look.color, 0.25);
    }
    for (at, _) in turn.chunks() {
        svg.line(&[[x(at), y - half], [x(at), y + half]], look.color, Stroke::Thin);
    }
}

/// Runs of the first block: one of each cell of each arm.
fn runs<'a>(source: &'a Source) -> impl Iterator<Item = &'a Run> {
    let runs = source.results.runs.iter().map(|judged| &judged.run);
    runs.filter(|run| run.model == source.model && run.block == 0 && run.phase == Phase::Measured)
}

fn busiest<'a>(source: &'a Source) -> Option<&'a Cell> {
    // Of two that are as busy, the one whose prompts are longer shows more.
    Some(&runs(source).max_by_key(|run| (run.users(), run.cell.at))?.cell)
}

fn run_of<'a>(source: &'a Source, arm: &str, cell: &Cell) -> Option<&'a Run> {
    runs(source).find(|run| run.arm == arm && run.cell == *cell)
}
