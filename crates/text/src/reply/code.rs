//! Whether a place in a Markdown text is code. It follows the text from its beginning and never looks
//! ahead; it is no Markdown parser.

/// What came before a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Code {
    /// Only blanks since the line began.
    blank_line: bool,
    /// Backticks just before this place.
    run: usize,
    /// The run before began its line.
    run_leads: bool,
    /// Backticks that opened a fence.
    fence: usize,
    /// Backticks that opened a span on this line.
    span: usize,
}

impl Default for Code {
    fn default() -> Code {
        Code { blank_line: true, run: 0, run_leads: false, fence: 0, span: 0 }
    }
}

impl Code {
    pub(crate) fn push(&mut self, text: &str) {
        text.bytes().for_each(|byte| self.byte(byte));
    }

    /// Whether what follows is code, given that it is no backtick.
    pub(crate) fn is_code(mut self) -> bool {
        self.end_run();
        self.fence > 0 || self.span > 0
    }

    /// Whether nothing but blanks stands before this place on its line.
    pub(crate) fn is_line_start(self) -> bool {
        self.blank_line
    }

    fn byte(&mut self, byte: u8) {
        if byte == b'`' {
            if self.run == 0 {
                self.run_leads = self.blank_line;
            }
            self.run += 1;
            self.blank_line = false;
            return;
        }
        self.end_run();
        match byte {
            b'\n' => (self.blank_line, self.span) = (true, 0),
            b' ' | b'\t' | b'\r' => {}
            _ => self.blank_line = false,
        }
    }

    fn end_run(&mut self) {
        let run = std::mem::take(&mut self.run);
        match (self.fence, self.span) {
            _ if run == 0 => {}
            (0, 0) if run >= 3 && self.run_leads => self.fence = run,
            (0, 0) => self.span = run,
            (0, span) if span == run => self.span = 0,
            (fence, 0) if self.run_leads && run >= fence => self.fence = 0,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_fences() {
        for (text, code) in [
            ("", false),
            ("a `b", true),
            ("a `b` c", false),
            ("a ``b` c", true),
            ("a ` b\nc", false),
            ("```", true),
            ("  ```py\nx\n", true),
            ("```py\nx\n```\n", false),
            ("````\n```\n", true),
            ("```\nx ``` y\n", true),
            ("say ```x``` ", false),
        ] {
            let mut state = Code::default();
            state.push(text);
            assert_eq!(state.is_code(), code, "{text:?}");
        }
    }
}
