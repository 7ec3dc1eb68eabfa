//! What a format may cost. Each bound is far above what people write, and far below what would keep a
//! thread busy for seconds or fill its stack.

use llguidance::api::ParserLimits;

use super::GrammarError;

/// Most bytes of a regular expression or a grammar, and of all texts to choose from.
pub(super) const MAX_TEXT: usize = 64 * 1024;
/// Most bytes that an expression may demand in any case.
const MAX_DEMAND: usize = 16 * 1024;
/// Most brackets inside of each other, in a regular expression or a grammar.
const MAX_NESTING: usize = 64;
/// Most schemas in a schema, each counted where it stands.
pub(super) const MAX_SCHEMAS: usize = 5_000;
/// Most schemas inside of each other.
pub(super) const MAX_DEPTH: usize = 64;
/// Most values of all `enum` and `const`, their parts included.
pub(super) const MAX_VALUES: usize = 10_000;
/// Most bytes of all names, values and patterns of a schema.
pub(super) const MAX_SCHEMA_TEXT: usize = 256 * 1024;
/// Largest count in a schema, such as `maxItems`, and in a repetition of a pattern.
pub(super) const MAX_COUNT: u64 = 100_000;
/// Stack of the thread that compiles: for grammars at all of these bounds, in builds that are not
/// optimised too.
pub(super) const STACK: usize = 64 * 1024 * 1024;

/// Bounds inside of the library: some tens of milliseconds for a grammar, about ten for a token.
pub(super) fn limits() -> ParserLimits {
    ParserLimits {
        max_lexer_states: 50_000,
        max_grammar_size: 200_000,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

/// An expression that is one, and that a short text can match.
pub(super) fn check_expression(expression: &str) -> Result<(), GrammarError> {
    check_text(expression)?;
    let mut parser = regex_syntax::ParserBuilder::new().nest_limit(MAX_NESTING as u32).build();
    let parsed = parser.parse(expression).map_err(|error| {
        // The last line says what is wrong, those before it draw where.
        let text = error.to_string();
        GrammarError::whole(text.lines().last().unwrap_or_default().trim_start_matches("error: "))
    })?;
    match parsed.properties().minimum_len() {
        Some(least) if least > MAX_DEMAND => Err(GrammarError::whole(format!(
            "nothing shorter than {least} bytes matches; the most is {MAX_DEMAND}"
        ))),
        _ => Ok(()),
    }
}

/// A regular expression or a grammar that a recursive reader can take.
pub(super) fn check_text(text: &str) -> Result<(), GrammarError> {
    if text.len() > MAX_TEXT {
        let problem = format!("it has {} bytes; the most is {MAX_TEXT}", text.len());
        return Err(GrammarError::whole(problem));
    }
    let mut depth = 0usize;
    let mut deepest = 0;
    let mut run = 0;
    let mut longest_run = 0;
    for byte in text.bytes() {
        // Prefix and postfix operators nest too, and these without a bracket.
        run = if matches!(byte, b'~' | b'!' | b'?' | b'*' | b'+') { run + 1 } else { 0 };
        longest_run = longest_run.max(run);
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    if deepest > MAX_NESTING || longest_run > MAX_NESTING {
        let problem = format!("it nests deeper than {MAX_NESTING}");
        return Err(GrammarError::whole(problem));
    }
    Ok(())
}
