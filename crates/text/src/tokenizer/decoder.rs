//! How one token's spelling becomes text, read from the tokenizer's decoder. It keeps no state of a
//! stream: that is [`crate::Detokenizer`].

use serde_json::Value;

use crate::Error;

/// The decoders that language models use.
#[derive(Clone, Debug)]
pub(crate) enum Decoder {
    /// Byte-level BPE: each character of a spelling stands for a byte.
    Bytes,
    /// SentencePiece spellings with replacements and `<0xNN>` bytes.
    Pieces(PieceRules),
    /// SentencePiece spellings without bytes.
    Metaspace(MetaspaceRules),
    /// Words in pieces that are glued by a prefix.
    WordPiece(WordPieceRules),
    /// No decoder: tokens joined with spaces.
    Spaced,
}

/// Rules of a sequence of Replace, ByteFallback, Fuse and Strip.
#[derive(Clone, Debug)]
pub(crate) struct PieceRules {
    replace: Vec<(String, String)>,
    byte_fallback: bool,
    /// The character dropped at the start of a text.
    pub(crate) strip_char: char,
    /// How many of them at most.
    pub(crate) strip_start: usize,
}

/// Rules of the Metaspace decoder.
#[derive(Clone, Debug)]
pub(crate) struct MetaspaceRules {
    mark: char,
    /// The first token loses its marks.
    drop_first: bool,
}

/// Rules of the WordPiece decoder.
#[derive(Clone, Debug)]
pub(crate) struct WordPieceRules {
    prefix: String,
    cleanup: bool,
}

impl Decoder {
    /// Reads a decoder in the form tokenizer.json has it.
    pub(crate) fn parse(decoder: &Value) -> Result<Decoder, Error> {
        let unknown = || Error::Decoder(decoder.to_string());
        match kind(decoder) {
            "" if decoder.is_null() => Ok(Decoder::Spaced),
            "ByteLevel" => Ok(Decoder::Bytes),
            "Metaspace" => {
                let mark = text(decoder, "replacement").chars().next().unwrap_or('▁');
                let drop_first = text(decoder, "prepend_scheme") != "never";
                Ok(Decoder::Metaspace(MetaspaceRules { mark, drop_first }))
            }
            "WordPiece" => Ok(Decoder::WordPiece(WordPieceRules {
                prefix: text(decoder, "prefix").into(),
                cleanup: decoder["cleanup"].as_bool().unwrap_or(true),
            })),
            "Sequence" => {
                let steps = decoder["decoders"].as_array().ok_or_else(unknown)?;
                match steps.as_slice() {
                    [one] => Decoder::parse(one),
                    steps => PieceRules::parse(steps).map(Decoder::Pieces).ok_or_else(unknown),
                }
            }
            "Replace" | "ByteFallback" | "Fuse" => {
                let steps = std::slice::from_ref(decoder);
                PieceRules::parse(steps).map(Decoder::Pieces).ok_or_else(unknown)
            }
            _ => Err(unknown()),
        }
    }

    /// The bytes one token stands for in the middle of a text.
    pub(crate) fn bytes(&self, token: &str) -> Vec<u8> {
        match self {
            Decoder::Bytes => unmap_bytes(token),
            Decoder::Pieces(rules) => {
                let token = rules.replaced(token);
                rules.byte(&token).map_or_else(|| token.into_bytes(), |byte| vec![byte])
            }
            Decoder::Metaspace(rules) => rules.text(token, false).into_bytes(),
            Decoder::WordPiece(rules) => rules.text(token, false).into_bytes(),
            Decoder::Spaced => format!(" {token}").into_bytes(),
        }
    }
}

impl Decoder {
    /// A spelling that stands for a byte of no particular character.
    pub(crate) fn is_byte(&self, token: &str) -> bool {
        matches!(self, Decoder::Pieces(rules) if rules.byte(token).is_some())
    }
}

impl PieceRules {
    /// `None` when a step is unknown or stands where its order would matter.
    fn parse(steps: &[Value]) -> Option<PieceRules> {
        let mut rules = PieceRules {
            replace: Vec::new(),
            byte_fallback: false,
            strip_char: ' ',
            strip_start: 0,
        };
        let mut fused = false;
        for step in steps {
            match kind(step) {
                "Replace" if !fused && !rules.byte_fallback => {
                    let pattern = step["pattern"]["String"].as_str()?;
                    rules.replace.push((pattern.into(), text(step, "content").into()));
                }
                "ByteFallback" if !fused => rules.byte_fallback = true,
                "Fuse" => fused = true,
                "Strip" if fused && step["stop"].as_u64() == Some(0) && rules.strip_start == 0 => {
                    rules.strip_char = text(step, "content").chars().next()?;
                    rules.strip_start = usize::try_from(step["start"].as_u64()?).ok()?;
                }
                _ => return None,
            }
        }
        Some(rules)
    }

    pub(crate) fn replaced(&self, token: &str) -> String {
        let replace = |token: String, (from, to): &(String, String)| token.replace(from, to);
        self.replace.iter().fold(token.to_owned(), replace)
    }

    /// The byte of a `<0xNN>` token.
    pub(crate) fn byte(&self, token: &str) -> Option<u8> {
        let hex = token.strip_prefix("<0x")?.strip_suffix('>')?;
        let plain = hex.len() == 2 && self.byte_fallback;
        plain.then(|| u8::from_str_radix(hex, 16).ok()).flatten()
    }
}

impl MetaspaceRules {
    pub(crate) fn text(&self, token: &str, first: bool) -> String {
        match first && self.drop_first {
            true => token.replace(self.mark, ""),
            false => token.replace(self.mark, " "),
        }
    }
}

impl WordPieceRules {
    pub(crate) fn text(&self, token: &str, first: bool) -> String {
        let glued = token.strip_prefix(&self.prefix).filter(|_| !first);
        let text = match glued {
            Some(rest) => rest.to_owned(),
            None if first => token.to_owned(),
            None => format!(" {token}"),
        };
        match self.cleanup {
            true => cleaned(&text),
            false => text,
        }
    }
}

/// The spaces English does not write, as the tokenizer's decoder takes them out, in its order.
fn cleaned(text: &str) -> String {
    const GLUE: [(&str, &str); 11] = [
        (" .", "."),
        (" ?", "?"),
        (" !", "!"),
        (" ,", ","),
        (" ' ", "'"),
        (" n't", "n't"),
        (" 'm", "'m"),
        (" do not", " don't"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    ];
    GLUE.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// The bytes of a byte-level spelling; a spelling with any other character stands for itself.
pub(crate) fn unmap_bytes(token: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = token.chars().map(unmap_byte).collect();
    bytes.unwrap_or_else(|| token.as_bytes().to_vec())
}

/// Printable Latin-1 characters stand for their own code; the other 68 bytes, in order, are the
/// characters from U+0100 on.
fn unmap_byte(c: char) -> Option<u8> {
    let own = |b: u8| matches!(b, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    match u32::from(c) {
        code @ 0..=0xFF => u8::try_from(code).ok().filter(|&b| own(b)),
        code @ 0x100..=0x143 => (0..=u8::MAX).filter(|&b| !own(b)).nth((code - 0x100) as usize),
        _ => None,
    }
}

fn kind(step: &Value) -> &str {
    text(step, "type")
}

fn text<'a>(step: &'a Value, key: &str) -> &'a str {
    step[key].as_str().unwrap_or_default()
}
