//! The names and ids in a path. Segments are counted from 0 and decoded one by one, so that an
//! encoded slash stays part of its name.
//!
//! | paths | tenant | type, id or name |
//! |---|---|---|
//! | `/v1/{tenant}/…/{type, id or name}/…` | 1 | 3 |
//! | `/v1/keys/{id}/…` | – | 2 |
//! | `/v1/tenants/{tenant}` | 2 | – |
//! | `/{client}/job/{type}/add` | 0 | 2 |
//! | `/{client}/handler/…/{type}/…` | 0 | 3 |

use std::borrow::Cow;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use percent_encoding::percent_decode_str;

use windlass_core::secret::SecretName;
use windlass_core::{JobId, KeyId, Tenant, TypeKey, TypeName};

use crate::error::Failure;

/// The tenant of a `/v1` path.
pub(crate) struct TenantPath(pub(crate) Tenant);

/// The tenant of a path below `/v1/tenants`.
pub(crate) struct TenantsPath(pub(crate) Tenant);

/// The type of a `/v1` path.
pub(crate) struct TypePath(pub(crate) TypeKey);

/// The job of a `/v1` path.
pub(crate) struct JobPath {
    pub(crate) tenant: Tenant,
    pub(crate) id: JobId,
}

/// The secret of a `/v1` path.
pub(crate) struct SecretPath {
    pub(crate) tenant: Tenant,
    pub(crate) name: SecretName,
}

/// The key of a path below `/v1/keys`.
pub(crate) struct KeyPath(pub(crate) KeyId);

/// The type in one of the older job paths.
pub(crate) struct SeedJobPath(pub(crate) TypeKey);

/// The type in one of the older handler paths.
pub(crate) struct SeedHandlerPath(pub(crate) TypeKey);

macro_rules! read_from_path {
    ($($extractor:ty => $read:expr),* $(,)?) => {$(
        impl<S: Sync> FromRequestParts<S> for $extractor {
            type Rejection = Failure;
            async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
                $read(parts.uri.path())
            }
        }
    )*};
}
read_from_path! {
    TenantPath => |path| Ok(TenantPath(tenant(path, 1)?)),
    TenantsPath => |path| Ok(TenantsPath(tenant(path, 2)?)),
    TypePath => |path| Ok(TypePath(type_key(path, 1, 3)?)),
    JobPath => |path| Ok(JobPath { tenant: tenant(path, 1)?, id: job_id(path, 3)? }),
    SecretPath => |path| Ok(SecretPath { tenant: tenant(path, 1)?, name: secret(path, 3)? }),
    KeyPath => |path| Ok(KeyPath(key_id(path, 2)?)),
    SeedJobPath => |path| Ok(SeedJobPath(type_key(path, 0, 2)?)),
    SeedHandlerPath => |path| Ok(SeedHandlerPath(type_key(path, 0, 3)?)),
}

pub(crate) fn tenant(path: &str, index: usize) -> Result<Tenant, Failure> {
    Ok(Tenant::new(&segment(path, index, "tenant")?)?)
}

pub(crate) fn type_key(path: &str, tenant_index: usize, index: usize) -> Result<TypeKey, Failure> {
    let tenant = tenant(path, tenant_index)?;
    Ok(TypeKey { tenant, name: TypeName::new(&segment(path, index, "type")?)? })
}

pub(crate) fn job_id(path: &str, index: usize) -> Result<JobId, Failure> {
    let text = segment(path, index, "id")?;
    text.parse()
        .map_err(|error| Failure::invalid("id", format!("'{text}' is not a valid job ID: {error}")))
}

fn secret(path: &str, index: usize) -> Result<SecretName, Failure> {
    Ok(SecretName::new(&segment(path, index, "name")?)?)
}

fn key_id(path: &str, index: usize) -> Result<KeyId, Failure> {
    Ok(segment(path, index, "id")?.parse::<KeyId>()?)
}

/// A part of a path, decoded; `None` if it is not UTF-8.
pub(crate) fn text(path: &str, index: usize) -> Option<Cow<'_, str>> {
    segment(path, index, "path").ok()
}

fn segment<'a>(path: &'a str, index: usize, field: &str) -> Result<Cow<'a, str>, Failure> {
    let raw = path.split('/').skip(1).nth(index).unwrap_or_default();
    let decoded = percent_decode_str(raw).decode_utf8();
    decoded.map_err(|_| Failure::invalid(field, format!("the {field} in the path is not UTF-8")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused<T>(read: Result<T, Failure>) -> (&'static str, String) {
        let failure = read.err().unwrap();
        (failure.code, failure.field.unwrap())
    }

    #[test]
    fn an_encoded_slash_is_part_of_the_type() {
        let key = type_key("/v1/acme/jobs/www-prod%2FFoo", 1, 3).unwrap();
        assert_eq!(key, TypeKey::new("acme", "www-prod/Foo").unwrap());
        let key = type_key("/acme/job/a%20b/add", 0, 2).unwrap();
        assert_eq!(key, TypeKey::new("acme", "a b").unwrap());
    }

    #[test]
    fn what_is_wrong_in_a_path_is_named() {
        assert_eq!(refused(type_key("/v1/a%20b/jobs/t", 1, 3)).0, "invalid_tenant");
        assert_eq!(refused(type_key("/v1/%ff/jobs/t", 1, 3)).0, "invalid_tenant");
        assert_eq!(refused(type_key("/v1/acme/jobs/%ff", 1, 3)).0, "invalid_type");
        assert_eq!(refused(type_key("/v1/acme/jobs/a%7Cb", 1, 3)).0, "invalid_type");
        assert_eq!(refused(type_key("/v1/acme/jobs/a%0Ab", 1, 3)).0, "invalid_type");
        assert_eq!(refused(tenant("/v1/v1/jobs", 1)).0, "invalid_tenant");
        for id in ["0", "-1", "abc", "1x", "99999999999999999999", "%ff"] {
            let refused = refused(job_id(&format!("/v1/acme/jobs/{id}"), 3));
            assert_eq!(refused, ("invalid_value", "id".into()), "{id}");
        }
    }
}
