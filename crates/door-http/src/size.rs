//! Sizes in wire form: short texts such as `512MB`.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use utoipa::PartialSchema;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};

use windlass_core::size::{format_size, parse_size};

/// A number of bytes on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WireSize(pub(crate) u64);

impl Serialize for WireSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format_size(self.0))
    }
}

impl<'de> Deserialize<'de> for WireSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WireSize, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        parse_size(&text).map(WireSize).map_err(de::Error::custom)
    }
}

impl PartialSchema for WireSize {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .pattern(Some("^[0-9]+(B|KB|MB|GB|TB)$"))
            .description(Some("A whole number and a unit: 64KB, 512MB, 2GB; a KB has 1024 bytes."))
            .into()
    }
}
impl utoipa::ToSchema for WireSize {}
