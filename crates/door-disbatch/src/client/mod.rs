//! `disbatch`: the command line client of a command interface. It works with ours and with the
//! original.
//!
//! | module | owns |
//! |---|---|
//! | `words` | the command line |
//! | `ask` | the request of a command |
//! | `http` | the server, its login and its certificate |
//! | `show`, `table` | formatting answers |

mod ask;
mod http;
mod show;
mod table;
#[cfg(test)]
mod tests;
mod words;

use std::path::PathBuf;

pub(crate) use self::ask::Which;
use self::http::Server;
use self::words::Read;
use windlass_program::Secret;

/// Which command interface, and how it is spoken to.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub url: String,
    pub login: Option<Login>,
    pub trust: Trust,
}

#[derive(Debug, Clone)]
pub(crate) enum Login {
    Basic { user: String, password: Secret },
    Token(Secret),
}

/// Whose certificates are believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trust {
    System,
    /// Those that the authorities in this file have signed.
    CaFile(PathBuf),
    Everybody,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Command {
    Plugins,
    Queues,
    Nodes,
    CreateQueue {
        name: String,
        plugin: String,
    },
    UpdateQueue {
        queue: String,
        fields: Vec<(String, String)>,
    },
    DeleteQueue {
        queue: String,
        /// What becomes of its tasks; the server refuses when there are some and nobody said.
        tasks: Option<Leftover>,
    },
    UpdateNode {
        node: String,
        fields: Vec<(String, String)>,
    },
    CreateTask {
        queue: String,
        params: Vec<(String, String)>,
    },
    /// `json` is a list of params; with a collection, an object of `filter` and `params`.
    CreateTasks {
        queue: String,
        collection: Option<String>,
        json: String,
    },
    Tasks(Which),
    Task {
        id: String,
        full: bool,
    },
    Cancel {
        id: String,
    },
    Retry {
        id: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leftover {
    Keep,
    Delete,
}

/// How an answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    /// In words and tables, for people.
    Plain,
    /// In words and tables, but tasks as the server wrote them, as the original does it. Programs
    /// read that.
    Piped,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// What was typed makes no sense.
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Failed(String),
    /// Help or a mistake that has been printed already; with the exit code.
    #[error("exit code {0}")]
    Told(u8),
}

/// The value of an environment variable.
type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What the client sees of the process that it runs in.
pub struct Outside<'a> {
    /// Of the program.
    pub version: &'static str,
    pub variable: Variable<'a>,
    /// Whether people read what is printed.
    pub is_terminal: bool,
}

/// Is `disbatch`, called by this name with these words: does what was asked for, and answers with
/// what is to be printed.
pub async fn client(
    called: &'static str,
    words: &[String],
    outside: &Outside<'_>,
) -> Result<String, Failure> {
    let Read { target, command, form } = words::read(called, words, outside)?;
    run(&target, &command, form).await
}

/// Does what was asked for, and answers with what is to be printed.
async fn run(target: &Target, command: &Command, form: Form) -> Result<String, Failure> {
    let server = Server::new(target)?;
    let answer = server.send(&ask::request(command)?).await?;
    show::answer(command, &answer, form)
}
