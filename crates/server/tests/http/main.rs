//! The server as clients meet it: the real router and engine over a model that plays a script.

mod client;
mod script;

mod chat;
mod completions;
mod connection;
mod pool;
mod refusals;
mod streams;
