//! Web pages that make a browser on this machine send requests to the daemon.

use serde_json::json;

use crate::harness::Daemon;
use crate::users::both_users;

/// A page whose own name leads here, so that the browser takes the daemon for the page's site, and
/// a page of another site; also where nobody needs a key.
#[test]
fn b10_pages_of_other_sites_set_no_handler() {
    let open = both_users().map(|config| config.flag("--insecure"));
    for config in both_users().into_iter().chain(open) {
        let daemon = Daemon::start(config);
        let own = &*format!("127.0.0.1:{}", daemon.address.port());
        let body = json!({"lang": "sh", "body": "true"}).to_string();
        let put = |headers: &[(&str, &str)]| {
            let json = [("Content-Type", "application/json")];
            let headers = [&json[..], headers].concat();
            daemon.call("PUT", "/v1/a/handlers/t", &headers, body.as_bytes())
        };
        for headers in [
            &[("Host", "evil.example")][..],
            &[("Host", "evil.example"), ("Origin", "http://evil.example")],
            &[("Host", "127.0.0.1.evil.example:7600")],
            &[("Host", own), ("Origin", "http://evil.example")],
            &[("Host", own), ("Origin", "null")],
            &[("Host", own), ("Sec-Fetch-Site", "cross-site")],
        ] {
            put(headers).expect(403);
        }
        daemon.get("/v1/a/handlers/t").expect(404);
        put(&[("Host", own), ("Origin", &format!("http://{own}"))]).expect(200);
        daemon.get("/v1/a/handlers/t").expect(200);
    }
}
