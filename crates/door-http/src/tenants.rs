//! Settings of tenants, for admins.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use windlass_core::TenantSettings;
use windlass_core::key::Right;

use crate::answer::{self, Done};
use crate::door::Door;
use crate::error::Failure;
use crate::json::Command;
use crate::path::TenantsPath;
use crate::query::NoQuery;
use crate::route::Route;

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::put("/v1/tenants/{tenant}", Right::Operate, put)
            .about("tenants", "tenant_settings_put", "Replace the settings of a tenant.")
            .takes::<WireTenant>()
            .answers::<Done>("200", "Replaced; in force on every daemon within a second."),
        Route::get("/v1/tenants/{tenant}", Right::Operate, get)
            .about("tenants", "tenant_settings_get", "Get the settings of a tenant.")
            .answers::<WireTenant>("200", "The settings."),
    ]
}

/// How a tenant is treated. Where a field is absent, the configuration of each daemon applies.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = TenantSettings)]
struct WireTenant {
    /// Share of the time of all slots relative to other tenants, 1 to 1000; 1 when absent.
    weight: Option<u32>,
    /// Slots of each daemon that are kept for the tenant, 1 to 100000.
    slots_min: Option<u32>,
    /// Maximum number of slots of each daemon that the tenant uses at once, 1 to 100000.
    slots_max: Option<u32>,
}

impl WireTenant {
    fn of(settings: TenantSettings) -> WireTenant {
        let TenantSettings { weight, slots_min, slots_max } = settings;
        WireTenant { weight, slots_min, slots_max }
    }

    fn into_settings(self) -> TenantSettings {
        let WireTenant { weight, slots_min, slots_max } = self;
        TenantSettings { weight, slots_min, slots_max }
    }
}

async fn put(
    State(door): State<Door>,
    TenantsPath(tenant): TenantsPath,
    _: NoQuery,
    Command { body, .. }: Command<WireTenant>,
) -> Result<Response, Failure> {
    door.engine.tenant_settings_put(tenant, body.into_settings()).await?;
    Ok(answer::done())
}

async fn get(
    State(door): State<Door>,
    TenantsPath(tenant): TenantsPath,
    _: NoQuery,
) -> Result<Response, Failure> {
    let settings = door.engine.tenant_settings_get(&tenant).await?;
    Ok(answer::json(StatusCode::OK, &WireTenant::of(settings)))
}
