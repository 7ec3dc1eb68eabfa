//! Every format keeps what it is not asked to change, and says what it cannot read.

use serde_json::json;

use super::*;

fn setting(way: &str, value: Value) -> Setting {
    let step = |step: &str| match step.split_once('=') {
        Some((key, is)) => Step::Item { key: key.to_owned(), is: is.to_owned() },
        None => Step::Key(step.to_owned()),
    };
    Setting { at: way.split('/').map(step).collect(), value }
}

/// Sets, sets again without a change, and takes away again what was new.
#[track_caller]
fn check(format: Format, before: &str, settings: &[(&str, Value)], after: &str) {
    let settings: Vec<Setting> =
        settings.iter().map(|(way, value)| setting(way, value.clone())).collect();
    let edited = apply(format, before, &settings).unwrap();
    assert_eq!(edited, after);
    assert_eq!(apply(format, &edited, &settings).unwrap(), after, "again");
    let mut tree = open(format, &edited).unwrap();
    let base = open(format, before).unwrap();
    for setting in settings.iter().rev() {
        match base.get(&setting.at) {
            Some(old) => tree.set(&setting.at, &old).unwrap(),
            None => tree.remove(&setting.at),
        }
        for n in (1..setting.at.len()).rev() {
            let empty = |value: Value| value == json!({}) || value == json!([]);
            let way = &setting.at[..n];
            if base.get(way).is_none() && tree.get(way).is_some_and(empty) {
                tree.remove(way);
            }
        }
    }
    assert_eq!(tree.text().trim_end(), before.trim_end(), "without them");
}

#[test]
fn toml_keeps_comments_order_and_the_ends_of_lines() {
    check(
        Format::Toml,
        "# mine\nmodel = \"gpt\" # the big one\napproval = 'never'\n\n[model_providers.other]\nname = \"O\"\n",
        &[
            ("model", json!("default")),
            ("window", json!(8192)),
            ("model_providers/hearth/name", json!("Hearth")),
            ("model_providers/hearth/base_url", json!("http://127.0.0.1:8000/v1")),
        ],
        "# mine\nmodel = \"default\" # the big one\napproval = 'never'\nwindow = 8192\n\n[model_providers.other]\n\
         name = \"O\"\n\n[model_providers.hearth]\nname = \"Hearth\"\nbase_url = \"http://127.0.0.1:8000/v1\"\n",
    );
    check(Format::Toml, "a = {b = 1}\n", &[("a/c", json!(true))], "a = {b = 1, c = true }\n");
}

#[test]
fn json_keeps_comments_order_and_indentation() {
    check(
        Format::Json,
        "{\n    // mine\n    \"theme\": \"dark\", /* so */\n    \"env\": {\n        \"A\": \"1\",\n    },\n}\n",
        &[("env/B", json!("2")), ("theme", json!("light")), ("x/y/z", json!(7))],
        "{\n    // mine\n    \"theme\": \"light\", /* so */\n    \"env\": {\n        \"A\": \"1\",\n        \"B\": \"2\",\n    },\n    \
         \"x\": {\n        \"y\": {\n            \"z\": 7\n        }\n    },\n}\n",
    );
    check(
        Format::Json,
        "{\n  \"models\": [\n    {\"name\": \"A\"} // mine\n  ]\n}\n",
        &[("models/name=Hearth", json!({"name": "Hearth", "n": 1}))],
        "{\n  \"models\": [\n    {\"name\": \"A\"}, // mine\n    {\n      \"name\": \"Hearth\",\n      \"n\": 1\n    }\n  ]\n}\n",
    );
}

#[test]
fn yaml_keeps_comments_order_and_quotes() {
    check(
        Format::Yaml,
        "# mine\nname: 'x'   # why\nmodels:\n  - name: A\n    roles: [chat]\n  # the last\n  - name: B\nrules: []\n",
        &[
            (
                "models/name=Hearth",
                json!({"name": "Hearth", "n": 8192, "url": "http://127.0.0.1:8000/v1"}),
            ),
            ("goose", json!("007")),
        ],
        "# mine\nname: 'x'   # why\nmodels:\n  - name: A\n    roles: [chat]\n  # the last\n  - name: B\n  - name: Hearth\n    \
         n: 8192\n    url: http://127.0.0.1:8000/v1\nrules: []\ngoose: '007'\n",
    );
    check(
        Format::Yaml,
        "endpoints:\n  agents:\n    x: 1\n",
        &[(
            "endpoints/custom/name=Hearth",
            json!({"name": "Hearth", "models": {"default": ["default"], "fetch": true}}),
        )],
        "endpoints:\n  agents:\n    x: 1\n  custom:\n    - name: Hearth\n      models:\n        default:\n        - default\n        fetch: true\n",
    );
    check(Format::Yaml, "model: a  # b\n", &[("model", json!("c"))], "model: c  # b\n");
}

#[test]
fn env_keeps_comments_order_and_exports() {
    check(
        Format::Env,
        "# mine\nexport KEY=\"a b\"\n\nOTHER=1\n",
        &[("KEY", json!("x y")), ("URL", json!("http://127.0.0.1:8000/v1"))],
        "# mine\nexport KEY=\"x y\"\n\nOTHER=1\nURL=http://127.0.0.1:8000/v1\n",
    );
}

#[test]
fn an_empty_file_gets_just_the_settings() {
    for (format, text) in [
        (Format::Json, "{\n  \"a\": {\n    \"b\": \"c\"\n  }\n}\n"),
        (Format::Toml, "[a]\nb = \"c\"\n"),
        (Format::Yaml, "a:\n  b: c\n"),
    ] {
        assert_eq!(apply(format, "", &[setting("a/b", json!("c"))]).unwrap(), text, "{format:?}");
    }
}

#[test]
fn what_cannot_be_read_is_an_error_that_says_where() {
    for (format, text, part) in [
        (Format::Json, "{\"a\": 1", "line 1"),
        (Format::Json, "[1]", "it is no object"),
        (Format::Json, "{'a': 1}", "line 1"),
        (Format::Toml, "a = 1\nb = \n", "line 2"),
        (Format::Toml, "a = 1\na = 2\n", "line 2"),
        (Format::Yaml, "a: [1, 2\nb: 3\n", "line 3"),
        (Format::Yaml, "a:\n\tb: 3\n", "line 2: a tab"),
        (Format::Yaml, "- a\n- b\n", "it is no mapping"),
        (Format::Yaml, "a: 1\na: 2\n", "is there twice"),
        (Format::Yaml, "a: 1\n---\nb: 1\n", "more than one document"),
        (Format::Env, "A=1\nwhat is this\n", "line 2"),
    ] {
        let error = apply(format, text, &[setting("a", json!("x"))]).unwrap_err().to_string();
        assert!(error.contains(part), "{format:?} {text:?}: {error}");
    }
}

#[test]
fn a_value_where_a_table_must_be_is_an_error() {
    for (format, text) in
        [(Format::Json, "{\"a\": 5}"), (Format::Toml, "a = 5\n"), (Format::Yaml, "a: 5\n")]
    {
        let error = apply(format, text, &[setting("a/b", json!("x"))]).unwrap_err();
        assert!(matches!(error, EditError::Shape { .. }), "{format:?}: {error}");
    }
    let error = apply(Format::Json, "{\"a\": {}}", &[setting("a/name=x", json!({"name": "x"}))]);
    assert!(matches!(error, Err(EditError::Shape { wanted: "list", .. })));
}
