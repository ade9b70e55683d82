//! JSON values as JavaScript has them: objects keep their order, with names that look like array
//! indexes first, and everything has a string form. Clients see both.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt::{self, Write};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Number;

/// Integers up to this size are exact as floats.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
/// The largest array index of JavaScript; larger numbers are ordinary names.
const INDEX_MAX: u32 = u32::MAX - 1;

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum Json {
    #[default]
    Null,
    Bool(bool),
    /// Integral floats are kept as integers.
    Number(Number),
    String(String),
    Array(Vec<Json>),
    Object(Object),
}

/// Names and values in JavaScript's order: array indexes ascending, then the others in insertion
/// order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Object {
    entries: Vec<(String, Json)>,
    /// The number of leading entries that are array indexes.
    indexes: usize,
}

impl Json {
    /// The value of a name; `None` if this is not an object.
    pub(crate) fn get(&self, name: &str) -> Option<&Json> {
        self.as_object()?.get(name)
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        if let Json::String(text) = self { Some(text) } else { None }
    }

    /// An integer; `1.0` is one.
    pub(crate) fn as_i64(&self) -> Option<i64> {
        if let Json::Number(number) = self { number.as_i64() } else { None }
    }

    pub(crate) fn as_u64(&self) -> Option<u64> {
        if let Json::Number(number) = self { number.as_u64() } else { None }
    }

    pub(crate) fn as_f64(&self) -> Option<f64> {
        if let Json::Number(number) = self { number.as_f64() } else { None }
    }

    pub(crate) fn as_array(&self) -> Option<&[Json]> {
        if let Json::Array(items) = self { Some(items) } else { None }
    }

    pub(crate) fn as_object(&self) -> Option<&Object> {
        if let Json::Object(object) = self { Some(object) } else { None }
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Json::Null)
    }

    /// Whether it is truthy in JavaScript.
    pub(crate) fn is_truthy(&self) -> bool {
        match self {
            Json::Null => false,
            Json::Bool(value) => *value,
            Json::Number(number) => number.as_f64() != Some(0.0),
            Json::String(text) => !text.is_empty(),
            Json::Array(_) | Json::Object(_) => true,
        }
    }

    /// The result of JavaScript's `typeof`.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Json::Null | Json::Array(_) | Json::Object(_) => "object",
            Json::Bool(_) => "boolean",
            Json::Number(_) => "number",
            Json::String(_) => "string",
        }
    }

    /// The result of JavaScript's string conversion.
    pub(crate) fn js_string(&self) -> String {
        let mut out = String::new();
        self.write_js(&mut out);
        out
    }

    fn write_js(&self, out: &mut String) {
        match self {
            Json::Null => out.push_str("null"),
            Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Json::Number(number) => write_number(number, out),
            Json::String(text) => out.push_str(text),
            Json::Array(items) => {
                for (position, item) in items.iter().enumerate() {
                    if position > 0 {
                        out.push(',');
                    }
                    if !item.is_null() {
                        item.write_js(out);
                    }
                }
            }
            Json::Object(_) => out.push_str("[object Object]"),
        }
    }

    fn from_f64(value: f64) -> Json {
        if value.fract() == 0.0 && value.abs() <= WHOLE_MAX {
            return Json::Number((value as i64).into());
        }
        Number::from_f64(value).map_or(Json::Null, Json::Number)
    }
}

fn write_number(number: &Number, out: &mut String) {
    let written = match (number.is_f64(), number.as_f64()) {
        (true, Some(value)) if (1e-6..1e21).contains(&value.abs()) => write!(out, "{value}"),
        (true, Some(value)) => {
            let text = format!("{value:e}");
            let sign = if text.contains("e-") { "e" } else { "e+" };
            write!(out, "{}", text.replace('e', sign))
        }
        _ => write!(out, "{number}"),
    };
    debug_assert!(written.is_ok(), "writing to a string does not fail");
}

impl Object {
    pub(crate) fn new() -> Object {
        Object::default()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Json> {
        self.find(name).ok().map(|position| &self.entries[position].1)
    }

    /// If the name exists, replaces its value in place.
    pub(crate) fn insert(&mut self, name: impl Into<String>, value: impl Into<Json>) {
        let (name, value) = (name.into(), value.into());
        match self.find(&name) {
            Ok(position) => self.entries[position].1 = value,
            Err(position) => {
                self.indexes += usize::from(index_of(&name).is_some());
                self.entries.insert(position, (name, value));
            }
        }
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut Json> {
        self.find(name).ok().map(|position| &mut self.entries[position].1)
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<Json> {
        let position = self.find(name).ok()?;
        self.indexes -= usize::from(position < self.indexes);
        Some(self.entries.remove(position).1)
    }

    /// Takes a value and leaves null.
    pub(super) fn take(&mut self, name: &str) -> Option<Json> {
        let position = self.find(name).ok()?;
        Some(std::mem::take(&mut self.entries[position].1))
    }

    pub(super) fn take_str(&mut self, name: &str) -> Option<String> {
        match self.take(name)? {
            Json::String(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.entries.iter().map(|(name, value)| (name.as_str(), value))
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Where the name is, or where it would be.
    fn find(&self, name: &str) -> Result<usize, usize> {
        let (indexes, names) = self.entries.split_at(self.indexes);
        match index_of(name) {
            Some(index) => indexes.binary_search_by_key(&Some(index), |entry| index_of(&entry.0)),
            None => match names.iter().position(|entry| entry.0 == name) {
                Some(position) => Ok(indexes.len() + position),
                None => Err(self.entries.len()),
            },
        }
    }
}

impl<K: Into<String>, V: Into<Json>> FromIterator<(K, V)> for Object {
    /// The last value of a name counts, at the position of its first.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Object {
        let mut entries: Vec<(String, Json)> = Vec::new();
        let mut positions: HashMap<String, usize> = HashMap::new();
        for (name, value) in pairs {
            let name = name.into();
            if let Some(position) = positions.get(&name) {
                entries[*position].1 = value.into();
            } else {
                positions.insert(name.clone(), entries.len());
                entries.push((name, value.into()));
            }
        }
        entries.sort_by(|one, other| match (index_of(&one.0), index_of(&other.0)) {
            (Some(one), Some(other)) => one.cmp(&other),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => Ordering::Equal,
        });
        let indexes = entries.partition_point(|entry| index_of(&entry.0).is_some());
        Object { entries, indexes }
    }
}

impl IntoIterator for Object {
    type Item = (String, Json);
    type IntoIter = std::vec::IntoIter<(String, Json)>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

fn index_of(name: &str) -> Option<u32> {
    if name.is_empty() || name.len() > 10 || (name.len() > 1 && name.starts_with('0')) {
        return None;
    }
    let index = name.bytes().all(|byte| byte.is_ascii_digit()).then(|| name.parse().ok())?;
    index.filter(|index| *index <= INDEX_MAX)
}

macro_rules! from_whole {
    ($($type:ty)*) => {$(
        impl From<$type> for Json {
            fn from(value: $type) -> Json {
                Json::Number(value.into())
            }
        }
    )*};
}
from_whole!(i32 i64 u16 u32 u64 usize);

impl From<f64> for Json {
    fn from(value: f64) -> Json {
        Json::from_f64(value)
    }
}

impl From<bool> for Json {
    fn from(value: bool) -> Json {
        Json::Bool(value)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Json {
        Json::String(text.to_owned())
    }
}

impl From<&String> for Json {
    fn from(text: &String) -> Json {
        Json::String(text.clone())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Json {
        Json::String(text)
    }
}

impl From<Object> for Json {
    fn from(object: Object) -> Json {
        Json::Object(object)
    }
}

impl<T: Into<Json>> From<Vec<T>> for Json {
    fn from(items: Vec<T>) -> Json {
        Json::Array(items.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Json {
        value.map_or(Json::Null, Into::into)
    }
}

impl<const N: usize> From<[(&str, Json); N]> for Json {
    fn from(pairs: [(&str, Json); N]) -> Json {
        Json::Object(pairs.into_iter().collect())
    }
}

/// As JSON.
impl fmt::Display for Json {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Json::Null => serializer.serialize_unit(),
            Json::Bool(value) => serializer.serialize_bool(*value),
            Json::Number(number) => number.serialize(serializer),
            Json::String(text) => serializer.serialize_str(text),
            Json::Array(items) => serializer.collect_seq(items),
            Json::Object(object) => {
                let mut map = serializer.serialize_map(Some(object.len()))?;
                for (name, value) in object.iter() {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Json;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::from_f64(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(text.into())
    }

    fn visit_string<E>(self, text: String) -> Result<Json, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element()? {
            array.push(item);
        }
        Ok(Json::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut pairs: Vec<(String, Json)> = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(Json::Object(pairs.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Json {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn objects_keep_their_order_with_array_indexes_first() {
        let text = r#"{"b":1,"10":2,"a":3,"9":4,"01":5,"-1":6,"4294967294":7,"4294967295":8}"#;
        let sorted = r#"{"9":4,"10":2,"4294967294":7,"b":1,"a":3,"01":5,"-1":6,"4294967295":8}"#;
        assert_eq!(read(text).to_string(), sorted);
        let mut object = Object::new();
        for (name, value) in [("b", 1), ("10", 2), ("a", 3), ("9", 4), ("b", 5)] {
            object.insert(name, value);
        }
        let object = Json::from(object);
        assert_eq!(object.to_string(), r#"{"9":4,"10":2,"b":5,"a":3}"#);
        assert_eq!(object.get("9"), Some(&4.into()));
        assert_eq!(object.get("8"), None);
        assert_eq!(object.get("a"), Some(&3.into()));
    }

    #[test]
    fn the_last_of_equal_names_counts_in_the_place_of_the_first() {
        assert_eq!(read(r#"{"a":1,"b":2,"a":3}"#).to_string(), r#"{"a":3,"b":2}"#);
    }

    #[test]
    fn everything_has_the_string_form_of_javascript() {
        for (text, form) in [
            ("null", "null"),
            ("true", "true"),
            ("5", "5"),
            ("-5", "-5"),
            ("5.0", "5"),
            ("-0", "0"),
            ("1.5", "1.5"),
            ("1e20", "100000000000000000000"),
            ("1e21", "1e+21"),
            ("1.25e-7", "1.25e-7"),
            ("0.000001", "0.000001"),
            (r#""abc""#, "abc"),
            ("{}", "[object Object]"),
            ("[]", ""),
            ("[1,[2,null],{}]", "1,2,,[object Object]"),
        ] {
            assert_eq!(read(text).js_string(), form, "{text}");
        }
    }

    #[test]
    fn some_values_are_false_and_all_have_a_type() {
        for (text, truthy, type_name) in [
            ("null", false, "object"),
            ("false", false, "boolean"),
            ("true", true, "boolean"),
            ("0", false, "number"),
            ("0.0", false, "number"),
            ("0.5", true, "number"),
            (r#""""#, false, "string"),
            (r#""0""#, true, "string"),
            ("[]", true, "object"),
            ("{}", true, "object"),
        ] {
            let value = read(text);
            assert_eq!((value.is_truthy(), value.type_name()), (truthy, type_name), "{text}");
        }
    }

    #[test]
    fn whole_floats_are_integers() {
        assert_eq!(read("2.0").as_i64(), Some(2));
        assert_eq!(read("2.0").to_string(), "2");
        assert_eq!(read("2.5").as_i64(), None);
        assert_eq!(read("18446744073709551615").as_u64(), Some(u64::MAX));
    }

    #[test]
    fn values_are_made_from_plain_ones() {
        let made = Json::from([
            ("a", Json::from(vec!["x", "y"])),
            ("b", Json::from(None::<i64>)),
            ("c", Json::from(0.5)),
        ]);
        assert_eq!(made.to_string(), r#"{"a":["x","y"],"b":null,"c":0.5}"#);
    }
}
