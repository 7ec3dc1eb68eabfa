//! What the times of a request, and of several at once, amount to.
//!
//! The rules: a rate of decoding has neither the first token nor its time; tokens are never counted by
//! chunks; prompts and answers are apart; a request that failed has no measures, and is no missing one.

use serde::{Deserialize, Serialize};

use crate::record::{Arrival, Channel, Costs, Expects, Machine, Run, Target, Turn};
use crate::stats::{median, quantile};

/// Something that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Tokens of an answer per second, from the second on.
    DecodeTps,
    /// Tokens of a prompt per second of the time to the first token; cold prompts only, without cached
    /// tokens.
    PrefillTps,
    /// Milliseconds to the first token of a prompt that nobody has seen.
    TtftCold,
    /// The same of a prompt whose beginning the server has answered before.
    TtftWarm,
    /// The same when the server was restarted in between.
    TtftRestarted,
    /// The same, slowest twentieth of several users.
    TtftP95,
    /// Milliseconds to the first token of the answer, thoughts over.
    FirstAnswer,
    /// Milliseconds per token of an answer, from the second on, on average.
    Tpot,
    /// Milliseconds between arrivals: the middle one.
    GapP50,
    /// 95 % are shorter.
    GapP95,
    /// 99 % are shorter.
    GapP99,
    /// The longest.
    GapMax,
    /// Milliseconds from the question to the last token.
    EndToEnd,
    /// Tokens per second of all users together, from the first question to the last token.
    Aggregate,
    /// Tokens per second of one user among many: the middle one's rate of decoding.
    PerUser,
    /// Answers per second that kept the target.
    Goodput,
    /// Share of guessed tokens that were right.
    Accepted,
    /// Share of the machine's bandwidth that decoding used, by the bytes that a token must read.
    Roofline,
    /// Share of the machine's 8-bit arithmetic that prompts used.
    Arithmetic,
    /// Seconds from the start of the process until it was ready.
    Ready,
    /// Milliseconds to the first token of the first request after a start.
    ColdStart,
    /// Megabytes that the processes had for themselves at most.
    PeakPrivate,
    /// Megabytes that they had in memory at most, pages of files included.
    PeakResident,
    /// Joules of the processor per token of an answer.
    Energy,
}

impl Measure {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Measure; 24] = [
        Measure::DecodeTps,
        Measure::PrefillTps,
        Measure::TtftCold,
        Measure::TtftWarm,
        Measure::TtftRestarted,
        Measure::TtftP95,
        Measure::FirstAnswer,
        Measure::Tpot,
        Measure::GapP50,
        Measure::GapP95,
        Measure::GapP99,
        Measure::GapMax,
        Measure::EndToEnd,
        Measure::Aggregate,
        Measure::PerUser,
        Measure::Goodput,
        Measure::Accepted,
        Measure::Roofline,
        Measure::Arithmetic,
        Measure::Ready,
        Measure::ColdStart,
        Measure::PeakPrivate,
        Measure::PeakResident,
        Measure::Energy,
    ];

    /// Its unit.
    pub fn unit(self) -> &'static str {
        match self {
            Measure::DecodeTps | Measure::PrefillTps | Measure::Aggregate | Measure::PerUser => {
                "tok/s"
            }
            Measure::Goodput => "1/s",
            Measure::Accepted | Measure::Roofline | Measure::Arithmetic => "%",
            Measure::Ready => "s",
            Measure::PeakPrivate | Measure::PeakResident => "MB",
            Measure::Energy => "J/tok",
            _ => "ms",
        }
    }

    /// Whether more of it is better.
    pub fn higher_is_better(self) -> bool {
        matches!(self.unit(), "tok/s" | "1/s" | "%")
    }

    /// Its name in files.
    pub fn name(self) -> String {
        serde_json::to_value(self)
            .ok()
            .and_then(|v| v.as_str().map(str::to_owned))
            .unwrap_or_default()
    }
}

/// What is known besides the times.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context<'a> {
    /// What a token costs.
    pub costs: Option<Costs>,
    /// What the machine can do.
    pub machine: Option<&'a Machine>,
    /// What a good answer keeps.
    pub target: Target,
}

/// Values of measures.
pub type Values = Vec<(Measure, f64)>;

/// Where the number of an answer's tokens comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountFrom {
    /// The server says so, and nothing contradicts it.
    Usage,
    /// The server says otherwise, or nothing.
    Tokenizer,
}

/// How far a server's count may be from the tokenizer's: texts may be cut into tokens in several ways.
pub fn counts_agree(usage: u32, counted: u32) -> bool {
    f64::from(usage.abs_diff(counted)) <= f64::max(2.0, 0.02 * f64::from(counted))
}

impl Turn {
    /// Tokens that the tokenizer found in all of the answer.
    pub fn counted_tokens(&self) -> Option<u32> {
        Some(self.counted.answer? + self.counted.thoughts?)
    }

    /// Tokens of the answer, and who says so. `None`: nobody does.
    pub fn tokens(&self) -> Option<(u32, CountFrom)> {
        let usage = self.usage.map(|usage| usage.completion).filter(|&n| n > 0);
        match (usage, self.counted_tokens()) {
            // The end of a text is a token for some, and has no text.
            (Some(usage), Some(counted))
                if usage == counted + 1 && self.finish.as_deref() == Some("stop") =>
            {
                Some((counted, CountFrom::Usage))
            }
            (Some(usage), Some(counted)) if !counts_agree(usage, counted) => {
                Some((counted, CountFrom::Tokenizer))
            }
            (Some(usage), _) => Some((usage, CountFrom::Usage)),
            (None, Some(counted)) if counted > 0 => Some((counted, CountFrom::Tokenizer)),
            (None, _) => None,
        }
    }

    /// Arrivals that came together, as one: when, and how many bytes.
    pub fn chunks(&self) -> Vec<(u64, u32)> {
        let mut chunks: Vec<(u64, u32)> = Vec::new();
        for &Arrival(at, _, bytes) in &self.arrivals {
            match chunks.last_mut() {
                Some(last) if last.0 == at => last.1 += bytes,
                _ => chunks.push((at, bytes)),
            }
        }
        chunks
    }

    /// Tokens that came with the first chunk: by the tokenizer; by bytes where there is none.
    fn first_tokens(&self, n: u32, chunks: &[(u64, u32)]) -> f64 {
        if chunks.len() as u32 == n {
            return 1.0;
        }
        if let Some(first) = self.counted.first {
            return f64::from(first.max(1));
        }
        let bytes: u32 = chunks.iter().map(|chunk| chunk.1).sum();
        let share = f64::from(chunks[0].1) / f64::from(bytes.max(1));
        (share * f64::from(n)).round().max(1.0)
    }

    /// Tokens of the prompt, as the server counts them, else as it was made.
    pub fn prompt_tokens(&self) -> Option<u32> {
        self.usage.map(|usage| usage.prompt).filter(|&n| n > 0).or(self.wanted)
    }

    /// Tokens of the prompt that the server says it did not compute.
    pub fn cached_tokens(&self) -> u32 {
        self.usage.and_then(|usage| usage.cached).unwrap_or(0)
    }

    /// Milliseconds to the first token of any kind.
    pub fn ttft_ms(&self) -> Option<f64> {
        let first = self.arrivals.first()?;
        Some(ms(first.0.saturating_sub(self.asked_us)))
    }

    /// Tokens per second after the first chunk.
    pub fn decode_tps(&self) -> Option<f64> {
        let (n, _) = self.tokens()?;
        let chunks = self.chunks();
        let (first, last) = (chunks.first()?.0, chunks.last()?.0);
        let tokens = f64::from(n) - self.first_tokens(n, &chunks);
        (last > first && tokens > 0.0).then(|| tokens / seconds(last - first))
    }

    /// Tokens of the prompt per second of the time to the first token.
    pub fn prefill_tps(&self) -> Option<f64> {
        let computed = self.prompt_tokens()?.checked_sub(self.cached_tokens())?;
        let ttft = self.ttft_ms()?;
        (ttft > 0.0 && computed > 0).then(|| f64::from(computed) / ttft * 1e3)
    }

    /// Milliseconds between chunks.
    pub fn gaps_ms(&self) -> Vec<f64> {
        self.chunks().windows(2).map(|pair| ms(pair[1].0 - pair[0].0)).collect()
    }

    /// Whether it kept the target.
    fn is_good(&self, target: Target) -> bool {
        let per_token = self.decode_tps().map_or(0.0, |tps| 1e3 / tps);
        self.error.is_none()
            && self.ttft_ms().is_some_and(|ttft| ttft <= target.ttft_ms)
            && per_token <= target.tpot_ms
    }

    /// What it amounts to. Nothing, if it failed.
    pub fn measures(&self, context: &Context) -> Values {
        let mut values = Values::new();
        if self.error.is_some() {
            return values;
        }
        let mut put = |measure, value: Option<f64>| {
            values.extend(value.filter(|value| value.is_finite()).map(|value| (measure, value)));
        };
        let decode = self.decode_tps();
        put(Measure::DecodeTps, decode);
        put(Measure::Tpot, decode.map(|tps| 1e3 / tps));
        let ttft = match self.expects {
            Expects::Cold => Measure::TtftCold,
            Expects::Warm => Measure::TtftWarm,
            Expects::Restarted => Measure::TtftRestarted,
        };
        put(ttft, self.ttft_ms());
        let prefill = self.prefill_tps().filter(|_| self.expects == Expects::Cold);
        put(Measure::PrefillTps, prefill);
        let answer = self.arrivals.iter().find(|arrival| arrival.1 != Channel::Thought);
        let thinks = self.arrivals.iter().any(|arrival| arrival.1 == Channel::Thought);
        let first_answer = answer.filter(|_| thinks).map(|a| ms(a.0.saturating_sub(self.asked_us)));
        put(Measure::FirstAnswer, first_answer);
        let last = self.arrivals.last();
        put(Measure::EndToEnd, last.map(|last| ms(last.0.saturating_sub(self.asked_us))));
        let drafts = self.usage.and_then(|usage| usage.drafted.zip(usage.accepted));
        let accepted = drafts.filter(|drafts| drafts.0 > 0);
        put(Measure::Accepted, accepted.map(|(all, right)| percent(right.into(), all.into())));
        if let (Some(costs), Some(machine)) = (context.costs, context.machine) {
            let n = self.tokens().map_or(0, |(n, _)| n);
            let depth = f64::from(self.prompt_tokens().unwrap_or(0)) + f64::from(n) / 2.0;
            let bytes = costs.weight_bytes + depth * costs.kv_bytes;
            let bandwidth = decode.zip(machine.bandwidth);
            put(Measure::Roofline, bandwidth.map(|(tps, limit)| percent(tps * bytes, limit)));
            let arithmetic = prefill.zip(machine.int8_macs);
            let macs = costs.prompt_macs;
            put(Measure::Arithmetic, arithmetic.map(|(tps, limit)| percent(tps * macs, limit)));
        }
        values
    }
}

impl Run {
    /// Users that asked at once.
    pub fn users(&self) -> usize {
        let mut users: Vec<u32> = self.turns.iter().map(|turn| turn.user).collect();
        users.sort_unstable();
        users.dedup();
        users.len()
    }

    /// What it amounts to: of each measure of a request the middle one of all its sound requests, and what
    /// only several together have. `is_sound` says of each request whether its numbers may be used.
    pub fn measures(&self, context: &Context, is_sound: impl Fn(&Turn) -> bool) -> Values {
        let sound: Vec<&Turn> =
            self.turns.iter().filter(|turn| turn.error.is_none() && is_sound(turn)).collect();
        let each: Vec<Values> = sound.iter().map(|turn| turn.measures(context)).collect();
        let mut values = Values::new();
        for measure in Measure::ALL {
            let all: Vec<f64> =
                each.iter().flatten().filter(|v| v.0 == measure).map(|v| v.1).collect();
            if !all.is_empty() {
                values.push((measure, median(&all)));
            }
        }
        values.extend(gaps(&sound));
        values.extend(self.energy(&sound));
        let users = self.users();
        if users > 1 {
            // Bandwidth is shared: a user's rate says nothing about it.
            values.retain(|value| value.0 != Measure::Roofline && value.0 != Measure::DecodeTps);
        }
        // One user is the first point of a curve over users.
        if users > 1 || self.cell.axis == "users" {
            values.extend(self.together(context.target, &sound));
        }
        values
    }

    fn together(&self, target: Target, sound: &[&Turn]) -> Values {
        let mut values = Values::new();
        let begin = self.turns.iter().map(|turn| turn.asked_us).min().unwrap_or(0);
        let end = sound.iter().filter_map(|turn| turn.arrivals.last()).map(|last| last.0).max();
        let span = end.map_or(0.0, |end| seconds(end.saturating_sub(begin)));
        if span > 0.0 {
            let tokens: u32 = sound.iter().filter_map(|turn| turn.tokens()).map(|(n, _)| n).sum();
            values.push((Measure::Aggregate, f64::from(tokens) / span));
            let good = sound.iter().filter(|turn| turn.is_good(target)).count();
            values.push((Measure::Goodput, good as f64 / span));
        }
        let ttft: Vec<f64> = sound.iter().filter_map(|turn| turn.ttft_ms()).collect();
        let rates: Vec<f64> = sound.iter().filter_map(|turn| turn.decode_tps()).collect();
        if !ttft.is_empty() {
            values.push((Measure::TtftP95, quantile(&ttft, 0.95)));
        }
        if !rates.is_empty() {
            values.push((Measure::PerUser, median(&rates)));
        }
        values
    }

    fn energy(&self, sound: &[&Turn]) -> Option<(Measure, f64)> {
        let tokens: u32 = sound.iter().filter_map(|turn| turn.tokens()).map(|(n, _)| n).sum();
        let joules = self.after.joules? - self.before.joules?;
        // Counters start again from zero.
        (tokens > 0 && joules > 0.0).then(|| (Measure::Energy, joules / f64::from(tokens)))
    }
}

fn gaps(turns: &[&Turn]) -> Values {
    let gaps: Vec<f64> = turns.iter().flat_map(|turn| turn.gaps_ms()).collect();
    if gaps.is_empty() {
        return Values::new();
    }
    let at = |p| quantile(&gaps, p);
    vec![
        (Measure::GapP50, at(0.5)),
        (Measure::GapP95, at(0.95)),
        (Measure::GapP99, at(0.99)),
        (Measure::GapMax, at(1.0)),
    ]
}

fn percent(part: f64, of: f64) -> f64 {
    100.0 * part / of
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

fn ms(us: u64) -> f64 {
    us as f64 / 1e3
}
