//! Where the recurrent states of a sequence are kept, and what layers that see only a window need, for
//! others to go on from.
//!
//! Not for how long: that is the cache's business. What stands here changes what has to be computed
//! again, never what comes out.
//!
//! Where prompts part is known from others that parted there, and from whoever made the request; and
//! what is asked again goes on from its end. That keeping states at such places is enough is what
//! Marconi found (Pan et al. 2024, arXiv 2411.19379).

use backend::BLOCK;

use crate::cache::{Stay, Stop};
use crate::engine::{Engine, Running};
use crate::share::common_start;

/// Tokens of a prompt from one state that is kept on the way to the next, at least.
const INTERVAL: usize = 1024;
/// One prompt keeps at most one in so many of all states on its way.
const ON_THE_WAY: usize = 4;

impl Engine {
    /// Where states or windows of a sequence are to be kept during its next `rows` rows, in order:
    /// - to stay, where a prompt ends, where the request says that others may part from it, and where
    ///   others did;
    /// - for as long as there is room, every so often in a long prompt;
    /// - as long as nothing better comes, where its last whole block ends.
    pub(crate) fn stops(&self, idx: usize, rows: usize) -> Vec<Stop> {
        let run = &self.running[idx];
        let start = self.book.len(run.key);
        let ends = start + 1..start + rows + 1;
        let whole = |n: usize| n / BLOCK * BLOCK;
        if !(self.book.has_states() || self.book.has_window()) || whole(start + rows) <= start {
            return Vec::new();
        }
        let mut stops = vec![Stop { at: whole(start + rows), stay: Stay::Trailing }];
        let seq = &run.seq;
        if start < seq.n_prompt {
            let marks = seq.request.marks.iter().filter(|mark| **mark <= seq.n_prompt).copied();
            let lasting =
                marks.chain([seq.request.pin.min(seq.n_prompt), seq.n_prompt - 1, seq.known]);
            let lasting = lasting.chain(self.partings(run, start)).map(whole);
            stops.extend(lasting.map(|at| Stop { at, stay: Stay::Lasting }));
            let interval = self.interval(seq.n_prompt);
            let on_the_way = (1..).map(|n| n * interval).skip_while(|at| *at <= start);
            let on_the_way = on_the_way.take_while(|at| *at <= seq.n_prompt.min(start + rows));
            stops.extend(on_the_way.map(|at| Stop { at, stay: Stay::Passing }));
        }
        stops.retain(|stop| ends.contains(&stop.at));
        stops.sort_by_key(|stop| (stop.at, std::cmp::Reverse(stop.stay)));
        stops.dedup_by_key(|stop| stop.at);
        stops
    }

    /// How much of `run` others have, that run and could go on from there.
    fn partings(&self, run: &Running, start: usize) -> impl Iterator<Item = usize> {
        let behind =
            move |other: &&Running| other.key != run.key && self.book.len(other.key) <= start;
        self.running.iter().filter(behind).map(move |other| common_start(other, run))
    }

    /// Tokens from one state on the way of a prompt to the next.
    fn interval(&self, n_prompt: usize) -> usize {
        let most = (self.executor.shape().n_slots / ON_THE_WAY).max(1);
        INTERVAL.max(n_prompt.div_ceil(most).next_multiple_of(BLOCK))
    }
}
