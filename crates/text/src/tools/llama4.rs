//! `[f(a="x", n=2)]` as the whole answer: Llama 4. What it writes besides is read as Llama 3's.

use super::spelling::{PYTHON, Spelling};
use super::{CallParser, Opener, ToolFormat, llama};

pub(super) static FORMAT: Llama4 = Llama4;

pub(super) struct Llama4;

impl ToolFormat for Llama4 {
    fn name(&self) -> &'static str {
        "llama4"
    }

    fn fits(&self, template: &str) -> bool {
        template.contains("[func_name1(")
    }

    fn openers(&self) -> &'static [Opener] {
        llama::FORMAT.openers()
    }

    fn parser(&self, opener: usize) -> Box<dyn CallParser> {
        llama::FORMAT.parser(opener)
    }

    fn spelling(&self, _knows: &dyn Fn(&str) -> bool) -> Spelling {
        Spelling { before: "[", after: "]", ..PYTHON }
    }
}
