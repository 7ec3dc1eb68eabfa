//! `<function=f>{…}</function>`: Functionary 3.1 and its Llama relatives.

use super::shape::named::NamedParser;
use super::spelling::{OBJECT, Spelling};
use super::{CallParser, Opener, ToolFormat, llama};

pub(super) static FORMAT: Functionary = Functionary;

pub(super) struct Functionary;

impl ToolFormat for Functionary {
    fn name(&self) -> &'static str {
        "functionary"
    }

    fn fits(&self, template: &str) -> bool {
        template.contains("<function=example_function_name>")
    }

    fn openers(&self) -> &'static [Opener] {
        const OPENERS: [Opener; 1] = [Opener::line("<function=")];
        &OPENERS
    }

    fn parser(&self, _opener: usize) -> Box<dyn CallParser> {
        Box::new(NamedParser::new(&llama::FUNCTION))
    }

    fn spelling(&self, _knows: &dyn Fn(&str) -> bool) -> Spelling {
        Spelling {
            begin: "<function=",
            middle: ">",
            end: "</function>",
            between: Some(""),
            ..OBJECT
        }
    }
}
