//! Prose: sentences of several shapes, with names, numbers and dates in them.

use super::words::{
    ADJECTIVES, ADVERBS, LINKS, NAME_HEADS, NAME_MIDDLES, NAME_TAILS, NOUNS, VERBS,
};
use crate::rng::Rng;

/// Sentences of at least so many characters together.
pub fn prose(rng: &mut Rng, chars: usize) -> String {
    let mut text = String::with_capacity(chars + 200);
    let mut left = 3 + rng.below(5);
    while text.len() < chars {
        if left == 0 {
            text.push_str("\n\n");
            left = 3 + rng.below(5);
        } else if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&sentence(rng));
        left -= 1;
    }
    text
}

/// A name that probably nobody has.
pub(super) fn name(rng: &mut Rng) -> String {
    [NAME_HEADS, NAME_MIDDLES, NAME_TAILS].map(|parts| pick(rng, parts)).concat()
}

fn pick(rng: &mut Rng, of: &'static [&'static str]) -> &'static str {
    rng.pick(of).copied().unwrap_or_default()
}

fn sentence(rng: &mut Rng) -> String {
    let plain = match rng.below(8) {
        0 => format!("{} {} {} {}", subject(rng), pick(rng, VERBS), thing(rng), pick(rng, ADVERBS)),
        1 => format!(
            "{} {} {}, and {} {} it {}",
            subject(rng),
            pick(rng, VERBS),
            thing(rng),
            subject(rng),
            pick(rng, VERBS),
            pick(rng, ADVERBS)
        ),
        2 => format!(
            "in {} {} {} {} for {} crowns",
            1700 + rng.below(320),
            subject(rng),
            pick(rng, VERBS),
            thing(rng),
            12 + rng.below(9000)
        ),
        3 => format!(
            "the {} of {} was {}, but {} {} {}",
            pick(rng, NOUNS),
            name(rng),
            pick(rng, ADJECTIVES),
            subject(rng),
            pick(rng, VERBS),
            thing(rng)
        ),
        4 => format!(
            "about {} percent of {} {} {}",
            1 + rng.below(98),
            plural(rng),
            "were",
            pick(rng, ADJECTIVES)
        ),
        5 => format!(
            "\"{} {} {},\" {} wrote to {}",
            capital(&subject(rng)),
            pick(rng, VERBS),
            thing(rng),
            name(rng),
            name(rng)
        ),
        6 => format!(
            "whoever {} {} needed {} {} and {} {}",
            pick(rng, VERBS),
            thing(rng),
            2 + rng.below(40),
            plural(rng),
            2 + rng.below(40),
            plural(rng)
        ),
        _ => format!(
            "{}, {}, {} and {} lay beside {}",
            thing(rng),
            thing(rng),
            plural(rng),
            thing(rng),
            thing(rng)
        ),
    };
    match rng.below(4) {
        0 => format!("{} {plain}.", pick(rng, LINKS)),
        _ => format!("{}.", capital(&plain)),
    }
}

fn subject(rng: &mut Rng) -> String {
    match rng.below(3) {
        0 => name(rng),
        1 => format!("the {}", pick(rng, NOUNS)),
        _ => format!("the {} {}", pick(rng, ADJECTIVES), pick(rng, NOUNS)),
    }
}

fn thing(rng: &mut Rng) -> String {
    match rng.below(4) {
        0 => format!("the {}", pick(rng, NOUNS)),
        1 => format!("the {} {}", pick(rng, ADJECTIVES), pick(rng, NOUNS)),
        2 => format!("{}'s {}", name(rng), pick(rng, NOUNS)),
        _ => format!("{} {}", 2 + rng.below(60), plural(rng)),
    }
}

fn plural(rng: &mut Rng) -> String {
    let noun = pick(rng, NOUNS);
    match noun.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'o'])) {
        Some(stem) => format!("{stem}ies"),
        None if noun.ends_with("man") => format!("{}men", &noun[..noun.len() - 3]),
        None if noun.ends_with('s') => format!("{noun}es"),
        None => format!("{noun}s"),
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}
