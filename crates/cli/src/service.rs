//! Flags of `hearth serve` that are about the service and not about a model: limits, stopping, logs.

use std::io::IsTerminal;
use std::num::NonZero;
use std::time::Duration;

use clap::ValueEnum;
use server::{Footprint, Settings};
use tracing_subscriber::filter::LevelFilter;

use crate::machine;

#[derive(clap::Args)]
pub(crate) struct ServiceArgs {
    /// Connections that are served at once; more wait until one is closed
    #[arg(long, default_value_t = 512, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    max_connections: u16,
    /// Seconds that running answers may go on after Ctrl-C or SIGTERM; a second one ends at once
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    grace: u32,
    /// Seconds that an answer may take from its request on, waiting included; 0 is no limit. A
    /// request may ask for less with its field `timeout`
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    request_timeout: u32,
    /// Form of the log on standard error; it never holds what was asked or said
    #[arg(long, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    log_format: LogFormat,
    /// The least important lines that are logged: a line per answer is `info`
    #[arg(long, value_enum, default_value_t = LogLevel::Info, value_name = "LEVEL")]
    log_level: LogLevel,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl ServiceArgs {
    /// How the HTTP side behaves.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            max_connections: self.max_connections.into(),
            grace: Duration::from_secs(self.grace.into()),
            request_timeout: NonZero::new(self.request_timeout)
                .map(|seconds| Duration::from_secs(seconds.get().into())),
            footprint,
            ..Settings::default()
        }
    }

    /// Sends the log to standard error. To be called once.
    pub(crate) fn start_log(&self) {
        let level = match self.log_level {
            LogLevel::Off => LevelFilter::OFF,
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Debug => LevelFilter::DEBUG,
            LogLevel::Trace => LevelFilter::TRACE,
        };
        let log = tracing_subscriber::fmt()
            .with_writer(std::io::stderr)
            .with_target(false)
            .with_ansi(std::io::stderr().is_terminal());
        match self.log_format {
            LogFormat::Text => log.with_max_level(level).init(),
            LogFormat::Json => log.with_max_level(level).json().flatten_event(true).init(),
        }
    }
}

fn footprint() -> Option<Footprint> {
    let memory = machine::own_memory()?;
    Some(Footprint { resident: memory.resident, anonymous: memory.anonymous, files: memory.files })
}
