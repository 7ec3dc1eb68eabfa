//! Reads one JSON value off a growing text, without building it: arguments go on to the client while
//! they arrive. Whether the value is what a tool wants is not checked here.

use crate::reply::End;
use crate::reply::cursor::Cursor;

/// Where in a value the reader is.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// Closing brackets that are due, the innermost last.
    due: Vec<u8>,
    string: Option<Escape>,
    begun: bool,
    /// The last thing that was no blank; tells whether the value could be closed here.
    last: u8,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Escape {
    None,
    Backslash,
}

/// How far a value has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Progress {
    /// It is complete.
    Whole,
    /// It goes on.
    Partial,
    /// It will never be complete.
    Broken,
}

impl Scan {
    /// Reads on and appends what was read to `out`, as valid JSON as the model's was but for raw
    /// control characters in strings, which are escaped. Where the model ended its answer in the
    /// middle, the value is completed if nothing but brackets is missing.
    pub(crate) fn read(&mut self, input: &mut Cursor, out: &mut String) -> Progress {
        self.read_to(input, out, usize::MAX)
    }

    /// The same, but `out` grows no longer than one character beyond so many bytes: the place where a
    /// reader gives up must not depend on how the text arrives.
    pub(crate) fn read_to(
        &mut self,
        input: &mut Cursor,
        out: &mut String,
        most: usize,
    ) -> Progress {
        let mut n_read = 0;
        let mut whole = false;
        for (at, character) in input.rest().char_indices() {
            if self.begun
                && self.due.is_empty()
                && self.string.is_none()
                && self.ends_scalar(character)
            {
                (whole, n_read) = (true, at);
                break;
            }
            n_read = at + character.len_utf8();
            self.put(character, out);
            if self.begun && self.due.is_empty() && self.string.is_none() && self.is_closed() {
                whole = true;
                break;
            }
            if out.len() > most {
                break;
            }
        }
        input.look(n_read + 1);
        input.skip(n_read);
        if whole {
            return Progress::Whole;
        }
        if out.len() > most {
            return Progress::Partial;
        }
        match input.end() {
            None => Progress::Partial,
            Some(End::Cut) => Progress::Broken,
            Some(End::Model) => self.complete(out),
        }
    }

    /// A number or a word ends before what cannot be part of one.
    fn ends_scalar(&self, next: char) -> bool {
        !matches!(self.last, b'}' | b']' | b'"')
            && (next.is_whitespace()
                || matches!(next, ',' | '}' | ']' | ':' | '<' | ';' | '[' | '`'))
    }

    fn is_closed(&self) -> bool {
        matches!(self.last, b'}' | b']' | b'"')
    }

    fn put(&mut self, character: char, out: &mut String) {
        if let Some(escape) = self.string {
            self.string = match (escape, character) {
                (Escape::Backslash, _) => Some(Escape::None),
                (Escape::None, '\\') => Some(Escape::Backslash),
                (Escape::None, '"') => None,
                (Escape::None, _) => Some(Escape::None),
            };
            self.last = b'"';
            match character {
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                '\r' => out.push_str("\\r"),
                control if control < ' ' => out.push_str(&format!("\\u{:04x}", control as u32)),
                other => out.push(other),
            }
            return;
        }
        match character {
            '{' => self.due.push(b'}'),
            '[' => self.due.push(b']'),
            '}' | ']' => {
                self.due.pop();
            }
            '"' => self.string = Some(Escape::None),
            _ => {}
        }
        if !character.is_whitespace() {
            self.begun = true;
            self.last = u8::try_from(character).unwrap_or(b'a');
        }
        out.push(character);
    }

    fn complete(&mut self, out: &mut String) -> Progress {
        if !self.begun || self.string.is_some() || matches!(self.last, b',' | b':') {
            return Progress::Broken;
        }
        while let Some(bracket) = self.due.pop() {
            out.push(char::from(bracket));
        }
        Progress::Whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, value: &str, rest: &str, progress: Progress) {
        for cut in (0..=text.len()).filter(|&at| text.is_char_boundary(at)) {
            let (mut cursor, mut scan, mut out) =
                (Cursor::default(), Scan::default(), String::new());
            cursor.push(&text[..cut]);
            let mut at = scan.read(&mut cursor, &mut out);
            cursor.push(&text[cut..]);
            cursor.close(End::Model);
            if at == Progress::Partial {
                at = scan.read(&mut cursor, &mut out);
            }
            assert_eq!((out.as_str(), cursor.rest(), at), (value, rest, progress), "cut at {cut}");
        }
    }

    #[test]
    fn values_end_where_they_end() {
        check(r#"{"a": "}\"é", "b": [1]} x"#, r#"{"a": "}\"é", "b": [1]}"#, " x", Progress::Whole);
        check("12, 3", "12", ", 3", Progress::Whole);
        check("\"a\"b", "\"a\"", "b", Progress::Whole);
        check("true", "true", "", Progress::Whole);
        check("{\"a\": \"x\ny\"}", "{\"a\": \"x\\ny\"}", "", Progress::Whole);
        check(r#"{"a": [1"#, r#"{"a": [1]}"#, "", Progress::Whole);
        check(r#"{"a": "b"#, r#"{"a": "b"#, "", Progress::Broken);
        check(r#"{"a": "#, r#"{"a": "#, "", Progress::Broken);
    }
}
