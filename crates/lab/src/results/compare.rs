//! Arms against each other, in one folder of results or in two.

use std::collections::{BTreeMap, BTreeSet};

use super::{Place, Results, Series, Table};
use crate::measure::Measure;
use crate::stats::{Contrast, Verdict, floor, of_pairs, of_two};

/// How something compares at one place.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Where.
    pub place: Place,
    /// What is judged.
    pub arm: String,
    /// What it is compared with.
    pub base: String,
    /// The ratio.
    pub contrast: Contrast,
    /// What may be said.
    pub verdict: Verdict,
}

/// Measures that are compared: those that say something about speed or size by themselves.
fn is_compared(measure: Measure) -> bool {
    // The others are these in another unit, or say nothing without their workload.
    !matches!(
        measure,
        Measure::Tpot
            | Measure::Roofline
            | Measure::Arithmetic
            | Measure::Accepted
            | Measure::GapMax
    )
}

/// Every arm against `base`, in pairs of the same block.
pub fn within(results: &Results, base: &str) -> Vec<Comparison> {
    let table = results.table();
    let floors = floors(results, &table);
    let mut found = Vec::new();
    for (place, arms) in &table {
        let Some(of_base) = arms.get(base).filter(|_| is_compared(place.measure)) else { continue };
        let floor = floor_of(&floors, place);
        for (arm, series) in arms.iter().filter(|(arm, _)| *arm != base) {
            if let Some(contrast) = of_pairs(&pairs(series, of_base), floor) {
                found.push(comparison(place, arm, base, contrast));
            }
        }
    }
    found
}

/// What `b` measured against what `a` did, where both have the same arm at the same place.
pub fn between(a: &Results, b: &Results) -> Vec<Comparison> {
    let (table_a, table_b) = (a.table(), b.table());
    let (floors_a, floors_b) = (floors(a, &table_a), floors(b, &table_b));
    let mut found = Vec::new();
    for (place, arms) in table_b.iter().filter(|(place, _)| is_compared(place.measure)) {
        let Some(before) = table_a.get(place) else { continue };
        let floor = floor_of(&floors_a, place).max(floor_of(&floors_b, place));
        for (arm, series) in arms {
            let values = |series: &Series| series.values().copied().collect::<Vec<f64>>();
            let contrast =
                before.get(arm).and_then(|old| of_two(&values(series), &values(old), floor));
            found.extend(contrast.map(|contrast| comparison(place, arm, arm, contrast)));
        }
    }
    found
}

/// How far from 1 the twins were, by model and measure, over all cells.
pub(super) fn floors(results: &Results, table: &Table) -> BTreeMap<(String, Measure), f64> {
    let Some([first, twin]) = &results.lab.null else { return BTreeMap::new() };
    let mut cells: BTreeMap<_, Vec<Vec<(f64, f64)>>> = BTreeMap::new();
    for (place, arms) in table {
        if let (Some(a), Some(b)) = (arms.get(first), arms.get(twin)) {
            let key = (place.model.clone(), place.measure);
            cells.entry(key).or_default().push(pairs(b, a));
        }
    }
    cells.into_iter().map(|(key, cells)| (key, floor(&cells))).collect()
}

fn floor_of(floors: &BTreeMap<(String, Measure), f64>, place: &Place) -> f64 {
    floors.get(&(place.model.clone(), place.measure)).copied().unwrap_or(0.0)
}

fn pairs(a: &Series, b: &Series) -> Vec<(f64, f64)> {
    let blocks: BTreeSet<&u32> = a.keys().filter(|block| b.contains_key(block)).collect();
    blocks.into_iter().map(|block| (a[block], b[block])).collect()
}

fn comparison(place: &Place, arm: &str, base: &str, contrast: Contrast) -> Comparison {
    let verdict = contrast.verdict(place.measure.higher_is_better());
    Comparison {
        place: place.clone(),
        arm: arm.to_owned(),
        base: base.to_owned(),
        contrast,
        verdict,
    }
}

impl Results {
    /// How far from 1 the twins were, by model and measure.
    pub fn floors(&self) -> BTreeMap<(String, Measure), f64> {
        floors(self, &self.table())
    }
}
