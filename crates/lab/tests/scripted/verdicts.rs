//! From streams to verdicts: a server that sleeps 5 % longer for each token is found, itself is not found
//! different from itself, and the same records say the same twice.

use std::path::Path;

use hearth_lab::export::{csv, html, markdown, report};
use hearth_lab::journal::Journal;
use hearth_lab::lang::Lang;
use hearth_lab::measure::Measure;
use hearth_lab::plan::greedy;
use hearth_lab::record::{
    Cell, Costs, End, Lab, Machine, Phase, Record, Run, SCHEMA, Start, State, Stop, Target,
};
use hearth_lab::results::{Comparison, Results, between, within};
use hearth_lab::rng::Rng;
use hearth_lab::run::records_path;
use hearth_lab::stats::Verdict;

use crate::server::{Script, run};

const CONTEXTS: [u64; 3] = [64, 512, 2048];

/// An answer of 64 tokens at about 50 tokens a second. Each token is up to 8 % early or late, and the
/// whole run is as fast as `pace` says.
fn answer(rng: &mut Rng, context: u64, pace: f64) -> Script {
    let mut script = Script::default();
    for token in 0..64 {
        let us = match token {
            0 => 500.0 * context as f64,
            _ => 20_000.0 * (1.0 + 0.16 * (rng.unit() - 0.5)),
        };
        script = script.text((us * pace) as u64, "content", "word ");
    }
    script.finish(0, "length").usage(0, context as u32, 64, 0).done(0)
}

/// Five blocks, in which the machine drifts by 3 %; every run is off by 1 % for itself.
fn measure(folder: &Path, seed: u64) -> Results {
    measure_with(folder, seed, 1.05)
}

/// The same with an arm `sleepy` that is so many times as slow.
fn measure_with(folder: &Path, seed: u64, sleepy: f64) -> Results {
    let (mut journal, _) = Journal::open(&records_path(folder)).unwrap();
    let mut write = |record: Record| journal.write(&record).unwrap();
    write(Record::Lab(Lab {
        schema: SCHEMA,
        version: "0".to_owned(),
        started: 0,
        name: "test".to_owned(),
        plan: String::new(),
        fingerprint: String::new(),
        null: Some(["plain".to_owned(), "plain again".to_owned()]),
        target: Target::default(),
        sampling: greedy(),
    }));
    let machine = Machine { bandwidth: Some(20e9), int8_macs: Some(4e11), ..Machine::default() };
    write(Record::Machine(machine));
    let mut rng = Rng::new(seed);
    for block in 0..5 {
        let drift = (0.03 * rng.normal()).exp();
        for (arm, slower) in [("plain", 1.0), ("plain again", 1.0), ("sleepy", sleepy)] {
            let start = Start {
                arm: arm.to_owned(),
                model: "m".to_owned(),
                block,
                command: vec!["server".to_owned(), "--sleep".to_owned()],
                version: None,
                ready_s: Some(0.5),
                error: None,
                costs: Some(Costs { weight_bytes: 9e7, kv_bytes: 46_080.0, prompt_macs: 1e8 }),
            };
            write(Record::Start(start));
            for context in CONTEXTS {
                let pace = drift * slower * (0.01 * rng.normal()).exp();
                let turn = answer(&mut rng, context, pace).play(0, None);
                let cell = Cell {
                    workload: "context".to_owned(),
                    axis: "context".to_owned(),
                    at: context,
                };
                let (before, after) = (State::default(), State::default());
                let (arm, phase) = (arm.to_owned(), Phase::Measured);
                write(Record::Run(Run {
                    arm,
                    block,
                    phase,
                    cell,
                    before,
                    after,
                    ..run(vec![turn])
                }));
            }
            write(Record::Stop(Stop {
                arm: arm.to_owned(),
                model: "m".to_owned(),
                block,
                peak_private: Some(100_000_000),
                peak_resident: Some(200_000_000),
            }));
        }
    }
    write(Record::End(End { complete: true }));
    Results::read(folder).unwrap()
}

fn decode_of<'a>(all: &'a [Comparison], arm: &str) -> Vec<&'a Comparison> {
    all.iter().filter(|one| one.arm == arm && one.place.measure == Measure::DecodeTps).collect()
}

#[test]
fn five_percent_are_found_and_nothing_else() {
    let (mut found, mut wrong, mut n) = (0, 0, 0);
    for seed in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let results = measure(folder.path(), seed);
        let all = within(&results, "plain");
        assert_eq!(all, within(&Results::read(folder.path()).unwrap(), "plain"));
        let verdicts = |arm| decode_of(&all, arm).iter().map(|one| one.verdict).collect::<Vec<_>>();
        n += CONTEXTS.len();
        found += verdicts("sleepy").iter().filter(|verdict| **verdict == Verdict::Slower).count();
        wrong += verdicts("sleepy").iter().filter(|verdict| **verdict == Verdict::Faster).count();
        let of_twin = verdicts("plain again");
        wrong += of_twin.iter().filter(|v| matches!(v, Verdict::Faster | Verdict::Slower)).count();
    }
    assert!(found * 10 >= n * 8, "{found} of {n} found");
    assert!(wrong * 20 <= n, "{wrong} of {n} wrong");
}

#[test]
fn a_second_time_is_no_different_from_the_first() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let all = between(&measure(a.path(), 1), &measure(b.path(), 2));
    let decode: Vec<Verdict> = all
        .iter()
        .filter(|one| one.place.measure == Measure::DecodeTps)
        .map(|one| one.verdict)
        .collect();
    assert_eq!(decode.len(), 3 * CONTEXTS.len());
    let different = |verdict: &&Verdict| matches!(verdict, Verdict::Faster | Verdict::Slower);
    assert_eq!(decode.iter().filter(different).count(), 0, "{decode:?}");
}

/// The same plan twice: where the first time says faster or slower, so does the second.
#[test]
fn a_second_time_says_the_same() {
    let (mut same, mut n) = (0, 0);
    for seed in 0..10 {
        let verdicts = |seed| {
            let folder = tempfile::tempdir().unwrap();
            let results = measure_with(folder.path(), seed, 1.1);
            let all = within(&results, "plain");
            ["sleepy", "plain again"]
                .map(|arm| decode_of(&all, arm).iter().map(|one| one.verdict).collect::<Vec<_>>())
        };
        let (first, second) = (verdicts(seed), verdicts(seed + 1000));
        for (one, other) in first.iter().flatten().zip(second.iter().flatten()) {
            n += 1;
            same += usize::from(one == other);
            let opposite = [Verdict::Faster, Verdict::Slower];
            assert!(one == other || !(opposite.contains(one) && opposite.contains(other)));
        }
        assert!(first[0].iter().chain(&second[0]).all(|verdict| *verdict == Verdict::Slower));
    }
    assert_eq!(n, 10 * 2 * CONTEXTS.len());
    assert!(same * 10 >= n * 9, "{same} of {n} the same");
}

#[test]
fn reports_say_what_was_found_in_both_languages() {
    let folder = tempfile::tempdir().unwrap();
    let results = measure(folder.path(), 3);
    for (lang, title, verdict) in
        [(Lang::En, "Verdicts", "slower"), (Lang::ZhTw, "比較結論", "較慢")]
    {
        let document = report(&results, lang, &[]);
        let page = html(&document, lang);
        assert!(page.contains(title) && page.contains(verdict));
        assert!(page.contains(&format!("<html lang=\"{}\">", lang.tag())));
        // Nothing is fetched from anywhere, and nothing runs.
        assert!(!page.contains("<script") && !page.contains("src="));
        let links = page.matches("http").count();
        assert_eq!(links, page.matches("http://www.w3.org/2000/svg").count());
        for id in
            ["decode", "degradation", "spread", "boxes", "prefill", "ttft", "gaps", "roofline"]
        {
            assert!(markdown(&document).contains(&format!("charts/m-{id}")), "{id}");
        }
        // Every picture is well-formed XML.
        for svg in page.split("<figure>").skip(1).filter_map(|rest| rest.split("</figure>").next())
        {
            assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        }
    }
    let table = csv(&results);
    let rows =
        table.lines().filter(|row| row.starts_with("m,context,context,64,decode_tps,tok/s,"));
    assert_eq!(rows.count(), 3);
    let width = table.lines().next().unwrap().split(',').count();
    assert!(table.lines().all(|row| row.split(',').count() == width));
}
