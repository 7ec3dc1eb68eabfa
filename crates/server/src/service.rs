//! From a checked request to running engine requests. HTTP and the terminal chat both come through
//! here, so that the same question gets the same answer from both.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::{Refused, Sampling, TokenId};
use text::LocalTime;
use text::grammar::Grammar;
use tokio::sync::mpsc;

use crate::answer::{Answer, Arrival, Head, Making};
use crate::budget::Budget;
use crate::error::{ApiError, ErrorKind};
use crate::live::Live;
use crate::metrics::Metrics;
use crate::model::Model;
use crate::pool::{Lease, ModelPool};
use crate::prompt::{self, Ready};
use crate::pump::{self, Order, Ordered, Outbox};
use crate::request::{ChatRequest, EndOfText, Input};
use crate::shape;
use crate::watch::{Visit, Watch};

/// The models that are served.
pub struct ChatService {
    pool: ModelPool,
    live: Arc<Live>,
    metrics: Metrics,
}

impl ChatService {
    /// Serves these models, which stay as they are.
    pub fn new(models: Vec<Model>) -> ChatService {
        ChatService::of(ModelPool::fixed(models))
    }

    /// Serves the models of a pool.
    pub fn of(pool: ModelPool) -> ChatService {
        ChatService { pool, live: Arc::default(), metrics: Metrics::default() }
    }

    /// Where the models are.
    pub fn pool(&self) -> &ModelPool {
        &self.pool
    }

    /// Every model that is loaded.
    pub fn models(&self) -> Vec<Arc<Model>> {
        self.pool.models()
    }

    /// The answers that are being made.
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// What has been counted.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Lists an answer among those that are being made. It is from the beginning, so that somebody
    /// who waits for a model is seen and can be cancelled.
    ///
    /// # Errors
    /// No such model.
    pub fn enter(&self, request: &ChatRequest, arrival: Arrival) -> Result<Visit, ApiError> {
        let model = self.pool.listing(&request.model)?.name.id;
        let entry = self.live.enter(&arrival, &model);
        let watch = Watch { track: entry.track.clone(), meters: self.metrics.of(&model) };
        Ok(Visit { arrival, entry, watch })
    }

    /// Begins an answer, on a thread of the caller's own: if the model has to be loaded first, this
    /// waits for it.
    ///
    /// # Errors
    /// As [`ChatService::answer`], and whatever keeps the model from being loaded.
    pub fn submit(&self, request: &ChatRequest, arrival: Arrival) -> Result<Answer, ApiError> {
        let visit = self.enter(request, arrival)?;
        let model = self.pool.access(&request.model)?.wait()?;
        ChatService::answer(model, request, visit)
    }

    /// Begins an answer with a model. Renders and tokenises on the caller's thread, then returns at
    /// once. The model is in use until the answer is over.
    ///
    /// # Errors
    /// Everything that is known before the first token: template refusal, context overflow, full
    /// queue.
    pub fn answer(lease: Lease, request: &ChatRequest, visit: Visit) -> Result<Answer, ApiError> {
        let Visit { arrival, entry, watch } = visit;
        lease.stay(request.stay);
        let model: &Model = &lease;
        check_biases(model, request)?;
        let prompts = prompt::prompts(model, &request.input, utc(arrival.unix_seconds))?;
        let seed = request.seed.map_or_else(random_seed, Ok)?;
        let (parcels, inbox) = mpsc::unbounded_channel();
        let mut choices = Vec::with_capacity(prompts.len() * request.n);
        let grammars: Vec<Option<Grammar>> = prompts
            .iter()
            .map(|prompt| shape::grammar(model, request, prompt))
            .collect::<Result<_, _>>()?;
        for (prompt, grammar) in prompts.iter().zip(&grammars) {
            if prompt.tokens.len() >= model.context {
                let param = prompt::param(&request.input);
                let advice = model.context_limit.advice();
                let n_tokens = prompt.tokens.len();
                return Err(ApiError::context_overflow(param, n_tokens, model.context, &advice));
            }
            watch.track.submitted.store(true, Ordering::Relaxed);
            for i in 0..request.n {
                let cancelled = Arc::new(AtomicBool::new(false));
                let outbox = Outbox {
                    choice: choices.len(),
                    parcels: parcels.clone(),
                    cancelled: cancelled.clone(),
                    track: watch.track.clone(),
                };
                let seed = seed.wrapping_add(i as u64);
                let mut engine_request = engine_request(model, request, prompt, seed, outbox);
                engine_request.constraint = constraint(model, request, prompt, grammar.as_ref());
                engine_request.timeout =
                    request.timeout.map(|limit| limit.saturating_sub(arrival.at.elapsed()));
                // On a refusal the inbox is dropped, which cancels the choices before this one.
                model
                    .engine
                    .submit(engine_request)
                    .map_err(|refused| refusal(refused, prompt::param(&request.input)))?;
                watch.track.prompt_tokens.fetch_add(prompt.tokens.len(), Ordering::Relaxed);
                let (prompt_tokens, echo) = (prompt.tokens.len(), prompt.echo.clone());
                let splitter =
                    prompt.voice.as_ref().map(|voice| voice.splitter(&prompt.tokens, seed));
                choices.push(Ordered { cancelled, prompt_tokens, echo, splitter });
            }
        }
        let head = Head {
            id: arrival.id,
            created: arrival.unix_seconds,
            model: model.id.clone(),
            seed,
            prompt_tokens: prompts.iter().map(|prompt| prompt.tokens.len()).sum(),
            n_choices: choices.len(),
        };
        let order = Order {
            lease,
            stop: request.stop.clone(),
            start: prompt::start(&request.input),
            arrived: arrival.at,
            choices,
            n: request.n,
            voice: prompts.into_iter().find_map(|prompt| prompt.voice),
            inbox,
            watch: watch.clone(),
        };
        let (events, ready) = mpsc::unbounded_channel();
        Ok(Answer::new(
            head,
            Making { entry, watch, pump: Box::pin(pump::run(order, events)) },
            ready,
        ))
    }

    /// Takes nothing new and waits until what runs is finished.
    pub fn shutdown(&self) {
        self.pool.shutdown();
    }
}

/// What holds an answer.
fn constraint(
    model: &Model,
    request: &ChatRequest,
    prompt: &Ready,
    grammar: Option<&Grammar>,
) -> Option<Box<dyn engine::Constraint>> {
    let held = grammar.map(|grammar| model.shapes.hold(grammar));
    let budget = match &request.input {
        Input::Chat(chat) => chat.thinking_budget.zip(prompt.voice.as_ref()),
        Input::Plain { .. } => None,
    };
    match budget {
        Some((tokens, voice)) => Some(Box::new(Budget::new(&model.tokenizer, voice, tokens, held))),
        None => held,
    }
}

fn engine_request(
    model: &Model,
    request: &ChatRequest,
    prompt: &Ready,
    seed: u64,
    outbox: Outbox,
) -> engine::Request {
    let stop_tokens = match request.end {
        EndOfText::Stops => model.stop_tokens.clone(),
        EndOfText::Ignored => Vec::new(),
    };
    let suppressed = Arc::clone(&model.suppressed);
    engine::Request {
        prompt: prompt.tokens.clone(),
        max_tokens: request.max_tokens.unwrap_or(model.context - prompt.tokens.len()),
        sampling: Sampling { suppressed, ..model.defaults.sampling(&request.sampling, seed) },
        stop_tokens,
        logprobs: request.logprobs,
        constraint: None,
        priority: request.priority,
        timeout: None,
        pin: prompt.pin,
        marks: prompt.marks.clone(),
        sink: Box::new(outbox),
    }
}

/// What prompts that are made now show as the date.
pub(crate) fn now() -> LocalTime {
    utc(Arrival::now("").unix_seconds)
}

/// Dates in prompts are in UTC, so that a request means the same wherever it is served.
fn utc(seconds: u64) -> LocalTime {
    LocalTime::from_unix(i64::try_from(seconds).unwrap_or(0), 0)
}

fn check_biases(model: &Model, request: &ChatRequest) -> Result<(), ApiError> {
    let vocab = model.engine.bounds().vocab;
    let foreign = |(id, _): &&(TokenId, f32)| *id as usize >= vocab;
    match request.sampling.logit_bias.iter().find(foreign) {
        Some((id, _)) => {
            let message = format!("token {id} does not exist; the vocabulary has {vocab} tokens");
            Err(ApiError::field("logit_bias", message))
        }
        None => Ok(()),
    }
}

/// A seed for a request that brings none. Below 2^53, so that JSON readers that know only doubles
/// can send it back.
fn random_seed() -> Result<u64, ApiError> {
    let seed = getrandom::u64().map_err(|error| {
        let message = format!("the system gave no random seed: {error}");
        ApiError::new(ErrorKind::Internal, "internal_error", message)
    })?;
    Ok(seed >> 11)
}

fn refusal(refused: Refused, param: &str) -> ApiError {
    let message = refused.to_string();
    match refused {
        Refused::TooLong { .. } | Refused::TooLarge { .. } => {
            ApiError::refused("context_length_exceeded", param, message)
        }
        Refused::Empty | Refused::BadToken { .. } => ApiError::field(param, message),
        Refused::OutOfRange { field, .. } => ApiError::field(field, message),
        Refused::QueueFull { retry_after, .. } => ApiError {
            retry_after: Some(retry_after),
            ..ApiError::new(ErrorKind::Overloaded, "overloaded", message)
        },
        Refused::ShuttingDown => ApiError::new(ErrorKind::Unavailable, "shutting_down", message),
        Refused::Dead => ApiError::new(ErrorKind::Internal, "engine_error", message),
    }
}
