//! The same client over a real socket. What is told is order, never time: the server sends the next piece
//! only after the client has the one before.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use hearth_lab::client::{Http, HttpOptions, Transport};

fn transport(base: String) -> Http {
    Http::new(HttpOptions { base, key: Some("secret".to_owned()), limit: Duration::from_secs(60) })
}

#[test]
fn pieces_are_there_as_soon_as_they_came() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let (got, wait) = mpsc::channel::<()>();
    let server = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut request = vec![0; 4096];
        let mut n = 0;
        while !request[..n].ends_with(b"{}") {
            n += socket.read(&mut request[n..]).unwrap();
        }
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        socket.write_all(head.as_bytes()).unwrap();
        for piece in ["data: 1\n\n", "data: 2\n\n", "data: 3\n\n"] {
            wait.recv().unwrap();
            write!(socket, "{:x}\r\n{piece}\r\n", piece.len()).unwrap();
        }
        socket.write_all(b"0\r\n\r\n").unwrap();
        String::from_utf8(request[..n].to_vec()).unwrap()
    });
    let mut reply = transport(base).post("/v1/chat/completions", "{}").unwrap();
    assert_eq!(reply.status, 200);
    let mut buffer = [0; 4096];
    for piece in ["data: 1\n\n", "data: 2\n\n", "data: 3\n\n"] {
        got.send(()).unwrap();
        let n = reply.body.read(&mut buffer).unwrap();
        assert_eq!(std::str::from_utf8(&buffer[..n]).unwrap(), piece);
    }
    assert_eq!(reply.body.read(&mut buffer).unwrap(), 0);
    let request = server.join().unwrap().to_ascii_lowercase();
    assert!(request.starts_with("post /v1/chat/completions http/1.1\r\n"), "{request}");
    assert!(request.contains("authorization: bearer secret"));
}

#[test]
fn nobody_there_is_an_error_that_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    assert!(transport(base.clone()).post("/", "{}").is_err());
    assert_eq!(transport(base).get("/health"), None);
}
