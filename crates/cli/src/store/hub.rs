//! The hub over HTTP: what a repository holds, and its files, resumed where they broke off.
//!
//! Knows nothing of where files end up; that is [`super::hub_cache`].

use std::io::{Read, Write};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::env::Environment;
use crate::progress::Meter;

/// What a repository holds at one revision.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Listing {
    /// The commit that the revision stands for.
    pub(crate) commit: String,
    /// Every file of the commit.
    pub(crate) files: Vec<RemoteFile>,
}

/// One file of a repository.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RemoteFile {
    /// Path inside the repository.
    pub(crate) path: String,
    /// Bytes.
    pub(crate) size: u64,
    /// What the bytes must hash to; also the name of the file's blob in the cache.
    pub(crate) digest: Digest,
}

/// How the hub names the contents of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Digest {
    /// Small files: SHA-1 of a git blob.
    GitSha1(String),
    /// Large files: SHA-256.
    Sha256(String),
}

impl Digest {
    /// The hexadecimal digits.
    pub(crate) fn hex(&self) -> &str {
        match self {
            Digest::GitSha1(hex) | Digest::Sha256(hex) => hex,
        }
    }
}

/// A source of repositories. The tests have one that counts calls.
pub(crate) trait Hub {
    /// What `repo` holds on its main branch.
    fn list(&self, repo: &str) -> Result<Listing>;
    /// Appends the bytes of `file` from `offset` on to `out`.
    fn fetch(
        &self,
        repo: &str,
        commit: &str,
        file: &RemoteFile,
        offset: u64,
        out: &mut dyn Write,
        meter: &Meter,
    ) -> Result<()>;
}

/// The real one.
pub(crate) struct HttpHub {
    agent: ureq::Agent,
    endpoint: String,
    token: Option<String>,
}

impl HttpHub {
    /// A client of the hub that `env` names.
    pub(crate) fn new(env: &Environment) -> HttpHub {
        let tls = ureq::tls::TlsConfig::builder()
            .root_certs(ureq::tls::RootCerts::PlatformVerifier)
            .build();
        let config = ureq::Agent::config_builder()
            .tls_config(tls)
            .timeout_connect(Some(Duration::from_secs(10)))
            .timeout_recv_response(Some(Duration::from_secs(30)))
            .user_agent(concat!("hearth/", env!("CARGO_PKG_VERSION")))
            .build();
        HttpHub {
            agent: config.into(),
            endpoint: env.hub_endpoint.clone(),
            token: env.hub_token.clone(),
        }
    }

    /// `ureq` sends the header to the first host only, never along a redirect.
    fn get(&self, url: &str) -> ureq::RequestBuilder<ureq::typestate::WithoutBody> {
        let request = self.agent.get(url);
        match &self.token {
            Some(token) => request.header("authorization", format!("Bearer {token}")),
            None => request,
        }
    }
}

#[derive(Deserialize)]
struct RepoInfo {
    sha: String,
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: String,
}

impl Hub for HttpHub {
    fn list(&self, repo: &str) -> Result<Listing> {
        let url = format!("{}/api/models/{repo}/revision/main?blobs=true", self.endpoint);
        let mut response = self.get(&url).call().map_err(|e| explain(e, repo))?;
        let info: RepoInfo = response
            .body_mut()
            .with_config()
            .limit(32 << 20)
            .read_json()
            .context("the hub's answer is not the listing of a repository")?;
        if !is_hex(&info.sha) {
            bail!("the hub names an impossible commit for `{repo}`");
        }
        let files: Result<Vec<RemoteFile>> = info.siblings.into_iter().map(remote_file).collect();
        Ok(Listing { commit: info.sha, files: files? })
    }

    fn fetch(
        &self,
        repo: &str,
        commit: &str,
        file: &RemoteFile,
        offset: u64,
        out: &mut dyn Write,
        meter: &Meter,
    ) -> Result<()> {
        let url = format!("{}/{repo}/resolve/{commit}/{}", self.endpoint, file.path);
        let mut request = self.get(&url);
        if offset > 0 {
            request = request.header("range", format!("bytes={offset}-"));
        }
        let mut response = request.call().map_err(|e| explain(e, repo))?;
        // A server that ignores the range sends everything again: skip what is already there.
        let mut skip = if response.status().as_u16() == 206 { 0 } else { offset };
        let mut body = response.body_mut().as_reader();
        let mut buffer = vec![0; 1 << 18];
        loop {
            let n = body.read(&mut buffer).with_context(|| format!("{} broke off", file.path))?;
            if n == 0 {
                return Ok(());
            }
            let skipped = skip.min(n as u64) as usize;
            skip -= skipped as u64;
            out.write_all(&buffer[skipped..n])?;
            meter.advance((n - skipped) as u64);
        }
    }
}

fn remote_file(sibling: Sibling) -> Result<RemoteFile> {
    let path = sibling.rfilename;
    let escapes = path.starts_with('/')
        || path.contains('\\')
        || path.split('/').any(|part| part.is_empty() || part == "." || part == "..");
    if escapes {
        bail!("the hub lists a file outside of the repository: `{path}`");
    }
    let digest = match (sibling.lfs, sibling.blob_id) {
        (Some(lfs), _) => Digest::Sha256(lfs.sha256),
        (None, Some(blob)) => Digest::GitSha1(blob),
        (None, None) => bail!("the hub gives no checksum for `{path}`"),
    };
    if !is_hex(digest.hex()) {
        bail!("the hub gives an impossible checksum for `{path}`");
    }
    Ok(RemoteFile { path, size: sibling.size.unwrap_or(0), digest })
}

fn is_hex(text: &str) -> bool {
    text.len() >= 40 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Says what the user can do about it.
fn explain(error: ureq::Error, repo: &str) -> anyhow::Error {
    match error {
        ureq::Error::StatusCode(401 | 403) => anyhow::anyhow!(
            "the hub does not let us read `{repo}`: accept its licence there and set HF_TOKEN"
        ),
        ureq::Error::StatusCode(404) => anyhow::anyhow!("the hub has no repository `{repo}`"),
        other => anyhow::Error::new(other).context("cannot reach the hub"),
    }
}
