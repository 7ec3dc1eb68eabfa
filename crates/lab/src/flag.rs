//! Doubts about a measurement: what was found wrong with it, and whether its numbers may still be used.

use serde::Serialize;

use crate::measure::{Context, CountFrom, counts_agree};
use crate::record::{Expects, Machine, Run, State, Trouble, Turn};

/// A rate of prompts beyond the machine's peak by more than this cannot be: the peak is measured too.
const PEAK_SLACK: f64 = 1.1;
/// A warm prompt that is this many times as fast as a cold one was cached, whatever the server says.
const SILENT: f64 = 3.0;
/// So many cached tokens of a cold prompt may belong to the template, where its length is not known.
const TEMPLATE_TOKENS: u32 = 64;
/// Processors kept busy by others before a run, at most.
const FOREIGN: f64 = 0.15;

/// Something that is wrong, or strange.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "flag", rename_all = "snake_case")]
pub enum Flag {
    /// The request failed.
    Failed {
        /// How.
        trouble: Trouble,
    },
    /// A prompt that nobody has seen was found in a cache.
    ColdHit {
        /// Tokens that the server says were cached.
        cached: u32,
    },
    /// More cached tokens than there were tokens.
    CachedTooMany {
        /// Tokens that the server says were cached.
        cached: u32,
        /// Tokens of the prompt.
        prompt: u32,
    },
    /// The machine cannot have computed the prompt in that time.
    ImpossiblePrefill {
        /// Tokens per second.
        tps: f64,
        /// Tokens per second that its arithmetic allows.
        limit: f64,
    },
    /// No count of tokens by the server.
    NoUsage,
    /// The server's count of the answer's tokens is not that of the tokenizer.
    CountsDiffer {
        /// The server's.
        usage: u32,
        /// The tokenizer's.
        counted: u32,
    },
    /// Nobody knows how many tokens there were.
    NoCount,
    /// The server says it cached nothing, and was too fast for that.
    SilentHit {
        /// How many times as fast as a cold prompt.
        times: f64,
    },
    /// Several tokens came at once, so gaps are between bundles.
    Bundles {
        /// Tokens per chunk.
        tokens: f64,
    },
    /// The prompt has another length than was asked for.
    PromptLength {
        /// Asked for.
        wanted: u32,
        /// What the server counts.
        got: u32,
    },
    /// The answer ended before the number of tokens that was asked for.
    ShortAnswer {
        /// Asked for.
        wanted: u32,
        /// Tokens there were.
        got: u32,
    },
    /// Others used the machine before the run.
    Busy {
        /// Processors that they kept busy.
        processors: f64,
    },
    /// The clock was lower after the run than before.
    Throttled {
        /// Of what it was before.
        percent: f64,
    },
}

impl Flag {
    /// Whether the numbers of the request must not be used.
    pub fn is_fatal(&self) -> bool {
        matches!(
            self,
            Flag::Failed { .. }
                | Flag::ColdHit { .. }
                | Flag::CachedTooMany { .. }
                | Flag::ImpossiblePrefill { .. }
        )
    }

    /// Its name in files.
    pub fn name(&self) -> String {
        let value = serde_json::to_value(self).unwrap_or_default();
        value["flag"].as_str().unwrap_or_default().to_owned()
    }
}

impl Turn {
    /// What is wrong with it. `template` is how many tokens the chat template adds, where that is known.
    pub fn flags(&self, context: &Context, template: Option<u32>) -> Vec<Flag> {
        if let Some(trouble) = &self.error {
            return vec![Flag::Failed { trouble: trouble.clone() }];
        }
        let mut flags = Vec::new();
        self.doubt_prompt(context, template, &mut flags);
        self.doubt_answer(&mut flags);
        flags
    }

    fn doubt_prompt(&self, context: &Context, template: Option<u32>, flags: &mut Vec<Flag>) {
        let cached = self.cached_tokens();
        if let Some(prompt) = self.prompt_tokens()
            && cached > prompt
        {
            flags.push(Flag::CachedTooMany { cached, prompt });
        }
        if self.expects == Expects::Cold {
            if cached > template.unwrap_or(TEMPLATE_TOKENS) {
                flags.push(Flag::ColdHit { cached });
            }
            // A peak that was measured beside others' work is too low to doubt anything by.
            let alone = |machine: &&Machine| machine.foreign.is_none_or(|busy| busy <= FOREIGN);
            let peak = context.machine.filter(alone).and_then(|machine| machine.int8_macs);
            if let (Some(peak), Some(costs), Some(tps)) = (peak, context.costs, self.prefill_tps())
            {
                let limit = peak / costs.prompt_macs;
                if tps > PEAK_SLACK * limit {
                    flags.push(Flag::ImpossiblePrefill { tps, limit });
                }
            }
        }
        if let (Some(wanted), Some(got)) = (self.wanted, self.usage.map(|usage| usage.prompt)) {
            // A token or two may join where texts meet.
            if f64::from(got.abs_diff(wanted)) > f64::max(2.0, 0.01 * f64::from(wanted)) {
                flags.push(Flag::PromptLength { wanted, got });
            }
        }
    }

    fn doubt_answer(&self, flags: &mut Vec<Flag>) {
        match (self.usage.map(|usage| usage.completion), self.counted_tokens()) {
            (None | Some(0), _) => flags.push(Flag::NoUsage),
            (Some(usage), Some(counted)) if !counts_agree(usage, counted) => {
                flags.push(Flag::CountsDiffer { usage, counted });
            }
            _ => (),
        }
        let Some((n, from)) = self.tokens() else {
            flags.push(Flag::NoCount);
            return;
        };
        let chunks = self.chunks().len() as f64;
        let tokens = f64::from(n) / chunks.max(1.0);
        if chunks > 0.0 && tokens > 1.2 {
            flags.push(Flag::Bundles { tokens });
        }
        let slack = if from == CountFrom::Tokenizer { 2 } else { 1 };
        if self.max_tokens > 0 && n + slack < self.max_tokens {
            flags.push(Flag::ShortAnswer { wanted: self.max_tokens, got: n });
        }
    }
}

impl Run {
    /// What is wrong with each of its requests, and with the run as a whole.
    pub fn flags(&self, context: &Context, template: Option<u32>) -> (Vec<Vec<Flag>>, Vec<Flag>) {
        let mut each: Vec<Vec<Flag>> =
            self.turns.iter().map(|turn| turn.flags(context, template)).collect();
        let mut cold: Vec<f64> = self.apparent_rates(Expects::Cold).map(|rate| rate.1).collect();
        cold.sort_by(f64::total_cmp);
        if let Some(&fastest) = cold.last() {
            for (i, rate) in self.apparent_rates(Expects::Warm) {
                let silent = self.turns[i].cached_tokens() == 0 && rate > SILENT * fastest;
                each[i].extend(silent.then(|| Flag::SilentHit { times: rate / fastest }));
            }
        }
        (each, doubt_machine(self.before, self.after))
    }

    /// Tokens of whole prompts per second, as if nothing was cached, of those that are long enough to say
    /// something.
    fn apparent_rates(&self, of: Expects) -> impl Iterator<Item = (usize, f64)> {
        let turns = self.turns.iter().enumerate().filter(move |turn| turn.1.expects == of);
        turns.filter_map(|(i, turn)| {
            let prompt = turn.prompt_tokens().filter(|&n| n >= 64)?;
            let ttft = turn.ttft_ms().filter(|_| turn.error.is_none())?;
            (ttft > 0.0).then(|| (i, f64::from(prompt) / ttft * 1e3))
        })
    }
}

fn doubt_machine(before: State, after: State) -> Vec<Flag> {
    let busy = before.foreign.filter(|&processors| processors > FOREIGN);
    let mut flags: Vec<Flag> =
        busy.map(|processors| Flag::Busy { processors }).into_iter().collect();
    if let (Some(before), Some(after)) = (before.mhz, after.mhz)
        && after < 0.9 * before
    {
        flags.push(Flag::Throttled { percent: 100.0 * after / before });
    }
    flags
}
