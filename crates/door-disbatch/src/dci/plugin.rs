//! `GET /plugins`: the plugins that a queue can use.

use axum::extract::State;
use serde_json::json;

use super::Dci;
use super::answer::JsonAnswer;
use super::error::Failure;
use super::param::Params;
use super::route::Routes;

pub(super) fn add(routes: Routes) -> Routes {
    routes.get("/plugins", list)
}

async fn list(State(dci): State<Dci>, params: Params) -> Result<JsonAnswer, Failure> {
    Ok(params.answer(json!(dci.config().plugins.names())))
}
