//! Secrets: set, listed and removed. A value comes in and never goes out.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use windlass_core::key::Right;
use windlass_core::limit::SECRET_BYTES_MAX;
use windlass_core::secret::{SecretInfo, SecretName, SecretValue};
use windlass_engine::api::{Rekeyed, SecretUse, UnreadableSecret};

use crate::answer::{self, Done};
use crate::body::{self, Kind, Reader};
use crate::door::Door;
use crate::error::Failure;
use crate::json::NoBody;
use crate::path::{SecretPath, TenantPath};
use crate::query::NoQuery;
use crate::route::Route;
use crate::time::WireTime;

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::get("/v1/{tenant}/secrets", Right::Secrets, list)
            .about("secrets", "secret_list", "List secrets by name, without their values.")
            .answers::<WireSecrets>("200", "The secrets."),
        Route::put("/v1/{tenant}/secrets/{name}", Right::Secrets, put)
            .about("secrets", "secret_set", "Set a secret. The body is its value, byte for byte.")
            .takes_text("text/plain")
            .answers::<WireSet>("200", "Stored; in force with the next batch."),
        Route::delete("/v1/{tenant}/secrets/{name}", Right::Secrets, delete)
            .about("secrets", "secret_delete", "Remove a secret.")
            .answers::<Done>("200", "Removed."),
        Route::post("/v1/secrets/rekey", Right::Operate, rekey)
            .about("secrets", "secret_rekey", "Encrypt the secrets of all tenants with a new key.")
            .answers::<WireRekeyed>("200", "What was done."),
    ]
}

/// The name of a secret, in a handler's options.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WireSecretName(pub(crate) SecretName);

impl Serialize for WireSecretName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.as_str())
    }
}

impl<'de> Deserialize<'de> for WireSecretName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WireSecretName, D::Error> {
        let text = String::deserialize(deserializer)?;
        let name = SecretName::new(&text);
        name.map(WireSecretName).map_err(|invalid| de::Error::custom(invalid.reason))
    }
}

impl PartialSchema for WireSecretName {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().schema_type(Type::String).into()
    }
}
impl ToSchema for WireSecretName {}

#[derive(Serialize, ToSchema)]
#[schema(as = Secret)]
struct WireSecret {
    name: WireSecretName,
    /// Changes with every value.
    version: String,
    updated_at: WireTime,
    /// Types whose handlers name it.
    handlers: Vec<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = SecretList)]
struct WireSecrets {
    secrets: Vec<WireSecret>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = SecretSet)]
struct WireSet {
    name: WireSecretName,
    version: String,
    updated_at: WireTime,
}

#[derive(Serialize, ToSchema)]
#[schema(as = SecretRekeyed)]
struct WireRekeyed {
    /// The name of the new key.
    key: String,
    /// Number of secrets that are encrypted with it now.
    resealed: u64,
    /// Secrets that could not be read before, and stay as they are.
    unreadable: Vec<WireUnreadable>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = SecretUnreadable)]
struct WireUnreadable {
    tenant: String,
    name: WireSecretName,
    why: String,
}

async fn list(
    State(door): State<Door>,
    TenantPath(tenant): TenantPath,
    _: NoQuery,
) -> Result<Response, Failure> {
    let secrets = door.engine.secret_list(&tenant).await?;
    let wire = |SecretUse { info, handlers }| {
        let SecretInfo { name, version, updated_at } = info;
        WireSecret {
            name: WireSecretName(name),
            version: version.to_string(),
            updated_at: WireTime(updated_at),
            handlers: handlers.iter().map(ToString::to_string).collect(),
        }
    };
    let secrets = secrets.into_iter().map(wire).collect();
    Ok(answer::json(StatusCode::OK, &WireSecrets { secrets }))
}

async fn put(
    State(door): State<Door>,
    SecretPath { tenant, name }: SecretPath,
    _: NoQuery,
    request: Request,
) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    // An error about JSON would cite the value.
    if body::kind(&parts.headers) == Kind::Json {
        let message = "the body is the value itself, not JSON; send it as text/plain".to_owned();
        return Err(Failure::unsupported_media("Content-Type", message));
    }
    let bytes_max = SECRET_BYTES_MAX as u64;
    let reader = Reader::new(&parts.headers, body, bytes_max, "", door.body_timeout)?;
    let whole = reader.whole(&door.memory).await?;
    let value = SecretValue::new(whole.bytes.to_vec())?;
    let SecretInfo { name, version, updated_at } =
        door.engine.secret_set(&tenant, name, value).await?;
    let (name, updated_at) = (WireSecretName(name), WireTime(updated_at));
    let set = WireSet { name, version: version.to_string(), updated_at };
    Ok(answer::json(StatusCode::OK, &set))
}

async fn delete(
    State(door): State<Door>,
    SecretPath { tenant, name }: SecretPath,
    _: NoQuery,
    _: NoBody,
) -> Result<Response, Failure> {
    door.engine.secret_delete(&tenant, name).await?;
    Ok(answer::done())
}

async fn rekey(State(door): State<Door>, _: NoQuery, _: NoBody) -> Result<Response, Failure> {
    let Rekeyed { key, resealed, unreadable } = door.engine.secret_rekey().await?;
    let wire = |UnreadableSecret { tenant, name, why }| WireUnreadable {
        tenant: tenant.to_string(),
        name: WireSecretName(name),
        why: why.to_string(),
    };
    let unreadable = unreadable.into_iter().map(wire).collect();
    let done = WireRekeyed { key: key.to_string(), resealed, unreadable };
    Ok(answer::json(StatusCode::OK, &done))
}
