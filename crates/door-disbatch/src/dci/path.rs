//! Decoded names and ids in a path. One at the end of a path may contain slashes.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::error::Failure;

/// The only parameter of a route's path.
pub(crate) struct Name(pub(crate) String);

/// The two parameters of a route's path.
pub(crate) struct NamePair(pub(crate) String, pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Name, Failure> {
        decoded(parts, state).await.map(Name)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for NamePair {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<NamePair, Failure> {
        decoded(parts, state).await.map(|(first, second)| NamePair(first, second))
    }
}

async fn decoded<T, S>(parts: &mut Parts, state: &S) -> Result<T, Failure>
where
    T: DeserializeOwned + Send,
    S: Send + Sync,
{
    match Path::<T>::from_request_parts(parts, state).await {
        Ok(Path(names)) => Ok(names),
        Err(refused) => Err(Failure::bad(refused.body_text())),
    }
}
