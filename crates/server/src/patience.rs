//! A connection whose other end has to take what it is sent: when it has taken nothing for a while
//! though there is something, writing fails. What is behind the connection is dropped then, and an
//! answer with it, which cancels it.
//!
//! Not a limit on how long an answer may take: a client that reads slowly is served slowly.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream of bytes in both directions.
pub(crate) struct Patient<S> {
    stream: S,
    limit: Duration,
    /// Runs while the other end takes nothing.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    /// Waits for so long at most until the other end takes something.
    pub(crate) fn new(stream: S, limit: Duration) -> Patient<S> {
        Patient { stream, limit, waiting: None }
    }

    /// What writing came to, or a failure when it has come to nothing for too long.
    fn judge<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let limit = self.limit;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(waiting.as_mut().poll(context));
        let message = format!("the client has taken nothing for {} s", limit.as_secs_f64());
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.judge(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::Instant;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_given_up_and_who_is_slow_is_not() {
        let (ours, mut theirs) = duplex(8);
        let mut ours = Patient::new(ours, LIMIT);
        let reader = async {
            for _ in 0..10 {
                tokio::time::sleep(LIMIT - Duration::from_secs(1)).await;
                theirs.read_exact(&mut [0; 4]).await.unwrap();
            }
        };
        let begun = Instant::now();
        let (written, ()) = tokio::join!(ours.write_all(&[7; 100]), reader);
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        // From the last bytes that were taken.
        assert_eq!(begun.elapsed(), 10 * (LIMIT - Duration::from_secs(1)) + LIMIT);
        assert_eq!(ours.write(&[7]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_of_our_own_is_no_fault_of_theirs() {
        let (ours, mut theirs) = duplex(8);
        let mut ours = Patient::new(ours, LIMIT);
        for _ in 0..3 {
            ours.write_all(&[7; 8]).await.unwrap();
            tokio::time::sleep(3 * LIMIT).await;
            theirs.read_exact(&mut [0; 8]).await.unwrap();
        }
    }
}
