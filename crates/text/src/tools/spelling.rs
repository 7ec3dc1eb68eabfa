//! How a format writes calls, for a model that must make one: the text around names and arguments. How
//! calls are read is the parsers' business, and that the two agree is tested.

use super::shape::typed::Untyped;

/// How calls are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spelling {
    /// Before the first call.
    pub(crate) before: &'static str,
    /// Before a name.
    pub(crate) begin: &'static str,
    /// Between a name and its arguments.
    pub(crate) middle: &'static str,
    pub(crate) arguments: Arguments,
    /// After the arguments.
    pub(crate) end: &'static str,
    /// Between two calls. `None`: an answer has one at most.
    pub(crate) between: Option<&'static str>,
    /// After the last call.
    pub(crate) after: &'static str,
}

/// Stands in a spelling where a model writes the number of a call.
pub(crate) const NUMBER: char = '\u{1}';

/// Stands in a spelling where a model writes what kind of JSON follows that is no text.
pub(crate) const KIND: char = '\u{2}';

/// Stands in what ends an argument where its name is repeated.
pub(crate) const NAME: char = '\u{3}';

/// How arguments are written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arguments {
    /// As one JSON object.
    Object,
    /// Each by itself, in the order of the schema.
    Each(Each),
}

/// How one argument is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Each {
    /// Before its name.
    pub(crate) key: &'static str,
    /// Around a text, which stands there as it is. `None`: texts are JSON.
    pub(crate) text: Option<[&'static str; 2]>,
    /// Around anything else, which is JSON.
    pub(crate) other: [&'static str; 2],
    /// Between two arguments.
    pub(crate) separator: &'static str,
    /// What tells a reader which of the two it is.
    pub(crate) told_by: ToldBy,
    /// What ends a text for a reader, so that none can hold it.
    pub(crate) ends_text: &'static str,
    /// Expressions that no text may match as a whole, since it would be read as another.
    pub(crate) no_text: &'static [&'static str],
    /// How objects and lists are written.
    pub(crate) nested: Nested,
}

/// How what is nested is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Nested {
    /// As JSON.
    Json,
    /// As arguments are: each property by its name, each item by this one. What the schema does not
    /// describe is JSON.
    Elements {
        /// The name of items.
        item: &'static str,
    },
}

/// What tells texts from other values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ToldBy {
    /// The schema of the parameter; and this where it says nothing.
    Schema(Untyped),
    /// What stands around them.
    Form,
}

/// One JSON object for each call, with nothing around it.
pub(crate) const OBJECT: Spelling = Spelling {
    before: "",
    begin: "{\"name\": \"",
    middle: "\", \"arguments\": ",
    arguments: Arguments::Object,
    end: "}",
    between: Some(", "),
    after: "",
};

/// Calls in XML's manner with nothing around them, of which the schema tells what is text.
pub(crate) const TAGGED: Each = Each {
    key: "<parameter=",
    text: Some([">\n", "\n</parameter>\n"]),
    other: [">\n", "\n</parameter>\n"],
    separator: "",
    told_by: ToldBy::Schema(Untyped::Text),
    ends_text: "</parameter>",
    no_text: &[],
    nested: Nested::Json,
};

/// A call as Python writes it.
pub(crate) const PYTHON: Spelling = Spelling {
    before: "",
    begin: "",
    middle: "(",
    arguments: Arguments::Each(Each {
        key: "",
        text: None,
        other: ["=", ""],
        separator: ", ",
        told_by: ToldBy::Form,
        ends_text: "",
        no_text: &[],
        nested: Nested::Json,
    }),
    end: ")",
    between: Some(", "),
    after: "",
};
