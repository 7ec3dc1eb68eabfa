//! Starting without a network: what is here is used without asking anybody, and what is not here is
//! one message with everything needed to go on. The case X01 of public reports; `cli/src/store/tests.rs` has it
//! with a hub in memory.

mod common;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread;

use common::{Home, only_line, write_model};

const REPO: &str = "org/tiny";
const COMMIT: &str = "c0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ff";
const START: &[&str] =
    &["bench", REPO, "--prompt", "4", "--gen", "2", "--runs", "1", "--threads", "1", "--json"];
/// Every value of `HF_HUB_OFFLINE`, the empty one standing for an unset one.
const SETTINGS: &[&str] = &["1", "true", "ON", "0", ""];

/// A hub that lets everybody connect, never says a word, and knows who came.
struct SilentHub(TcpListener);

impl SilentHub {
    fn new() -> SilentHub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        SilentHub(listener)
    }

    fn endpoint(&self) -> String {
        format!("http://{}", self.0.local_addr().unwrap())
    }

    #[track_caller]
    fn assert_nobody_came(&self) {
        let came = self.0.accept();
        assert_eq!(came.map(|(_, who)| who).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}

/// Where the hub cache keeps [`REPO`].
fn repo(home: &Home) -> PathBuf {
    home.path().join("hf/hub/models--org--tiny")
}

/// Puts a model into the hub cache as a download would; says where.
fn install(home: &Home) -> PathBuf {
    let (refs, snapshots) = (repo(home).join("refs"), repo(home).join("snapshots"));
    fs::create_dir_all(&refs).unwrap();
    fs::create_dir_all(&snapshots).unwrap();
    fs::write(refs.join("main"), COMMIT).unwrap();
    write_model(&snapshots.join(COMMIT));
    snapshots.join(COMMIT)
}

fn shards(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut shards: Vec<String> = names.filter(|name| name.ends_with(".safetensors")).collect();
    shards.sort();
    shards
}

#[test]
fn a_cached_model_starts_without_asking_a_hub_that_never_answers() {
    let (home, hub) = (Home::new(), SilentHub::new());
    assert!(shards(&install(&home)).len() > 1);
    for setting in SETTINGS {
        let vars = [("HF_ENDPOINT", &*hub.endpoint()), ("HF_HUB_OFFLINE", setting)];
        let out = home.run(START, &vars);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && said.is_empty(), "{setting}: {said}");
        let rows: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(rows.as_array().unwrap().len(), 2, "{rows}");
    }
    hub.assert_nobody_came();
}

#[test]
fn an_unknown_model_offline_is_one_message_and_no_call() {
    let (home, hub) = (Home::new(), SilentHub::new());
    let folder = repo(&home);
    for (name, folder, pull) in [
        (REPO, folder.as_path(), "hearth pull org/tiny"),
        ("default", &home.path().join("hearth/models"), "hearth pull smollm2-135m-4bit"),
    ] {
        for setting in ["1", "true", "ON"] {
            for command in ["info", "serve", "bench"] {
                let vars = [("HF_ENDPOINT", &*hub.endpoint()), ("HF_HUB_OFFLINE", setting)];
                let mut args = vec![command, name];
                args.extend(["--port", "0"].iter().filter(|_| command == "serve"));
                let out = home.run(&args, &vars);
                assert_eq!(out.status.code(), Some(1));
                assert!(out.stdout.is_empty());
                let line = only_line(&out);
                for part in [name.replace("default", "smollm2"), folder.display().to_string()] {
                    assert!(line.contains(&part), "{part} is not in: {line}");
                }
                assert!(line.starts_with("error: ") && line.contains(pull), "{line}");
            }
        }
    }
    let out = home.run(&["--offline", "pull", REPO], &[("HF_ENDPOINT", &hub.endpoint())]);
    assert!(!out.status.success() && only_line(&out).contains("offline"));
    hub.assert_nobody_came();
}

#[test]
fn a_missing_shard_is_named() {
    let (home, hub) = (Home::new(), SilentHub::new());
    let snapshot = install(&home);
    let lost = shards(&snapshot).pop().unwrap();
    fs::remove_file(snapshot.join(&lost)).unwrap();
    let vars = [("HF_ENDPOINT", &*hub.endpoint()), ("HF_HUB_OFFLINE", "1")];
    let out = home.run(START, &vars);
    assert_eq!(out.status.code(), Some(1));
    let line = only_line(&out);
    assert!(line.contains(&format!("`{lost}` is missing")), "{line}");
    assert!(line.contains("hearth pull org/tiny"), "{line}");
    hub.assert_nobody_came();
}

#[test]
fn zero_and_unset_are_online() {
    for setting in ["0", "false", ""] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let asked = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 18];
            stream.read_exact(&mut head).unwrap();
            let refusal = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(refusal).unwrap();
            String::from_utf8_lossy(&head).into_owned()
        });
        let home = Home::new();
        let vars = [("HF_ENDPOINT", &*endpoint), ("HF_HUB_OFFLINE", setting)];
        let out = home.run(&["info", REPO], &vars);
        assert_eq!(asked.join().unwrap(), "GET /api/models/or");
        assert_eq!(out.status.code(), Some(1));
        let line = only_line(&out);
        assert!(line.contains("the hub has no repository `org/tiny`"), "{line}");
    }
}

#[test]
fn a_hub_that_is_not_there_is_said_in_one_line() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let endpoint = format!("http://{nobody}");
    let out = Home::new().run(&["info", REPO], &[("HF_ENDPOINT", &endpoint)]);
    let line = only_line(&out);
    assert!(line.contains(&endpoint) && line.contains("check the network"), "{line}");
}
