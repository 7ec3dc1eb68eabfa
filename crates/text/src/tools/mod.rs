//! How models spell calls of tools. A format is one file and one line; where it applies is told by the
//! chat template. When text may be a call at all is `reply/splitter.rs`; shapes that many formats have
//! in common are in `shape/`.

pub(crate) mod shape;
pub(crate) mod spelling;

use crate::reply::calls::{CallWriter, Ids, NotACall, Trust};
use crate::reply::cursor::{Cursor, Wait};
use spelling::Spelling;

macro_rules! formats {
    ($($format:ident,)+) => {
        $(mod $format;)+

        /// In this order the first that fits is taken.
        static ALL: &[&dyn ToolFormat] = &[$(&$format::FORMAT),+];
    };
}

formats! {
    harmony,
    kimi_k3,
    functionary_v32,
    command,
    apertus,
    gigachat,
    solar,
    hunyuan,
    longcat,
    minicpm,
    minimax_m3,
    minimax,
    gemma,
    glm,
    kimi,
    deepseek_dsml,
    deepseek,
    deepseek_v31,
    mistral,
    seed,
    pythonic,
    qwen_coder,
    cohere,
    nemotron,
    granite,
    functionary,
    functools,
    xlam,
    llama4,
    llama,
    hermes,
}

/// How the calls of a family are spelled.
pub(crate) trait ToolFormat: Sync {
    fn name(&self) -> &'static str;

    /// Whether a model with this chat template writes this format.
    fn fits(&self, template: &str) -> bool;

    /// With what a call, or several in a row, may begin.
    fn openers(&self) -> &'static [Opener];

    /// A parser for what begins with the opener of this number, which it has yet to read.
    fn parser(&self, opener: usize) -> Box<dyn CallParser>;

    /// Control tokens of the format that are no text wherever they stand.
    fn markers(&self) -> &'static [&'static str] {
        &[]
    }

    /// Further tags that some tokenizers have as control tokens.
    fn tags(&self) -> &'static [&'static str] {
        &[]
    }

    /// How the model writes calls when it must; `knows` tells which control tokens it has.
    fn spelling(&self, knows: &dyn Fn(&str) -> bool) -> Spelling;

    /// A prompt that ends so has written the first opener of the answer, whatever follows.
    fn begun_by(&self, _prompt: &str) -> bool {
        false
    }

    /// How calls without an id of the model's own are named.
    fn ids(&self) -> Ids {
        Ids::Long
    }
}

/// Something that a call may begin with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opener {
    pub(crate) tag: &'static str,
    pub(crate) kind: Kind,
}

/// How sure a call is by its opener alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// A control token: nothing but a call begins so.
    Token,
    /// A tag that a text may also be about. At the beginning of a line it is a call; further on only
    /// if the line ends with the call.
    Tag,
    /// The same, but it is nothing unless a line begins with it.
    Line,
    /// Text like any other: a call only if the answer consists of calls.
    Bare,
}

impl Opener {
    pub(crate) const fn token(tag: &'static str) -> Opener {
        Opener { tag, kind: Kind::Token }
    }

    pub(crate) const fn tag(tag: &'static str) -> Opener {
        Opener { tag, kind: Kind::Tag }
    }

    pub(crate) const fn line(tag: &'static str) -> Opener {
        Opener { tag, kind: Kind::Line }
    }

    pub(crate) const fn bare(tag: &'static str) -> Opener {
        Opener { tag, kind: Kind::Bare }
    }

    pub(crate) fn trust(self) -> Trust {
        match self.kind {
            Kind::Token => Trust::Any,
            Kind::Tag | Kind::Line | Kind::Bare => Trust::Declared,
        }
    }
}

/// Reads calls. It begins before the opener.
pub(crate) trait CallParser: Send {
    /// Reads on as far as it can. An answer that is over must be read to its end, unless the calls
    /// end before that. A call is complete if the cursor says that the model ended the answer, and
    /// broken where it was cut.
    fn step(&mut self, input: &mut Cursor, out: &mut CallWriter<'_>) -> Result<Step, Stop>;
}

/// How far a parser came.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    /// Something was read; there may be more to do.
    On,
    /// The calls are over; what follows is text.
    Done,
}

/// Why a parser does not go on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Stop {
    /// It needs more text.
    Wait,
    /// What stands there since the cursor's mark is no call.
    NotACall,
}

impl From<Wait> for Stop {
    fn from(_: Wait) -> Stop {
        Stop::Wait
    }
}

impl From<NotACall> for Stop {
    fn from(_: NotACall) -> Stop {
        Stop::NotACall
    }
}

/// A parser for the body of a channel's message that is a call of this tool.
pub(crate) fn message_body(name: String) -> Box<dyn CallParser> {
    Box::new(harmony::Body::new(name))
}

/// The format of a template.
pub(crate) fn of(template: &str) -> &'static dyn ToolFormat {
    let fits = ALL.iter().find(|format| format.fits(template));
    fits.copied().unwrap_or(&hermes::FORMAT)
}
