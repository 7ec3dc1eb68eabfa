//! The conversation in the terminal: lines in, commands, answers out.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use rustyline::error::ReadlineError;
use rustyline::{Config, DefaultEditor};

use super::Session;

const HELP: &str = "\
/help           this list
/system [TEXT]  show, or replace, the instructions that stand before the conversation
/save FILE      write the conversation to a file
/clear          forget the conversation
/exit           leave (also Ctrl-D)
A line that ends with \\ goes on in the next one. Ctrl-C stops the answer, or drops the line.";

/// What a line asks for.
#[derive(Debug, PartialEq)]
enum Line<'a> {
    Nothing,
    Help,
    System(&'a str),
    Save(&'a str),
    Clear,
    Exit,
    Incomplete(&'static str),
    Unknown(&'a str),
    Say(&'a str),
}

/// Talks until the user leaves. The history of lines is kept in `history`.
pub(super) fn run(session: &mut Session, history: &Path, out: &mut dyn Write) -> Result<()> {
    let mut lines = Lines::new(history)?;
    writeln!(out, "{}: /help lists the commands, /exit leaves.", session.model)?;
    loop {
        let text = match lines.read() {
            Ok(text) => text,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        match parse(&text) {
            Line::Nothing => (),
            Line::Exit => return Ok(()),
            Line::Help => writeln!(out, "{HELP}")?,
            Line::Clear => {
                session.messages.clear();
                writeln!(out, "forgotten")?;
            }
            Line::System("") => {
                writeln!(out, "{}", session.system.as_deref().unwrap_or("no instructions"))?;
            }
            Line::System(text) => {
                session.system = Some(text.to_owned());
                writeln!(out, "from the next answer on")?;
            }
            Line::Save(file) => match save(session, Path::new(file)) {
                Ok(()) => writeln!(out, "saved to {file}")?,
                Err(error) => eprintln!("error: {error:#}"),
            },
            Line::Incomplete(usage) => eprintln!("error: say {usage}"),
            Line::Unknown(command) => {
                eprintln!("error: there is no {command}; /help lists the commands");
            }
            Line::Say(text) => {
                if let Err(error) = session.ask(text, out) {
                    eprintln!("error: {error:#}");
                }
            }
        }
    }
}

/// What the user types, and has typed before.
struct Lines<'a> {
    editor: DefaultEditor,
    history: &'a Path,
}

impl Lines<'_> {
    fn new(history: &Path) -> Result<Lines<'_>> {
        let config = Config::builder().auto_add_history(false).history_ignore_space(true).build();
        let mut editor = DefaultEditor::with_config(config).context("cannot use this terminal")?;
        // Where no history can be read or kept, one talks without.
        let folder = history.parent().unwrap_or(Path::new("."));
        let _ = fs::create_dir_all(folder).is_ok() && editor.load_history(history).is_ok();
        Ok(Lines { editor, history })
    }

    /// One input, which may span lines that end with a backslash. It is in the history at once, so
    /// that it is there whatever ends the program.
    fn read(&mut self) -> Result<String, ReadlineError> {
        let mut text = self.editor.readline("> ")?;
        while text.ends_with('\\') {
            text.pop();
            text.push('\n');
            text.push_str(&self.editor.readline("… ")?);
        }
        if self.editor.add_history_entry(text.as_str())? {
            let _ = self.editor.append_history(self.history);
        }
        Ok(text)
    }
}

fn parse(text: &str) -> Line<'_> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Line::Nothing;
    }
    if !trimmed.starts_with('/') {
        return Line::Say(text);
    }
    let (command, rest) = trimmed.split_once(char::is_whitespace).unwrap_or((trimmed, ""));
    match (command, rest.trim()) {
        ("/help" | "/?", _) => Line::Help,
        ("/system", rest) => Line::System(rest),
        ("/save", "") => Line::Incomplete("/save FILE"),
        ("/save", file) => Line::Save(file),
        ("/clear", _) => Line::Clear,
        ("/exit" | "/quit" | "/bye", _) => Line::Exit,
        (command, _) => Line::Unknown(command),
    }
}

/// The conversation as Markdown, written at once or not at all.
fn save(session: &Session, path: &Path) -> Result<()> {
    let mut text = String::new();
    if let Some(system) = &session.system {
        text.push_str(&format!("## system\n\n{system}\n\n"));
    }
    for message in &session.messages {
        let content = message.content.clone().map(text::Content::into_text).unwrap_or_default();
        text.push_str(&format!("## {}\n\n{content}\n\n", message.role.name()));
    }
    let temporary = path.with_extension("saving");
    let write = || -> std::io::Result<()> {
        let mut out = fs::File::create(&temporary)?;
        out.write_all(text.as_bytes())?;
        out.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_mean_what_they_say() {
        assert_eq!(parse("  "), Line::Nothing);
        assert_eq!(parse("what is /help?"), Line::Say("what is /help?"));
        assert_eq!(parse("/help"), Line::Help);
        assert_eq!(parse("/system be  brief "), Line::System("be  brief"));
        assert_eq!(parse("/system"), Line::System(""));
        assert_eq!(parse("/save talk.md"), Line::Save("talk.md"));
        assert_eq!(parse("/save"), Line::Incomplete("/save FILE"));
        assert_eq!(parse("/nope x"), Line::Unknown("/nope"));
        assert_eq!(parse("/exit"), Line::Exit);
    }
}
