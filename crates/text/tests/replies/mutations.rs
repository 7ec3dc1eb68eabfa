//! Published calls with slips in them: a piece lost, said twice, moved, or taken from another format. However
//! such an answer is cut it is read the same, and what counts as a complete call can be carried out.

use hearth_text::{End, Opening};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;

use crate::Case;
use crate::calls::{formats, weather};

/// What happens to an answer.
#[derive(Clone, Debug)]
enum Slip {
    Lose(Index, Index),
    Repeat(Index, Index),
    Move(Index, Index, Index),
    /// The beginning of another format's call, up to here.
    Mix(Index, Index, Index),
    Say(Index, char),
}

fn slip() -> impl Strategy<Value = Slip> {
    let at = any::<Index>;
    let letters =
        proptest::sample::select("<>{}[]()\"'\\`|:=,/ \né🦜0f".chars().collect::<Vec<_>>());
    prop_oneof![
        (at(), at()).prop_map(|(a, b)| Slip::Lose(a, b)),
        (at(), at()).prop_map(|(a, b)| Slip::Repeat(a, b)),
        (at(), at(), at()).prop_map(|(a, b, to)| Slip::Move(a, b, to)),
        (at(), at(), at()).prop_map(|(which, end, to)| Slip::Mix(which, end, to)),
        (at(), letters).prop_map(|(at, letter)| Slip::Say(at, letter)),
    ]
}

fn slipped(text: &str, slip: &Slip) -> String {
    let mut letters: Vec<char> = text.chars().collect();
    let n = letters.len() + 1;
    let range = |a: &Index, b: &Index| {
        let (a, b) = (a.index(n), b.index(n));
        a.min(b)..a.max(b)
    };
    match slip {
        Slip::Lose(a, b) => drop(letters.drain(range(a, b))),
        Slip::Repeat(a, b) => {
            let range = range(a, b);
            let piece = letters[range.clone()].to_vec();
            letters.splice(range.end..range.end, piece);
        }
        Slip::Move(a, b, to) => {
            let piece: Vec<char> = letters.drain(range(a, b)).collect();
            let to = to.index(letters.len() + 1);
            letters.splice(to..to, piece);
        }
        Slip::Mix(which, end, to) => {
            let all = formats();
            let other: Vec<char> = all[which.index(all.len())].2.chars().collect();
            let (end, to) = (end.index(other.len() + 1), to.index(n));
            letters.splice(to..to, other[..end].iter().copied());
        }
        Slip::Say(at, letter) => letters.insert(at.index(n), *letter),
    }
    letters.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn a_call_with_slips_is_read_the_same_however_it_is_cut(
        which in any::<Index>(),
        slips in proptest::collection::vec(slip(), 0..5),
        opening in prop_oneof![Just(Opening::Free), Just(Opening::Thoughts), Just(Opening::Answer)],
        end in prop_oneof![Just(End::Model), Just(End::Cut)],
        cuts in proptest::collection::vec(any::<Index>(), 0..8),
    ) {
        let all = formats();
        let (_, template, call) = &all[which.index(all.len())];
        let text = slips.iter().fold(call.clone(), |text, slip| slipped(&text, slip));
        let case = Case { template, opening, tools: weather(), end };
        let whole = case.run(&[&text]);
        let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).skip(1).chain([text.len()]).collect();
        let pieces = |ends: &[usize]| -> Vec<String> {
            let mut from = 0;
            let piece = |&to: &usize| text[std::mem::replace(&mut from, to)..to].to_owned();
            ends.iter().map(piece).collect()
        };
        let mut some: Vec<usize> = cuts.iter().map(|cut| ends[cut.index(ends.len())]).collect();
        some.push(text.len());
        some.sort_unstable();
        for ends in [&ends, &some] {
            let pieces = pieces(ends);
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            prop_assert_eq!(&case.run(&pieces), &whole, "{:?}", pieces);
        }
        for (id, name, arguments, complete) in &whole.calls {
            prop_assert!(!id.is_empty() && !name.is_empty());
            let read = serde_json::from_str::<Value>(arguments);
            prop_assert!(!complete || read.is_ok_and(|read| read.is_object()), "{}", arguments);
        }
    }
}

/// Arguments that no tool could be called with, wherever a format has a JSON object.
#[test]
fn what_is_no_object_is_no_complete_call() {
    let good = r#"{"city": "Paris", "days": 3}"#;
    let bad = [
        "[3]",
        "3",
        "\"Paris\"",
        r#"{"city": Paris}"#,
        r#"{"city": "Paris",}"#,
        r#"{"city" "Paris"}"#,
        r#"{"city": "Paris"]"#,
        r#"{"city": "\x"}"#,
        r#"{'city': 'Paris'}"#,
    ];
    for (name, template, call) in formats() {
        if !call.contains(good) {
            continue;
        }
        for bad in bad {
            for tail in ["", "\nDone."] {
                let case = Case::new(template, &weather());
                let whole = case.any_cut(&(call.replace(good, bad) + tail));
                assert!(whole.calls.iter().all(|call| !call.3), "{name} {bad} {whole:?}");
            }
        }
    }
}

/// Places where a reader gives up must not depend on how the text arrives.
#[test]
fn slips_that_were_once_read_in_two_ways() {
    let arguments = r#"{"city": "Paris", "days": 3}"#;
    let good = format!("{{\"name\": \"get_weather\", \"arguments\": {arguments}}}");
    let two_colons = good.replace("\"arguments\":", "\"arguments\"::");
    let long_key = format!("{{\"{}\": 1, {}", "k".repeat(99), &good[1..]);
    for (name, template, call) in formats().into_iter().filter(|(.., call)| call.contains(&good)) {
        for bad in [&two_colons, &long_key] {
            let text = call.replace(&good, bad);
            let whole = Case::new(template, &weather()).any_cut(&text);
            assert!(whole.calls.iter().all(|call| !call.3), "{name} {bad} {whole:?}");
            // A second opener inside of what was given up.
            let key = format!("k{call}{}", "k".repeat(99));
            let nested = call.replace("\"name\"", &format!("\"{key}\""));
            Case::new(template, &weather()).any_cut(&nested);
        }
    }
}
