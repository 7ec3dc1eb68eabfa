//! Formats to grammars, once per model and format. The work may take tens of milliseconds; whoever
//! calls has a thread for it.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use llguidance::api::{GrammarInit, GrammarWithLexer, TopLevelGrammar};
use llguidance::toktrie::InferenceCapabilities;
use llguidance::{Matcher, ParserFactory, TokenParser};
use serde_json::Value;

use super::answer::{self, Asked, Duty, Text};
use super::bounds::{STACK, limits};
use super::run::{Run, short};
use super::schema::{Lowered, definition};
use super::{Fault, Format, GrammarError, Part, lark, numbers};
use crate::Tokenizer;

/// Grammars that are kept: an agent sends the same tools again and again.
const KEPT: usize = 16;
/// Longer ones are not.
const MAX_KEPT_TEXT: usize = 256 * 1024;
/// How many parts of a schema are tried one by one to find the one at fault.
const MAX_TRIES: usize = 400;

/// Makes grammars for one model.
pub struct Grammars {
    tokenizer: Arc<Tokenizer>,
    n_vocab: usize,
    stops: Vec<u32>,
    /// Made when it is first needed: it takes as long as opening the tokenizer.
    factory: OnceLock<Result<ParserFactory, GrammarError>>,
    /// The latest ones last.
    kept: Mutex<Vec<(String, Grammar)>>,
}

/// A grammar, ready for any number of answers.
#[derive(Clone)]
pub struct Grammar {
    parser: Arc<Mutex<TokenParser>>,
}

impl Grammar {
    /// An answer that has not begun.
    pub fn start(&self) -> Run {
        // A clone of its own: what a run has been through makes no other one faster or slower, nor
        // more likely to come to a bound.
        let parser = self.parser.lock().unwrap_or_else(PoisonError::into_inner).deep_clone();
        Run::new(Matcher::new(Ok(parser)))
    }
}

impl Grammars {
    /// For a model with `n_vocab` logits, of which `stops` end an answer.
    pub fn new(tokenizer: Arc<Tokenizer>, n_vocab: usize, stops: Vec<u32>) -> Grammars {
        Grammars { tokenizer, n_vocab, stops, factory: OnceLock::new(), kept: Mutex::default() }
    }

    /// The grammar of a format alone, `None` if it allows everything.
    ///
    /// # Errors
    /// A format that is none, that is too large, or that cannot be enforced to the letter.
    pub fn of(&self, format: &Format) -> Result<Option<Grammar>, GrammarError> {
        let asked = Asked { format, calls: Duty::Never, voice: None, template: "" };
        self.of_answer(&asked).map_err(|fault| fault.error)
    }

    /// The grammar of an answer, `None` if it may be anything.
    ///
    /// # Errors
    /// As [`Grammars::of`], for the schemas of tools too; or a model that calls or thinks in a form
    /// that it cannot be held to.
    pub fn of_answer(&self, asked: &Asked<'_>) -> Result<Option<Grammar>, Fault> {
        let Some(text) = answer::text(asked, &self.tokenizer)? else { return Ok(None) };
        match self.compile(&text.main, text.foreign.as_deref()) {
            Ok(grammar) => Ok(Some(grammar)),
            Err(error) => Err(self.fault(&text, error, asked)),
        }
    }

    /// What of an answer's grammar is at fault.
    fn fault(&self, text: &Text, error: GrammarError, asked: &Asked<'_>) -> Fault {
        for (part, path, lowered) in &text.schemas {
            let alone = lark::start(&lark::json(&lowered.schema));
            if let Err(error) = self.compile(&alone, None) {
                let error = self.locate(lowered, error);
                let path = format!("{path}{}", error.path);
                return Fault { part: *part, error: GrammarError { path, ..error } };
            }
        }
        let part = match asked.calls {
            Duty::Never => Part::Format,
            Duty::May(_) | Duty::Must(_) => Part::Calls,
        };
        Fault { part, error }
    }

    /// A grammar in the library's notation, and one that it may call `answer`.
    fn compile(&self, main: &str, foreign: Option<&str>) -> Result<Grammar, GrammarError> {
        let text = [main, foreign.unwrap_or_default()].join("\0");
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = kept.iter().position(|(known, _)| *known == text) {
            let entry = kept.remove(at);
            let grammar = entry.1.clone();
            kept.push(entry);
            return Ok(grammar);
        }
        drop(kept);
        let parser = self.parser(main, foreign)?;
        let grammar = Grammar { parser: Arc::new(Mutex::new(parser)) };
        if text.len() <= MAX_KEPT_TEXT {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            let n_over = (kept.len() + 1).saturating_sub(KEPT);
            kept.drain(..n_over);
            kept.push((text, grammar.clone()));
        }
        Ok(grammar)
    }

    /// On a thread with a large stack: the library reads grammars recursively.
    fn parser(&self, main: &str, foreign: Option<&str>) -> Result<TokenParser, GrammarError> {
        let work = || {
            let factory = self.factory.get_or_init(|| self.make_factory()).as_ref();
            let factory = factory.map_err(GrammarError::clone)?;
            let mut all = TopLevelGrammar::from_lark(main.to_owned());
            all.grammars.extend(foreign.map(|text| GrammarWithLexer {
                name: Some("answer".to_owned()),
                ..GrammarWithLexer::from_lark(text.to_owned())
            }));
            let whole = |error| GrammarError::whole(short(&error));
            let init = GrammarInit::Serialized(all);
            let read = init.to_internal(Some(factory.tok_env().clone()), limits());
            let (grammar, mut lexer) = read.map_err(whole)?;
            if foreign.is_none() {
                numbers::bound_lexemes(&mut lexer)?;
            }
            let init = GrammarInit::Internal(grammar, lexer);
            let parser = factory.create_parser_from_init_default(init).map_err(whole)?;
            // A grammar that nothing fits, or that is too complex, shows itself with the first token.
            match Run::new(Matcher::new(Ok(parser.deep_clone()))).allowed() {
                Ok(_) => Ok(parser),
                Err(problem) => Err(GrammarError::whole(problem)),
            }
        };
        let failed =
            |what: &str| GrammarError::whole(format!("the grammar could not be made: {what}"));
        std::thread::scope(|scope| {
            let builder = std::thread::Builder::new().name("grammar".to_owned()).stack_size(STACK);
            let thread = builder.spawn_scoped(scope, work);
            let thread = thread.map_err(|error| failed(&error.to_string()))?;
            thread.join().unwrap_or_else(|_| Err(failed("the library panicked")))
        })
    }

    fn make_factory(&self) -> Result<ParserFactory, GrammarError> {
        if self.stops.is_empty() {
            return Err(GrammarError::whole("this model has no token that ends an answer"));
        }
        let env = super::vocabulary::environment(&self.tokenizer, self.n_vocab, &self.stops);
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices);
        let mut factory = factory.map_err(|error| GrammarError::whole(short(&error)))?;
        *factory.limits_mut() = limits();
        factory.quiet();
        Ok(factory)
    }

    /// Finds the smallest part of a schema that cannot be made for itself.
    fn locate(&self, lowered: &Lowered, error: GrammarError) -> GrammarError {
        let definitions = lowered.schema.get("$defs");
        let mut tries = 0;
        let mut fault = |part: &Value| -> Option<GrammarError> {
            tries += 1;
            if tries > MAX_TRIES {
                return None;
            }
            let mut schema = part.clone();
            if let (Value::Object(schema), Some(definitions)) = (&mut schema, definitions) {
                schema.insert("$defs".to_owned(), definitions.clone());
            }
            self.compile(&lark::start(&lark::json(&schema)), None).err()
        };
        let mut found = GrammarError { path: String::new(), ..error };
        let mut part = &lowered.schema;
        let shared = lowered
            .places
            .iter()
            .enumerate()
            .filter_map(|(i, place)| Some((place.clone(), definitions?.get(definition(i))?)));
        let mut inner: Vec<(String, &Value)> = shared.chain(parts(part)).collect();
        while let Some((path, within, error)) =
            inner.into_iter().find_map(|(path, part)| Some((path, part, fault(part)?)))
        {
            found = GrammarError { path: found.path + &path, ..error };
            part = within;
            inner = parts(part);
        }
        if let Some(word) = self.word_at_fault(part, &mut fault) {
            found.path = format!("{}.{word}", found.path);
        }
        GrammarError { problem: explained(&found.problem), ..found }
    }

    /// The one word without which the rest could be made.
    fn word_at_fault(
        &self,
        part: &Value,
        fault: &mut impl FnMut(&Value) -> Option<GrammarError>,
    ) -> Option<String> {
        let map = part.as_object()?;
        let mut words = map.keys().filter(|word| *word != "$defs" && *word != "type");
        words
            .find(|word| {
                let mut rest = map.clone();
                rest.remove(*word);
                fault(&Value::Object(rest)).is_none()
            })
            .cloned()
    }
}

/// The schemas directly inside of one, with where they are.
fn parts(schema: &Value) -> Vec<(String, &Value)> {
    let mut parts = Vec::new();
    let Some(map) = schema.as_object() else { return parts };
    for (word, value) in map {
        match (word.as_str(), value) {
            ("properties" | "patternProperties", Value::Object(named)) => {
                parts.extend(named.iter().map(|(name, s)| (format!(".{word}.{name}"), s)));
            }
            ("allOf" | "anyOf" | "oneOf" | "prefixItems", Value::Array(list)) => {
                parts.extend(list.iter().enumerate().map(|(i, s)| (format!(".{word}[{i}]"), s)));
            }
            ("items" | "additionalProperties", Value::Object(_)) => {
                parts.push((format!(".{word}"), value));
            }
            _ => {}
        }
    }
    parts
}

/// The library's words, where they speak of its own settings.
fn explained(problem: &str) -> String {
    if problem.contains("coerce_one_of") {
        return "oneOf is enforced where no two of its schemas can both hold, as with a property of \
                different constants; anyOf would do otherwise"
            .to_owned();
    }
    let (_, bare) = problem.split_once("failed to compile JSON schema: ").unwrap_or(("", problem));
    bare.to_owned()
}
