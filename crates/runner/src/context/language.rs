//! The languages that run in contexts: which program reads the bootstrap, and the bootstrap itself.
//! A new language is a row here and a file in `bootstrap/` (docs/contexts.md).

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use windlass_core::{Invalid, Lang};

pub(crate) struct Language {
    pub(crate) lang: Lang,
    /// Names of the interpreter, the usual one first.
    programs: &'static [&'static str],
    pub(super) flags: &'static [&'static str],
    /// Name of the bootstrap file.
    pub(super) file: &'static str,
    pub(super) bootstrap: &'static str,
    /// What to install if the interpreter is missing.
    install: &'static str,
}

const LANGUAGES: [Language; 3] = [
    Language {
        lang: Lang::Node,
        programs: &["node", "nodejs"],
        flags: &[],
        file: "bootstrap.cjs",
        bootstrap: include_str!("../../bootstrap/node.cjs"),
        install: "apt-get install nodejs",
    },
    Language {
        lang: Lang::Python,
        programs: &["python3"],
        flags: &["-X", "utf8"],
        file: "bootstrap.py",
        bootstrap: include_str!("../../bootstrap/python.py"),
        install: "apt-get install python3",
    },
    Language {
        lang: Lang::Php,
        programs: &["php"],
        flags: &[
            "-d",
            "display_errors=stderr",
            "-d",
            "memory_limit=-1",
            "-d",
            "disable_functions=error_log",
        ],
        file: "bootstrap.php",
        bootstrap: include_str!("../../bootstrap/php.php"),
        install: "apt-get install php-cli",
    },
];

impl Language {
    /// The language, if it runs in contexts.
    pub(crate) fn of(lang: Lang) -> Option<&'static Language> {
        LANGUAGES.iter().find(|language| language.lang == lang)
    }

    /// The interpreter found in this `PATH`.
    pub(crate) fn interpreter(&self, path: &str) -> Result<PathBuf, Invalid> {
        self.programs.iter().find_map(|name| find_program(name, path)).ok_or_else(|| {
            let (name, install) = (self.programs[0], self.install);
            let reason = format!("{name} is not installed: it was not found in {path} ({install})");
            Invalid::new("lang", reason)
        })
    }
}

/// The program of this name in the directories of `PATH`.
pub(crate) fn find_program(name: &str, path: &str) -> Option<PathBuf> {
    let runs = |file: &Path| {
        file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(path).map(|dir| dir.join(name)).find(|file| runs(file))
}
