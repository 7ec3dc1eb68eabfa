//! Who may ask: keys on every route that the server itself lists, machines that a request may be
//! for, and pages in browsers.

use std::num::NonZero;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, HeaderValue, Request};
use hearth_server::{App, ChatService, Edge, Key, Settings, router};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower::ServiceExt;

use crate::client::{CHAT, MESSAGES, chat, message, send};
use crate::script::Script;
use crate::socket::{get, reply, send as send_bytes, start};

/// What anybody may ask a server that has keys.
const OPEN: &[&str] = &["/", "/health", "/livez", "/readyz"];

fn app(edge: Edge) -> App {
    let chat = ChatService::new(vec![Script::says(&["Two"]).model()]);
    App::with_edge(chat, Settings::default(), edge)
}

fn locked() -> App {
    let keys = ["grove-77", "grove-99"].map(|key| Key::new(key).unwrap());
    app(Edge { keys: keys.to_vec().into(), ..Edge::default() })
}

type Header = (&'static str, &'static [u8]);

struct Told {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Told {
    #[track_caller]
    fn code(&self) -> String {
        let body: Value =
            serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("{}", self.text));
        body["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

async fn ask(app: &App, method: &str, path: &str, headers: &[Header]) -> Told {
    ask_with(app, method, path, headers, "{}").await
}

async fn ask_with(app: &App, method: &str, path: &str, headers: &[Header], body: &str) -> Told {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, HeaderValue::from_bytes(value).unwrap());
    }
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let (parts, body) = router(app.clone()).oneshot(request).await.unwrap().into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let text = String::from_utf8(body.to_vec()).unwrap();
    Told { status: parts.status.as_u16(), headers: parts.headers, text }
}

/// Methods and paths, from the document that is made from the router's own list.
async fn routes(app: &App) -> Vec<(String, String)> {
    let key: Header = ("x-api-key", b"grove-77");
    let document = ask(app, "GET", "/openapi.json", &[key]).await;
    let document: Value = serde_json::from_str(&document.text).unwrap();
    let mut routes = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            routes.push((method.to_uppercase(), path.replace("{id}", "toy")));
        }
    }
    assert!(routes.len() > 15, "{routes:?}");
    routes
}

/// Case V10.
#[tokio::test]
async fn every_route_needs_a_key_unless_it_is_open() {
    let app = locked();
    let mut all = routes(&app).await;
    all.push(("POST".to_owned(), "/v1/nothing".to_owned()));
    all.push(("GET".to_owned(), "/../etc/passwd".to_owned()));
    let wrong: &[&[Header]] = &[
        &[],
        &[("authorization", b"Bearer grove-78")],
        &[("authorization", b"Bearer grove-7")],
        &[("authorization", b"Bearer grove-770")],
        &[("authorization", b"Bearer ")],
        &[("authorization", b"Basic grove-77")],
        &[("authorization", b"Bearer caf\xe9")],
        &[("x-api-key", "\u{201c}grove-77\u{201d}".as_bytes())],
        &[("x-api-key", b"")],
        &[("cookie", b"x-api-key=grove-77")],
    ];
    for (method, path) in &all {
        for headers in wrong {
            let told = ask(&app, method, path, headers).await;
            if OPEN.contains(&path.as_str()) {
                assert_eq!(told.status, 200, "{method} {path}: {}", told.text);
                continue;
            }
            assert_eq!(told.status, 401, "{method} {path} {headers:?}: {}", told.text);
            assert!(told.text.contains("\"error\""), "{method} {path}: {}", told.text);
            assert!(!told.text.contains("grove"), "{method} {path}: {}", told.text);
            assert_eq!(told.headers["www-authenticate"], "Bearer");
        }
        let right: &[&[Header]] = &[
            &[("authorization", b"Bearer grove-77")],
            &[("authorization", b"bearer   grove-77 ")],
            &[("x-api-key", b"grove-99")],
            // SDKs send both, and one of them may be a placeholder.
            &[("x-api-key", b"none"), ("authorization", b"Bearer grove-99")],
        ];
        for headers in right {
            let told = ask(&app, method, path, headers).await;
            assert!(told.status != 401 && told.status < 500, "{method} {path}: {}", told.text);
        }
    }
    // An error has the form of the dialect.
    let told = ask(&app, "POST", MESSAGES, &[]).await;
    let error: Value = serde_json::from_str(&told.text).unwrap();
    assert_eq!(
        (&error["type"], &error["error"]["type"]),
        (&json!("error"), &json!("authentication_error"))
    );
    assert_eq!(ask(&app, "POST", CHAT, &[]).await.code(), "invalid_api_key");
    let told = ask_with(
        &app,
        "POST",
        MESSAGES,
        &[("x-api-key", b"grove-77")],
        &message(json!({})).to_string(),
    )
    .await;
    assert_eq!(told.status, 200);
}

#[test]
fn keys_are_words_that_every_client_can_send_and_are_never_shown() {
    for wrong in ["", "two words", "caf\u{e9}", "line\n", &"x".repeat(513)] {
        assert!(Key::new(wrong).is_none(), "{wrong:?}");
    }
    let key = Key::new("grove-77").unwrap();
    let edge = Edge { keys: vec![key].into(), ..Edge::default() };
    assert!(!format!("{edge:?}").contains("grove"));
}

/// A site whose name was pointed at this machine sends its own name along.
#[tokio::test]
async fn requests_for_other_machines_are_refused_unless_keys_guard_the_server() {
    let hosts = [
        ("127.0.0.1:8000", true),
        ("localhost", true),
        ("LOCALHOST:8000", true),
        ("api.localhost:8000", true),
        ("[::1]:8000", true),
        ("192.168.1.7:8000", true),
        ("localhost.:8000", true),
        ("evil.example:8000", false),
        ("localhost.evil.example", false),
        ("evil.example.127.0.0.1.nip.example", false),
        ("127.0.0.1.evil.example", false),
        ("", false),
        ("caf\u{e9}", false),
    ];
    let plain = app(Edge::default());
    for (host, fine) in hosts {
        for (method, path) in [("POST", CHAT), ("GET", "/health"), ("GET", "/nowhere")] {
            let told = ask(&plain, method, path, &[("host", host.as_bytes())]).await;
            let refused = told.status == 403 && told.code() == "host_not_allowed";
            assert_eq!(refused, !fine, "{host} {path}: {}", told.text);
        }
    }
    let two: &[Header] = &[("host", b"localhost"), ("host", b"evil.example")];
    assert_eq!(ask(&plain, "GET", "/health", two).await.status, 403);
    assert_eq!(ask(&plain, "GET", "http://evil.example/health", &[]).await.status, 403);

    let other: &[Header] = &[("host", b"den.lan:8000")];
    let named = app(Edge { hosts: vec!["den.lan".to_owned()], ..Edge::default() });
    assert_eq!(ask(&named, "GET", "/health", other).await.status, 200);
    assert_eq!(ask(&named, "GET", "/health", &[("host", b"evil.example")]).await.status, 403);
    let any = app(Edge { hosts: vec!["*".to_owned()], ..Edge::default() });
    assert_eq!(ask(&any, "GET", "/health", other).await.status, 200);
    assert_eq!(ask(&locked(), "GET", "/health", other).await.status, 200);
}

#[tokio::test]
async fn pages_of_others_cannot_use_the_server() {
    let app = app(Edge::default());
    let body = chat(json!({})).to_string();
    let post = async |headers: &[Header]| ask_with(&app, "POST", CHAT, headers, &body).await;
    let foreign: &[&[Header]] = &[
        &[("origin", b"https://evil.example")],
        &[("origin", b"null")],
        &[("origin", b"http://localhost:3000"), ("host", b"localhost:8000")],
        &[("origin", b"caf\xe9")],
        &[("sec-fetch-site", b"cross-site")],
        &[("sec-fetch-site", b"same-site")],
    ];
    for headers in foreign {
        // With and without the body types that need no leave.
        for kind in ["application/json", "text/plain"] {
            let headers = [headers, &[("content-type", kind.as_bytes())][..]].concat();
            let told = post(&headers).await;
            assert_eq!((told.status, told.code().as_str()), (403, "origin_not_allowed"));
            assert!(!told.headers.contains_key("access-control-allow-origin"));
        }
        let told = ask(&app, "OPTIONS", CHAT, headers).await;
        let asks_itself = headers[0].0 == "sec-fetch-site";
        assert_eq!(told.status, 403, "{headers:?}");
        assert!(asks_itself || !told.headers.contains_key("access-control-allow-origin"));
    }
    let ours: &[&[Header]] = &[
        &[],
        &[("origin", b"http://localhost:8000"), ("host", b"localhost:8000")],
        &[("sec-fetch-site", b"same-origin")],
        &[("sec-fetch-site", b"none")],
    ];
    for headers in ours {
        assert_eq!(post(headers).await.status, 200, "{headers:?}");
    }
    assert_eq!(app.chat.live().count(), 0);
}

#[tokio::test]
async fn bodies_are_json_by_name() {
    let app = app(Edge::default());
    let body = chat(json!({})).to_string();
    let cases: &[(&[Header], u16)] = &[
        (&[], 200),
        (&[("content-type", b"application/json; charset=utf-8")], 200),
        (&[("content-type", b"application/vnd.api+json")], 200),
        // What curl says of every body.
        (&[("content-type", b"application/x-www-form-urlencoded")], 200),
        (
            &[
                ("content-type", b"application/x-www-form-urlencoded"),
                ("referer", b"https://evil.example/"),
            ],
            415,
        ),
        (&[("content-type", b"text/plain")], 415),
        (&[("content-type", b"multipart/form-data; boundary=x")], 415),
    ];
    for (headers, status) in cases {
        let told = ask_with(&app, "POST", CHAT, headers, &body).await;
        assert_eq!(told.status, *status, "{headers:?}: {}", told.text);
    }
}

#[tokio::test]
async fn allowed_pages_are_told_so() {
    let origins = vec!["https://pages.example".to_owned()];
    let keys = vec![Key::new("grove-77").unwrap()].into();
    let app = app(Edge { origins, keys, ..Edge::default() });
    let asks: &[Header] = &[
        ("origin", b"https://pages.example"),
        ("access-control-request-method", b"POST"),
        ("access-control-request-headers", b"authorization,content-type"),
        ("access-control-request-private-network", b"true"),
    ];
    let told = ask(&app, "OPTIONS", CHAT, asks).await;
    assert_eq!((told.status, told.text.as_str()), (204, ""));
    let headers = [
        ("access-control-allow-origin", "https://pages.example"),
        ("access-control-allow-methods", "POST"),
        ("access-control-allow-headers", "authorization,content-type"),
        ("access-control-allow-private-network", "true"),
        ("vary", "Origin"),
    ];
    for (name, value) in headers {
        assert_eq!(told.headers[name], value, "{name}");
    }
    let page: &[Header] = &[("origin", b"https://pages.example")];
    // The page can read that its key is missing, and what it gets with one.
    let told = ask(&app, "POST", CHAT, page).await;
    assert_eq!(
        (told.status, &told.headers["access-control-allow-origin"]),
        (401, &HeaderValue::from_static("https://pages.example"))
    );
    let key: &[Header] = &[("authorization", b"Bearer grove-77")];
    let body = chat(json!({})).to_string();
    let told = ask_with(&app, "POST", CHAT, &[page, key].concat(), &body).await;
    assert_eq!(
        (told.status, &told.headers["access-control-allow-origin"]),
        (200, &HeaderValue::from_static("https://pages.example"))
    );
    let other = ask(&app, "OPTIONS", CHAT, &[("origin", b"https://pages.example.evil")]).await;
    assert_eq!(other.status, 403);
    // Without a page behind it the question is harmless.
    let told = send(&app, "OPTIONS", "/v1/models", "").await;
    assert_eq!(
        (told.status.as_u16(), &told.headers["allow"]),
        (204, &HeaderValue::from_static("GET"))
    );
}

#[tokio::test]
async fn who_asks_too_often_is_told_to_wait() {
    let per_minute = NonZero::new(2);
    let keys = ["a", "b"].map(|key| Key::new(key).unwrap());
    let app = app(Edge { per_minute, keys: keys.to_vec().into(), ..Edge::default() });
    let models =
        async |key: &'static [u8]| ask(&app, "GET", "/v1/models", &[("x-api-key", key)]).await;
    assert_eq!(models(b"a").await.status, 200);
    // Wrong keys and probes take nothing from anybody.
    assert_eq!(models(b"c").await.status, 401);
    assert_eq!(send(&app, "GET", "/livez", "").await.status, 200);
    assert_eq!(models(b"a").await.status, 200);
    let told = models(b"a").await;
    assert_eq!((told.status, told.code().as_str()), (429, "rate_limit_exceeded"));
    let wait: u64 = told.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=30).contains(&wait), "{wait}");
    assert_eq!(models(b"b").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_are_counted_where_there_are_no_keys() {
    let app = app(Edge { per_minute: NonZero::new(1), ..Edge::default() });
    let (address, _stop, _) = start(app).await;
    assert_eq!(get(address, "/v1/models").await.0, 200);
    assert_eq!(get(address, "/v1/models").await.0, 429);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_is_bounded() {
    let (address, _stop, _) = start(app(Edge::default())).await;
    let long = format!("X-Long: {}\r\n", "x".repeat(1_000_000));
    let many: String = (0..200).map(|n| format!("X-{n}: 1\r\n")).collect();
    for more in [long, many] {
        let head = format!("GET /livez HTTP/1.1\r\nHost: localhost\r\n{more}\r\n");
        let mut socket = TcpStream::connect(address).await.unwrap();
        // The connection may be closed before all of it is read.
        let _ = socket.write_all(head.as_bytes()).await;
        let mut answer = [0; 13];
        // And a reset takes the answer away with it.
        if socket.read_exact(&mut answer).await.is_ok() {
            assert_eq!(&answer, b"HTTP/1.1 431 ");
        }
    }
    let head = "GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(reply(send_bytes(address, head).await).await.0, 200);
}

/// Case V11: names are looked up among the models there are, and nowhere else.
#[tokio::test]
async fn v11_names_of_models_are_no_paths() {
    let app = app(Edge::default());
    let long = "x".repeat(5000);
    for name in ["../../secret", "/tmp/m", "someorg/not-loaded", "a%2f..%2fb", "toy\0", &long] {
        let chat = json!({"model": name, "messages": [{"role": "user", "content": "Hi"}]});
        let plain = json!({"model": name, "prompt": "Hi", "tokens": [5]});
        let items = json!({"model": name, "input": "Hi"});
        for (path, body) in [
            (CHAT, &chat),
            (MESSAGES, &chat),
            ("/v1/messages/count_tokens", &chat),
            ("/v1/chat/completions/render", &chat),
            ("/api/chat", &chat),
            ("/v1/completions", &plain),
            ("/v1/responses", &items),
            ("/api/generate", &plain),
            ("/api/show", &plain),
            ("/tokenize", &plain),
            ("/detokenize", &plain),
            ("/v1/cache/clear", &plain),
        ] {
            let told = ask_with(&app, "POST", path, &[], &body.to_string()).await;
            assert_eq!(told.status, 404, "{path}: {}", told.text);
        }
    }
}
