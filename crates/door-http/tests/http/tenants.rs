//! Settings of tenants.

use serde_json::{Value, json};

use crate::daemon::Daemon;

#[tokio::test]
async fn settings_of_a_tenant_come_back_and_are_replaced() {
    let daemon = Daemon::start().await;
    let get = async || daemon.get("/v1/tenants/acme").await.json();
    let none = json!({"weight": null, "slots_min": null, "slots_max": null});
    assert_eq!(get().await, none);
    let set = json!({"weight": 3, "slots_min": 1, "slots_max": 2});
    assert_eq!(daemon.json("PUT /v1/tenants/acme", set.clone()).await.status, 200);
    assert_eq!(get().await, set);
    assert_eq!(daemon.get("/v1/tenants/other").await.json(), none);
    assert_eq!(daemon.json("PUT /v1/tenants/acme", json!({})).await.status, 200);
    assert_eq!(get().await, none);
}

#[tokio::test]
async fn settings_out_of_range_are_refused_and_named() {
    let daemon = Daemon::start().await;
    let refused = async |body: Value, field: &str| {
        let answer = daemon.json("PUT /v1/tenants/acme", body).await;
        assert_eq!(answer.refusal(), (400, "invalid_value".into(), Some(field.into())), "{field}");
    };
    refused(json!({"weight": 0}), "weight").await;
    refused(json!({"weight": 1001}), "weight").await;
    refused(json!({"slots_min": 3, "slots_max": 2}), "slots_min").await;
    refused(json!({"slots_max": 0}), "slots_max").await;
    assert_eq!(daemon.get("/v1/tenants/acme").await.json()["weight"], json!(null));
    let name = daemon.json("PUT /v1/tenants/tenants", json!({})).await;
    assert_eq!(name.refusal().1, "invalid_tenant");
}
