//! `options.network` in wire form: `"none"`, `"public"`, or a list of networks and names.

use std::fmt;

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::PartialSchema;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, OneOfBuilder, Schema, Type};

use windlass_core::Network;
use windlass_core::network::Destination;

const NONE: &str = "none";
const PUBLIC: &str = "public";
const EXPECTED: &str =
    "\"none\", \"public\" or a list of networks and names, such as [\"10.1.2.0/24:5432\"]";

/// What a handler may connect to, on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WireNetwork(pub(crate) Network);

impl Serialize for WireNetwork {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Network::None => serializer.serialize_str(NONE),
            Network::Public => serializer.serialize_str(PUBLIC),
            Network::Only(list) => serializer.collect_seq(list.iter().map(Destination::to_string)),
        }
    }
}

impl<'de> Deserialize<'de> for WireNetwork {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WireNetwork, D::Error> {
        deserializer.deserialize_any(Reader).map(WireNetwork)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Network;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<Network, E> {
        match word {
            NONE => Ok(Network::None),
            PUBLIC => Ok(Network::Public),
            _ => Err(E::invalid_value(de::Unexpected::Str(word), &self)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Network, A::Error> {
        let mut entries = Vec::new();
        while let Some(text) = list.next_element::<String>()? {
            entries.push(text.parse::<Destination>().map_err(de::Error::custom)?);
        }
        Ok(Network::Only(entries))
    }
}

impl PartialSchema for WireNetwork {
    fn schema() -> RefOr<Schema> {
        let words =
            ObjectBuilder::new().schema_type(Type::String).enum_values(Some([NONE, PUBLIC]));
        let entry = ObjectBuilder::new().schema_type(Type::String);
        let what = "\"none\", \"public\" (the default: public addresses, and what the operator \
                    allows besides), or a list of networks and names with optional ports, within \
                    what the operator allows.";
        OneOfBuilder::new()
            .item(words)
            .item(ArrayBuilder::new().items(entry))
            .description(Some(what))
            .into()
    }
}
impl utoipa::ToSchema for WireNetwork {}
