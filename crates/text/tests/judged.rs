//! Schemas at random, and random answers that their grammars let through: a validator that is not ours
//! finds all of them right.

mod common;
mod schemas;
mod speaking;

use hearth_text::grammar::{Format, Strictness};
use proptest::prelude::*;
use schemas::{closed, judge, schemas};
use serde_json::Value;
use speaking::Speaker;

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn whatever_comes_to_an_end_is_right(asked in schemas(), seeds in prop::collection::vec(any::<u64>(), 6)) {
        let speakers = [Speaker::letters(), Speaker::new("bytelevel")];
        let both = [(asked.clone(), Strictness::Standard), (closed(&asked), Strictness::Closed)];
        for (meant, strictness) in both {
            let judge = judge(&meant);
            let format = Format::JsonSchema { schema: asked.clone(), strictness };
            for (seed, speaker) in seeds.iter().zip(speakers.iter().cycle()) {
                let Some(tokens) = speaker.say(&format, *seed) else { continue };
                let text = speaker.text(&tokens);
                let said: Value = serde_json::from_str(&text)
                    .unwrap_or_else(|error| panic!("{error}: {text:?} for {asked}"));
                prop_assert!(judge.is_valid(&said), "{text} for {asked} ({strictness:?})");
            }
        }
    }
}
