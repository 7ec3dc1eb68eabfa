//! A streamed answer as an HTTP body: frames as events come, a comment when none come for a while.
//!
//! When the client goes away the server drops the body, with it the [`Answer`], and that is the
//! cancellation: nothing here watches the connection.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use futures_util::stream;
use tokio::time::{Instant, sleep_until};

use crate::answer::Answer;
use crate::endpoint::{Writer, streamed};
use crate::frames::Frames;

/// What is sent when nothing is: a comment, which every client skips.
const KEEP_ALIVE: Bytes = Bytes::from_static(b": keep-alive\n\n");

/// Starts to stream an answer.
pub(crate) fn response(answer: Answer, writer: impl Writer, keep_alive: Duration) -> Response {
    let frames = Frames::default();
    let feed = Feed { answer, writer, frames, keep_alive };
    let bytes = stream::unfold(feed, |mut feed| async move {
        let bytes = feed.next().await?;
        Some((Ok::<_, Infallible>(bytes), feed))
    });
    streamed(Body::from_stream(bytes))
}

struct Feed<W> {
    answer: Answer,
    writer: W,
    frames: Frames,
    keep_alive: Duration,
}

impl<W: Writer> Feed<W> {
    /// The next bytes to send; `None` once the answer is over.
    async fn next(&mut self) -> Option<Bytes> {
        let quiet_until = Instant::now() + self.keep_alive;
        loop {
            let event = tokio::select! {
                biased;
                event = self.answer.recv() => event?,
                () = sleep_until(quiet_until) => return Some(KEEP_ALIVE),
            };
            self.writer.frames(self.answer.head(), event, &mut self.frames);
            if let Some(bytes) = self.frames.take() {
                return Some(bytes);
            }
        }
    }
}
