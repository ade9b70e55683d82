//! Protects HTTP servers against requests that a web page makes the user's browser send.
//!
//! Any page can make a browser send requests to this address, with a login that is stored there.
//! Browsers say where such a request comes from: in `Sec-Fetch-Site`, or in `Origin` if they do not
//! support that. A page can set neither. Programs other than browsers send neither, and need not.
//!
//! A page may also point its own host name to this machine after it was loaded (DNS rebinding). For
//! the browser it is then the same site, and may even read the answers. So a server that asks for
//! no login has to check under which name it was called.

use std::net::{IpAddr, SocketAddr};

use hyper::Method;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What a server is called, and which other sites may use it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sites {
    /// Names, without ports. IP addresses and `localhost` need not be listed: no third party can
    /// point them here.
    pub hosts: Vec<String>,
    /// As browsers send them, such as `https://app.example`.
    pub origins: Vec<String>,
}

/// The page that made a browser send a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page<'a> {
    /// None, or one of this server.
    Own,
    /// One of a listed origin, which is named in the answer.
    Listed(&'a HeaderValue),
    Foreign,
}

impl Sites {
    /// Whether the server goes by the name under which it was called. Requests without one are not
    /// from browsers.
    pub fn has_host(&self, headers: &HeaderMap) -> bool {
        let Some(host) = headers.get(header::HOST) else { return true };
        let Ok(host) = host.to_str() else { return false };
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        name.eq_ignore_ascii_case("localhost")
            || host.parse::<SocketAddr>().is_ok()
            || bare.parse::<IpAddr>().is_ok()
            || self.hosts.iter().any(|own| own.eq_ignore_ascii_case(name))
    }

    pub fn page<'a>(&self, headers: &'a HeaderMap) -> Page<'a> {
        let origin = headers.get(header::ORIGIN);
        let listed = |origin: &&HeaderValue| self.origins.iter().any(|it| it == *origin);
        if let Some(listed) = origin.filter(listed) {
            return Page::Listed(listed);
        }
        // Behind a proxy the host may have another name than in the browser, so the browser's own
        // header takes precedence.
        let is_own = match (headers.get(FETCH_SITE), origin) {
            (Some(site), _) => site == "same-origin" || site == "none",
            (None, Some(origin)) => is_at_host(origin, headers),
            (None, None) => true,
        };
        if is_own { Page::Own } else { Page::Foreign }
    }

    /// Whether a foreign page wants to change something. It does not see the answers to its
    /// requests, so the others do not matter.
    pub fn is_forged(&self, method: &Method, headers: &HeaderMap) -> bool {
        !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
            && self.page(headers) == Page::Foreign
    }
}

fn is_at_host(origin: &HeaderValue, headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes).unwrap_or_default();
    let origin = origin.as_bytes();
    let scheme = [&b"https://"[..], b"http://"].into_iter().find(|text| origin.starts_with(text));
    let authority = scheme.map(|scheme| &origin[scheme.len()..]);
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forged(method: Method, given: &[(&'static str, &'static str)]) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("dci.example:8080"));
        for (name, value) in given {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        Sites::default().is_forged(&method, &headers)
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
    fn addresses_and_localhost_are_everybodys_own() {
        let plain = |host: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static(host));
            Sites::default().has_host(&headers)
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
        assert!(Sites::default().has_host(&HeaderMap::new()));
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

    #[test]
    fn listed_names_are_its_own_with_any_port() {
        let sites = Sites { hosts: vec!["jobs.example".into()], ..Sites::default() };
        let has = |host: &'static str| {
            sites.has_host(&HeaderMap::from_iter([(header::HOST, HeaderValue::from_static(host))]))
        };
        assert!(has("jobs.example") && has("Jobs.Example:7600") && has("127.0.0.1:7600"));
        assert!(!has("example") && !has("x.jobs.example") && !has("jobs.example.evil"));
    }

    #[test]
    fn pages_of_listed_origins_may_change_things() {
        let sites = Sites { origins: vec!["https://app.example".into()], ..Sites::default() };
        let page = |origin: &'static str| {
            let fetch = (FETCH_SITE, HeaderValue::from_static("cross-site"));
            let origin = (header::ORIGIN, HeaderValue::from_static(origin));
            let headers = HeaderMap::from_iter([fetch, origin]);
            (sites.is_forged(&Method::POST, &headers), sites.page(&headers) == Page::Foreign)
        };
        assert_eq!(page("https://app.example"), (false, false));
        for other in ["http://app.example", "https://app.example.evil", "https://app", "null"] {
            assert_eq!(page(other), (true, true), "{other}");
        }
    }
}
