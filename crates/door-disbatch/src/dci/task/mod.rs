//! `/tasks`: searching, showing and creating tasks. Client input is data: only named
//! operators of a filter reach the database.

pub(super) mod create;
pub(super) mod create_request;
mod extra;
mod files;
pub(super) mod filter;
mod index;
pub(super) mod list;
pub(super) mod operator;
pub(super) mod options;
pub(super) mod plain;
pub(super) mod search;
mod show;
pub(super) mod slot;
mod template;

use super::route::Routes;

pub(super) fn add(routes: Routes) -> Routes {
    // The command line client of 4.1 and 4.2 asks for the second.
    let routes = routes.get("/tasks", search::search).get("/tasks.json", search::search);
    routes.get("/tasks/{id}", search::one).post("/tasks", create::create)
}
