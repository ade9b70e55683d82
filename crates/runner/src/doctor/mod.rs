//! Which layers of isolation are in force on this machine. Nothing is assumed: real handlers run.
//! Some of them attack what the layers are to protect; others show what they are given.
//!
//! | module | owns |
//! |---|---|
//! | `attack` | the attacker, which runs as a handler |
//! | `target` | what it attacks: files, sockets and memory of the doctor |
//! | `sys` | the system calls of both |
//! | `attacked` | what a layer is worth, by what the attacker could do |
//! | `facts` | what a handler sees of itself |
//! | `trial` | running handlers; limits and languages |

mod attack;
mod attacked;
mod facts;
mod sys;
mod target;
mod trial;

use std::fs;
use std::path::Path;

use windlass_core::{Lang, Limits};

pub use self::attack::attack_if_told;
use self::attacked::Attacked;
use self::facts::{Facts, LOOK};
use self::target::{Target, shown};
use self::trial::Trial;
use crate::isolate::{Level, Missing};
use crate::{Error, LocalRunner, Options};

/// One layer and its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub layer: &'static str,
    pub status: LayerStatus,
    /// What was observed; if the layer is not in force, why, and how to get it.
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerStatus {
    InForce,
    NotInForce,
    /// Disabled by the configuration, or not installed.
    Absent,
}

const NOT_TRIED: &str = "not tried: no handler ran to its end";
/// The programs of the languages, and the arguments that print their version.
const LANGUAGES: [(&str, &str); 4] =
    [("sh", ""), ("node", "--version"), ("python3", "--version"), ("php", "--version")];

/// Runs handlers beside the empty directory named by the options, and checks what they could do.
/// The program of this process becomes the attacker (`attack_if_told`).
pub async fn examine(mut options: Options) -> Result<Vec<Finding>, Error> {
    let scratch = options.scratch_dir.clone();
    let unusable = |source| Error::Scratch { path: scratch.clone(), source };
    let beside = scratch.parent().unwrap_or(Path::new("/"));
    let target = Target::make(beside).map_err(unusable)?;
    let attacker = fs::read_link("/proc/self/exe").map_err(Error::System)?;
    // The attacker must be able to start, and to see what it is not to connect to.
    options.isolation.read.extend([attacker.clone(), shown(beside)]);
    let (path, isolation) = (options.path.clone(), options.isolation.clone());

    let bare = bare(options.clone(), &attacker, &target).await?;
    let trial = Trial { runner: LocalRunner::new(options)? };
    let attacked = attack_with(&trial, &attacker, &target).await;
    let seen = Facts(trial.run(LOOK, Limits::default()).await.log.to_string());
    let layers = trial.runner.layers();
    let mut findings = vec![
        attacked.namespaces(layers),
        attacked.user(),
        attacked.daemon(layers),
        attacked.changes(layers),
        attacked.network(layers),
        attacked.system_calls(layers),
        seen.session(),
        seen.environment(),
        seen.directory(),
        seen.descriptors(),
        seen.signals(),
        seen.privileges(),
        bare.landlock(isolation.landlock),
    ];
    findings.push(trial.leftovers().await);
    findings.extend(trial.limits(&isolation.limits).await);
    findings.push(seen.core_files());
    for (program, argument) in LANGUAGES {
        findings.push(trial.language(program, argument, &path).await);
    }
    Ok(findings)
}

/// The attack without a cell: in one, the private root would hide the files anyway, whether
/// Landlock is in force or not.
async fn bare(mut options: Options, attacker: &Path, target: &Target) -> Result<Attacked, Error> {
    options.isolation.level = Level::Off;
    options.scratch_dir = options.scratch_dir.with_file_name("bare");
    let trial = Trial { runner: LocalRunner::new(options)? };
    Ok(attack_with(&trial, attacker, target).await)
}

async fn attack_with(trial: &Trial, attacker: &Path, target: &Target) -> Attacked {
    let words = [attacker.display().to_string(), attack::WORD.to_owned()];
    let words: Vec<String> = words.into_iter().chain(target.aim().words()).collect();
    let line: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    let report = trial.run_as(Lang::Exec, &line.join(" "), Limits::default()).await;
    Attacked::of(report.log.to_string(), target)
}

/// As one word of a command line.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn found(layer: &'static str, in_force: bool, detail: impl Into<String>) -> Finding {
    let status = if in_force { LayerStatus::InForce } else { LayerStatus::NotInForce };
    Finding { layer, status, detail: detail.into() }
}

/// A layer that is not in force: why, and what would help, if the runner knows.
fn missing(layer: &'static str, why: Option<&Missing>, observed: &str) -> Finding {
    let known = why.map(|missing| format!(": {}; {}", missing.reason, missing.help));
    found(layer, false, format!("{observed}{}", known.unwrap_or_default()))
}
