//! The conversation in the terminal: lines in, commands, answers out.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use super::Session;

const HELP: &str = "\
/help           this list
/system [TEXT]  show, or replace, the instructions that stand before the conversation
/save FILE      write the conversation to a file
/clear          forget the conversation
/exit           leave (also Ctrl-D)
A line that ends with \\ goes on in the next one. Ctrl-C drops the line.";

/// What a line asks for.
#[derive(Debug, PartialEq)]
enum Line<'a> {
    Nothing,
    Help,
    System(&'a str),
    Save(&'a str),
    Clear,
    Exit,
    Unknown(&'a str),
    Say(&'a str),
}

/// Talks until the user leaves. The history of lines is kept in `history`.
pub(super) fn run(session: &mut Session, history: &Path) -> Result<()> {
    let mut editor = DefaultEditor::new().context("cannot use this terminal")?;
    // The first time there is no history yet.
    let _ = editor.load_history(history);
    println!("{}: /help lists the commands, /exit leaves.", session.model);
    loop {
        let text = match read(&mut editor) {
            Ok(text) => text,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(error.into()),
        };
        match parse(&text) {
            Line::Nothing => (),
            Line::Exit => break,
            Line::Help => println!("{HELP}"),
            Line::Clear => {
                session.messages.clear();
                println!("forgotten");
            }
            Line::System("") => println!("{}", session.system.as_deref().unwrap_or("none")),
            Line::System(text) => {
                session.system = Some(text.to_owned());
                println!("from the next answer on");
            }
            Line::Save(file) => match save(session, Path::new(file)) {
                Ok(()) => println!("saved to {file}"),
                Err(error) => eprintln!("{error:#}"),
            },
            Line::Unknown(command) => eprintln!("there is no {command}; /help lists the commands"),
            Line::Say(text) => {
                if let Err(error) = session.ask(text) {
                    eprintln!("{error:#}");
                }
            }
        }
    }
    if let Some(folder) = history.parent() {
        fs::create_dir_all(folder)?;
    }
    editor.save_history(history).context("cannot keep the history of lines")
}

/// One input, which may span lines that end with a backslash.
fn read(editor: &mut DefaultEditor) -> Result<String, ReadlineError> {
    let mut text = editor.readline("> ")?;
    while text.ends_with('\\') {
        text.pop();
        text.push('\n');
        text.push_str(&editor.readline("… ")?);
    }
    editor.add_history_entry(text.as_str())?;
    Ok(text)
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
        ("/save", file) if !file.is_empty() => Line::Save(file),
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
        assert_eq!(parse("/save"), Line::Unknown("/save"));
        assert_eq!(parse("/nope x"), Line::Unknown("/nope"));
        assert_eq!(parse("/exit"), Line::Exit);
    }
}
