//! The page of version 3, which old installations have below `legacy` in `web_root`.

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::dci::Dci;
use crate::dci::error::Failure;
use crate::dci::page;
use crate::dci::route::Routes;

const FOLDER: &str = "/legacy/";
const PAGE: &str = "/legacy/index.html";

pub(super) fn add(routes: Routes) -> Routes {
    routes.get("/legacy", folder).get(FOLDER, show)
}

async fn folder() -> Response {
    let place = [(header::LOCATION, HeaderValue::from_static(FOLDER))];
    (StatusCode::FOUND, place).into_response()
}

async fn show(State(dci): State<Dci>) -> Result<Response, Failure> {
    let page = match &dci.config().web_root {
        Some(root) => page::file(root, PAGE).await,
        None => None,
    };
    page.ok_or_else(|| Failure::not_found(format!("there is no {PAGE} in web_root")))
}
