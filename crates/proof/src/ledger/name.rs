//! Names as small numbers: a history repeats few names millions of times.

use std::collections::HashMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Name(u32);

#[derive(Debug, Default)]
pub(crate) struct Names {
    numbers: HashMap<Box<str>, Name>,
    texts: Vec<Box<str>>,
}

impl Names {
    pub(crate) fn of(&mut self, text: &str) -> Name {
        if let Some(name) = self.numbers.get(text) {
            return *name;
        }
        let name = Name(u32::try_from(self.texts.len()).unwrap_or(u32::MAX));
        self.texts.push(text.into());
        self.numbers.insert(text.into(), name);
        name
    }

    pub(crate) fn text(&self, name: Name) -> &str {
        self.texts.get(name.0 as usize).map_or("?", |text| text)
    }
}
