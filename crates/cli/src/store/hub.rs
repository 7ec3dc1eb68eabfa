//! The hub over HTTP: what a repository holds, and its files, resumed where they broke off.
//!
//! Knows nothing of where files end up; that is [`super::hub_cache`].

#[cfg(test)]
mod tests;

use std::io::{Read, Write};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde::Deserialize;

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

/// One file at one commit of one repository.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileAt<'a> {
    /// `org/name`.
    pub(crate) repo: &'a str,
    /// The commit it is read at.
    pub(crate) commit: &'a str,
    /// As the listing has it.
    pub(crate) file: &'a RemoteFile,
}

/// A source of repositories. The tests have one that counts calls.
pub(crate) trait Hub {
    /// What `repo` holds on its main branch.
    fn list(&self, repo: &str) -> Result<Listing>;
    /// Appends the bytes of a file from `offset` on to `out`. What arrived before an error stays
    /// there, so that the next call can go on behind it.
    fn fetch(&self, at: FileAt<'_>, offset: u64, out: &mut dyn Write, meter: &Meter) -> Result<()>;
}

/// How long to wait for a hub that does not answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For a name to be found and a connection to stand, each.
    pub(crate) connect: Duration,
    /// For an answer to begin.
    pub(crate) answer: Duration,
    /// For the next bytes of an answer that has begun. A slow download may take as long as it
    /// likes; one that stands still may not.
    pub(crate) stall: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        let (connect, answer) = (Duration::from_secs(10), Duration::from_secs(30));
        Patience { connect, answer, stall: answer }
    }
}

/// The hub does not answer, or not as a hub does. Another source may.
#[derive(Debug)]
pub(crate) struct Unreachable {
    endpoint: String,
    why: String,
}

impl std::error::Error for Unreachable {}

impl std::fmt::Display for Unreachable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot reach the hub at {} ({})", self.endpoint, self.why)
    }
}

/// The real one.
pub(crate) struct HttpHub {
    agent: ureq::Agent,
    endpoint: String,
    token: Option<String>,
}

type Response = ureq::http::Response<ureq::Body>;

/// A file is redirected to a store of large files, sometimes in two steps.
const MAX_REDIRECTS: usize = 8;

/// A listing with many thousands of files is smaller than this.
const MAX_LISTING: u64 = 32 << 20;

impl HttpHub {
    /// A client of the hub at `endpoint`, an address without a slash at the end.
    pub(crate) fn new(endpoint: &str, token: Option<&str>, patience: Patience) -> HttpHub {
        let tls = ureq::tls::TlsConfig::builder()
            .root_certs(ureq::tls::RootCerts::PlatformVerifier)
            .build();
        let config = ureq::Agent::config_builder()
            .tls_config(tls)
            .timeout_resolve(Some(patience.connect))
            .timeout_connect(Some(patience.connect))
            .timeout_recv_response(Some(patience.answer))
            .timeout_per_read(Some(patience.stall))
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("hearth/", env!("CARGO_PKG_VERSION")))
            .build();
        HttpHub {
            agent: config.into(),
            endpoint: endpoint.to_owned(),
            token: token.map(str::to_owned),
        }
    }

    /// Follows redirects by hand, because the token must go along to the hub's own addresses (gated
    /// files are redirected there) and must never reach any other host or port.
    fn get(&self, url: String, offset: u64) -> Result<Response, ureq::Error> {
        let mut url = url;
        for _ in 0..MAX_REDIRECTS {
            let mut request = self.agent.get(&url);
            let own = origin(&url).eq_ignore_ascii_case(origin(&self.endpoint));
            if let Some(token) = self.token.as_ref().filter(|_| own) {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            if offset > 0 {
                request = request.header("range", format!("bytes={offset}-"));
            }
            let response = request.call()?;
            let location = response.headers().get("location").and_then(|l| l.to_str().ok());
            match location.filter(|_| response.status().is_redirection()) {
                Some(location) => url = join(&url, location),
                None => return Ok(response),
            }
        }
        Err(ureq::Error::TooManyRedirects)
    }

    /// Says what the user can do about it. `what` was asked for, of `repo`.
    fn explain(&self, error: ureq::Error, repo: &str, what: &str) -> anyhow::Error {
        let endpoint = self.endpoint.clone();
        match error {
            ureq::Error::StatusCode(401 | 403) => match self.token {
                Some(_) => anyhow!(
                    "the hub does not let your HF_TOKEN read `{repo}`: check the name, and accept \
                     the model's licence at {endpoint}/{repo}"
                ),
                None => anyhow!(
                    "the hub does not let everybody read `{repo}`: check the name, or accept the \
                     model's licence at {endpoint}/{repo} and set HF_TOKEN"
                ),
            },
            ureq::Error::StatusCode(404) => {
                anyhow!("the hub has no {what}: check the name at {endpoint}/{repo}")
            }
            ureq::Error::StatusCode(429) => anyhow!("the hub is busy: try again in a while"),
            ureq::Error::StatusCode(code) => {
                Unreachable { endpoint, why: format!("it answers with status {code}") }.into()
            }
            ureq::Error::Timeout(_) => {
                Unreachable { endpoint, why: "it does not answer".to_owned() }.into()
            }
            ureq::Error::Io(error) => {
                // What the system says of a name it cannot find is two lines long.
                let why = match error.to_string() {
                    why if why.contains("failed to lookup address") => "no such host".to_owned(),
                    why => why,
                };
                Unreachable { endpoint, why }.into()
            }
            other => Unreachable { endpoint, why: other.to_string() }.into(),
        }
    }
}

/// Scheme, host and port of an address.
fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url[host..].find('/').map_or(url.len(), |at| host + at);
    &url[..end]
}

/// Where a redirect from `url` leads.
fn join(url: &str, location: &str) -> String {
    if location.contains("://") {
        return location.to_owned();
    }
    if location.starts_with("//") {
        let scheme = url.split_once(':').map_or("https", |(scheme, _)| scheme);
        return format!("{scheme}:{location}");
    }
    match location.strip_prefix('/') {
        Some(path) => format!("{}/{path}", origin(url)),
        None => {
            let folder = url.split('?').next().and_then(|url| url.rsplit_once('/'));
            format!("{}/{location}", folder.map_or(url, |(folder, _)| folder))
        }
    }
}

/// A path as it stands in an address: everything but letters, digits, `-._~` and slashes in percent
/// notation.
fn encode_path(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                text.push(char::from(byte));
            }
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    text
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
        let explain = |error| self.explain(error, repo, &format!("repository `{repo}`"));
        let mut response = self.get(url, 0).map_err(explain)?;
        let body = response.body_mut().with_config().limit(MAX_LISTING);
        let text = body.read_to_string().map_err(explain)?;
        let info: RepoInfo = serde_json::from_str(&text).map_err(|_| Unreachable {
            endpoint: self.endpoint.clone(),
            why: format!("what it says of `{repo}` is not the listing of a repository"),
        })?;
        if !is_hex(&info.sha, SHA1_DIGITS) {
            bail!("the hub names an impossible commit for `{repo}`");
        }
        let files: Result<Vec<RemoteFile>> = info.siblings.into_iter().map(remote_file).collect();
        Ok(Listing { commit: info.sha, files: files? })
    }

    fn fetch(&self, at: FileAt<'_>, offset: u64, out: &mut dyn Write, meter: &Meter) -> Result<()> {
        let FileAt { repo, commit, file } = at;
        let path = &file.path;
        let url = format!("{}/{repo}/resolve/{commit}/{}", self.endpoint, encode_path(path));
        let response = self
            .get(url, offset)
            .map_err(|error| self.explain(error, repo, &format!("file `{path}` in `{repo}`")))?;
        // A server that ignores the range sends everything again: skip what is already there.
        let mut skip = if response.status().as_u16() == 206 { 0 } else { offset };
        let mut left = file.size.saturating_sub(offset);
        let mut body = response.into_body().into_reader();
        let mut out = super::large_writes(out);
        let full = || format!("cannot write {path}; is the disk full?");
        let mut buffer = vec![0; 1 << 18];
        loop {
            let n = match body.read(&mut buffer) {
                Ok(0) if left == 0 => return out.flush().with_context(full),
                Ok(0) => bail!("{path} {BROKE_OFF}"),
                Ok(n) => n,
                Err(error) => bail!("{path} {BROKE_OFF} ({error})"),
            };
            let skipped = skip.min(n as u64) as usize;
            skip -= skipped as u64;
            let fresh = &buffer[skipped..n];
            left = left
                .checked_sub(fresh.len() as u64)
                .with_context(|| format!("the hub sends more of {path} than its listing says"))?;
            out.write_all(fresh).with_context(full)?;
            meter.advance(fresh.len() as u64);
        }
    }
}

const BROKE_OFF: &str = "broke off; run the same command again, it goes on from there";

/// Hexadecimal digits of a commit or a git blob.
const SHA1_DIGITS: usize = 40;
/// Hexadecimal digits of a large file's name.
const SHA256_DIGITS: usize = 64;

fn remote_file(sibling: Sibling) -> Result<RemoteFile> {
    let path = sibling.rfilename;
    let escapes = path.starts_with('/')
        || path.contains('\\')
        || path.split('/').any(|part| part.is_empty() || part == "." || part == "..");
    if escapes {
        bail!("the hub lists a file outside of the repository: `{path}`");
    }
    let (digest, digits) = match (sibling.lfs, sibling.blob_id) {
        (Some(lfs), _) => (Digest::Sha256(lfs.sha256), SHA256_DIGITS),
        (None, Some(blob)) => (Digest::GitSha1(blob), SHA1_DIGITS),
        (None, None) => bail!("the hub gives no checksum for `{path}`"),
    };
    if !is_hex(digest.hex(), digits) {
        bail!("the hub gives an impossible checksum for `{path}`");
    }
    let size = sibling.size.with_context(|| format!("the hub gives no size for `{path}`"))?;
    Ok(RemoteFile { path, size, digest })
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|b| b.is_ascii_hexdigit())
}
