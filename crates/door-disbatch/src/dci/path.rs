//! The name or id at the end of a path, decoded. Names may have slashes.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

use super::error::Failure;

/// What the only parameter of a route's path is.
pub(crate) struct Name(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Name, Failure> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(name)) => Ok(Name(name)),
            Err(refused) => Err(Failure::bad(refused.body_text())),
        }
    }
}
