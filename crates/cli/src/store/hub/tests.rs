//! The client against a hub on this machine: what goes over the wire, and what is said when it fails.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::*;

const REPO: &str = "org/name";
const COMMIT: &str = "c0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ff";
const SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
const CONTENTS: &[u8] = b"0123456789";

/// What the server does with one request.
enum Reply {
    /// Sends this and closes the connection.
    Closes(String),
    /// Sends this, then nothing more.
    Stalls(String),
}

/// A server that keeps the heads of the requests it got.
struct Server {
    endpoint: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Answers every request with `reply` to its head.
    fn start(reply: impl Fn(&str) -> Reply + Send + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let heads = Arc::new(Mutex::new(Vec::new()));
        let kept = heads.clone();
        thread::spawn(move || {
            let mut stalled = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let head = read_head(&mut stream);
                let reply = reply(&head);
                kept.lock().unwrap().push(head);
                // A client that has heard enough may be gone already.
                match reply {
                    Reply::Closes(text) => drop(stream.write_all(text.as_bytes())),
                    Reply::Stalls(text) => {
                        drop(stream.write_all(text.as_bytes()));
                        stalled.push(stream);
                    }
                }
            }
        });
        Server { endpoint, heads }
    }

    /// Answers everything alike.
    fn always(reply: &str) -> Server {
        let reply = reply.to_owned();
        Server::start(move |_| Reply::Closes(reply.clone()))
    }

    fn hub(&self, token: Option<&str>) -> HttpHub {
        HttpHub::new(&self.endpoint, token, Patience::default())
    }

    /// A client that gives up on silence at once.
    fn impatient_hub(&self) -> HttpHub {
        let stall = Duration::from_millis(500);
        HttpHub::new(&self.endpoint, None, Patience { stall, ..Patience::default() })
    }

    fn head(&self, at: usize) -> String {
        self.heads.lock().unwrap()[at].clone()
    }
}

fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap().to_ascii_lowercase()
}

fn response(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

fn ok(body: &str) -> String {
    response("200 OK", "", body)
}

fn listing(siblings: &str) -> String {
    ok(&format!(r#"{{"sha":"{COMMIT}","siblings":[{siblings}],"more":1}}"#))
}

fn file(path: &str) -> RemoteFile {
    let digest = Digest::Sha256(SHA256.to_owned());
    RemoteFile { path: path.to_owned(), size: CONTENTS.len() as u64, digest }
}

/// What the first `there` bytes become when the rest is fetched, and how that ended.
fn fetched(hub: &HttpHub, path: &str, there: usize) -> (Vec<u8>, Result<(), String>) {
    let mut out = CONTENTS[..there].to_vec();
    let file = file(path);
    let at = FileAt { repo: REPO, commit: COMMIT, file: &file };
    let meter = Meter::bytes(path, file.size);
    let result = hub.fetch(at, there as u64, &mut out, &meter);
    (out, result.map_err(|error| format!("{error:#}")))
}

fn list_error(hub: &HttpHub) -> String {
    format!("{:#}", hub.list(REPO).unwrap_err())
}

#[test]
fn a_listing_names_every_file_with_its_checksum() {
    let large = format!(
        r#"{{"rfilename":"m.gguf","size":98,"blobId":"x","lfs":{{"sha256":"{SHA256}","size":98}}}}"#
    );
    let small = format!(r#"{{"rfilename":"sub/a.json","size":2,"blobId":"{COMMIT}"}}"#);
    let server = Server::always(&listing(&format!("{large},{small}")));
    let found = server.hub(Some("secret")).list(REPO).unwrap();
    let (large, small) = (Digest::Sha256(SHA256.to_owned()), Digest::GitSha1(COMMIT.to_owned()));
    let expected = Listing {
        commit: COMMIT.to_owned(),
        files: vec![
            RemoteFile { path: "m.gguf".to_owned(), size: 98, digest: large },
            RemoteFile { path: "sub/a.json".to_owned(), size: 2, digest: small },
        ],
    };
    assert_eq!(found, expected);
    let head = server.head(0);
    assert!(head.starts_with("get /api/models/org/name/revision/main?blobs=true "), "{head}");
    assert!(head.contains("authorization: bearer secret\r\n"), "{head}");
}

#[test]
fn a_listing_that_cannot_be_trusted_is_refused() {
    let blob =
        |path: &str, blob: &str| format!(r#"{{"rfilename":"{path}","size":1,"blobId":"{blob}"}}"#);
    for (siblings, expected) in [
        (blob("../up", COMMIT), "outside of the repository: `../up`"),
        (blob("/etc/x", COMMIT), "outside of the repository: `/etc/x`"),
        (blob("a//b", COMMIT), "outside of the repository: `a//b`"),
        (blob("a\\\\b", COMMIT), "outside of the repository"),
        (blob("a", "../../x"), "impossible checksum for `a`"),
        (blob("a", &SHA256[1..]), "impossible checksum for `a`"),
        (r#"{"rfilename":"a","size":1}"#.to_owned(), "no checksum for `a`"),
        (format!(r#"{{"rfilename":"a","blobId":"{COMMIT}"}}"#), "no size for `a`"),
    ] {
        let error = list_error(&Server::always(&listing(&siblings)).hub(None));
        assert!(error.contains(expected), "{siblings}: {error}");
    }
    for body in ["<html>sign in first</html>", "[]", r#"{"sha":"main","siblings":[]}"#] {
        let error = list_error(&Server::always(&ok(body)).hub(None));
        assert!(error.contains("`org/name`"), "{body}: {error}");
    }
}

#[test]
fn a_download_goes_on_at_the_byte_it_reached() {
    let server = Server::start(|head| {
        assert!(head.contains("range: bytes=4-\r\n"), "{head}");
        Reply::Closes(response("206 Partial Content", "content-range: bytes 4-9/10\r\n", "456789"))
    });
    assert_eq!(fetched(&server.hub(None), "m.gguf", 4), (CONTENTS.to_vec(), Ok(())));
    let server = Server::always(&ok("0123456789"));
    assert_eq!(fetched(&server.hub(None), "m.gguf", 4), (CONTENTS.to_vec(), Ok(())));
    assert_eq!(fetched(&server.hub(None), "m.gguf", 0), (CONTENTS.to_vec(), Ok(())));
    assert!(!server.head(1).contains("range:"), "{}", server.head(1));
}

#[test]
fn what_arrived_before_the_end_of_the_line_is_kept() {
    let begun = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n0123";
    let breaks = Server::always(begun);
    let unmeasured = Server::always("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n0123");
    let stalls = Server::start(move |_| Reply::Stalls(begun.to_owned()));
    let hubs = [breaks.hub(None), unmeasured.hub(None), stalls.impatient_hub()];
    for hub in hubs {
        let (out, result) = fetched(&hub, "m.gguf", 0);
        assert_eq!(out, b"0123");
        let error = result.unwrap_err();
        assert!(error.contains("m.gguf broke off; run the same command again"), "{error}");
    }
}

#[test]
fn a_file_may_not_be_longer_than_it_was_listed() {
    let server = Server::always(&ok("0123456789 and more"));
    let (out, result) = fetched(&server.hub(None), "m.gguf", 0);
    assert!(out.len() <= CONTENTS.len());
    assert!(result.unwrap_err().contains("more of m.gguf than its listing says"));
}

#[test]
fn the_token_goes_to_the_hub_and_to_nobody_else() {
    let store = Server::always(&ok("0123456789"));
    let target = format!("{}/blob?sig=a%2Fb", store.endpoint);
    let hub = Server::start(move |head| {
        let (code, location) = match head.contains("/resolve/") {
            true => ("307 Temporary Redirect", "/cache/m.gguf?x=1"),
            false => ("302 Found", target.as_str()),
        };
        Reply::Closes(response(code, &format!("location: {location}\r\n"), ""))
    });
    let (out, result) = fetched(&hub.hub(Some("secret")), "m.gguf", 0);
    assert_eq!((out.as_slice(), result), (CONTENTS, Ok(())));
    let heads = hub.heads.lock().unwrap();
    assert!(heads[1].starts_with("get /cache/m.gguf?x=1 "), "{}", heads[1]);
    assert!(heads.iter().all(|head| head.contains("authorization: bearer secret\r\n")));
    let foreign = store.head(0);
    assert!(foreign.starts_with("get /blob?sig=a%2fb "), "{foreign}");
    assert!(!foreign.contains("secret"), "{foreign}");
}

#[test]
fn redirects_lead_where_they_say_and_not_in_circles() {
    let join = |location| join("https://hub.example:8/a/b?q=/x", location);
    assert_eq!(join("http://else.example/y"), "http://else.example/y");
    assert_eq!(join("//else.example/y"), "https://else.example/y");
    assert_eq!(join("/y?z=1"), "https://hub.example:8/y?z=1");
    assert_eq!(join("y"), "https://hub.example:8/a/y");
    assert_eq!(origin("https://hub.example@evil.example/x"), "https://hub.example@evil.example");
    let circle = Server::always(&response("302 Found", "location: /again\r\n", ""));
    let error = list_error(&circle.hub(None));
    assert!(error.contains("cannot reach the hub at http://127.0.0.1:"), "{error}");
    assert_eq!(circle.heads.lock().unwrap().len(), MAX_REDIRECTS);
}

#[test]
fn names_of_files_survive_the_address() {
    let server = Server::always(&ok("0123456789"));
    let (_, result) = fetched(&server.hub(None), "sub dir/a#b?c%2Fd é.gguf", 0);
    assert_eq!(result, Ok(()));
    let path = "/sub%20dir/a%23b%3fc%252fd%20%c3%a9.gguf ";
    let head = server.head(0);
    assert!(head.starts_with(&format!("get /org/name/resolve/{COMMIT}{path}")), "{head}");
}

#[test]
fn refusals_say_what_to_do() {
    for (status, token, expected) in [
        (
            "401 Unauthorized",
            None,
            "accept the model's licence at ENDPOINT/org/name and set HF_TOKEN",
        ),
        ("403 Forbidden", None, "set HF_TOKEN"),
        ("403 Forbidden", Some("t"), "does not let your HF_TOKEN read `org/name`"),
        ("404 Not Found", None, "the hub has no repository `org/name`: check the name"),
        ("429 Too Many Requests", None, "try again in a while"),
        ("503 Unavailable", None, "cannot reach the hub at ENDPOINT (it answers with status 503)"),
    ] {
        let server = Server::always(&response(status, "", "no"));
        let error = list_error(&server.hub(token));
        assert!(error.contains(&expected.replace("ENDPOINT", &server.endpoint)), "{error}");
    }
    let server = Server::always(&response("404 Not Found", "", ""));
    let (_, result) = fetched(&server.hub(None), "m.gguf", 0);
    assert!(result.unwrap_err().contains("the hub has no file `m.gguf` in `org/name`"));
}

#[test]
fn a_hub_that_is_not_there_is_no_long_wait() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let hub = HttpHub::new(&format!("http://{nobody}"), None, Patience::default());
    let error = list_error(&hub);
    assert!(error.contains(&format!("cannot reach the hub at http://{nobody} (")), "{error}");
    let silent = Server::start(|_| Reply::Stalls(String::new()));
    let error = list_error(&silent.impatient_hub());
    assert!(error.ends_with("(it does not answer)"), "{error}");
}
