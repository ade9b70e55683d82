//! Which key a command sends, from the most to the least specific source: `--key`, `WINDLASS_KEY`,
//! the key that is saved for the URL, and for a daemon of the same user on this machine the key
//! that it has left for its user, or the one in the data directory below the working directory.
//! Files for TLS come from flags, the environment and what is saved, too. The certificate of a
//! daemon of the same user on this machine is known from the file that it has left.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use reqwest::Url;

use super::{Links, Login, Places, admin, listener, read_file, read_owned, runtime, saved};

/// The data directory of a daemon that was started without options.
const DATA_DIR: &str = "windlass-data";
/// Largest certificate that is read.
const CERTIFICATE_BYTES_MAX: u64 = 64 * 1024;

/// `given` is what the command line or the environment says; `url` has no slash at its end.
pub(crate) fn find(given: Login, url: &str, places: &Places) -> anyhow::Result<Login> {
    let mut login = given.or(saved::find(places, url)?);
    let local = addresses(url);
    if login.key.is_none() {
        login.key = local.iter().find_map(|address| local_key(*address, places));
    }
    if login.ca.is_none() {
        login.pinned = local.iter().find_map(|address| local_certificate(*address, places));
    }
    Ok(login)
}

/// The URL of a daemon, as given; if that is plain HTTP to a daemon of the same user on this
/// machine that speaks TLS, with TLS. So commands need no URL for a daemon at its usual address.
pub(crate) fn url(given: &str, places: &Places) -> String {
    let given = given.trim_end_matches('/');
    let speaks_tls = |rest: &&str| {
        let local = addresses(&format!("https://{rest}"));
        local.iter().any(|address| local_certificate(*address, places).is_some())
    };
    match given.strip_prefix("http://").filter(speaks_tls) {
        Some(rest) => format!("https://{rest}"),
        None => given.to_owned(),
    }
}

/// The key of a daemon that listens here.
fn local_key(address: SocketAddr, places: &Places) -> Option<String> {
    let of_runtime = published(address, places, runtime::key_path);
    let below = admin::path(&places.working.join(DATA_DIR));
    let mut files = of_runtime.into_iter().chain([below]);
    files.find_map(|file| {
        // A file that cannot be read is none of ours.
        let key = read_owned(&file, Links::Refuse).ok().flatten()?;
        listener::is_of(address, key.owner).then(|| key.text.reveal())
    })
}

/// The certificate of a daemon that listens here, in DER.
fn local_certificate(address: SocketAddr, places: &Places) -> Option<Vec<u8>> {
    published(address, places, runtime::certificate_path).into_iter().find_map(|file| {
        let file = read_file(&file, Links::Refuse, CERTIFICATE_BYTES_MAX).ok().flatten()?;
        listener::is_of(address, file.owner).then_some(file.bytes)
    })
}

/// The files that a daemon may have left which answers at this address.
fn published(
    address: SocketAddr,
    places: &Places,
    path: impl Fn(&Path, SocketAddr) -> PathBuf,
) -> Vec<PathBuf> {
    let Some(runtime) = &places.runtime else { return Vec::new() };
    runtime::addresses(address).iter().map(|address| path(runtime, *address)).collect()
}

/// The loopback addresses that a URL means.
fn addresses(url: &str) -> Vec<SocketAddr> {
    let Ok(url) = Url::parse(url) else { return Vec::new() };
    let Some(port) = url.port_or_known_default() else { return Vec::new() };
    let host = url.host_str().unwrap_or_default();
    let ips: Vec<IpAddr> = match host {
        "localhost" => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
        host => host.trim_matches(['[', ']']).parse().into_iter().collect(),
    };
    let local = ips.into_iter().filter(IpAddr::is_loopback);
    local.map(|ip| SocketAddr::new(ip, port)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    use windlass_core::KeyText;

    struct Stage {
        dir: tempfile::TempDir,
        listener: TcpListener,
        places: Places,
    }

    impl Stage {
        fn new() -> Stage {
            let dir = tempfile::tempdir().unwrap();
            let sub = |name: &str| dir.path().join(name);
            let places = Places {
                runtime: Some(sub("runtime")),
                config: Some(sub("config")),
                working: sub("working"),
            };
            std::fs::create_dir_all(sub("working/windlass-data")).unwrap();
            Stage { places, dir, listener: TcpListener::bind("127.0.0.1:0").unwrap() }
        }

        fn url(&self) -> String {
            format!("http://{}", self.listener.local_addr().unwrap())
        }

        fn find(&self, url: &str) -> Option<String> {
            find(Login::default(), url, &self.places).unwrap().key
        }
    }

    #[test]
    fn the_most_specific_source_wins() {
        let stage = Stage::new();
        let url = stage.url();
        assert_eq!(stage.find(&url), None);
        let below = KeyText::random().unwrap().reveal();
        std::fs::write(stage.dir.path().join("working/windlass-data/admin.key"), &below).unwrap();
        assert_eq!(stage.find(&url), Some(below));
        let own = KeyText::random().unwrap();
        let address = stage.listener.local_addr().unwrap();
        let published =
            runtime::publish_key(stage.places.runtime.as_deref(), address, &own).unwrap();
        assert_eq!(stage.find(&url), Some(own.reveal()));
        assert_eq!(stage.find(&url.replace("127.0.0.1", "localhost")), Some(own.reveal()));
        saved::save(&stage.places, &url, &Login::with_key("wl_saved".into())).unwrap();
        assert_eq!(stage.find(&url).as_deref(), Some("wl_saved"));
        let given = find(Login::with_key("wl_given".into()), &url, &stage.places).unwrap();
        assert_eq!(given.key.as_deref(), Some("wl_given"));
        drop(published);
    }

    /// The working directory may be anyone's: what stands there instead of a key is not waited for,
    /// not read without end, and leads nowhere else.
    #[test]
    fn only_a_short_ordinary_file_is_read_as_a_key() {
        let stage = Stage::new();
        let url = stage.url();
        let file = stage.dir.path().join("working/windlass-data/admin.key");
        let key = KeyText::random().unwrap().reveal();
        let elsewhere = stage.dir.path().join("elsewhere");
        std::fs::write(&elsewhere, &key).unwrap();
        let link = |to: &Path| std::os::unix::fs::symlink(to, &file).unwrap();
        let plants: [(&str, &dyn Fn()); 5] = [
            ("a pipe", &|| {
                let made = std::process::Command::new("mkfifo").arg(&file).status().unwrap();
                assert!(made.success());
            }),
            ("a link to a key", &|| link(&elsewhere)),
            ("a link to a device", &|| link(Path::new("/dev/zero"))),
            ("a long file", &|| {
                std::fs::write(&file, format!("{key}{}", " ".repeat(1024))).unwrap();
            }),
            ("a socket", &|| drop(std::os::unix::net::UnixListener::bind(&file).unwrap())),
        ];
        for (what, plant) in plants {
            plant();
            assert_eq!(stage.find(&url), None, "{what}");
            std::fs::remove_file(&file).unwrap();
        }
        std::fs::write(&file, format!("{key}\n")).unwrap();
        assert_eq!(stage.find(&url), Some(key));
    }

    #[test]
    fn a_key_of_this_machine_goes_nowhere_else() {
        let stage = Stage::new();
        let (address, own) = (stage.listener.local_addr().unwrap(), KeyText::random().unwrap());
        let _published =
            runtime::publish_key(stage.places.runtime.as_deref(), address, &own).unwrap();
        let port = address.port();
        for url in [format!("http://192.0.2.7:{port}"), format!("http://example.org:{port}")] {
            assert_eq!(stage.find(&url), None, "{url}");
        }
        let url = stage.url();
        drop(stage.listener);
        let found = find(Login::default(), &url, &stage.places).unwrap();
        assert_eq!(found.key, None, "the daemon has ended, and anyone may listen there now");
    }

    #[test]
    fn a_daemon_that_speaks_tls_is_known_by_its_certificate() {
        let stage = Stage::new();
        let (plain, address) = (stage.url(), stage.listener.local_addr().unwrap());
        assert_eq!(url(&format!("{plain}/"), &stage.places), plain);
        // It listens at all addresses.
        let all = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port());
        let runtime = stage.places.runtime.as_deref();
        let _published = runtime::publish_certificate(runtime, all, b"der".to_vec()).unwrap();
        let secure = plain.replace("http://", "https://");
        assert_eq!(url(&plain, &stage.places), secure);
        assert_eq!(url("http://example.org:80", &stage.places), "http://example.org:80");
        let found = |given| find(given, &secure, &stage.places).unwrap().pinned;
        assert_eq!(found(Login::default()).as_deref(), Some(&b"der"[..]));
        let given = Login { ca: Some("ca.pem".into()), ..Login::default() };
        assert_eq!(found(given), None, "a CA that is named counts");
    }
}
