//! Protects against requests that a page of another site makes the user's browser send.
//!
//! Any page can make a browser send forms to this address, with the stored login. The page does not
//! see the answers, so only requests that change something matter. Browsers say where such a
//! request comes from: in `Sec-Fetch-Site`, or in `Origin` if they do not support that. A page can
//! set neither. Programs other than browsers send neither, and need not. A body must be a form or
//! JSON (see `param`): plain text, which a page may also send without a preflight request, is
//! refused, and JSON requires one.
//!
//! A page may also point its own host name to this host after it was loaded (DNS rebinding). For
//! the browser it is then the same site, and may even read the answers. It has no login, so only an
//! interface without a login has to check the host name; with TLS, the certificate would not match.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, HeaderName, Method, header};

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether the requested host is an IP address, `localhost` or missing: no name that a third party
/// could point here.
pub(crate) fn is_plain_host(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST) else { return true };
    let Ok(host) = host.to_str() else { return false };
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || host.parse::<SocketAddr>().is_ok()
        || bare.parse::<IpAddr>().is_ok()
}

pub(crate) fn is_forged(method: &Method, headers: &HeaderMap) -> bool {
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return false;
    }
    // Behind a proxy the host may have another name than in the browser, so the browser's own
    // header takes precedence.
    if let Some(site) = headers.get(FETCH_SITE) {
        return site != "same-origin" && site != "none";
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return false };
    let host = headers.get(header::HOST).map(|host| host.as_bytes()).unwrap_or_default();
    let origin = origin.as_bytes();
    let scheme = [&b"https://"[..], b"http://"].into_iter().find(|text| origin.starts_with(text));
    let authority = scheme.map(|scheme| &origin[scheme.len()..]);
    !authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn forged(method: Method, given: &[(&'static str, &'static str)]) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("dci.example:8080"));
        for (name, value) in given {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        is_forged(&method, &headers)
    }

    #[test]
    fn pages_of_other_sites_may_look_but_not_change() {
        for site in ["cross-site", "same-site"] {
            assert!(forged(Method::POST, &[("sec-fetch-site", site)]));
            assert!(forged(Method::DELETE, &[("sec-fetch-site", site)]));
            assert!(!forged(Method::GET, &[("sec-fetch-site", site)]));
        }
        assert!(!forged(Method::POST, &[("sec-fetch-site", "same-origin")]));
        assert!(!forged(Method::POST, &[("sec-fetch-site", "none")]));
    }

    #[test]
    fn addresses_and_localhost_are_plain_hosts() {
        let plain = |host: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static(host));
            is_plain_host(&headers)
        };
        for host in [
            "localhost",
            "LocalHost:8080",
            "127.0.0.1",
            "127.0.0.1:80",
            "[::1]",
            "[::1]:8080",
            "192.0.2.7:8080",
        ] {
            assert!(plain(host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "xlocalhost",
            "",
            ":8080",
            "127.0.0.1:80:80",
            "evil.example:localhost",
        ] {
            assert!(!plain(host), "{host}");
        }
        assert!(is_plain_host(&HeaderMap::new()));
    }

    #[test]
    fn older_browsers_name_the_origin() {
        for other in ["http://evil.example", "null", "https://dci.example", "file://", ""] {
            assert!(forged(Method::POST, &[("origin", other)]), "{other}");
        }
        assert!(!forged(Method::POST, &[("origin", "http://dci.example:8080")]));
        assert!(!forged(Method::POST, &[("origin", "https://DCI.example:8080")]));
        assert!(!forged(Method::POST, &[]));
        let proxied = [("origin", "https://outside"), ("sec-fetch-site", "same-origin")];
        assert!(!forged(Method::POST, &proxied));
    }
}
