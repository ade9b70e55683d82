//! `GET /info`: the database and the list of routes.

use axum::extract::State;
use serde_json::json;

use super::Dci;
use super::answer::JsonAnswer;
use super::error::Failure;
use super::param::Params;
use super::route::Routes;

pub(super) fn add(routes: Routes) -> Routes {
    routes.get("/info", info)
}

async fn info(State(dci): State<Dci>, params: Params) -> Result<JsonAnswer, Failure> {
    let config = dci.config();
    let mut extensions = config.web_extensions.clone();
    extensions.sort();
    Ok(params.answer(json!({
        "database": config.connection.database,
        "web_extensions": extensions,
        "routes": dci.0.routes,
        "dashboard": {
            "refresh_ms": config.dashboard.refresh_ms,
            "live_window_ms": config.dashboard.live_window_ms,
        },
    })))
}
