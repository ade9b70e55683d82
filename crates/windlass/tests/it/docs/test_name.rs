//! The names of all tests in the source: other functions prove nothing.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// What begins a list of cases, each on its own line, that a macro makes tests of.
const LISTS: [&str; 3] = ["suite! { $", "list! { $", "in_each_language! {"];

/// The names of the tests below a directory: alone, with their module, and with its folder, too.
pub(super) fn all_below(dir: &Path, names: &mut HashSet<String>) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all_below(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let (folder, module) = (stem(dir), module_of(&path));
            for (area, name) in in_source(&text) {
                names.insert(format!("{folder}::{module}::{name}"));
                names.insert(format!("{}::{name}", area.unwrap_or(&module)));
                names.insert(name.to_owned());
            }
        }
    }
}

pub(super) fn stem(path: &Path) -> String {
    path.file_stem().unwrap().to_string_lossy().into_owned()
}

/// A folder's own file has the folder's name.
fn module_of(path: &Path) -> String {
    if path.ends_with("mod.rs") { stem(path.parent().unwrap()) } else { stem(path) }
}

/// The tests of one file: functions with an attribute that says so, and the entries of macros and
/// lists that make tests, with the area of the list in which they are.
fn in_source(text: &str) -> Vec<(Option<&str>, &str)> {
    let (mut names, mut area) = (Vec::new(), None);
    let (mut is_test, mut in_list) = (false, false);
    for line in text.lines() {
        let line_of_list = in_list && line != "}";
        in_list = line_of_list || LISTS.contains(&line);
        let line = line.trim();
        let begins = line.strip_suffix(" {").and_then(whole_name);
        area = begins.or(area).filter(|_| line_of_list);
        let is_attribute = line.starts_with("#[") || line.starts_with("//");
        is_test |= line == "#[test]" || line.starts_with("#[tokio::test");
        let name = match function(line) {
            Some((name, parameters)) if is_test || is_untyped(parameters) => Some(name),
            Some(_) => None,
            None if line_of_list => whole_name(line),
            None => case(line),
        };
        names.extend(name.map(|name| (area, name)));
        is_test &= is_attribute;
    }
    names
}

/// The name of the function that begins on this line, and what follows it.
fn function(line: &str) -> Option<(&str, &str)> {
    let rest = ["pub ", "pub(crate) ", "async "]
        .iter()
        .fold(line, |line, word| line.strip_prefix(word).unwrap_or(line));
    let rest = rest.strip_prefix("fn ")?;
    Some(rest.split_at(rest.find(|c: char| !is_of_name(c))?))
}

/// Only an entry of a macro has a parameter without a type: `in_every_language!` makes tests of it.
fn is_untyped(parameters: &str) -> bool {
    let inner = parameters.strip_prefix('(').and_then(|rest| rest.strip_suffix(") {"));
    inner.is_some_and(|inner| whole_name(inner).is_some())
}

/// A case of a program that runs its tests itself, with its module: `("name", case::name),`.
fn case(line: &str) -> Option<&str> {
    let (name, case) = line.strip_prefix("(\"")?.strip_suffix("),")?.split_once("\", ")?;
    (case.strip_prefix("case::") == Some(name)).then_some(case)
}

fn whole_name(text: &str) -> Option<&str> {
    (!text.is_empty() && text.chars().all(is_of_name)).then_some(text)
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[test]
fn tests_are_told_from_other_functions() {
    let source = "fn helper() {}
#[test]
fn plain() {}
fn behind_it() {
#[tokio::test(start_paused = true)]
// Why it is as it is.
#[cfg(unix)]
async fn asynchronous() {}
pub(crate) async fn of_a_harness(harness: &dyn Harness) {}
in_every_language! {
    fn in_languages(t) {
        node: \"\",
    }
}
suite! { $
    area {
        a_case
    }
}
fn typed(of: u8) {
    not_a_case
}
    (\"of_a_program\", case::of_a_program),
    (\"other\", case::of_a_program),
";
    let found = [
        (None, "plain"),
        (None, "asynchronous"),
        (None, "in_languages"),
        (Some("area"), "a_case"),
        (None, "case::of_a_program"),
    ];
    assert_eq!(in_source(source), found);
}
