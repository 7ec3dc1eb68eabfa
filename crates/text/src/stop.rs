//! Stop strings on a stream of text. Stop *tokens* are the engine's business.

/// What may be shown after a push.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pushed {
    /// Text that is certainly not part of a stop string.
    pub text: String,
    /// A stop string was found: nothing more will come.
    pub stopped: bool,
}

/// Finds the stop string that is complete first, however the text is cut, and holds back only what
/// may still become one. Of two that end at the same place the one that began first wins.
#[derive(Clone, Debug, Default)]
pub struct StopMatcher {
    stops: Vec<String>,
    held: String,
    /// Which of them came.
    found: Option<usize>,
}

impl StopMatcher {
    /// A matcher for these strings; empty ones are ignored.
    pub fn new(stops: Vec<String>) -> StopMatcher {
        let stops = stops.into_iter().filter(|stop| !stop.is_empty()).collect();
        StopMatcher { stops, held: String::new(), found: None }
    }

    /// Adds text; returns what may be shown.
    pub fn push(&mut self, text: &str) -> Pushed {
        if self.found.is_some() {
            return Pushed { text: String::new(), stopped: true };
        }
        self.held.push_str(text);
        if let Some((at, which)) = self.first_stop() {
            self.found = Some(which);
            self.held.truncate(at);
            return Pushed { text: std::mem::take(&mut self.held), stopped: true };
        }
        let rest = self.held.split_off(self.held.len() - self.possible_stop());
        Pushed { text: std::mem::replace(&mut self.held, rest), stopped: false }
    }

    /// Which stop string came, counted without empty ones.
    pub fn found(&self) -> Option<usize> {
        self.found
    }

    /// The text has ended: what was held back was no stop string after all.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Where the stop string that is complete first begins, and which it is: this order does not
    /// depend on cuts.
    fn first_stop(&self) -> Option<(usize, usize)> {
        let stops = self.stops.iter().enumerate();
        let found = stops.filter_map(|(n, stop)| Some((self.held.find(stop)?, stop.len(), n)));
        found.min_by_key(|&(at, len, _)| (at + len, at)).map(|(at, _, n)| (at, n))
    }

    /// Length of the longest tail of `held` that begins a stop string.
    fn possible_stop(&self) -> usize {
        let tail = |stop: &String| {
            let mut cuts = (1..stop.len()).rev().filter(|&at| stop.is_char_boundary(at));
            cuts.find(|&at| self.held.ends_with(&stop[..at]))
        };
        self.stops.iter().filter_map(tail).max().unwrap_or(0)
    }
}
