//! The direction of the arrows: which crate of ours may use which.

use super::SourceFile;

/// Each crate's folder, and the workspace crates that its code may use (its tests may use more).
const ARROWS: [(&str, &[&str]); 24] = [
    ("crates/core", &[]),
    ("crates/bedrock-rules", &["windlass-core"]),
    ("crates/store-test", &["windlass-core"]),
    ("crates/store-sqlite", &["windlass-bedrock-rules", "windlass-core"]),
    ("crates/store-postgres", &["windlass-core"]),
    ("crates/journal", &["windlass-core"]),
    ("crates/runner", &["windlass-core"]),
    ("crates/engine", &["windlass-core", "windlass-journal"]),
    ("crates/net", &[]),
    ("crates/program", &[]),
    ("crates/proof", &[]),
    ("crates/door-http", &["windlass-core", "windlass-engine", "windlass-net"]),
    (
        "crates/door-bedrock",
        &["windlass-bedrock-rules", "windlass-core", "windlass-engine", "windlass-net"],
    ),
    ("crates/door-jobd", &["windlass-core", "windlass-net", "windlass-program"]),
    ("crates/door-disbatch", &["windlass-core", "windlass-net", "windlass-program"]),
    ("crates/faulty-disk", &[]),
    ("crates/test-kit", &[]),
    ("crates/test-servers", &["windlass-test-kit"]),
    (
        "crates/windlass",
        &[
            "windlass-core",
            "windlass-engine",
            "windlass-program",
            "windlass-runner",
            "windlass-store-postgres",
            "windlass-store-sqlite",
            "windlass-door-http",
            "windlass-door-bedrock",
            "windlass-door-jobd",
            "windlass-door-disbatch",
        ],
    ),
    (
        "crates/bench",
        &[
            "windlass-core",
            "windlass-engine",
            "windlass-program",
            "windlass-runner",
            "windlass-store-postgres",
            "windlass-store-sqlite",
            "windlass-door-http",
            "windlass-door-bedrock",
            "windlass-door-jobd",
            "windlass-test-servers",
        ],
    ),
    ("crates/torture", &["windlass-proof", "windlass-test-kit"]),
    ("crates/sim", &["windlass-core", "windlass-engine", "windlass-journal", "windlass-proof"]),
    (
        "fuzz",
        &[
            "windlass-bedrock-rules",
            "windlass-core",
            "windlass-door-bedrock",
            "windlass-door-disbatch",
            "windlass-door-http",
            "windlass-door-jobd",
            "windlass-journal",
            "windlass-runner",
            "windlass-store-sqlite",
        ],
    ),
    ("xtask", &[]),
];

pub(super) fn check(file: &SourceFile) -> Vec<String> {
    let Some(folder) = file.path.strip_suffix("/Cargo.toml") else { return Vec::new() };
    let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| *known == folder) else {
        return vec![format!("{}: a crate that tidy's table of arrows does not know", file.path)];
    };
    let used = dependencies(&file.text).filter(|name| name.starts_with("windlass-"));
    used.filter(|name| !allowed.contains(&name.as_str()))
        .map(|name| format!("{}: the arrow to {name} is not in the design", file.path))
        .collect()
}

/// The names under `[dependencies]`, without those for tests.
fn dependencies(manifest: &str) -> impl Iterator<Item = String> + '_ {
    let mut inside = false;
    manifest.lines().filter_map(move |line| {
        if line.starts_with('[') {
            inside = line == "[dependencies]";
            return None;
        }
        let name: String =
            line.chars().take_while(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).collect();
        (inside && !name.is_empty()).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> usize {
        check(&SourceFile { path: path.into(), text: text.into() }).len()
    }

    #[test]
    fn an_arrow_that_points_sideways_or_up_is_found() {
        let sideways = "[dependencies]\nwindlass-journal.workspace = true\n";
        assert_eq!(complaints("crates/runner/Cargo.toml", sideways), 1);
        assert_eq!(complaints("crates/engine/Cargo.toml", sideways), 0);
        let in_tests = "[dev-dependencies]\nwindlass-store-test.workspace = true\n";
        assert_eq!(complaints("crates/store-sqlite/Cargo.toml", in_tests), 0);
        assert_eq!(complaints("crates/new/Cargo.toml", ""), 1);
    }
}
