//! `{"name": "f", "parameters": {…}}`, alone or after `<|python_tag|>`, and `<function=f>{…}</function>`:
//! Llama 3.1 and later. Calls in Python's manner are read too.

use super::shape::json::{Arguments, JsonCalls, JsonParser};
use super::shape::named::{Head, NamedCalls, NamedParser};
use super::shape::python::{PythonCalls, PythonParser};
use super::spelling::{OBJECT, Spelling};
use super::{CallParser, Opener, ToolFormat};

const TAG: &str = "<|python_tag|>";

static TAGGED: JsonCalls = JsonCalls {
    opens: &[TAG],
    closes: &[],
    separators: &["{", ";", ","],
    arguments: Arguments::Optional,
};

static BARE: JsonCalls = JsonCalls {
    opens: &[],
    closes: &[],
    separators: &["{", ";", ","],
    arguments: Arguments::Required,
};

pub(super) static FUNCTION: NamedCalls = NamedCalls {
    section: None,
    begins: &["<function="],
    separators: &[">"],
    ends: &["</function>"],
    read: Head::name,
};

static PYTHON: PythonCalls = PythonCalls { opens: &[], closes: &[] };

pub(super) static FORMAT: Llama = Llama;

pub(super) struct Llama;

impl ToolFormat for Llama {
    fn name(&self) -> &'static str {
        "llama"
    }

    fn fits(&self, template: &str) -> bool {
        template.contains(TAG) || template.contains("\"parameters\": dictionary of argument name")
    }

    fn openers(&self) -> &'static [Opener] {
        const OPENERS: [Opener; 4] =
            [Opener::token(TAG), Opener::line("<function="), Opener::bare("{"), Opener::bare("[")];
        &OPENERS
    }

    fn parser(&self, opener: usize) -> Box<dyn CallParser> {
        match opener {
            0 => Box::new(JsonParser::new(&TAGGED)),
            1 => Box::new(NamedParser::new(&FUNCTION)),
            2 => Box::new(JsonParser::new(&BARE)),
            _ => Box::new(PythonParser::new(&PYTHON)),
        }
    }

    fn spelling(&self, _knows: &dyn Fn(&str) -> bool) -> Spelling {
        Spelling { middle: "\", \"parameters\": ", between: Some("; "), ..OBJECT }
    }
}
