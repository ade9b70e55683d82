//! `disbatch`: what people type to look at a command interface and to change something there. It
//! speaks to ours and to the original one.
//!
//! | file | owns |
//! |---|---|
//! | `ask` | the request that a command is |
//! | `http` | the server, its login and its certificate |
//! | `show`, `table` | what is printed of an answer |

mod ask;
mod http;
mod show;
mod table;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

pub use self::ask::Which;
use self::http::Server;
use windlass_program::Secret;

/// Which command interface, and how it is spoken to.
#[derive(Debug, Clone)]
pub struct Target {
    pub url: String,
    pub login: Option<Login>,
    pub trust: Trust,
}

#[derive(Debug, Clone)]
pub enum Login {
    Basic { user: String, password: Secret },
    Token(Secret),
}

/// Whose certificates are believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    System,
    /// Those that the authorities in this file have signed.
    CaFile(PathBuf),
    Everybody,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Command {
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
pub enum Leftover {
    Keep,
    Delete,
}

/// How an answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
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
}

/// Does what was asked for, and answers with what is to be printed.
pub async fn run(target: &Target, command: &Command, form: Form) -> Result<String, Failure> {
    let server = Server::new(target)?;
    let answer = server.send(&ask::request(command)?).await?;
    show::answer(command, &answer, form)
}
