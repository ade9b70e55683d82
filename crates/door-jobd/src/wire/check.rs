//! Checks the fields of an object, with jobd's error texts.

use super::{Json, Object};

/// The type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Integer,
    Number,
    String,
    /// Also null, and arrays.
    Object,
    Array,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Integer => "integer",
            Kind::Number => "number",
            Kind::String => "string",
            Kind::Object => "object",
            Kind::Array => "array",
        }
    }

    fn fits(self, value: &Json) -> bool {
        match self {
            Kind::Integer => is_integer(value),
            Kind::Number => matches!(value, Json::Number(_)),
            Kind::String => matches!(value, Json::String(_)),
            Kind::Object => value.type_name() == "object",
            Kind::Array => matches!(value, Json::Array(_)),
        }
    }
}

/// A field and whether it is required.
pub(crate) struct Field {
    pub name: &'static str,
    pub kinds: &'static [Kind],
    pub required: bool,
}

impl Field {
    pub(crate) const fn required(name: &'static str, kinds: &'static [Kind]) -> Field {
        Field { name, kinds, required: true }
    }

    pub(crate) const fn optional(name: &'static str, kinds: &'static [Kind]) -> Field {
        Field { name, kinds, required: false }
    }
}

/// Checks the fields in their order. An array is an object without any.
pub(crate) fn fields(data: &Json, fields: &[Field]) -> Result<(), String> {
    let empty = Object::new();
    let object = match data {
        Json::Object(object) => object,
        Json::Array(_) => &empty,
        _ => return Err("data is not an object".to_owned()),
    };
    for field in fields {
        match object.get(field.name) {
            None if field.required => {
                return Err(format!("missing required field {}", field.name));
            }
            Some(value) if !field.kinds.iter().any(|kind| kind.fits(value)) => {
                return Err(format!("'{}' must be {}", field.name, any_of(field.kinds)));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The targets of a request; `None` if omitted, which means all.
pub(crate) fn targets(data: &Json) -> Result<Option<Vec<String>>, String> {
    let Some(given) = data.get("targets") else { return Ok(None) };
    let items = given.as_array().ok_or("targets must be array")?;
    if items.is_empty() {
        return Err("targets are empty".to_owned());
    }
    let names = items.iter().map(|item| match item {
        Json::String(name) => Ok(name.clone()),
        other => Err(format!("all targets must be strings, {} given", other.type_name())),
    });
    names.collect::<Result<_, _>>().map(Some)
}

fn any_of(kinds: &[Kind]) -> String {
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    if let [name] = names[..] { name.to_owned() } else { format!("any of: {}", names.join(", ")) }
}

fn is_integer(value: &Json) -> bool {
    value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: [Field; 3] = [
        Field::required("target", &[Kind::String]),
        Field::required("concurrency", &[Kind::Integer]),
        Field::optional("more", &[Kind::String, Kind::Number, Kind::Object, Kind::Array]),
    ];

    fn check(data: &str, expected: Result<(), &str>) {
        let data: Json = serde_json::from_str(data).unwrap();
        assert_eq!(fields(&data, &TARGET), expected.map_err(str::to_owned), "{data}");
    }

    #[test]
    fn fields_are_checked_in_their_order() {
        for data in ["null", "5", "true", r#""text""#] {
            check(data, Err("data is not an object"));
        }
        for data in ["{}", "[]", r#"{"concurrency":"x"}"#] {
            check(data, Err("missing required field target"));
        }
        check(r#"{"target":5}"#, Err("'target' must be string"));
        check(r#"{"target":null}"#, Err("'target' must be string"));
        check(r#"{"target":"a"}"#, Err("missing required field concurrency"));
        for number in ["1.5", "\"1\"", "null", "true", "[]"] {
            let data = format!(r#"{{"target":"a","concurrency":{number}}}"#);
            check(&data, Err("'concurrency' must be integer"));
        }
        for number in ["1", "2.0", "0", "-3", "1e300"] {
            check(&format!(r#"{{"target":"a","concurrency":{number}}}"#), Ok(()));
        }
    }

    #[test]
    fn a_field_may_be_of_several_kinds() {
        for more in ["null", "1.5", "\"x\"", "[]", "{}"] {
            check(&format!(r#"{{"target":"a","concurrency":1,"more":{more}}}"#), Ok(()));
        }
        let refused = "'more' must be any of: string, number, object, array";
        check(r#"{"target":"a","concurrency":1,"more":true}"#, Err(refused));
    }

    #[test]
    fn targets_are_a_list_of_strings_or_left_out() {
        for (data, expected) in [
            (r#"{"targets":["a","b"]}"#, Ok(Some(vec!["a".to_owned(), "b".to_owned()]))),
            ("{}", Ok(None)),
            (r#""targets""#, Ok(None)),
            (r#"{"targets":null}"#, Err("targets must be array")),
            (r#"{"targets":"a"}"#, Err("targets must be array")),
            (r#"{"targets":[]}"#, Err("targets are empty")),
            (r#"{"targets":["a",1]}"#, Err("all targets must be strings, number given")),
            (r#"{"targets":[true]}"#, Err("all targets must be strings, boolean given")),
            (r#"{"targets":[null]}"#, Err("all targets must be strings, object given")),
            (r#"{"targets":[["a"]]}"#, Err("all targets must be strings, object given")),
        ] {
            let data: Json = serde_json::from_str(data).unwrap();
            assert_eq!(targets(&data), expected.map_err(str::to_owned), "{data}");
        }
    }
}
