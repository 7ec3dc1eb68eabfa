//! A whole plan against a server on a socket, which answers at once: what is written down, what is gone on
//! with, what is asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use hearth_lab::engine::{Engine, Format};
use hearth_lab::journal;
use hearth_lab::plan::{Arm, Model, Plan};
use hearth_lab::prompt::CountTokens;
use hearth_lab::record::{Costs, End, Phase, Record, Run, Trouble};
use hearth_lab::run::{Bench, Host, records_path};
use serde_json::{Value, json};

use crate::server::Words;

/// Tokens that its template adds.
const TEMPLATE: usize = 7;

#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Vec<Value>>>);

/// Answers every chat with as many tokens as were asked for, and refuses what has 77 of them.
fn serve(asked: Asked) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let asked = asked.clone();
            thread::spawn(move || while answer(&socket, &asked).is_some() {});
        }
    });
    url
}

fn answer(mut socket: &TcpStream, asked: &Asked) -> Option<()> {
    let mut reader = BufReader::new(socket);
    let (mut line, mut length) = (String::new(), 0);
    reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
    let is_post = line.starts_with("POST");
    loop {
        line.clear();
        reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
        if let Some(n) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = n.trim().parse().ok()?;
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    if !is_post {
        return reply(socket, 200, "{\"data\":[]}");
    }
    let body: Value = serde_json::from_slice(&body).ok()?;
    let tokens = body["max_tokens"].as_u64()?;
    let texts =
        body["messages"].as_array()?.iter().filter_map(|message| message["content"].as_str());
    let prompt = TEMPLATE + texts.map(|text| Words.count(text)).sum::<usize>();
    asked.0.lock().ok()?.push(body);
    if tokens == 77 {
        return reply(socket, 503, "{\"error\":{\"message\":\"no\"}}");
    }
    let token = json!({"choices": [{"index": 0, "delta": {"content": "word "}}]});
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]});
    let usage =
        json!({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": tokens}});
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    socket.write_all(head.as_bytes()).ok()?;
    let events = std::iter::repeat_n(token, tokens as usize).chain([end, usage]);
    for data in events.map(|event| event.to_string()).chain(["[DONE]".to_owned()]) {
        let event = format!("data: {data}\n\n");
        write!(socket, "{:x}\r\n{event}\r\n", event.len()).ok()?;
    }
    socket.write_all(b"0\r\n\r\n").ok()
}

fn reply(mut socket: &TcpStream, status: u16, body: &str) -> Option<()> {
    let length = body.len();
    write!(socket, "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{body}").ok()
}

/// Stops after so many runs.
struct Patience(AtomicUsize);

impl Host for Patience {
    fn tokenizer(&self, _: &Model) -> Option<Box<dyn CountTokens>> {
        Some(Box::new(Words))
    }

    fn costs(&self, _: &Model, _: &Arm) -> Option<Costs> {
        None
    }

    fn int8_macs(&self, _: usize) -> Option<f64> {
        None
    }

    fn progress(&self, _: usize, _: usize, _: &str) {
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
    }

    fn note(&self, _: &str) {}

    fn stopped(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }
}

fn plan(url: &str) -> Plan {
    let text = format!(
        r#"
        name = "whole"
        runs = 2
        cool_down_s = 0
        threads = 1
        null = "server"
        [[models]]
        name = "m"
        served = "some/model"
        [[arms]]
        engine = "url"
        url = "{url}"
        [[workloads]]
        use = "context"
        sizes = [64, 300]
        answer = 12
        [[workloads]]
        use = "chat"
        turns = 3
        answer = 5
        [[workloads]]
        use = "users"
        users = [3]
        answer = 9
        [[workloads]]
        use = "long-output"
        answer = 77
        [[workloads]]
        use = "restart"
        "#
    );
    Plan::parse(&text, Path::new("plan.toml")).unwrap()
}

fn measured(folder: &Path) -> Vec<Run> {
    let records = journal::read(&records_path(folder)).unwrap();
    let runs = records.into_iter().filter_map(|record| match record {
        Record::Run(run) if run.phase == Phase::Measured => Some(run),
        _ => None,
    });
    runs.collect()
}

#[test]
fn a_plan_is_carried_out_and_gone_on_with() {
    let asked = Asked::default();
    let plan = plan(&serve(asked.clone()));
    let folder = tempfile::tempdir().unwrap();
    // Nobody can restart a server that somebody else runs, so that workload is left out.
    let all = 2 * 2 * (2 + 1 + 1 + 1);
    let impatient = Patience(AtomicUsize::new(8));
    let mut bench = Bench::open(&plan, folder.path(), &impatient).unwrap();
    assert_eq!(bench.extent(), (all, 0));
    assert!(!bench.run().unwrap());
    let first = measured(folder.path()).len();
    assert!((1..all).contains(&first), "{first}");

    let patient = Patience(AtomicUsize::new(usize::MAX));
    let mut bench = Bench::open(&plan, folder.path(), &patient).unwrap();
    assert_eq!(bench.extent(), (all, first));
    assert!(bench.run().unwrap());
    let runs = measured(folder.path());
    assert_eq!(runs.len(), all);
    check(&runs);
    let n_asked = asked.0.lock().unwrap().len();
    assert!(Bench::open(&plan, folder.path(), &patient).unwrap().run().unwrap());
    assert_eq!(asked.0.lock().unwrap().len(), n_asked, "what is there was measured again");

    let other = Plan { seed: 9, ..plan.clone() };
    let error = Bench::open(&other, folder.path(), &patient).err().unwrap().to_string();
    assert!(error.contains("another plan"), "{error}");
    check_requests(&asked.0.lock().unwrap());
}

/// It stands in the records with its reason, and nothing was interrupted.
#[test]
fn an_engine_that_is_not_there_is_a_result() {
    let mut plan = plan(&serve(Asked::default()));
    let program = Some("/no/such/program".to_owned());
    let engine = Engine { program, ..Engine::named("llama-server").unwrap() };
    let arm = Arm { label: "gone".to_owned(), engine, url: None, ..plan.arms[0].clone() };
    plan.arms.push(arm);
    plan.models[0].forms.insert(Format::Gguf, "m.gguf".to_owned());
    let folder = tempfile::tempdir().unwrap();
    let patient = Patience(AtomicUsize::new(usize::MAX));
    let mut bench = Bench::open(&plan, folder.path(), &patient).unwrap();
    assert!(!bench.run().unwrap(), "not everything is there");
    let records = journal::read(&records_path(folder.path())).unwrap();
    assert_eq!(records.last(), Some(&Record::End(End { complete: true })));
    let failed = |record: &Record| matches!(record, Record::Start(start) if start.error.is_some());
    assert_eq!(records.iter().filter(|record| failed(record)).count(), 1, "it is tried once");
}

fn check(runs: &[Run]) {
    for run in runs {
        let of = run.cell.workload.as_str();
        let n_turns = match of {
            "chat" | "users" => 3,
            _ => 1,
        };
        assert_eq!(run.turns.len(), n_turns, "{of}");
        for turn in &run.turns {
            if of == "long-output" {
                let refused = Trouble::Refused { status: 503, why: "no".to_owned() };
                assert_eq!(turn.error, Some(refused));
                continue;
            }
            assert_eq!(turn.error, None);
            assert_eq!(turn.tokens().unwrap().0, turn.max_tokens);
            // The template was found out during warm-up, and prompts are exact with it.
            let prompt = turn.usage.unwrap().prompt;
            assert_eq!(turn.counted.prompt, Some(prompt - TEMPLATE as u32));
            if of == "context" {
                assert_eq!((turn.wanted, u64::from(prompt)), (Some(prompt), run.cell.at));
            }
        }
    }
}

fn check_requests(asked: &[Value]) {
    let mut beginnings: Vec<&str> = Vec::new();
    for body in asked {
        assert_eq!(body["model"], "some/model");
        assert_eq!((&body["temperature"], &body["top_p"]), (&json!(0), &json!(1)));
        assert_eq!(body["stream_options"]["include_usage"], json!(true));
        let messages = body["messages"].as_array().unwrap();
        if messages.len() <= 2 {
            let text = messages[0]["content"].as_str().unwrap();
            beginnings.push(&text[..16.min(text.len())]);
        }
    }
    let n = beginnings.len();
    beginnings.sort_unstable();
    beginnings.dedup();
    assert_eq!(beginnings.len(), n, "two prompts begin alike");
}
