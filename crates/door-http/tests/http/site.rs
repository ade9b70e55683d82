//! Requests that web pages make a browser send.

use windlass_door_http::Options;

use crate::client::Client;
use crate::daemon::Daemon;

/// A request with these headers and no others.
async fn call(daemon: &Daemon, line: &str, headers: &[&str]) -> crate::client::Response {
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let request = format!("{line} HTTP/1.1\r\n{headers}content-length: 0\r\n\r\n");
    Client::connect(daemon.address).await.call(request.as_bytes()).await
}

fn for_an_app(options: &mut Options) {
    options.sites.hosts = vec!["jobs.example".into()];
    options.sites.origins = vec!["https://app.example".into()];
}

/// A page that has pointed its own name here is the same site for the browser.
#[tokio::test]
async fn requests_for_names_of_others_are_refused() {
    let daemon = Daemon::start_with(for_an_app).await;
    for host in ["host: evil.example", "host: evil.example:7600", "host: x.jobs.example", "host:"] {
        for line in ["GET /v1/status", "PUT /v1/acme/handlers/t", "POST /acme/job/t/add"] {
            let origin = host.replace("host: ", "origin: http://");
            let answer = call(&daemon, line, &[host, &origin, "sec-fetch-site: same-origin"]).await;
            assert_eq!(answer.refusal(), (403, "forbidden".into(), None), "{line} {host}");
            assert!(answer.text().contains("http.hosts"), "{answer:?}");
        }
        assert_eq!(call(&daemon, "GET /healthz", &[host]).await.status, 200, "{host}");
    }
    assert_eq!(daemon.leftovers().await, [] as [String; 0]);
    for host in ["host: jobs.example", "host: JOBS.example:80", "host: 127.0.0.1", "host: [::1]:80"]
    {
        assert_eq!(call(&daemon, "GET /v1/status", &[host]).await.status, 200, "{host}");
    }
}

#[tokio::test]
async fn pages_of_other_origins_are_refused() {
    let daemon = Daemon::start_with(for_an_app).await;
    for origin in ["http://evil.example", "null", "http://app.example", "https://jobs.example:1"] {
        let headers = ["host: jobs.example", &format!("origin: {origin}")];
        for line in ["GET /v1/status", "POST /acme/job/t/add", "OPTIONS /v1/status"] {
            let answer = call(&daemon, line, &headers).await;
            assert_eq!(answer.refusal(), (403, "forbidden".into(), None), "{line} {origin}");
            assert_eq!(answer.header("access-control-allow-origin"), None);
        }
    }
    let own = ["host: jobs.example", "origin: http://jobs.example"];
    assert_eq!(call(&daemon, "GET /v1/status", &own).await.status, 200);
}

#[tokio::test]
async fn pages_of_listed_origins_may_use_the_door() {
    let daemon = Daemon::start_with(for_an_app).await;
    let page = ["host: jobs.example", "origin: https://app.example", "sec-fetch-site: cross-site"];
    let asked = "access-control-request-headers: authorization,content-type";
    let preflight = call(&daemon, "OPTIONS /v1/acme/jobs/t", &[&page[..], &[asked]].concat()).await;
    assert_eq!(preflight.status, 204, "{preflight:?}");
    let allowed = |name: &str| preflight.header(&format!("access-control-allow-{name}"));
    assert_eq!(allowed("origin"), Some("https://app.example"));
    assert_eq!(allowed("headers"), Some("authorization,content-type"));
    assert!(allowed("methods").is_some_and(|methods| methods.contains("delete")));
    assert_eq!(allowed("credentials"), None);
    let answer = call(&daemon, "GET /v1/status", &page).await;
    assert_eq!((answer.status, answer.header("vary")), (200, Some("origin")));
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example"));
    let plain = call(&daemon, "GET /v1/status", &["host: jobs.example"]).await;
    assert_eq!(plain.header("access-control-allow-origin"), None);
}
