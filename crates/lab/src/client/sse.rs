//! Server-sent events out of whatever pieces the network delivers. Knows nothing of what they mean.

/// Longest event that is waited for.
const LONGEST: usize = 16 << 20;

/// Collects bytes and gives the data of every event that is complete.
#[derive(Debug, Default)]
pub struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    after_cr: bool,
}

/// An event that never ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl Events {
    /// Takes more bytes; calls `event` with the data of each event that they complete.
    ///
    /// # Errors
    /// [`TooLong`] for an event beyond 16 MiB.
    pub fn push(&mut self, bytes: &[u8], mut event: impl FnMut(&[u8])) -> Result<(), TooLong> {
        for &byte in bytes {
            // CR, LF and CRLF all end a line.
            let is_lf_of_crlf = byte == b'\n' && std::mem::take(&mut self.after_cr);
            match byte {
                b'\n' if is_lf_of_crlf => (),
                b'\n' | b'\r' => {
                    self.after_cr = byte == b'\r';
                    self.end_line(&mut event);
                }
                _ => {
                    self.after_cr = false;
                    self.line.push(byte);
                }
            }
            if self.line.len() + self.data.len() > LONGEST {
                return Err(TooLong);
            }
        }
        Ok(())
    }

    fn end_line(&mut self, event: &mut impl FnMut(&[u8])) {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            if std::mem::take(&mut self.has_data) {
                event(&std::mem::take(&mut self.data));
            }
        } else if let Some(value) = line.strip_prefix(b"data:") {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
            self.has_data = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<String> {
        let mut all = Vec::new();
        let mut events = Events::default();
        for piece in pieces {
            let keep = |data: &[u8]| all.push(String::from_utf8_lossy(data).into_owned());
            events.push(piece, keep).unwrap();
        }
        all
    }

    #[test]
    fn the_examples_of_the_standard() {
        // From the section on interpreting an event stream of the HTML standard.
        assert_eq!(events(&[b"data: YHOO\ndata: +2\ndata: 10\n\n"]), ["YHOO\n+2\n10"]);
        let text = b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n";
        assert_eq!(events(&[text]), ["first event", "second event", " third event"]);
        assert_eq!(events(&[b"data\n\ndata: x\r\n\r\n\r\ndata: y\r\r"]), ["x", "y"]);
        assert_eq!(events(&[b"data: not ended\n"]), [""; 0]);
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_events(
            lines in prop::collection::vec("(data:|data: |: |id: )?[a-z ]{0,6}(\r\n|\n|\r)", 0..20),
            cut in any::<prop::sample::Index>(),
        ) {
            let text = lines.concat();
            let cut = cut.index(text.len() + 1);
            let (head, tail) = text.as_bytes().split_at(cut);
            prop_assert_eq!(events(&[text.as_bytes()]), events(&[head, tail]));
        }
    }
}
