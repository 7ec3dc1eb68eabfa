//! The Jinja environment of Transformers rebuilt on minijinja: options, globals, filters, tests,
//! errors. Methods of Python's types are in `methods.rs`.

use minijinja::syntax::SyntaxConfig;
use minijinja::tests::{is_integer, is_number};
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{AutoEscape, Environment, ErrorKind, Output, State, UndefinedBehavior};

use super::{markup, methods, pyjson, pystr, whole};
use crate::Error;

/// Deepest nesting of macros and recursive loops; schema printers need about a tenth.
const RECURSION: usize = 100;

/// Steps any template may take; a conversation's size adds to it.
const BASE_FUEL: u64 = 1_000_000;

/// Steps no template may take. Values nested by that many steps still fit the stack when dropped.
const MAX_FUEL: u64 = 4_000_000;

/// Stack of a rendering; pages that are not used cost nothing.
const STACK: usize = 256 << 20;

/// Steps (about: instructions, plus one per 64 bytes made) for a conversation of this size.
pub(super) fn fuel(n_bytes: usize) -> u64 {
    BASE_FUEL.saturating_add(2 * n_bytes as u64).min(MAX_FUEL)
}

/// Runs a rendering on a stack of its own: a template can nest values deeper than the stacks of
/// server threads, and an overflow would end the process.
pub(super) fn with_stack<T: Send>(
    render: impl FnOnce() -> Result<T, Error> + Send,
) -> Result<T, Error> {
    let failed = |problem: String| Error::Render(problem);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("template".into()).stack_size(STACK);
        let thread = thread.spawn_scoped(scope, render);
        let thread = thread.map_err(|error| failed(format!("no thread for it ({error})")))?;
        thread.join().unwrap_or_else(|_| Err(failed("the template engine broke down".into())))
    })
}

/// The environment without templates.
pub(super) fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    env.set_recursion_limit(RECURSION);
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    if let Ok(syntax) = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build() {
        env.set_syntax(syntax);
    }
    minijinja_contrib::add_to_environment(&mut env);
    env.set_unknown_method_callback(methods::call);
    env.set_formatter(write);
    env.add_filter("tojson", pyjson::tojson);
    env.add_filter("trim", methods::trim_filter);
    env.add_filter("string", |value: &Value| match value.as_str() {
        Some(_) => value.clone(),
        None => Value::from(pystr::str(value)),
    });
    env.add_filter("pprint", |value: &Value| pystr::repr(value));
    env.add_test("number", |value: &Value| whole::is_one(value) || is_number(value));
    env.add_test("integer", |value: &Value| whole::is_one(value) || is_integer(value));
    env.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map)
    });
    // Nothing can be walked over there, but what is not defined can.
    env.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    env.add_test("callable", |value: &Value| {
        value.kind() == ValueKind::Plain && !whole::is_one(value)
    });
    env.add_function("raise_exception", raise_exception);
    env.add_function(markup::SUM, markup::sum);
    env
}

/// Prints as Python's `str` would.
fn write(out: &mut Output<'_>, _: &mut State, value: &Value) -> Result<(), minijinja::Error> {
    let written = match value.as_str() {
        Some(text) => out.write_str(text),
        None if value.is_undefined() => return Ok(()),
        None => out.write_str(&pystr::str(value)),
    };
    written.map_err(minijinja::Error::from)
}

/// Marks an error as the template's own words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

fn raise_exception(message: &Value, _: Kwargs) -> Result<Value, minijinja::Error> {
    let message = pystr::str(message);
    let error = minijinja::Error::new(ErrorKind::InvalidOperation, message.clone());
    Err(error.with_source(Raised(message)))
}

/// Our error for one of the template engine's.
pub(super) fn typed(error: &minijinja::Error, limit: u64) -> Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(Raised(message)) = error.downcast_ref() {
            return Error::Raised(message.clone());
        }
        let inner = error.downcast_ref::<minijinja::Error>();
        if inner.is_some_and(|error| error.kind() == ErrorKind::OutOfFuel) {
            return Error::TemplateLimit { limit };
        }
        cause = error.source();
    }
    Error::Render(describe(error))
}

/// One line with the place in the template.
pub(super) fn describe(error: &minijinja::Error) -> String {
    let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    match error.line() {
        Some(line) => format!("{detail} (line {line} of the template)"),
        None => detail,
    }
}
