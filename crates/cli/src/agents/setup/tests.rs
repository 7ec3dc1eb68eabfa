//! Setup adds what it says, once, and remove brings back the bytes.

use std::fs;

use tempfile::TempDir;

use super::*;
use crate::agents::{all, find};

/// A home of its own.
struct Home {
    dir: TempDir,
    places: Places,
}

impl Home {
    fn new() -> Home {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        let here = dir.path().join("project");
        fs::create_dir(&home).unwrap();
        fs::create_dir(&here).unwrap();
        let data = home.join(".local/share/hearth");
        let places = Places { home, here, data, ..Places::default() };
        Home { dir, places }
    }

    fn setup(&self, agent: &Agent, target: &Target) -> Result<(), SetupError> {
        write(plan(agent, target, &self.places)?, &self.places)
    }

    /// Every file but records, with its bytes.
    fn files(&self) -> Vec<(PathBuf, String)> {
        let mut files = Vec::new();
        let mut folders = vec![self.dir.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.starts_with(&self.places.data) {
                } else if path.is_dir() {
                    folders.push(path);
                } else {
                    let text = fs::read_to_string(&path).unwrap();
                    files.push((path, text));
                }
            }
        }
        files.sort();
        files
    }

    fn put(&self, agent: &Agent, text: &str) -> PathBuf {
        let path = self.places.path_of(agent, &agent.files[0]);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }
}

/// What somebody may have in such a file, of no concern to us.
fn foreign(format: edit::Format) -> &'static str {
    match format {
        edit::Format::Json => {
            "{\n  // mine\n  \"theme\": \"dark\", // so\n  \"list\": [1,  2],\n}\n"
        }
        edit::Format::Toml => "# mine\ntheme   = 'dark' # so\n\n[mine]\nlist = [ 1,\n  2 ]\n",
        edit::Format::Yaml => "# mine\ntheme:   'dark' # so\n\nmine:\n- 1\n- two:  2\n",
        edit::Format::Env => "# mine\nexport THEME='dark'\n\nMINE=1",
    }
}

fn other() -> Target {
    let url = "http://10.0.0.7:9000".to_owned();
    Target { url, model: "coder".to_owned(), context: None, ..Target::example() }
}

#[test]
fn setup_twice_is_once_and_remove_brings_back_the_bytes() {
    for agent in all() {
        for text in [None, Some(foreign(agent.files[0].format))] {
            let home = Home::new();
            let path = text.map(|text| home.put(&agent, text));
            let before = home.files();
            home.setup(&agent, &Target::example()).unwrap();
            let once = home.files();
            assert_ne!(once, before, "{}", agent.name);
            for line in text.unwrap_or_default().lines().filter(|line| line.contains("mine")) {
                let now = fs::read_to_string(path.as_ref().unwrap()).unwrap();
                assert!(now.contains(line), "{}: {now}", agent.name);
            }
            let plans = plan(&agent, &Target::example(), &home.places).unwrap();
            assert!(plans.iter().all(|plan| plan.done), "{}", agent.name);
            home.setup(&agent, &Target::example()).unwrap();
            assert_eq!(home.files(), once, "{} again", agent.name);
            // Another server leaves nothing of the first behind.
            home.setup(&agent, &other()).unwrap();
            let said: String = home.files().into_iter().map(|(_, text)| text).collect();
            assert!(said.contains("10.0.0.7") && !said.contains("127.0.0.1"), "{said}");
            remove(&agent, &home.places).unwrap();
            assert_eq!(home.files(), before, "{}", agent.name);
            assert_eq!(remove(&agent, &home.places).unwrap(), Vec::<PathBuf>::new());
            assert_eq!(state(&agent, &home.places).unwrap(), State::Untouched);
        }
    }
}

#[test]
fn folders_that_were_made_go_again_and_others_stay() {
    let home = Home::new();
    let agent = find("codex").unwrap();
    home.setup(&agent, &Target::example()).unwrap();
    remove(&agent, &home.places).unwrap();
    assert!(!home.places.home.join(".codex").exists());
    home.setup(&agent, &Target::example()).unwrap();
    let history = home.places.home.join(".codex/history");
    fs::write(&history, "x").unwrap();
    remove(&agent, &home.places).unwrap();
    assert!(history.exists());
}

#[test]
fn what_was_edited_since_stays_and_only_ours_goes() {
    let home = Home::new();
    let agent = find("codex").unwrap();
    let path = home.put(&agent, "model = \"gpt\" # the big one\n\n[mine]\na = 1\n");
    home.setup(&agent, &Target::example()).unwrap();
    let now = fs::read_to_string(&path).unwrap();
    // A new setting, a change of ours, and one that stays ours.
    let edited =
        now.replace("http://127.0.0.1:8000/v1", "http://elsewhere/v1") + "\n[new]\nb = 2\n";
    fs::write(&path, edited).unwrap();
    assert_eq!(state(&agent, &home.places).unwrap(), State::Changed);
    remove(&agent, &home.places).unwrap();
    let left = fs::read_to_string(&path).unwrap();
    assert_eq!(
        left,
        "model = \"gpt\" # the big one\n\n[mine]\na = 1\n\n[model_providers.hearth]\n\
         base_url = \"http://elsewhere/v1\"\n\n[new]\nb = 2\n"
    );
}

#[test]
fn a_setup_after_an_edit_counts_the_edit_as_the_users() {
    let home = Home::new();
    let agent = find("claude").unwrap();
    let path = home.put(&agent, "{\"a\": 1}\n");
    home.setup(&agent, &Target::example()).unwrap();
    let now = fs::read_to_string(&path).unwrap();
    fs::write(&path, now.replace("\"a\": 1", "\"a\": 2")).unwrap();
    home.setup(&agent, &other()).unwrap();
    remove(&agent, &home.places).unwrap();
    let left: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(left, serde_json::json!({"a": 2}));
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_and_untouched() {
    for (name, text) in [
        ("claude", "{\"env\": "),
        ("claude", "{\"env\": 5}"),
        ("codex", "model = \n"),
        ("codex", "model_providers = 1\n"),
        ("aider", "model: [a\n"),
        ("continue", "models: none\n"),
        ("open-webui", "what is this\n"),
    ] {
        let home = Home::new();
        let agent = find(name).unwrap();
        home.put(&agent, text);
        let before = home.files();
        let error = home.setup(&agent, &Target::example()).unwrap_err();
        assert!(matches!(error, SetupError::Edit { .. }), "{name}: {error}");
        assert!(error.to_string().ends_with("nothing was changed"), "{error}");
        assert_eq!(home.files(), before, "{name}");
    }
    // Broken after setup: nothing can be taken out.
    let home = Home::new();
    let agent = find("codex").unwrap();
    home.setup(&agent, &Target::example()).unwrap();
    home.put(&agent, "model = \n");
    let before = home.files();
    assert!(matches!(remove(&agent, &home.places), Err(SetupError::Edit { .. })));
    assert_eq!(home.files(), before);
}

#[cfg(unix)]
#[test]
fn links_are_followed_and_permissions_kept() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let home = Home::new();
    let agent = find("codex").unwrap();
    let path = home.put(&agent, "");
    let real = home.dir.path().join("dotfiles.toml");
    fs::write(&real, "# mine\n").unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    fs::remove_file(&path).unwrap();
    symlink(&real, &path).unwrap();
    home.setup(&agent, &Target::example()).unwrap();
    assert!(path.is_symlink());
    assert!(fs::read_to_string(&real).unwrap().contains("hearth"));
    assert_eq!(real.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    // What did not exist may hold a key.
    let other = Home::new();
    other.setup(&agent, &Target::example()).unwrap();
    let path = other.places.home.join(".codex/config.toml");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_program_is_here_if_its_command_or_folder_is() {
    let mut home = Home::new();
    let agent = find("aider").unwrap();
    assert!(!home.places.has(&agent), "the home is not aider's");
    home.places.folders.push(("CODEX_HOME".to_owned(), home.dir.path().join("cx")));
    let codex = find("codex").unwrap();
    assert!(!home.places.has(&codex));
    fs::create_dir(home.dir.path().join("cx")).unwrap();
    assert!(home.places.has(&codex));
}
