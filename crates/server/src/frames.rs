//! Bytes of a streamed answer. Writers append frames here and know nothing of HTTP.

use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;

/// A buffer of server-sent events, or of lines.
#[derive(Default)]
pub(crate) struct Frames {
    bytes: BytesMut,
}

impl Frames {
    /// One unnamed event that holds a JSON value.
    pub(crate) fn data(&mut self, value: &impl Serialize) {
        self.bytes.extend_from_slice(b"data: ");
        // Serialised JSON has no raw line breaks, so one `data:` line always holds it.
        self.json(value);
        self.bytes.extend_from_slice(b"\n\n");
    }

    fn json(&mut self, value: &impl Serialize) {
        // What writers send has nothing that JSON could not say, and memory takes all of it.
        let _ = serde_json::to_writer((&mut self.bytes).writer(), value);
    }

    /// One unnamed event that holds a fixed word.
    pub(crate) fn word(&mut self, word: &str) {
        self.bytes.extend_from_slice(b"data: ");
        self.bytes.extend_from_slice(word.as_bytes());
        self.bytes.extend_from_slice(b"\n\n");
    }

    /// One event of a name that holds a JSON value.
    pub(crate) fn event(&mut self, name: &str, value: &impl Serialize) {
        self.bytes.extend_from_slice(b"event: ");
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.extend_from_slice(b"\n");
        self.data(value);
    }

    /// A comment, which every reader of events skips.
    pub(crate) fn comment(&mut self, words: &str) {
        self.bytes.extend_from_slice(b": ");
        self.bytes.extend_from_slice(words.as_bytes());
        self.bytes.extend_from_slice(b"\n\n");
    }

    /// A JSON value on a line of its own.
    pub(crate) fn line(&mut self, value: &impl Serialize) {
        self.json(value);
        self.bytes.extend_from_slice(b"\n");
    }

    /// Takes what was written so far, if anything.
    pub(crate) fn take(&mut self) -> Option<Bytes> {
        (!self.bytes.is_empty()).then(|| self.bytes.split().freeze())
    }
}
