//! The end-to-end tests of the queue, on a store of choice.

use anyhow::{Result, bail};

use crate::shell::{self, Limit, Show};

pub(crate) const HELP: &str = "\
cargo xtask test [--store sqlite|postgres] [FILTER...]

Runs the end-to-end tests of the queue whose names contain a FILTER, or all of them, with every
daemon on this store; tests of the embedded store keep it. PostgreSQL is started as needed.
";

/// The tests, as cargo knows them.
const TARGET: &str = "it";
const STORES: [&str; 2] = ["sqlite", "postgres"];

/// What CI runs on PostgreSQL too: the modules in which a store can be wrong although it passes
/// the conformance suite, because time passes, daemons die, or several calls follow each other.
/// Left out is what a store has no part in (TLS, contexts, parsing, starting, output) or only the
/// part that the suite checks (most commands of Bedrock), and what names the embedded store
/// (backups).
const IN_CI: [&str; 19] = [
    "accept::add",
    "accept::option",
    "accept::tenant",
    "access::",
    "bedrock::family",
    "bedrock_door::both_doors",
    "durability::accept",
    "durability::cluster",
    "durability::crash",
    "durability::daemons",
    "durability::lease",
    "durability::model",
    "durability::store_away",
    "durability::sysid",
    "run::cancel",
    "run::handler::",
    "run::pull",
    "run::retry",
    "schedule::",
];

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let mut store = STORES[0];
    let mut filters = Vec::new();
    let mut arguments = arguments.iter().map(String::as_str);
    while let Some(argument) = arguments.next() {
        match argument {
            "--help" | "-h" => {
                shell::say(HELP);
                return Ok(());
            }
            "--store" => {
                let wanted = arguments.next().unwrap_or_default();
                match STORES.iter().find(|store| **store == wanted) {
                    Some(known) => store = known,
                    None => bail!("--store is one of {}, not '{wanted}'", STORES.join(", ")),
                }
            }
            flag if flag.starts_with('-') => bail!("there is no option '{flag}'\n\n{HELP}"),
            filter => filters.push(filter),
        }
    }
    let choice = choice(store);
    shell::cargo(&[&command(&choice)[..], &filters].concat(), None)
}

/// The part on PostgreSQL that every change passes.
pub(crate) fn run_in_ci(limit: &Limit) -> Result<()> {
    let choice = choice("postgres");
    let arguments = [&command(&choice)[..], &IN_CI].concat();
    shell::cargo_test("it-postgres", &arguments, limit, Show::AtItsEnd)
}

fn choice(store: &str) -> String {
    format!("env.WINDLASS_TEST_STORE='{store}'")
}

fn command(choice: &str) -> [&str; 8] {
    // Of the whole workspace, for the reason that `ci::test` gives.
    ["test", "--config", choice, "--workspace", "--no-fail-fast", "--test", TARGET, "--"]
}
