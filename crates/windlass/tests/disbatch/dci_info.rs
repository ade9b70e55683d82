//! What an interface tells about itself: its page, its files, `/info`, `/plugins`.

use serde_json::json;

use crate::harness::{DEMO, both};

#[test]
fn plugins_are_the_names_that_the_config_allows() {
    for home in both() {
        let dci = home.dci();
        assert_eq!(dci.http.get("/plugins").ok(), json!([DEMO]));
    }
}
