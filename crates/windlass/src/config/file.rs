//! The configuration file: parses TOML into one checked value per key. An unknown key is an error
//! that suggests the nearest known one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::key::{KEYS, Key};
use super::kind::Value;
use super::{Error, Source};

/// Read if it exists and no other file is named.
pub(crate) const FILE_DEFAULT: &str = "windlass.toml";
/// A larger file is not a configuration.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

pub(crate) type Settings = BTreeMap<&'static str, (Value, Source)>;

/// Reads the named file, or `windlass.toml` of the working directory if there is one.
pub(crate) fn read(named: Option<&Path>) -> Result<Settings, Error> {
    let path = named.unwrap_or(Path::new(FILE_DEFAULT));
    let text = match read_bounded(path) {
        Ok(text) => text,
        Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Settings::new());
        }
        Err(error) => {
            return Err(Error::file(format!("cannot read {}: {error}", path.display())));
        }
    };
    parse(path, &text)
}

fn read_bounded(path: &Path) -> std::io::Result<String> {
    let bytes = std::fs::metadata(path)?.len();
    if bytes > FILE_BYTES_MAX {
        let reason = format!("it has {bytes} bytes, more than the maximum of {FILE_BYTES_MAX}");
        return Err(std::io::Error::other(reason));
    }
    std::fs::read_to_string(path)
}

pub(crate) fn parse(path: &Path, text: &str) -> Result<Settings, Error> {
    let file = File { path, text };
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let message = error.message().lines().collect::<Vec<_>>().join(", ");
        Error::file(format!("{}: {message}", file.place(at)))
    })?;
    let mut settings = Settings::new();
    file.collect("", table.get_ref(), &mut settings)?;
    Ok(settings)
}

struct File<'a> {
    path: &'a Path,
    text: &'a str,
}

impl File<'_> {
    /// Recursion ends at the depth of the longest key: anything deeper is not a known key.
    fn collect(&self, prefix: &str, table: &DeTable<'_>, into: &mut Settings) -> Result<(), Error> {
        for (name, value) in table.iter() {
            let dotted = format!("{prefix}{}", name.get_ref());
            let at = name.span().start;
            match (Key::find(&dotted), value.get_ref()) {
                (Some(key), value) => {
                    let source = Source::File(self.path.to_owned(), self.line(at));
                    let read = key.kind.read_toml(value);
                    let read = read.map_err(|given| Error::value(key, &source, &given))?;
                    into.insert(key.name, (read, source));
                }
                (None, DeValue::Table(inner)) if is_table(&dotted) => {
                    self.collect(&format!("{dotted}."), inner, into)?;
                }
                (None, DeValue::Table(_)) => {
                    let place = self.place(at);
                    let nearest = nearest_table(&dotted);
                    return Err(Error::file(format!(
                        "{place}: unknown table [{dotted}]; did you mean [{nearest}]?"
                    )));
                }
                (None, _) => {
                    let place = self.place(at);
                    let nearest = nearest(&dotted);
                    return Err(Error::file(format!(
                        "{place}: unknown key '{dotted}'; did you mean '{nearest}'?"
                    )));
                }
            }
        }
        Ok(())
    }

    fn line(&self, at: usize) -> usize {
        self.text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
    }

    fn place(&self, at: usize) -> String {
        Source::File(PathBuf::from(self.path), self.line(at)).to_string()
    }
}

fn is_table(dotted: &str) -> bool {
    KEYS.iter().any(|key| key.name.strip_prefix(dotted).is_some_and(|rest| rest.starts_with('.')))
}

/// The table of keys with the nearest name.
fn nearest_table(dotted: &str) -> &'static str {
    let tables = KEYS.iter().filter_map(|key| Some(key.name.rsplit_once('.')?.0));
    tables.min_by_key(|table| strsim::osa_distance(dotted, table)).expect("there are tables")
}

/// Compares whole names, and last parts for keys in the wrong table.
pub(crate) fn nearest(dotted: &str) -> &'static str {
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let distance = |key: &&Key| {
        let whole = strsim::osa_distance(dotted, key.name);
        let misplaced = 1 + strsim::osa_distance(&last(dotted), &last(key.name));
        whole.min(misplaced)
    };
    KEYS.iter().min_by_key(distance).expect("there are keys").name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        parse(Path::new("w.toml"), text).unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line_and_the_nearest_known_one() {
        let error = refused("listen = \"127.0.0.1:1\"\n[scheduler]\nslot = 3\n");
        assert!(error.starts_with("w.toml, line 3: "), "{error}");
        assert!(
            error.contains("'scheduler.slot'") && error.contains("'scheduler.slots'"),
            "{error}"
        );
        assert!(refused("slots = 3").contains("'scheduler.slots'"));
        let error = refused("[retri]\nattempts = 3");
        assert!(error.contains("unknown table [retri]; did you mean [retry]?"), "{error}");
        assert!(refused("[schedular]\nslots = 3").contains("[scheduler]"));
        assert!(refused("listen.port = 3").contains("listen takes"));
    }

    #[test]
    fn a_wrong_value_names_its_key_its_line_and_what_is_accepted() {
        let error = refused("\n[retry]\nattempts = 0\n");
        assert!(error.contains("line 3") && error.contains("retry.attempts"), "{error}");
        assert!(error.contains("a whole number from 1") && error.contains("not '0'"), "{error}");
        assert!(refused("[lease]\nduration = 10").contains("a duration from 100ms"));
        assert!(refused("insecure = \"true\"").contains("true or false"));
        assert!(refused("tenants = [1]").contains("names of tenants"));
    }

    #[test]
    fn broken_toml_names_the_line() {
        assert!(refused("listen = \"x\"\n[[\n").contains("line 2"), "{}", refused("a = 1\n[[\n"));
    }

    #[test]
    fn dotted_keys_and_tables_mean_the_same() {
        let read = |text| parse(Path::new("w"), text).unwrap()["poll.min"].0.clone();
        assert_eq!(read("poll.min = \"5ms\""), read("[poll]\nmin = \"5ms\""));
    }
}
