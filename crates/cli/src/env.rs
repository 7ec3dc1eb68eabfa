//! Everything the environment says, read once. Nothing below this file looks at a variable again, so
//! tests make their own [`Environment`].

use std::path::{Path, PathBuf};

use crate::agents::{self, setup::Places};

/// Where the hub is when nobody says otherwise.
const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

/// The user's environment, as far as it matters.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    /// The standard hub cache, shared with other programs (`HF_HUB_CACHE`, else `$HF_HOME/hub`).
    pub(crate) hub_cache: PathBuf,
    /// Base address of the hub (`HF_ENDPOINT`), without a slash at the end.
    pub(crate) hub_endpoint: String,
    /// Token for gated repositories (`HF_TOKEN`, else the file `$HF_HOME/token`).
    pub(crate) hub_token: Option<String>,
    /// Never touch the network (`HF_HUB_OFFLINE`, `--offline`).
    pub(crate) offline: bool,
    /// Our own cache: models from the package index (`HEARTH_CACHE`, else `~/.cache/hearth`).
    pub(crate) cache: PathBuf,
    /// Address of a server (`HEARTH_URL`), and its key (`HEARTH_API_KEY`).
    pub(crate) url: Option<String>,
    pub(crate) api_key: Option<String>,
    /// Where other programs and their settings are.
    pub(crate) places: Places,
    /// History of the terminal chat.
    pub(crate) history: PathBuf,
}

impl Environment {
    /// Reads the process environment.
    pub(crate) fn read() -> Environment {
        Environment::from_vars(&|name| std::env::var(name).ok().filter(|v| !v.is_empty()))
    }

    /// `var` answers for every variable; unset and empty are the same.
    fn from_vars(var: &dyn Fn(&str) -> Option<String>) -> Environment {
        let home =
            var("HOME").or_else(|| var("USERPROFILE")).map_or_else(PathBuf::new, PathBuf::from);
        let caches = var("XDG_CACHE_HOME").map_or_else(|| home.join(".cache"), PathBuf::from);
        let hf_home = var("HF_HOME").map_or_else(|| caches.join("huggingface"), PathBuf::from);
        let cache = var("HEARTH_CACHE").map_or_else(|| caches.join("hearth"), PathBuf::from);
        let token_file = || std::fs::read_to_string(hf_home.join("token")).ok();
        let hub_token = var("HF_TOKEN").or_else(token_file).map(|token| token.trim().to_owned());
        Environment {
            hub_cache: var("HF_HUB_CACHE").map_or_else(|| hf_home.join("hub"), PathBuf::from),
            hub_endpoint: var("HF_ENDPOINT").map_or_else(
                || DEFAULT_ENDPOINT.to_owned(),
                |e| e.trim_end_matches('/').to_owned(),
            ),
            hub_token: hub_token.filter(|token| !token.is_empty()),
            offline: var("HF_HUB_OFFLINE").is_some_and(|value| is_true(&value)),
            url: var("HEARTH_URL"),
            api_key: var("HEARTH_API_KEY"),
            places: places(var, &home),
            history: cache.join("chat_history"),
            cache,
        }
    }
}

fn places(var: &dyn Fn(&str) -> Option<String>, home: &Path) -> Places {
    let data = var("XDG_DATA_HOME").map_or_else(|| home.join(".local/share"), PathBuf::from);
    let folder = |name: String| var(&name).map(|folder| (name, PathBuf::from(folder)));
    Places {
        home: home.to_owned(),
        here: std::env::current_dir().unwrap_or_default(),
        folders: agents::folder_variables().into_iter().filter_map(folder).collect(),
        path: var("PATH").iter().flat_map(std::env::split_paths).collect(),
        data: data.join("hearth"),
    }
}

/// What the hub's own client takes for true.
fn is_true(value: &str) -> bool {
    ["1", "true", "yes", "on"].contains(&value.trim().to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(vars: &[(&str, &str)]) -> Environment {
        let vars: Vec<(String, String)> =
            vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Environment::from_vars(&|name| {
            vars.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone()).filter(|v| !v.is_empty())
        })
    }

    #[test]
    fn offline_is_what_the_hub_client_says_it_is() {
        for on in ["1", "true", "ON", "Yes"] {
            assert!(env(&[("HF_HUB_OFFLINE", on)]).offline, "{on}");
        }
        for off in ["0", "false", "off", ""] {
            assert!(!env(&[("HF_HUB_OFFLINE", off)]).offline, "{off}");
        }
        assert!(!env(&[]).offline);
    }

    #[test]
    fn the_nearest_variable_wins() {
        let cache = |vars: &[(&str, &str)]| env(vars).hub_cache;
        assert_eq!(cache(&[("HOME", "/h")]), PathBuf::from("/h/.cache/huggingface/hub"));
        assert_eq!(cache(&[("HOME", "/h"), ("HF_HOME", "/x")]), PathBuf::from("/x/hub"));
        assert_eq!(cache(&[("HF_HOME", "/x"), ("HF_HUB_CACHE", "/y")]), PathBuf::from("/y"));
        let endpoint = env(&[("HF_ENDPOINT", "http://mirror.example/")]).hub_endpoint;
        assert_eq!(endpoint, "http://mirror.example");
    }
}
