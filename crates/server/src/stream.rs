//! A streamed answer as an HTTP body: frames as events come, and something when none come for a while.
//!
//! When the client goes away the server drops the body, with it the [`Answer`], and that is the
//! cancellation: nothing here watches the connection.

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use futures_util::stream;
use tokio::time::{Instant, Sleep, sleep};

use crate::answer::Answer;
use crate::endpoint::{Writer, streamed};
use crate::frames::Frames;

/// Starts to stream an answer.
pub(crate) fn response<W: Writer>(answer: Answer, writer: W, keep_alive: Duration) -> Response {
    let frames = Frames::default();
    let feed = Feed { answer, writer, frames, keep_alive, alarm: Box::pin(sleep(keep_alive)) };
    let bytes = stream::unfold(feed, |mut feed| async move {
        let bytes = feed.next().await?;
        Some((Ok::<_, Infallible>(bytes), feed))
    });
    streamed(W::WIRE, Body::from_stream(bytes))
}

struct Feed<W> {
    answer: Answer,
    writer: W,
    frames: Frames,
    keep_alive: Duration,
    /// Rings when nothing may have been sent for this long. It is not set anew for every frame: when it
    /// rings too early, it is told how long to wait.
    alarm: Pin<Box<Sleep>>,
}

impl<W: Writer> Feed<W> {
    /// The next bytes to send; `None` once the answer is over.
    async fn next(&mut self) -> Option<Bytes> {
        let mut quiet_until = Instant::now() + self.keep_alive;
        loop {
            let event = tokio::select! {
                biased;
                event = self.answer.recv() => Some(event?),
                () = &mut self.alarm => None,
            };
            let head = self.answer.head();
            match event {
                Some(event) => self.writer.frames(head, event, &mut self.frames),
                None => {
                    if Instant::now() >= quiet_until {
                        self.writer.keep_alive(head, &mut self.frames);
                        quiet_until = Instant::now() + self.keep_alive;
                    }
                    self.alarm.as_mut().reset(quiet_until);
                }
            }
            if let Some(bytes) = self.frames.take() {
                return Some(bytes);
            }
        }
    }
}
