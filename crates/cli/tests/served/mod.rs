//! A process for as long as a test needs it. Not what one says to it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

/// A process, such as a server. It is killed when this is dropped, so that a test that fails leaves
/// none behind.
pub(crate) struct Served(pub(crate) Child);

impl Served {
    /// Starts it, and waits until it says where it listens: host and port.
    pub(crate) fn start(command: &mut Command) -> (Served, String) {
        let mut served = Served(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(served.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let Some((_, address)) = line.trim().rsplit_once("http://") else {
            let mut log = String::new();
            let said = served.0.stderr.take().map(|mut stderr| stderr.read_to_string(&mut log));
            panic!("it does not serve: {line}{log} ({said:?})");
        };
        let address = address.strip_suffix("/v1").unwrap().to_owned();
        (served, address)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
