//! `hearth agents` and `hearth launch` as their user meets them: the documentation says what they write,
//! and an agent is led to a server without a change to anything of the user's.

mod common;
mod served;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Home, only_line};

/// A port that nobody listens on.
const NOWHERE: &str = "http://127.0.0.1:1";
const USUAL: &str = "http://127.0.0.1:8000";

fn docs() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/agents.md");
    fs::read_to_string(path).unwrap()
}

/// The sections of the documentation that have a command `hearth agents NAME --setup`: the name, and the
/// contents of the code blocks that are files or programs.
fn sections() -> Vec<(String, Vec<String>)> {
    let text = docs();
    let section = |section: &str| {
        let (_, rest) = section.split_once("hearth agents ")?;
        let name = rest.split_whitespace().next()?.to_owned();
        let fences: Vec<&str> = section.split("```").collect();
        let block = |block: &&str| {
            let (kind, body) = block.split_once('\n')?;
            (kind != "sh").then(|| body.to_owned())
        };
        Some((name, fences.iter().skip(1).step_by(2).filter_map(block).collect()))
    };
    text.split("\n## ").skip(1).filter_map(section).collect()
}

fn stdout(out: &std::process::Output) -> String {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout.clone()).unwrap()
}

#[test]
fn the_documentation_shows_what_is_written() {
    let home = Home::new();
    let sections = sections();
    let list = stdout(&home.run(&["agents"], &[]));
    assert_eq!(list.lines().count(), sections.len() + 1, "{list}");
    for (name, blocks) in sections {
        let args = ["agents", &name, "--print", "--url", NOWHERE, "--context", "32768"];
        let said = stdout(&home.run(&args, &[])).replace(NOWHERE, USUAL);
        assert!(!blocks.is_empty(), "{name}");
        for block in blocks {
            assert!(said.contains(&block), "{name} prints\n{said}\nand the page has\n{block}");
        }
    }
}

#[test]
fn setup_and_remove_say_what_they_did() {
    let home = Home::new();
    let config = home.path().join(".codex/config.toml");
    fs::create_dir(config.parent().unwrap()).unwrap();
    fs::write(&config, "model = \"gpt\" # mine\n").unwrap();
    let hearth = |args: &[&str]| home.run(&[&["agents", "codex"], args].concat(), &[]);
    let setup = ["--setup", "--url", NOWHERE, "--model", "coder", "--api-key", "k"];
    let said = stdout(&hearth(&setup));
    assert!(
        said.contains("~/.codex/config.toml: written\nCodex uses coder at http://127.0.0.1:1"),
        "{said}"
    );
    let text = fs::read_to_string(&config).unwrap();
    assert!(text.starts_with("model = \"coder\" # mine\n"), "{text}");
    assert!(text.contains("experimental_bearer_token = \"k\""), "{text}");
    assert!(config.with_extension("toml.before-hearth").exists());
    assert!(stdout(&hearth(&setup)).contains("is so already"));
    assert!(stdout(&hearth(&[])).contains("uses coder at http://127.0.0.1:1"));
    assert!(stdout(&hearth(&["--remove"])).contains("~/.codex/config.toml: as it was"));
    assert_eq!(fs::read_to_string(&config).unwrap(), "model = \"gpt\" # mine\n");
    assert!(!config.with_extension("toml.before-hearth").exists());
    assert!(stdout(&hearth(&["--remove"])).contains("nothing of Codex was set up here"));
}

#[test]
fn wrong_wishes_are_one_line_that_helps() {
    let home = Home::new();
    fs::create_dir_all(home.path().join(".claude")).unwrap();
    fs::write(home.path().join(".claude/settings.json"), "{\"env\": ").unwrap();
    for (args, part) in [
        (&["agents", "emacs", "--setup"][..], "there are claude, codex"),
        (&["agents", "claude", "--setup", "--url", NOWHERE], "nothing was changed"),
        (&["agents", "codex", "--setup", "--url", "localhost:8000"], "http://"),
        (&["launch", "langchain"], "no program to start here"),
        (&["launch", "codex"], "is not on the PATH"),
    ] {
        let out = home.run(args, &[]);
        assert_eq!(out.status.code(), Some(1), "{args:?}");
        assert!(only_line(&out).contains(part), "{args:?}: {}", only_line(&out));
    }
    assert_eq!(home.run(&["agents", "--setup"], &[]).status.code(), Some(2));
}

#[cfg(unix)]
mod launching {
    use std::io::{BufRead, BufReader, Read};
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Stdio};

    use super::common::write_model;
    use super::served::Served;
    use super::*;

    /// A program called `codex` that does this, and the PATH to find it.
    fn agent(home: &Home, script: &str) -> String {
        let bin = home.path().join("bin");
        fs::create_dir_all(&bin).unwrap();
        let path = bin.join("codex");
        fs::write(&path, format!("#!/bin/bash\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        format!("{}:/usr/bin:/bin", bin.display())
    }

    /// Asks the server of its settings what it serves, and ends with status 7.
    const ASKS: &str = r#"
        echo "args: $*"
        config="$CODEX_HOME/config.toml"
        address=$(sed -n 's,^base_url = "http://\(.*\)/v1"$,\1,p' "$config")
        exec 3<>"/dev/tcp/${address%:*}/${address#*:}"
        printf 'GET /v1/models HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n' "$address" >&3
        cat <&3
        cat "$config"
        exit 7"#;

    fn profile(home: &Home) -> PathBuf {
        home.path().join(".local/share/hearth/profiles/codex")
    }

    fn user_files(home: &Home) -> Vec<String> {
        let names = fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> =
            names.map(|name| name.into_string().unwrap()).filter(|name| name != ".local").collect();
        names.sort();
        names
    }

    #[test]
    fn an_agent_gets_a_server_of_its_own_and_its_status_is_ours() {
        let home = Home::new();
        let model = home.path().join("tiny");
        write_model(&model);
        let path = agent(&home, ASKS);
        fs::create_dir_all(home.path().join("hearth")).unwrap();
        let before = user_files(&home);
        // Where no server of somebody else can run: the usual address is not this test's.
        let args = ["launch", "codex", "--model", model.to_str().unwrap(), "--", "exec", "a b"];
        let out = home.run(&args, &[("PATH", &path), ("HEARTH_URL", NOWHERE)]);
        let said = String::from_utf8_lossy(&out.stdout);
        assert_eq!(out.status.code(), Some(7), "{said}{}", String::from_utf8_lossy(&out.stderr));
        for part in [
            "args: exec a b\n",
            "\"id\":\"tiny\"",
            "model = \"default\"\n",
            "model_context_window = ",
        ] {
            assert!(said.contains(part), "{part} is not in: {said}");
        }
        let told = String::from_utf8_lossy(&out.stderr);
        assert!(
            told.contains("no server runs at http://127.0.0.1:1: starting one for Codex"),
            "{told}"
        );
        assert_eq!(user_files(&home), before);
        assert!(profile(&home).join("config.toml").exists());
    }

    #[test]
    fn an_agent_is_led_to_a_server_that_runs() {
        let home = Home::new();
        let model = home.path().join("tiny");
        write_model(&model);
        let flags = ["serve", model.to_str().unwrap(), "--port", "0", "--alias", "coder"];
        let mut command = home.command(&flags, &[]);
        let (_server, address) = Served::start(command.stderr(Stdio::null()));
        let path = agent(&home, ASKS);
        let url = format!("http://{address}/v1/");
        let launch = |model: &str| {
            let args = ["launch", "codex", "--url", &url, "--model", model];
            home.run(&args, &[("PATH", &path)])
        };
        let out = launch("coder");
        let said = String::from_utf8_lossy(&out.stdout);
        assert_eq!(out.status.code(), Some(7), "{said}");
        assert!(said.contains("model = \"coder\"") && out.stderr.is_empty(), "{said}");
        let out = launch("other");
        assert_eq!(out.status.code(), Some(1));
        assert!(only_line(&out).contains("has no model `other`; it has tiny"));
        let out = home.run(&["launch", "codex", "--url", NOWHERE], &[("PATH", &path)]);
        assert!(only_line(&out).contains("nobody listens at http://127.0.0.1:1"));
    }

    #[test]
    fn a_signal_reaches_the_agent_and_one_that_kills_it_is_told() {
        let home = Home::new();
        let model = home.path().join("tiny");
        write_model(&model);
        for (script, status) in [
            ("trap 'exit 9' TERM; echo ready; while :; do read -t 1 <> <(:); done", 9),
            ("echo ready; kill -KILL $$", 137),
        ] {
            let path = agent(&home, script);
            let args = ["launch", "codex", "--model", model.to_str().unwrap()];
            let mut command = home.command(&args, &[("PATH", &path), ("HEARTH_URL", NOWHERE)]);
            let mut launched =
                Served(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
            let mut reader = BufReader::new(launched.0.stdout.take().unwrap());
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            assert_eq!(line, "ready\n");
            if script.starts_with("trap") {
                let pid = launched.0.id().to_string();
                assert!(
                    Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap().success()
                );
            }
            assert_eq!(launched.0.wait().unwrap().code(), Some(status), "{script}");
            reader.read_to_string(&mut line).unwrap();
        }
    }
}
