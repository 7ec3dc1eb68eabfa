//! Chat templates: messages to a prompt, byte for byte as Transformers' Jinja does it. What may be
//! in a conversation is `normalise`'s business, tokens are the tokenizer's.

mod env;
mod markup;
mod methods;
mod origin;
mod probe;
mod pyjson;
mod pystr;
mod source;
mod time;
mod whole;

use std::sync::Arc;

use minijinja::Environment;
use serde_json::{Map, Value};

use crate::message::{ArgumentShape, BesideCalls, ContentShape, Message, ReasoningShape, Shapes};
use crate::{Error, Prompt, Tokenizer};
use origin::{Edges, Marker, Marks};
use probe::Traits;
pub(crate) use probe::{DeveloperRole, SystemPlace};

pub use pyjson::dumps;
pub use time::LocalTime;

/// Sources of a model's chat templates.
#[derive(Clone, Copy, Debug)]
pub struct TemplateFiles<'a> {
    /// The template for everything.
    pub default: &'a str,
    /// The template for conversations with tools, where a model has a separate one.
    pub tool_use: Option<&'a str>,
}

/// What is rendered.
#[derive(Clone, Copy, Debug)]
pub struct RenderInput<'a> {
    /// The conversation, normalised.
    pub messages: &'a [Message],
    /// Tools in OpenAI's form; none is the same as Transformers' `tools=None`.
    pub tools: &'a [Value],
    /// Whether the prompt ends with the opening of an assistant turn.
    pub add_generation_prompt: bool,
    /// Variables from the request, such as `enable_thinking`.
    pub kwargs: &'a Map<String, Value>,
    /// What `strftime_now` shows.
    pub now: LocalTime,
}

/// A compiled chat template. Rendering is bounded: a hostile template ends in an error.
pub struct Template {
    env: Environment<'static>,
    named: Vec<Named>,
    /// `bos_token` … as the template sees them.
    tokens: Map<String, Value>,
}

/// One of a model's templates and what trying has shown about it.
struct Named {
    name: &'static str,
    source: String,
    marker: Marker,
    traits: Traits,
}

impl std::fmt::Debug for Template {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.named.iter().map(|named| (named.name, named.traits));
        f.debug_list().entries(names).finish()
    }
}

impl Template {
    /// Compiles the templates for this tokenizer and tries what they accept.
    pub fn new(files: TemplateFiles<'_>, tokenizer: &Tokenizer) -> Result<Template, Error> {
        let mut env = env::environment();
        let mut named = Vec::new();
        let sources = [("default", Some(files.default)), ("tool_use", files.tool_use)];
        for (name, source) in sources {
            let Some(source) = source else { continue };
            env.add_template_owned(name, source::rewritten(source))
                .map_err(|error| Error::TemplateSyntax(env::describe(&error)))?;
            named.push(Named {
                name,
                source: source.to_owned(),
                marker: Marker::new(tokenizer.added_tokens(), source)?,
                traits: Traits::default(),
            });
        }
        let tokens = tokenizer.named_tokens().iter();
        let tokens = tokens.map(|(name, token)| (name.clone(), token.as_str().into())).collect();
        let mut template = Template { env, named, tokens };
        for at in 0..template.named.len() {
            template.named[at].traits = probe::traits(&template, &template.named[at]);
        }
        Ok(template)
    }

    /// Renders a conversation. Errors with the template's own message where it refuses.
    pub fn render(&self, input: &RenderInput<'_>) -> Result<Prompt, Error> {
        let named = self.pick(input.tools);
        self.render_as(named, input, named.traits.shapes)
    }

    /// Source of the template used with these tools: syntaxes are picked from it.
    pub fn source(&self, tools: &[Value]) -> &str {
        &self.pick(tools).source
    }

    pub(crate) fn traits(&self, tools: &[Value]) -> Traits {
        self.pick(tools).traits
    }

    fn pick(&self, tools: &[Value]) -> &Named {
        let with_tools =
            self.named.iter().find(|named| !tools.is_empty() && named.name == "tool_use");
        with_tools.unwrap_or(&self.named[0])
    }

    fn render_as(
        &self,
        named: &Named,
        input: &RenderInput<'_>,
        shapes: Shapes,
    ) -> Result<Prompt, Error> {
        let messages: Vec<Value> = input.messages.iter().map(|m| m.to_json(shapes)).collect();
        let marks = Marks::unused_in(&messages, input.tools, input.kwargs);
        let exact = self.render_marked(named, input, &messages, (&marks, Edges::Bare))?;
        // Marks at edges can disturb a template that measures text, so they only serve to find
        // out whether template and user together spell a token.
        if !named.marker.has_edges(&messages, input.tools, input.kwargs, &marks) {
            return Ok(exact);
        }
        let edged = self.render_marked(named, input, &messages, (&marks, Edges::Marked))?;
        Ok(if edged.pieces.len() > exact.pieces.len() { edged } else { exact })
    }

    fn render_marked(
        &self,
        named: &Named,
        input: &RenderInput<'_>,
        messages: &[Value],
        (marks, edges): (&Marks, Edges),
    ) -> Result<Prompt, Error> {
        let marker = &named.marker;
        let messages = messages.iter().map(|message| marker.message(message, marks, edges));
        let messages: Value = messages.collect();
        let tools = input.tools.iter().map(|tool| marker.foreign(tool, marks, edges));
        let tools: Value = tools.collect();
        let n_bytes = size(&messages) + size(&tools);

        let mut context = self.tokens.clone();
        for (key, value) in input.kwargs {
            context.insert(key.clone(), marker.foreign(value, marks, edges));
        }
        context.insert("messages".into(), messages);
        let tools = if input.tools.is_empty() { Value::Null } else { tools };
        context.insert("tools".into(), tools);
        context.entry("documents").or_insert(Value::Null);
        context.insert("add_generation_prompt".into(), input.add_generation_prompt.into());
        let run = || self.run(named.name, context, input.now, n_bytes);
        let rendered = env::with_stack(run)?;
        Ok(marker.split(&rendered, marks))
    }

    fn run(
        &self,
        name: &str,
        context: Map<String, Value>,
        now: LocalTime,
        n_bytes: usize,
    ) -> Result<String, Error> {
        let limit = env::fuel(n_bytes);
        let mut env = self.env.clone();
        env.set_fuel(Some(limit));
        env.add_function("strftime_now", move |format: Arc<str>| now.strftime(&format));
        let template = env.get_template(name).map_err(|error| env::typed(&error, limit))?;
        template
            .render(whole::value(&Value::Object(context)))
            .map_err(|error| env::typed(&error, limit))
    }
}

/// Rough size of a value in bytes: the longer a conversation, the more steps a template may take.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 16,
        Value::Array(list) => list.iter().map(size).sum::<usize>() + 16,
        Value::Object(map) => map.iter().map(|(key, value)| key.len() + size(value)).sum::<usize>(),
        _ => 16,
    }
}

impl Default for Shapes {
    fn default() -> Shapes {
        let reasoning =
            ReasoningShape { key: "reasoning_content", beside_calls: BesideCalls::Anything };
        Shapes { content: ContentShape::Text, arguments: ArgumentShape::Object, reasoning }
    }
}
