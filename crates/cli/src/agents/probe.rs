//! Asks a server what it serves. Starts none.

use std::time::Duration;

use anyhow::{Result, bail};
use serde::Deserialize;

/// A model that a server offers.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Offer {
    pub(crate) id: String,
    #[serde(default)]
    aliases: Vec<String>,
    #[serde(default)]
    max_model_len: Option<u64>,
}

/// What is at an address.
#[derive(Debug)]
pub(crate) enum Found {
    /// Nobody listens.
    Nothing,
    /// A server, with its models in order.
    Server(Vec<Offer>),
}

/// How long a server on this machine may take to say what it serves.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
struct List {
    data: Vec<Offer>,
}

/// Asks.
///
/// # Errors
/// Somebody answers, but not as a server of models that takes this key.
pub(crate) fn ask(url: &str, key: &str) -> Result<Found> {
    // A proxy of the machine knows nothing of servers on it.
    let config = ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).proxy(None).build();
    let request = ureq::Agent::new_with_config(config).get(format!("{url}/v1/models"));
    let mut reply = match request.header("authorization", format!("Bearer {key}")).call() {
        Ok(reply) => reply,
        Err(ureq::Error::StatusCode(401 | 403)) => {
            bail!("the server at {url} does not take this key; set HEARTH_API_KEY")
        }
        Err(ureq::Error::StatusCode(code)) => {
            bail!("what listens at {url} is no server of models: /v1/models has status {code}")
        }
        Err(ureq::Error::Io(_) | ureq::Error::ConnectionFailed | ureq::Error::HostNotFound) => {
            return Ok(Found::Nothing);
        }
        Err(error) => bail!("the server at {url} does not answer: {error}"),
    };
    match reply.body_mut().read_json::<List>() {
        Ok(list) => Ok(Found::Server(list.data)),
        Err(error) => bail!("what listens at {url} is no server of models: {error}"),
    }
}

/// The context of a model among those offered.
///
/// # Errors
/// It is not among them.
pub(crate) fn context(offers: &[Offer], model: &str) -> Result<Option<u64>> {
    let called = |offer: &&Offer| {
        let names = std::iter::once(&offer.id).chain(&offer.aliases);
        names.into_iter().any(|name| name.eq_ignore_ascii_case(model))
    };
    if model == DEFAULT {
        return Ok(offers.first().and_then(|offer| offer.max_model_len));
    }
    match offers.iter().find(called) {
        Some(offer) => Ok(offer.max_model_len),
        None => {
            let ids: Vec<&str> = offers.iter().map(|offer| offer.id.as_str()).collect();
            bail!("the server has no model `{model}`; it has {}", ids.join(", "))
        }
    }
}

/// What every server of ours calls its first model.
pub(crate) const DEFAULT: &str = "default";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_found_by_its_names_and_the_first_by_default() {
        let offer = |id: &str, alias: &str, n| Offer {
            id: id.to_owned(),
            aliases: vec![alias.to_owned()],
            max_model_len: n,
        };
        let offers = [offer("a", "x", Some(5)), offer("org/b", "coder", None)];
        assert_eq!(context(&offers, "default").unwrap(), Some(5));
        assert_eq!(context(&offers, "X").unwrap(), Some(5));
        assert_eq!(context(&offers, "coder").unwrap(), None);
        let error = context(&offers, "c").unwrap_err().to_string();
        assert!(error.contains("a, org/b"), "{error}");
    }
}
