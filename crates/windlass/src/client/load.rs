//! Handlers from files: reads a file, detects its language and parses it. Errors name the file and
//! the line.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use serde_json::{Map, Value};

use windlass_core::Lang;
use windlass_core::limit::HANDLER_BYTES_MAX;

use crate::output::plain;
use crate::{Usage, source};

/// Means standard input instead of a file.
const STANDARD_INPUT: &str = "-";

/// The handler of a file, in wire form. `named` is the language from the command line, if it was
/// given.
pub(super) fn file(file: &Path, named: Option<&str>) -> anyhow::Result<(Lang, Map<String, Value>)> {
    let text = text(file)?;
    let lang = match named {
        Some(name) => lang(name)?,
        None => source::lang(file, &text).ok_or_else(|| {
            let how = source::how_to_name_language();
            Usage(format!("cannot tell the language of {}: {how}", file.display()))
        })?,
    };
    Ok((lang, from_text(lang, text, &file.display().to_string())?))
}

/// The same for text from the command line; `place` is its name in messages.
pub(super) fn from_text(
    lang: Lang,
    text: String,
    place: &str,
) -> anyhow::Result<Map<String, Value>> {
    let source = match lang {
        // Editors end a file with a newline, which is not part of the URL or command line.
        Lang::Http | Lang::Exec => source::Source::plain(text.trim().to_owned()),
        Lang::Node | Lang::Python | Lang::Php | Lang::Sh => {
            source::read(lang, &text).map_err(|wrong| anyhow!("{place}:{wrong}"))?
        }
    };
    Ok(source.into_handler(lang))
}

pub(super) fn lang(name: &str) -> anyhow::Result<Lang> {
    Lang::parse(name).map_err(|why| Usage(format!("--lang: {}", why.reason)).into())
}

/// A script in its own file.
pub(super) fn script(lang: Lang, file: &Path) -> anyhow::Result<String> {
    Ok(source::without_tags(lang, &text(file)?))
}

fn text(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let bound = HANDLER_BYTES_MAX as u64 + 1;
    let read = if file == Path::new(STANDARD_INPUT) {
        std::io::stdin().lock().take(bound).read_to_string(&mut text)
    } else {
        std::fs::File::open(file).and_then(|open| open.take(bound).read_to_string(&mut text))
    };
    read.with_context(|| format!("cannot read {}", file.display()))?;
    if text.len() > HANDLER_BYTES_MAX {
        bail!("{} has more than {HANDLER_BYTES_MAX} bytes", file.display());
    }
    Ok(text)
}

/// Adds the command line's variables to those of the file.
pub(super) fn environment(
    pairs: &[String],
    options: &mut Map<String, Value>,
) -> anyhow::Result<()> {
    for pair in pairs {
        let Some((name, value)) = pair.split_once('=') else {
            bail!(Usage(format!("--env takes NAME=VALUE, not '{}'", plain(pair))));
        };
        group(options, "env").insert(name.into(), value.into());
    }
    Ok(())
}

/// The object with this name, created if missing.
pub(super) fn group<'a>(map: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    let value = map.entry(name).or_insert_with(|| Map::new().into());
    if !value.is_object() {
        *value = Map::new().into();
    }
    value.as_object_mut().expect("it is an object now")
}
