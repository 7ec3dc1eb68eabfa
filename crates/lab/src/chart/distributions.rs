//! Charts of how values are spread: every run in a box plot, every gap in a curve.

use std::collections::BTreeSet;

use super::axes::{Frame, Scale, short, tokens};
use super::svg::Stroke;
use super::{Drawn, Look, PLOT, Source, WIDTH};
use crate::measure::Measure;
use crate::record::Run;
use crate::results::Series;
use crate::stats::quantile;

pub(super) fn boxes(source: &Source) -> Option<Drawn> {
    let title = "Decode speed, every run";
    let workload = source.workload("context", Measure::DecodeTps)?.to_owned();
    let cells: Vec<_> = source
        .table
        .iter()
        .filter(|(place, _)| {
            place.model == source.model
                && place.measure == Measure::DecodeTps
                && place.cell.workload == workload
        })
        .collect();
    let steps: Vec<f64> = cells.iter().map(|(place, _)| place.cell.at as f64).collect();
    let all = cells.iter().flat_map(|(_, arms)| arms.values()).flat_map(Series::values);
    let y = Scale::from_zero(all.copied().fold(0.0, f64::max));
    // An engine that has nothing here takes no room.
    let mut looks = source.looks();
    looks.retain(|(arm, _)| cells.iter().any(|(_, arms)| arms.contains_key(*arm)));
    let legend: Vec<_> =
        looks.iter().map(|(arm, look)| ((*arm).to_owned(), *look, Stroke::Thin)).collect();
    let note = "Boxes hold the middle half, whiskers all runs; dots are single runs.";
    let (mut svg, top) = source.begin(title, source.say(note), &legend);
    let x = Scale::Steps(steps);
    let frame = Frame { x, y, left: 84.0, right: WIDTH - 24.0, top, bottom: top + PLOT };
    frame.draw(&mut svg, &tokens, [source.say("prompt tokens"), source.say("tok/s")]);
    let room = frame.half_step() * 1.7 / looks.len() as f64;
    let half = (room * 0.4).min(16.0);
    for (place, arms) in cells {
        for (i, (arm, look)) in looks.iter().enumerate() {
            let Some(series) = arms.get(*arm) else { continue };
            let values: Vec<f64> = series.values().copied().collect();
            let aside = (i as f64 - (looks.len() as f64 - 1.0) / 2.0) * room;
            let middle = frame.x_of(place.cell.at as f64) + aside;
            let at = |p| frame.y_of(quantile(&values, p));
            let line = |svg: &mut super::Svg, from: [f64; 2], to: [f64; 2]| {
                svg.line(&[from, to], look.color, Stroke::Thin);
            };
            line(&mut svg, [middle, at(0.0)], [middle, at(1.0)]);
            let opacity = if look.hollow { 0.05 } else { 0.3 };
            svg.bar([middle - half, at(0.25)], [middle + half, at(0.75)], look.color, opacity);
            svg.line(
                &[[middle - half, at(0.5)], [middle + half, at(0.5)]],
                look.color,
                Stroke::Full,
            );
            for value in &values {
                svg.mark(look.mark, [middle, frame.y_of(*value)], 2.2, look.color, look.hollow);
            }
        }
    }
    Some(Drawn { title, svg })
}

/// The share of gaps that are longer than a time. Its long end is what readers notice. Gaps grow with the
/// context, so only sizes count that every engine of the chart has.
pub(super) fn gaps(source: &Source) -> Option<Drawn> {
    let title = "Gaps between arrivals";
    let workload = source.workload("context", Measure::DecodeTps)?.to_owned();
    let mut curves: Vec<(String, Look, Vec<[f64; 2]>)> = Vec::new();
    let runs = |arm: &str| -> Vec<&Run> {
        let runs = source.results.runs.iter().map(|judged| &judged.run);
        let ours = runs.filter(|run| run.model == source.model && run.arm == arm);
        ours.filter(|run| run.cell.workload == workload).collect()
    };
    let mut looks: Vec<_> =
        source.looks().into_iter().map(|(arm, look)| (arm, look, runs(arm))).collect();
    looks.retain(|(_, _, runs)| !runs.is_empty());
    let sizes: Vec<BTreeSet<u64>> =
        looks.iter().map(|(_, _, runs)| runs.iter().map(|run| run.cell.at).collect()).collect();
    for (arm, look, mut runs) in looks {
        runs.retain(|run| sizes.iter().all(|sizes| sizes.contains(&run.cell.at)));
        let runs = runs.into_iter();
        let sound = runs.flat_map(|run| &run.turns).filter(|turn| turn.error.is_none());
        let mut gaps: Vec<f64> = sound.flat_map(|turn| turn.gaps_ms()).collect();
        gaps.retain(|gap| *gap > 0.0);
        gaps.sort_by(f64::total_cmp);
        let curve = longer(&gaps);
        if !curve.is_empty() {
            curves.push((arm.to_owned(), look, curve));
        }
    }
    let points = || curves.iter().flat_map(|curve| &curve.2);
    points().next()?;
    let x = Scale::log(points().map(|point| point[0]));
    let y = Scale::log(points().map(|point| point[1]));
    let stroke = |look: Look| if look.hollow { Stroke::Thin } else { Stroke::Full };
    let legend: Vec<_> =
        curves.iter().map(|(arm, look, _)| (arm.clone(), *look, stroke(*look))).collect();
    let note = format!(
        "{} {}",
        source.say("Lower is better."),
        source.say("Both scales are logarithmic.")
    );
    let (mut svg, top) = source.begin(title, &note, &legend);
    let frame = Frame { x, y, left: 84.0, right: WIDTH - 24.0, top, bottom: top + PLOT };
    let labels = [source.say("ms between arrivals"), source.say("% of gaps that are longer")];
    frame.draw(&mut svg, &short, labels);
    for (_, look, curve) in &curves {
        let places: Vec<[f64; 2]> = curve.iter().map(|[x, y]| frame.place(*x, *y)).collect();
        svg.line(&places, look.color, stroke(*look));
        for place in places.iter().step_by((places.len() / 6).max(1)) {
            svg.mark(look.mark, *place, 4.0, look.color, look.hollow);
        }
    }
    Some(Drawn { title, svg })
}

/// Points of the curve: a time, and the percentage of sorted gaps that are at least as long.
fn longer(sorted: &[f64]) -> Vec<[f64; 2]> {
    let n = sorted.len();
    // Most of the points are where the curve is read: at its end.
    let mut ranks: Vec<usize> = (0..=120)
        .map(|i| n - ((n as f64).powf(1.0 - f64::from(i) / 120.0).round() as usize).min(n))
        .collect();
    ranks.dedup();
    ranks
        .into_iter()
        .filter(|&rank| rank < n)
        .map(|rank| [sorted[rank], 100.0 * (n - rank) as f64 / n as f64])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_fall_from_all_to_the_longest() {
        let gaps: Vec<f64> = (1..=1000).map(f64::from).collect();
        let curve = longer(&gaps);
        assert_eq!(curve[0], [1.0, 100.0]);
        assert_eq!(curve.last(), Some(&[1000.0, 0.1]));
        assert!(curve.windows(2).all(|pair| pair[0][1] > pair[1][1]));
        assert!(curve.iter().all(|[gap, share]| (share - (1001.0 - gap) / 10.0).abs() < 1e-9));
        assert_eq!(longer(&[]), [[0.0; 2]; 0]);
    }
}
