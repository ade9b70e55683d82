//! `disbatch`: the command line client of a command interface. It works with ours and with the
//! original.
//!
//! | module | owns |
//! |---|---|
//! | `cli` | the command line |
//! | `request` | the request of a command |
//! | `http` | the server, its login and its certificate |
//! | `show`, `table` | formatting answers |

mod cli;
mod http;
mod request;
mod show;
mod table;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use self::cli::ParsedArgs;
use self::http::Server;
pub(crate) use self::request::TaskQuery;
use windlass_program::Secret;

/// The command interface and how to connect to it.
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

/// Which certificates are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trust {
    System,
    /// Those signed by an authority in this file.
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
        /// What to do with its tasks; without it, the server refuses if there are any.
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
    Tasks(TaskQuery),
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
pub(crate) enum OutputFormat {
    Json,
    /// Text and tables, for people.
    Plain,
    /// Text and tables, but tasks as the server's JSON, as the original does, for programs.
    Piped,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Invalid arguments.
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Failed(String),
    /// Help or an error that has already been printed; with the exit code.
    #[error("exit code {0}")]
    Printed(u8),
}

/// The value of an environment variable.
type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The client's view of its process.
pub struct ClientEnv<'a> {
    /// The program's version.
    pub version: &'static str,
    pub variable: Variable<'a>,
    /// Whether the output is a terminal.
    pub is_terminal: bool,
}

/// Runs `disbatch` under this name with these arguments, and returns the text to print.
pub async fn client(
    called: &'static str,
    words: &[String],
    env: &ClientEnv<'_>,
) -> Result<String, Failure> {
    let ParsedArgs { target, command, form } = cli::parse(called, words, env)?;
    run(&target, &command, form).await
}

/// Executes a command and returns the text to print.
async fn run(target: &Target, command: &Command, form: OutputFormat) -> Result<String, Failure> {
    let server = Server::new(target)?;
    let answer = server.send(&request::build(command)?).await?;
    show::answer(command, &answer, form)
}
