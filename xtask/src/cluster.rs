//! The cluster run: the torture run's load on PostgreSQL servers, daemons and networks that fail.
//! Its program is that of the torture run.

use anyhow::Result;

use crate::shell::Limit;
use crate::torture::control::{Control, EARLY_MARK, Edit};
use crate::{needs, torture};

/// What begins the command line of a cluster run.
const COMMAND: &str = "cluster";
/// For what it needs, if that is missing.
const INSTALL_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(20 * 60);

/// Defects that it must find.
pub(crate) static CONTROLS: [Control; 2] = [
    Control {
        name: "synced commits of PostgreSQL made relaxed",
        edits: &[Edit {
            file: "crates/store-postgres/src/pool.rs",
            from: "begin(\"READ COMMITTED READ WRITE\", synced, 0),\n",
            to: "begin(\"READ COMMITTED READ WRITE\", [synced, \"off\"][1], 0),\n",
        }],
        faults: "server",
        rules: "lost,in_force,after_end",
    },
    Control {
        name: "the journal's mark moved before the insert, on PostgreSQL",
        edits: EARLY_MARK,
        faults: "daemon",
        rules: "lost",
    },
];

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let profile: &[&str] = if arguments.contains(&"--release") { &["--release"] } else { &[] };
    needs::install_cluster(&Limit::new(INSTALL_TIME_MAX))?;
    if arguments.contains(&"--control") {
        let others: Vec<&str> = arguments.into_iter().filter(|it| *it != "--control").collect();
        return torture::control::run(&CONTROLS, &[COMMAND], profile, &others);
    }
    if !arguments.iter().any(|argument| argument.starts_with("--binary")) {
        torture::build(profile, None)?;
    }
    torture::torture(profile, &[&[COMMAND], arguments.as_slice()].concat(), None)
}
