//! Several models in one server: loaded when they are asked for, unloaded when others need the
//! room, and never while somebody listens to them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use hearth_server::{
    App, ChatService, LoadError, Loader, Model, ModelPool, Name, Rules, Settings, Survey,
};
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, Receiver};

use crate::client::{CHAT, Reply, chat, deltas, post, send};
use crate::script::{Gate, Script};

/// Models of a test by id.
type Cast = BTreeMap<&'static str, Part>;

/// One model and what happens when it is loaded.
struct Part {
    says: &'static str,
    bytes: u64,
    /// Loading waits here.
    door: Arc<Door>,
    /// Its engine waits here before each step.
    gate: Arc<Gate>,
    mishap: Mutex<Option<Mishap>>,
    /// The end of the latest copy in memory.
    life: Mutex<Option<Receiver<()>>>,
}

#[derive(Clone, Copy)]
enum Mishap {
    Fails,
    Panics,
}

/// Shut until the test opens it. Tells how many came.
#[derive(Default)]
struct Door {
    shut: Mutex<bool>,
    changed: Condvar,
}

impl Door {
    fn set(&self, shut: bool) {
        *self.shut.lock().unwrap() = shut;
        self.changed.notify_all();
    }

    fn pass(&self) {
        drop(self.changed.wait_while(self.shut.lock().unwrap(), |shut| *shut).unwrap());
    }
}

/// Loads the models of a cast.
#[derive(Clone)]
struct Stage {
    cast: Arc<Cast>,
    /// Ids in the order of loading, each also sent on.
    loads: Arc<Mutex<Vec<String>>>,
    began: mpsc::UnboundedSender<String>,
}

impl Loader for Stage {
    fn survey(&self, name: &Name) -> Result<Survey, LoadError> {
        let bytes = self.cast[&*name.id].bytes;
        Ok(Survey { bytes, mapped_bytes: 0, context: 4096 })
    }

    fn load(&self, name: &Name) -> Result<Model, LoadError> {
        self.loads.lock().unwrap().push(name.id.clone());
        let _ = self.began.send(name.id.clone());
        let part = &self.cast[&*name.id];
        part.door.pass();
        let mishap = part.mishap.lock().unwrap().take();
        match mishap {
            Some(Mishap::Fails) => return Err(LoadError::Failed("the disk hums".to_owned())),
            Some(Mishap::Panics) => panic!("the disk screams"),
            None => {}
        }
        let (life, end) = mpsc::channel(1);
        *part.life.lock().unwrap() = Some(end);
        let mut script = Script::says(&[part.says]);
        (script.life, script.gate) = (Some(life), part.gate.clone());
        Ok(Model { id: name.id.clone(), aliases: name.aliases.clone(), ..script.model() })
    }

    fn anonymous_bytes(&self) -> u64 {
        0
    }
}

/// A server over a cast, and what a test sees of it.
struct House {
    app: App,
    stage: Stage,
    /// Ids as their loading begins.
    began: mpsc::UnboundedReceiver<String>,
    seconds: Arc<AtomicU64>,
}

/// Models called `a`, `b`, … of so many bytes, in a memory of `memory` bytes.
fn house(bytes: &[u64], memory: u64, rules: Rules) -> House {
    let says = ["Amber", "Brook", "Cedar"];
    let part = |(at, &bytes): (usize, &u64)| {
        let id = ["a", "org/b", "c"][at];
        let gate = Arc::default();
        let (door, mishap, life) = (Arc::default(), Mutex::default(), Mutex::default());
        (id, Part { says: says[at], bytes, door, gate, mishap, life })
    };
    let cast: Cast = bytes.iter().enumerate().map(part).collect();
    let names = ["a", "org/b", "c"][..bytes.len()]
        .iter()
        .map(|id| Name { id: (*id).to_owned(), aliases: vec![format!("{id}-alias")] });
    let (sender, began) = mpsc::unbounded_channel();
    let stage = Stage { cast: Arc::new(cast), loads: Arc::default(), began: sender };
    let seconds = Arc::new(AtomicU64::new(0));
    let clock = {
        let seconds = seconds.clone();
        Box::new(move || Duration::from_secs(seconds.load(Ordering::SeqCst)))
    };
    let rules = Rules { memory, ..rules };
    let pool = ModelPool::start(names.collect(), Box::new(stage.clone()), rules, clock);
    let app = App::new(ChatService::of(pool), Settings::default());
    House { app, stage, began, seconds }
}

impl House {
    fn part(&self, id: &str) -> &Part {
        &self.stage.cast[id]
    }

    fn loads(&self) -> Vec<String> {
        self.stage.loads.lock().unwrap().clone()
    }

    async fn ask(&self, model: &str) -> Reply {
        post(&self.app, CHAT, &chat(json!({"model": model}))).await
    }

    fn asking(&self, model: &'static str) -> tokio::task::JoinHandle<Reply> {
        let app = self.app.clone();
        tokio::spawn(async move { post(&app, CHAT, &chat(json!({"model": model}))).await })
    }

    async fn model(&self, id: &str) -> Value {
        send(&self.app, "GET", &format!("/v1/models/{id}"), "").await.ok()
    }

    async fn status(&self, id: &str) -> Value {
        self.model(id).await["status"].clone()
    }

    async fn act(&self, id: &str, action: &str) -> Reply {
        send(&self.app, "POST", &format!("/v1/models/{id}/{action}"), "").await
    }

    fn advance(&self, seconds: u64) {
        self.seconds.fetch_add(seconds, Ordering::SeqCst);
        self.app.chat.pool().wake();
    }

    /// Waits until the latest copy of a model is gone from memory.
    async fn gone(&self, id: &str) {
        let mut end = self.part(id).life.lock().unwrap().take().expect("it was loaded");
        assert_eq!(end.recv().await, None);
    }
}

#[track_caller]
fn text(reply: &Reply) -> String {
    reply.ok()["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn every_model_is_listed_and_loaded_on_first_use() {
    let house = house(&[10, 10, 10], 100, Rules::default());
    let list = send(&house.app, "GET", "/v1/models", "").await.ok();
    let ids: Vec<_> = list["data"].as_array().unwrap().iter().map(|m| m["id"].clone()).collect();
    assert_eq!(ids, ["a", "org/b", "c"]);
    assert!(list["data"].as_array().unwrap().iter().all(|m| m["status"] == "unloaded"));
    assert_eq!(text(&house.ask("org/b").await), "Brook");
    assert_eq!(text(&house.ask("org/b-alias").await), "Brook");
    assert_eq!(text(&house.ask("ORG/B").await), "Brook");
    assert_eq!(text(&house.ask("default").await), "Amber");
    assert_eq!(house.loads(), ["org/b", "a"]);
    let b = house.model("org/b").await;
    assert_eq!(
        (&b["status"], &b["size_bytes"], &b["max_model_len"]),
        (&"loaded".into(), &10.into(), &4096.into())
    );
    assert_eq!(house.status("c").await, "unloaded");
    let error = house.ask("d").await.error(404);
    assert!(error["message"].as_str().unwrap().contains("a, org/b, c"), "{error}");
}

#[tokio::test]
async fn the_model_that_was_not_used_for_longest_makes_room() {
    let house = house(&[40, 40, 40], 100, Rules::default());
    for (second, model) in ["a", "org/b", "a", "c"].into_iter().enumerate() {
        house.seconds.store(second as u64, Ordering::SeqCst);
        house.ask(model).await.ok();
    }
    assert_eq!(house.loads(), ["a", "org/b", "c"]);
    house.gone("org/b").await;
    assert_eq!(house.status("a").await, "loaded");
    // What was unloaded comes back with the same answer.
    house.seconds.store(9, Ordering::SeqCst);
    assert_eq!(text(&house.ask("org/b").await), "Brook");
    house.gone("a").await;
}

#[tokio::test]
async fn what_never_fits_is_refused_with_numbers_before_loading() {
    let house = house(&[2 << 30], 1 << 30, Rules::default());
    let error = house.ask("a").await.error(400);
    assert_eq!((&error["code"], &error["param"]), (&"model_too_large".into(), &"model".into()));
    let message = error["message"].as_str().unwrap();
    for part in ["2.00 GiB", "1.00 GiB", "--memory-limit", "--context"] {
        assert!(message.contains(part), "{part} is not in: {message}");
    }
    assert!(house.loads().is_empty());
}

#[tokio::test]
async fn many_first_requests_load_once_and_others_go_on_meanwhile() {
    let mut house = house(&[10, 10], 100, Rules::default());
    house.ask("a").await.ok();
    house.part("org/b").door.set(true);
    let waiting: Vec<_> = (0..8).map(|_| house.asking("org/b")).collect();
    while house.began.recv().await.unwrap() != "org/b" {}
    assert_eq!(house.status("org/b").await, "loading");
    // The server answers, and so do models that are there.
    assert_eq!(text(&house.ask("a").await), "Amber");
    house.part("org/b").door.set(false);
    for reply in waiting {
        assert_eq!(text(&reply.await.unwrap()), "Brook");
    }
    assert_eq!(house.loads(), ["a", "org/b"]);
}

#[tokio::test]
async fn a_failure_is_told_to_all_who_waited_and_tried_again_by_the_next() {
    for mishap in [Mishap::Fails, Mishap::Panics] {
        let mut house = house(&[10], 100, Rules::default());
        *house.part("a").mishap.lock().unwrap() = Some(mishap);
        house.part("a").door.set(true);
        let waiting: Vec<_> = (0..3).map(|_| house.asking("a")).collect();
        house.began.recv().await.unwrap();
        while house.model("a").await["waiting"] != 3 {
            tokio::task::yield_now().await;
        }
        house.part("a").door.set(false);
        for reply in waiting {
            let error = reply.await.unwrap().error(500);
            assert_eq!(error["code"], "model_load_failed");
            assert!(error["message"].as_str().unwrap().contains("the disk"), "{error}");
        }
        let listed = house.model("a").await;
        assert_eq!(listed["status"], "failed");
        assert!(listed["error"].as_str().unwrap().contains("the disk"), "{listed}");
        assert_eq!(text(&house.ask("a").await), "Amber");
        assert_eq!(house.loads(), ["a", "a"]);
    }
}

#[tokio::test]
async fn a_model_in_use_is_never_torn_away() {
    let house = house(&[60, 60], 100, Rules::default());
    house.part("a").gate.close();
    let long = house.asking("a");
    while !house.part("a").gate.was_reached() {
        tokio::task::yield_now().await;
    }
    let other = house.asking("org/b");
    while house.status("a").await != "unloading" {
        tokio::task::yield_now().await;
    }
    assert_eq!(house.loads(), ["a"]);
    // Whoever wants it now waits until it is back.
    let late = house.asking("a");
    house.part("a").gate.open();
    assert_eq!(text(&long.await.unwrap()), "Amber");
    assert_eq!(text(&other.await.unwrap()), "Brook");
    assert_eq!(text(&late.await.unwrap()), "Amber");
    assert_eq!(house.loads(), ["a", "org/b", "a"]);
}

#[tokio::test]
async fn patience_ends_with_a_503_and_the_busy_model_stays() {
    let rules = Rules { patience: Duration::from_secs(30), ..Rules::default() };
    let house = house(&[60, 60], 100, rules);
    house.part("a").gate.close();
    let long = house.asking("a");
    while !house.part("a").gate.was_reached() {
        tokio::task::yield_now().await;
    }
    let other = house.asking("org/b");
    while house.status("a").await != "unloading" {
        tokio::task::yield_now().await;
    }
    house.advance(30);
    let reply = other.await.unwrap();
    let error = reply.error(503);
    assert_eq!(error["code"], "models_busy");
    assert!(error["message"].as_str().unwrap().contains("`a` with 1 running"), "{error}");
    assert!(reply.headers.contains_key("retry-after"));
    while house.status("a").await != "loaded" {
        tokio::task::yield_now().await;
    }
    house.part("a").gate.open();
    assert_eq!(text(&long.await.unwrap()), "Amber");
    assert_eq!(house.loads(), ["a"]);
}

#[tokio::test]
async fn pinned_models_stay() {
    let house =
        house(&[60, 60], 100, Rules { idle_ttl: Some(Duration::from_secs(5)), ..Rules::default() });
    house.ask("a").await.ok();
    let pin = send(&house.app, "PUT", "/v1/models/a/pin", r#"{"pinned": true}"#).await.ok();
    assert_eq!(pin["pinned"], true);
    house.advance(100);
    let error = house.ask("org/b").await.error(503);
    assert_eq!(error["code"], "insufficient_memory");
    assert!(error["message"].as_str().unwrap().contains("60 B"), "{error}");
    assert_eq!(house.act("a", "unload").await.error(409)["code"], "model_pinned");
    assert_eq!(house.status("a").await, "loaded");
    let pin = send(&house.app, "DELETE", "/v1/models/a/pin", "").await.ok();
    assert_eq!(pin["pinned"], false);
    assert_eq!(text(&house.ask("org/b").await), "Brook");
    house.gone("a").await;
    for (method, path, body) in [
        ("PUT", "/v1/models/a/pin", "{\"pinned\": 1}"),
        ("PUT", "/v1/models/a/pin", "[]"),
        ("PUT", "/v1/models/a/pin", "{"),
    ] {
        send(&house.app, method, path, body).await.error(400);
    }
    send(&house.app, "PUT", "/v1/models/nobody/pin", "").await.error(404);
    send(&house.app, "POST", "/v1/models/nobody/load", "").await.error(404);
    send(&house.app, "POST", "/v1/models/a", "").await.error(405);
    send(&house.app, "DELETE", "/v1/models/a", "").await.error(405);
}

#[tokio::test]
async fn idle_models_leave_after_their_time_and_come_back() {
    let rules = Rules { idle_ttl: Some(Duration::from_secs(60)), ..Rules::default() };
    let house = house(&[10, 10], 100, rules);
    house.ask("a").await.ok();
    house.advance(40);
    house.ask("org/b").await.ok();
    house.advance(19);
    assert_eq!(house.status("a").await, "loaded");
    house.advance(1);
    house.gone("a").await;
    assert_eq!(house.status("org/b").await, "loaded");
    assert_eq!(text(&house.ask("a").await), "Amber");
}

/// `keep_alive`, as Ollama's documentation has it: seconds or a time, nought is not at all, below nought
/// for ever; what was said last counts, and only until the model is gone.
#[tokio::test]
async fn a_request_says_how_long_its_model_stays() {
    let rules = Rules { idle_ttl: Some(Duration::from_secs(60)), ..Rules::default() };
    let house = house(&[10, 10], 100, rules);
    let ask = async |keep_alive: Value| {
        let messages = json!([{"role": "user", "content": "Hi"}]);
        let body =
            json!({"model": "a", "messages": messages, "stream": false, "keep_alive": keep_alive});
        let reply = send(&house.app, "POST", "/api/chat", body.to_string()).await.ok();
        assert_eq!(reply["message"]["content"], "Amber");
    };
    for forever in [json!(-1), json!("-1m"), json!("-1"), json!(1e300)] {
        ask(forever).await;
        house.advance(1_000_000);
        assert_eq!(house.status("a").await, "loaded");
    }
    for (two_minutes, wait) in [(json!("2m"), 119), (json!(120), 119), (json!("1m59.5s"), 119)] {
        ask(two_minutes).await;
        house.advance(wait);
        assert_eq!(house.status("a").await, "loaded");
        house.advance(1);
        house.gone("a").await;
    }
    // It was unloaded since: the server's own rule holds again.
    ask(Value::Null).await;
    house.advance(60);
    house.gone("a").await;
    for nought in [json!(0), json!("0"), json!("0s")] {
        ask(nought).await;
        house.gone("a").await;
    }
    // Nothing to answer says it too, and a pinned model stays whatever a client says.
    let load = json!({"model": "a", "keep_alive": -1}).to_string();
    assert_eq!(send(&house.app, "POST", "/api/generate", load).await.ok()["done_reason"], "load");
    house.advance(1000);
    assert_eq!(house.status("a").await, "loaded");
    send(&house.app, "PUT", "/v1/models/a/pin", "").await.ok();
    ask(json!(0)).await;
    ask(json!(0)).await;
    assert_eq!(house.status("a").await, "loaded");
    send(&house.app, "DELETE", "/v1/models/a/pin", "").await.ok();
    let unload = json!({"model": "a", "keep_alive": 0}).to_string();
    let reply = send(&house.app, "POST", "/api/generate", unload).await.ok();
    assert_eq!(reply["done_reason"], "unload");
    house.gone("a").await;
}

/// A model that is sent away, also while it is on its way out or in, is taken from nobody: it comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_send_away_comes_back_for_all_who_ask() {
    let house = house(&[60, 60], 100, Rules::default());
    let tasks: Vec<_> = (0..6)
        .map(|task| {
            let app = house.app.clone();
            tokio::spawn(async move {
                for turn in 0..6 {
                    let (model, says) = [("a", "Amber"), ("org/b", "Brook")][(task + turn) % 2];
                    let messages = json!([{"role": "user", "content": "Hi"}]);
                    let body = json!({"model": model, "messages": messages, "stream": false,
                                      "keep_alive": 0});
                    match (task + turn / 2) % 3 {
                        0 => {
                            let reply = post(&app, "/api/chat", &body).await.ok();
                            assert_eq!(reply["message"]["content"], says);
                        }
                        1 => {
                            let path = format!("/v1/models/{model}/unload");
                            send(&app, "POST", &path, "").await.ok();
                        }
                        _ => {
                            let reply = post(&app, CHAT, &chat(json!({"model": model}))).await;
                            assert_eq!(text(&reply), says);
                        }
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert!(house.loads().len() > 2, "{:?}", house.loads());
}

#[tokio::test]
async fn loading_and_unloading_on_demand_answer_when_they_are_done() {
    let house = house(&[10, 10], 100, Rules::default());
    assert_eq!(house.act("org/b", "load").await.ok()["status"], "loaded");
    assert_eq!(house.act("org/b", "load").await.ok()["status"], "loaded");
    assert_eq!(house.loads(), ["org/b"]);
    assert_eq!(house.act("org/b", "unload").await.ok()["status"], "unloaded");
    house.gone("org/b").await;
    assert_eq!(house.act("org/b", "unload").await.ok()["status"], "unloaded");
    // Unloading waits for who is being answered.
    house.part("a").gate.close();
    let long = house.asking("a");
    while !house.part("a").gate.was_reached() {
        tokio::task::yield_now().await;
    }
    let app = house.app.clone();
    let unload = tokio::spawn(async move { send(&app, "POST", "/v1/models/a/unload", "").await });
    while house.status("a").await != "unloading" {
        tokio::task::yield_now().await;
    }
    house.part("a").gate.open();
    assert_eq!(text(&long.await.unwrap()), "Amber");
    assert_eq!(unload.await.unwrap().ok()["status"], "unloaded");
}

#[tokio::test]
async fn who_leaves_while_a_model_is_loaded_is_forgotten() {
    let mut house = house(&[60, 60], 100, Rules { waiting: 2, ..Rules::default() });
    house.part("a").door.set(true);
    let first = house.asking("a");
    assert_eq!(house.began.recv().await.unwrap(), "a");
    let gone = [house.asking("org/b"), house.asking("a")];
    while house.model("a").await["waiting"] != 2 || house.model("org/b").await["waiting"] != 1 {
        tokio::task::yield_now().await;
    }
    // No more may wait.
    assert_eq!(house.ask("a").await.error(429)["code"], "overloaded");
    for task in gone {
        task.abort();
        assert!(task.await.is_err_and(|error| error.is_cancelled()));
    }
    assert_eq!(house.model("a").await["waiting"], 1);
    house.part("a").door.set(false);
    assert_eq!(text(&first.await.unwrap()), "Amber");
    assert_eq!(text(&house.ask("a").await), "Amber");
    // Nobody wanted `b` any more, so `a` was never sent away.
    assert_eq!(house.loads(), ["a"]);
    assert_eq!(house.model("a").await["in_use"], 0);
}

#[tokio::test]
async fn a_server_that_stops_refuses_those_who_wait_and_finishes_the_others() {
    let mut house = house(&[60, 60], 100, Rules::default());
    house.part("a").gate.close();
    let long = house.asking("a");
    while !house.part("a").gate.was_reached() {
        tokio::task::yield_now().await;
    }
    let waits = house.asking("org/b");
    while house.status("a").await != "unloading" {
        tokio::task::yield_now().await;
    }
    let app = house.app.clone();
    let stopped = tokio::task::spawn_blocking(move || app.chat.shutdown());
    assert_eq!(waits.await.unwrap().error(503)["code"], "shutting_down");
    assert_eq!(house.ask("a").await.error(503)["code"], "shutting_down");
    house.part("a").gate.open();
    assert_eq!(text(&long.await.unwrap()), "Amber");
    stopped.await.unwrap();
    assert_eq!(house.began.recv().await.unwrap(), "a");
    assert!(house.began.try_recv().is_err());
}

#[tokio::test]
async fn streams_from_a_model_that_has_to_be_loaded_begin_after_it_is_there() {
    let house = house(&[10], 100, Rules::default());
    *house.part("a").mishap.lock().unwrap() = Some(Mishap::Fails);
    let body = chat(json!({"model": "a", "stream": true}));
    post(&house.app, CHAT, &body).await.error(500);
    let frames = post(&house.app, CHAT, &body).await.frames();
    assert_eq!(deltas(&frames, 0), ["Amber"]);
}

#[tokio::test]
async fn who_waits_for_a_model_is_listed_and_need_not_wait_for_ever() {
    let mut house = house(&[10], 100, Rules::default());
    assert_eq!(send(&house.app, "GET", "/readyz", "").await.status, 200);
    house.part("a").door.set(true);
    let waiting = house.asking("a");
    house.began.recv().await.unwrap();
    let ready = send(&house.app, "GET", "/readyz", "").await;
    assert_eq!((ready.status.as_u16(), &ready.json()["status"]), (503, &json!("loading")));
    let listed = send(&house.app, "GET", "/v1/requests", "").await.ok()["data"][0].clone();
    assert_eq!((&listed["state"], &listed["model"]), (&json!("loading"), &json!("a")));
    let body = chat(json!({"model": "a", "stream": true, "timeout": 0.05}));
    assert_eq!(post(&house.app, CHAT, &body).await.error(504)["code"], "timeout");
    let cancel = format!("/v1/requests/{}/cancel", listed["request_id"].as_str().unwrap());
    post(&house.app, &cancel, &json!({})).await.ok();
    assert_eq!(waiting.await.unwrap().error(499)["code"], "request_cancelled");
    assert_eq!(house.app.chat.live().count(), 0);
    house.part("a").door.set(false);
    assert_eq!(text(&house.ask("a").await), "Amber");
    assert_eq!(send(&house.app, "GET", "/readyz", "").await.status, 200);
}
