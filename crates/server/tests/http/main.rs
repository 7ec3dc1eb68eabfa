//! The server as clients meet it: the real router and engine over a model that plays a script.

mod client;
mod script;
mod socket;

mod agents;
mod anthropic;
mod cancelling;
mod chat;
mod completions;
mod connection;
mod dialects;
mod edge;
mod forced;
mod formats;
mod hostile;
mod images;
mod limits;
mod ollama;
mod operation;
mod pool;
mod refusals;
mod responses;
mod stopping;
mod streams;
mod suppressed;
mod tokens;
mod turns;
