//! The programs that may run tasks: both forms of `plugins`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::keys::{Keys, flag_of, kind};

/// How a plugin receives its task and returns its result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum PluginKind {
    /// In files, with a configuration for the database.
    #[default]
    Default,
    /// In files only.
    NoMongo,
    /// In the collections `tasks` and `results`.
    Mongo,
    /// It updates the task itself.
    Handoff,
}

impl PluginKind {
    fn from_name(name: &str) -> Option<Self> {
        match name {
            "default" => Some(Self::Default),
            "nomongo" => Some(Self::NoMongo),
            "mongo" => Some(Self::Mongo),
            "handoff" => Some(Self::Handoff),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plugin {
    /// The name that queues use.
    pub name: String,
    /// Not absolute if the file names no program: queues may use it, but our nodes leave it to
    /// others.
    pub program: PathBuf,
    pub kind: PluginKind,
    pub timeout: Option<Duration>,
}

/// All plugins that queues may use, sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Plugins(pub(crate) Vec<Plugin>);

impl Plugins {
    fn new(mut plugins: Vec<Plugin>) -> Self {
        plugins.sort_by(|one, other| one.name.cmp(&other.name));
        plugins.dedup_by(|one, other| one.name == other.name);
        Self(plugins)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Plugin> {
        self.0.iter().find(|plugin| plugin.name == name)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.0.iter().map(|plugin| plugin.name.clone()).collect()
    }

    /// Those that are also in `names`.
    pub(super) fn narrowed(&self, names: &[String]) -> Self {
        let listed = |plugin: &&Plugin| names.contains(&plugin.name);
        Self(self.0.iter().filter(listed).cloned().collect())
    }
}

/// Whether this is a valid plugin name for queues.
fn is_name(name: &str) -> bool {
    let word = |sign: char| sign == ':' || sign == '_' || sign.is_ascii_alphanumeric();
    let is_package = !name.is_empty() && name.chars().all(word);
    is_package || (Path::new(name).is_absolute() && !name.chars().any(char::is_control))
}

pub(super) fn read(keys: Keys<'_>, warnings: &mut Vec<String>) -> Result<Plugins, String> {
    let plugins = match keys.get("plugins") {
        None => Vec::new(),
        Some(Value::Array(_)) => {
            let names = keys.texts("plugins")?;
            names.into_iter().map(|name| listed(name, warnings)).collect::<Result<_, _>>()?
        }
        Some(Value::Object(_)) => mapped(keys, warnings)?,
        Some(value) => {
            let what = kind(value);
            return Err(format!("`plugins` must be an object or a list of paths, not {what}"));
        }
    };
    Ok(Plugins::new(plugins))
}

fn listed(name: String, warnings: &mut Vec<String>) -> Result<Plugin, String> {
    check_name(&name)?;
    warn_without_program(&name, Path::new(&name), warnings);
    let program = PathBuf::from(&name);
    Ok(Plugin { name, program, kind: PluginKind::Default, timeout: None })
}

fn mapped(keys: Keys<'_>, warnings: &mut Vec<String>) -> Result<Vec<Plugin>, String> {
    let Some(all) = keys.below("plugins", "plugins")? else { return Ok(Vec::new()) };
    let mut plugins = Vec::new();
    for (name, value) in all.iter() {
        check_name(name)?;
        let at = format!("plugins.{name}");
        let plugin = match all.below(name, &at) {
            Ok(Some(keys)) => one(name, keys, warnings)?,
            Ok(None) => listed(name.clone(), warnings)?,
            // Disbatch 4.4 marks Perl packages this way.
            Err(_) if flag_of(value) == Some(true) && !Path::new(name).is_absolute() => {
                listed(name.clone(), warnings)?
            }
            Err(error) => return Err(error),
        };
        plugins.push(plugin);
    }
    Ok(plugins)
}

fn one(name: &str, keys: Keys<'_>, warnings: &mut Vec<String>) -> Result<Plugin, String> {
    keys.warn_unknown(&["program", "type", "timeout"], warnings);
    let program = match keys.path("program")? {
        Some(program) if !program.is_absolute() => {
            return Err(format!("{} must be an absolute path", keys.name("program")));
        }
        Some(program) => program,
        None => {
            warn_without_program(name, Path::new(name), warnings);
            PathBuf::from(name)
        }
    };
    let kind = match keys.text("type")? {
        None => PluginKind::Default,
        Some(text) => PluginKind::from_name(text).ok_or_else(|| {
            let key = keys.name("type");
            format!("{key} must be \"default\", \"nomongo\", \"mongo\" or \"handoff\"")
        })?,
    };
    Ok(Plugin { name: name.to_owned(), program, kind, timeout: keys.seconds("timeout")? })
}

fn check_name(name: &str) -> Result<(), String> {
    if is_name(name) {
        return Ok(());
    }
    Err(format!(
        "`plugins`: {name:?} must be an absolute path, or a name of letters, digits, _ and ::"
    ))
}

fn warn_without_program(name: &str, program: &Path, warnings: &mut Vec<String>) {
    if !program.is_absolute() {
        warnings.push(format!(
            "`plugins`: {name} has no program, so that this node leaves its queues to others; \
             write {{\"{name}\": {{\"program\": \"/absolute/path\"}}}}"
        ));
    }
}
