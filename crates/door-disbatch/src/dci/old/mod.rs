//! Routes of older versions, for the clients and pages that still use them.

mod legacy;
mod v3;
mod v3_create;
mod v4;

use super::route::Routes;

pub(super) fn add(routes: Routes) -> Routes {
    legacy::add(v3::add(v4::add(routes)))
}
