//! What the tests share: fixtures and the ways to cut a text. No assertions.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use hearth_text::{
    Content, Error, LocalTime, Message, Prompt, RenderInput, Role, Template, TemplateFiles,
    Tokenizer, TokenizerFiles, ToolCall,
};
use serde_json::{Map, Value, json};

pub fn fixture(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub fn fixture_json(name: &str) -> Value {
    serde_json::from_slice(&fixture(name)).unwrap()
}

pub fn tokenizer(name: &str) -> Tokenizer {
    let config = match name {
        "sentencepiece" => json!({"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}),
        "bytelevel" => json!({"bos_token": null, "eos_token": "<|im_end|>"}),
        _ => json!({"cls_token": "[CLS]", "sep_token": "[SEP]"}),
    };
    let tokenizer_json = fixture(&format!("{name}.json"));
    let files = TokenizerFiles {
        tokenizer_json: &tokenizer_json,
        config: Some(&config),
        special_tokens_map: None,
    };
    Tokenizer::from_files(files).unwrap()
}

/// The tokenizer of a model's files.
pub fn model_tokenizer(files: &weights::TextFiles) -> Tokenizer {
    use weights::{TokenizerFile, gguf::Joins};
    let beside = |tokenizer_json| TokenizerFiles {
        tokenizer_json,
        config: files.tokenizer_config.as_ref(),
        special_tokens_map: files.special_tokens_map.as_ref(),
    };
    let tokenizer = match files.tokenizer.as_ref().unwrap() {
        TokenizerFile::Json(json) => Tokenizer::from_files(beside(json)),
        TokenizerFile::Gguf { frame, vocabulary } => {
            let joins = match vocabulary.joins() {
                Joins::Ranked(pairs) => hearth_text::Joins::Ranked(pairs),
                Joins::Scored(best_first) => hearth_text::Joins::Scored(best_first),
            };
            let tokens = Box::new(vocabulary.tokens());
            Tokenizer::from_vocabulary(beside(frame), hearth_text::Vocabulary { tokens, joins })
        }
    };
    tokenizer.unwrap()
}

/// A byte-level vocabulary made of these spellings, with no merges.
pub fn toy(spellings: &[&str], specials: &[&str], config: &Value) -> Tokenizer {
    let spelled: Vec<&str> = specials.iter().chain(spellings).copied().collect();
    let vocab: Map<String, Value> =
        spelled.iter().enumerate().map(|(id, s)| (s.to_string(), id.into())).collect();
    let added: Vec<Value> = specials
        .iter()
        .enumerate()
        .map(|(id, s)| {
            json!({"id": id, "content": s, "single_word": false, "lstrip": false,
                   "rstrip": false, "normalized": false, "special": true})
        })
        .collect();
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                       "use_regex": true});
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": null, "pre_tokenizer": bytes, "post_processor": null, "decoder": bytes,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "fuse_unk": false,
                  "byte_fallback": false, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "vocab": vocab, "merges": []}
    });
    let tokenizer_json = file.to_string().into_bytes();
    let files = TokenizerFiles {
        tokenizer_json: &tokenizer_json,
        config: Some(config),
        special_tokens_map: None,
    };
    Tokenizer::from_files(files).unwrap()
}

pub fn template(source: &str, tokenizer: &Tokenizer) -> Template {
    Template::new(TemplateFiles { default: source, tool_use: None }, tokenizer).unwrap()
}

pub fn render(template: &Template, messages: &[Message], tools: &[Value]) -> Result<Prompt, Error> {
    template.render(&RenderInput {
        messages,
        tools,
        add_generation_prompt: true,
        kwargs: &Map::new(),
        now: LocalTime::from_unix(1_764_201_600, 0),
    })
}

/// A cheap sequence of numbers below `n`, the same for the same seed.
pub fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move |n| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % n.max(1) as u64) as usize
    }
}

/// The text whole, by characters, and in 200 random splits.
pub fn splits(text: &str) -> Vec<Vec<String>> {
    let mut all = vec![vec![text.to_owned()], text.chars().map(String::from).collect()];
    for seed in 0..200 {
        let mut below = numbers(seed);
        let mut pieces = vec![String::new()];
        for c in text.chars() {
            if below(3) == 0 {
                pieces.push(String::new());
            }
            pieces.last_mut().unwrap().push(c);
        }
        all.push(pieces);
    }
    all
}

fn message(json: &Value) -> Message {
    let text = |key: &str| json[key].as_str().map(str::to_owned);
    let mut message = Message::text(Role::parse(json["role"].as_str().unwrap()).unwrap(), "");
    message.content = text("content").map(Content::Text);
    message.reasoning_content = text("reasoning_content");
    message.tool_call_id = text("tool_call_id");
    for call in json["tool_calls"].as_array().into_iter().flatten() {
        message.tool_calls.push(ToolCall {
            id: call["id"].as_str().map(str::to_owned),
            name: call["function"]["name"].as_str().unwrap().to_owned(),
            arguments: call["function"]["arguments"].clone(),
        });
    }
    message
}

fn messages(talk: &Value) -> Vec<Message> {
    talk["messages"].as_array().unwrap().iter().map(message).collect()
}

/// What a template makes of a conversation of the goldens.
pub fn render_talk(template: &Template, talk: &Value) -> Result<Prompt, Error> {
    let tools = talk["tools"].as_array().cloned().unwrap_or_default();
    template.render(&RenderInput {
        messages: &messages(talk),
        tools: &tools,
        add_generation_prompt: true,
        kwargs: talk["kwargs"].as_object().unwrap(),
        now: LocalTime::from_unix(1_764_201_600, 0),
    })
}
