//! What the machine can do at most, measured here: how fast memory is read, and what the client itself adds
//! to the times it takes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::client::{Http, HttpOptions, Session};
use crate::clock::Monotonic;
use crate::stats::median;

/// Passes over the memory; the fastest counts.
const PASSES: usize = 5;
/// Sums that do not wait for each other, so that the compiler can use wide registers.
const LANES: usize = 32;
/// Requests to the lab's own server.
const REQUESTS: usize = 40;

/// Bytes per second of streaming reads over `bytes` of memory, all of `threads` together.
pub fn bandwidth(threads: usize, bytes: usize) -> f64 {
    let threads = threads.max(1);
    // Written once, so that every page is really there.
    let data: Vec<u64> = (0..(bytes / 8) as u64).collect();
    let barrier = Barrier::new(threads);
    let share = data.len().div_ceil(threads).max(1);
    let times: Vec<Vec<(Instant, Instant)>> = thread::scope(|scope| {
        let readers: Vec<_> = data
            .chunks(share)
            .map(|part| {
                let barrier = &barrier;
                scope.spawn(move || {
                    (0..PASSES)
                        .map(|_| {
                            barrier.wait();
                            let start = Instant::now();
                            std::hint::black_box(sum(part));
                            (start, Instant::now())
                        })
                        .collect()
                })
            })
            .collect();
        readers.into_iter().filter_map(|reader| reader.join().ok()).collect()
    });
    let pass = |n: usize| {
        let begin = times.iter().map(|times| times[n].0).min()?;
        let end = times.iter().map(|times| times[n].1).max()?;
        Some((end - begin).as_secs_f64())
    };
    let fastest = (0..PASSES).filter_map(pass).fold(f64::INFINITY, f64::min);
    (data.len() * 8) as f64 / fastest
}

fn sum(data: &[u64]) -> u64 {
    let mut lanes = [0_u64; LANES];
    let (whole, _) = data.as_chunks::<LANES>();
    for chunk in whole {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = lane.wrapping_add(*value);
        }
    }
    lanes.iter().fold(0, |sum, lane| sum.wrapping_add(*lane))
}

/// Microseconds to the first token of a server that answers at once, in this process: what the client and
/// the system's sockets add to every first token. The middle of several requests.
///
/// # Errors
/// What the system says if there can be no such server.
pub fn client_overhead_us() -> Result<f64, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let base = listener.local_addr().map_err(|error| error.to_string())?;
    thread::scope(|scope| {
        scope.spawn(move || {
            // One connection for each; what goes wrong here the client says.
            for socket in listener.incoming().flatten().take(REQUESTS) {
                let _ = answer_one(socket);
            }
        });
        let options = HttpOptions {
            base: format!("http://{base}"),
            key: None,
            limit: Duration::from_secs(10),
        };
        let clock = Monotonic::start();
        let transport = Box::new(Http::new(options));
        let mut session = Session { transport, clock: &clock, tokens: None, stopped: &|| false };
        let mut times = Vec::new();
        for _ in 0..REQUESTS {
            let turn = session.ask("/v1/chat/completions", "{}");
            times.extend(turn.ttft_ms().filter(|_| turn.error.is_none()).map(|ms| ms * 1e3));
        }
        // The first ones warm up.
        match times.get(REQUESTS / 4..) {
            Some(times) if !times.is_empty() => Ok(median(times)),
            _ => Err("the lab's own server did not answer".to_owned()),
        }
    })
}

fn answer_one(mut socket: TcpStream) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    let event = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n\
                 data: [DONE]\n\n";
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{event}",
        event.len()
    );
    let mut request = [0; 4096];
    let mut n = 0;
    loop {
        let read = socket.read(&mut request[n..])?;
        if read == 0 {
            return Ok(());
        }
        n += read;
        if request[..n].ends_with(b"{}") {
            return socket.write_all(answer.as_bytes());
        }
        if n == request.len() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_are_numbers() {
        assert!(bandwidth(2, 1 << 22) > 1e6);
        assert!(client_overhead_us().unwrap() > 0.0);
    }
}
