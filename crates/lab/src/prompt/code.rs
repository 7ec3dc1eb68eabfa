//! Programs: functions of several shapes with names of their own. They are read, not run.

use super::words::{ACTIONS, IDENTIFIERS};
use crate::rng::Rng;

/// Functions in Python of at least so many characters together.
pub fn code(rng: &mut Rng, chars: usize) -> String {
    let mut text = String::with_capacity(chars + 400);
    while text.len() < chars {
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(&function(rng));
    }
    text
}

fn pick(rng: &mut Rng, of: &'static [&'static str]) -> &'static str {
    rng.pick(of).copied().unwrap_or_default()
}

fn function(rng: &mut Rng) -> String {
    let [a, b, c, d] = std::array::from_fn(|_| pick(rng, IDENTIFIERS));
    let (action, other) = (pick(rng, ACTIONS), pick(rng, ACTIONS));
    let (n, m) = (2 + rng.below(500), 1 + rng.below(50));
    match rng.below(4) {
        0 => format!(
            "def {action}_{a}({b}s, {c}={n}):\n    \"\"\"Returns the {a} of every {b} above {c}.\"\"\"\n    \
             {d} = {m}\n    for item in {b}s:\n        if item.{a} > {c}:\n            {d} += item.{a} * \
             {m}\n    return {d}"
        ),
        1 => format!(
            "def {action}_{a}_{b}(path, {c}=None):\n    with open(path) as file:\n        {d}s = \
             [line.split(\",\") for line in file]\n    if {c} is None:\n        {c} = len({d}s) // {m}\n    \
             return {{{d}[0]: {d}[{m}:] for {d} in {d}s[:{c}]}}"
        ),
        2 => format!(
            "class {}{}:\n    def __init__(self, {b}, {c}={n}):\n        self.{b} = {b}\n        self.{c} = \
             {c}\n\n    def {action}(self, {d}):\n        while self.{c} > {m}:\n            self.{c} -= \
             self.{other}({d})\n        return self.{b}[{d} % {n}]",
            title(a),
            title(b)
        ),
        _ => format!(
            "def {other}_{c}({a}, {b}):\n    try:\n        {d} = {a}[{b}] + {n}\n    except KeyError:\n        \
             raise ValueError(f\"no {a} for {{{b}}}\") from None\n    return max({d}, {m})"
        ),
    }
}

fn title(word: &str) -> String {
    let (head, tail) = word.split_at(1);
    head.to_uppercase() + tail
}
