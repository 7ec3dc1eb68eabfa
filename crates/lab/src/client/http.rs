//! The transport of every day: HTTP/1.1 over TCP or TLS, a new connection for each request.
//!
//! A kept connection may be closed by a server just when it is used again, and the error would be the
//! client's. What a new one costs is part of the overhead that the lab measures and states.

use std::time::Duration;

use ureq::Agent;

use super::{Reply, Transport};

/// How to reach a server.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Beginning of every address, without a slash at its end.
    pub base: String,
    /// Key that is sent as a bearer's.
    pub key: Option<String>,
    /// Most seconds of one answer.
    pub limit: Duration,
}

/// A way to one server.
pub struct Http {
    agent: Agent,
    options: HttpOptions,
}

impl Http {
    /// Connects at the first request.
    pub fn new(options: HttpOptions) -> Http {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(Duration::from_secs(10)))
            .timeout_global(Some(options.limit))
            .no_delay(true)
            .max_idle_connections(0)
            .max_idle_connections_per_host(0)
            // A local server is asked directly, whatever the environment says about proxies.
            .proxy(None)
            .build();
        Http { agent: config.new_agent(), options }
    }

    /// The body of a page, if it is there.
    pub fn get(&self, path: &str) -> Option<String> {
        let mut request = self.agent.get(format!("{}{path}", self.options.base));
        if let Some(key) = &self.options.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let mut response = request.call().ok()?;
        let body = response.body_mut().read_to_string().ok()?;
        response.status().is_success().then_some(body)
    }
}

impl Transport for Http {
    fn post(&mut self, path: &str, body: &str) -> Result<Reply, String> {
        let mut request = self.agent.post(format!("{}{path}", self.options.base));
        request = request.header("content-type", "application/json");
        if let Some(key) = &self.options.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let response = request.send(body).map_err(|error| error.to_string())?;
        let status = response.status().as_u16();
        Ok(Reply { status, body: Box::new(response.into_body().into_reader()) })
    }
}
