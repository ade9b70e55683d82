//! The `config` collection of the seed's dialect: settings that all nodes of a network share. It
//! defines which queues are served, and may remove plugins. It never adds a program, because write
//! access to the database must not decide what runs on a host.

use mongodb::bson::{Bson, Document};

use super::Config;

/// The settings, overridden by those of the active document. Invalid values are ignored with a
/// warning.
pub(crate) fn overlay(config: &Config, document: &Document) -> (Config, Vec<String>) {
    let mut config = config.clone();
    let mut warnings = Vec::new();
    if let Some(ids) = texts(document, "activequeues", &mut warnings) {
        config.active_queues = ids.iter().map(|id| id.to_ascii_lowercase()).collect();
    }
    if let Some(ids) = texts(document, "ignorequeues", &mut warnings) {
        config.ignore_queues = ids.iter().map(|id| id.to_ascii_lowercase()).collect();
    }
    if let Some(names) = names(document, &mut warnings) {
        config.plugins = config.plugins.narrowed(&names);
    }
    (config, warnings)
}

/// A list of names, or an object whose keys are names.
fn names(document: &Document, warnings: &mut Vec<String>) -> Option<Vec<String>> {
    match document.get("plugins") {
        Some(Bson::Document(plugins)) => Some(plugins.keys().cloned().collect()),
        _ => texts(document, "plugins", warnings),
    }
}

/// Strings or object ids; `None` if the key is missing or null.
fn texts(document: &Document, key: &str, warnings: &mut Vec<String>) -> Option<Vec<String>> {
    let text = |entry: &Bson| match entry {
        Bson::String(text) => Some(text.clone()),
        Bson::ObjectId(id) => Some(id.to_hex()),
        _ => None,
    };
    let texts = match document.get(key) {
        None | Some(Bson::Null) => return None,
        Some(Bson::Array(list)) => list.iter().map(text).collect::<Option<Vec<_>>>(),
        Some(_) => None,
    };
    if texts.is_none() {
        warnings.push(format!("the `{key}` of the collection `config` is not a list of texts"));
    }
    texts
}
