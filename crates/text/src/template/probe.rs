//! Finds out what a template accepts by rendering small conversations with it. Nothing here depends
//! on a model's name.

use serde_json::{Map, Value, json};

use super::{LocalTime, Named, RenderInput, Template};
use crate::message::{
    ArgumentShape, BesideCalls, Content, ContentShape, Message, ReasoningShape, Role, Shapes,
    ToolCall,
};

/// Where a template prints system messages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum SystemPlace {
    #[default]
    Anywhere,
    /// Only as the first message.
    First,
    /// It has no system messages at all.
    Nowhere,
}

/// What trying has shown.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traits {
    pub(crate) shapes: Shapes,
    pub(crate) system: SystemPlace,
    /// The role that newer clients' `developer` becomes.
    pub(crate) developer: DeveloperRole,
}

/// Whether a template knows the developer role.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum DeveloperRole {
    #[default]
    IsSystem,
    Known,
}

/// Letters that no template contains by itself.
const FIRST: &str = "zqxfirst";
const LATE: &str = "zqxlate";

pub(super) fn traits(template: &Template, named: &Named) -> Traits {
    let mut shapes = Shapes::default();
    let user = [Message::text(Role::User, FIRST)];
    let shows = |messages: &[Message], shapes, what| {
        try_render(template, named, messages, shapes).is_some_and(|text| text.contains(what))
    };
    let parts = Shapes { content: ContentShape::Parts, ..shapes };
    if !shows(&user, shapes, FIRST) && shows(&user, parts, FIRST) {
        shapes = parts;
    }
    shapes.arguments = argument_shape(template, named, shapes);
    shapes.reasoning = reasoning_shape(template, named, shapes);
    let system = if shows(&late_system(), shapes, LATE) {
        SystemPlace::Anywhere
    } else if shows(&late_system()[..2], shapes, FIRST) {
        SystemPlace::First
    } else {
        SystemPlace::Nowhere
    };
    let developer = match named.source.contains("developer") {
        true => DeveloperRole::Known,
        false => DeveloperRole::IsSystem,
    };
    Traits { shapes, system, developer }
}

fn late_system() -> [Message; 5] {
    [
        Message::text(Role::System, FIRST),
        Message::text(Role::User, "u"),
        Message::text(Role::Assistant, "a"),
        Message::text(Role::System, LATE),
        Message::text(Role::User, "u"),
    ]
}

/// A user's turn, a call, and what it gave.
fn with_call(arguments: Value) -> [Message; 3] {
    let call = ToolCall { id: Some("call00001".into()), name: "f".into(), arguments };
    let mut assistant = Message::text(Role::Assistant, "");
    assistant.tool_calls.push(call);
    let mut answer = Message::text(Role::Tool, "t");
    answer.tool_call_id = Some("call00001".into());
    answer.name = Some("f".into());
    [Message::text(Role::User, "u"), assistant, answer]
}

/// The name under which thoughts are printed, and whether content may stand beside them.
fn reasoning_shape(template: &Template, named: &Named, shapes: Shapes) -> ReasoningShape {
    let mut messages = with_call(json!({"a": "b"}));
    messages[1].reasoning_content = Some(LATE.into());
    let under = |key| Shapes {
        reasoning: ReasoningShape { key, beside_calls: BesideCalls::Anything },
        ..shapes
    };
    let mut keys = ["reasoning_content", "reasoning", "thinking", "thought"].into_iter();
    let shown = keys.find(|key| {
        let text = try_render(template, named, &messages, under(key));
        text.is_some_and(|text| text.contains(LATE))
    });
    let Some(key) = shown else { return shapes.reasoning };
    messages[1].content = Some(Content::Text("c".into()));
    let beside_calls = match try_render(template, named, &messages, under(key)) {
        Some(_) => BesideCalls::Anything,
        None => BesideCalls::NoContent,
    };
    ReasoningShape { key, beside_calls }
}

/// Objects, unless the template fails on them or prints them the Python way and a string of JSON
/// goes through.
fn argument_shape(template: &Template, named: &Named, shapes: Shapes) -> ArgumentShape {
    let messages = with_call(json!({ LATE: FIRST }));
    let as_object = try_render(template, named, &messages, shapes);
    let text = Shapes { arguments: ArgumentShape::Text, ..shapes };
    let python = format!("{{'{LATE}'");
    let good = as_object.is_some_and(|rendered| !rendered.contains(&python));
    match !good && try_render(template, named, &messages, text).is_some() {
        true => ArgumentShape::Text,
        false => ArgumentShape::Object,
    }
}

fn try_render(
    template: &Template,
    named: &Named,
    messages: &[Message],
    shapes: Shapes,
) -> Option<String> {
    let tool = json!({"type": "function", "function": {
        "name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}});
    let has_calls = messages.iter().any(|message| !message.tool_calls.is_empty());
    let tools: &[Value] = if has_calls { &[tool] } else { &[] };
    let input = RenderInput {
        messages,
        tools,
        add_generation_prompt: true,
        kwargs: &Map::new(),
        now: LocalTime::from_unix(0, 0),
    };
    template.render_as(named, &input, shapes).ok().map(|prompt| prompt.text())
}
