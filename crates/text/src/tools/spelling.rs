//! How a format writes calls, for a model that must make one: the text around names and arguments. How
//! calls are read is the parsers' business, and that the two agree is tested.

/// Calls whose arguments are one JSON object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spelling {
    /// Before the first call.
    pub(crate) before: &'static str,
    /// Before a name.
    pub(crate) begin: &'static str,
    /// Between a name and its arguments.
    pub(crate) middle: &'static str,
    /// After the arguments.
    pub(crate) end: &'static str,
    /// Between two calls.
    pub(crate) between: &'static str,
    /// After the last call.
    pub(crate) after: &'static str,
}

/// One JSON object for each call, with nothing around it.
pub(crate) const OBJECT: Spelling = Spelling {
    before: "",
    begin: "{\"name\": \"",
    middle: "\", \"arguments\": ",
    end: "}",
    between: ", ",
    after: "",
};
