//! Which key a command sends, from the most to the least specific source: `--key`, `WINDLASS_KEY`,
//! the key that is saved for the URL, and for a daemon of the same user on this machine the key
//! that it has left for its user, or the one in the data directory below the working directory.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use reqwest::Url;

use super::{Links, Places, admin, listener, read_owned, runtime, saved};

/// The data directory of a daemon that was started without options.
const DATA_DIR: &str = "windlass-data";

/// `given` is what the command line or the environment says; `url` has no slash at its end.
pub(crate) fn find(
    given: Option<&str>,
    url: &str,
    places: &Places,
) -> anyhow::Result<Option<String>> {
    if let Some(given) = given {
        return Ok(Some(given.to_owned()));
    }
    if let Some(saved) = saved::find(places, url)? {
        return Ok(Some(saved));
    }
    Ok(addresses(url).into_iter().find_map(|address| of_local(address, places)))
}

/// The key of a daemon that listens here.
fn of_local(address: SocketAddr, places: &Places) -> Option<String> {
    let of_runtime = places.runtime.as_ref().map(|runtime| runtime::path(runtime, address));
    let below = admin::path(&places.working.join(DATA_DIR));
    of_runtime.into_iter().chain([below]).find_map(|file| trusted(&file, address))
}

/// The key in a file whose owner listens at the address.
fn trusted(file: &Path, address: SocketAddr) -> Option<String> {
    // A file that cannot be read is none of ours.
    let key = read_owned(file, Links::Refuse).ok().flatten()?;
    listener::is_of(address, key.owner).then(|| key.text.reveal())
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
            find(None, url, &self.places).unwrap()
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
        let published = runtime::publish(stage.places.runtime.as_deref(), address, &own).unwrap();
        assert_eq!(stage.find(&url), Some(own.reveal()));
        assert_eq!(stage.find(&url.replace("127.0.0.1", "localhost")), Some(own.reveal()));
        saved::save(&stage.places, &url, "wl_saved").unwrap();
        assert_eq!(stage.find(&url).as_deref(), Some("wl_saved"));
        let given = find(Some("wl_given"), &url, &stage.places).unwrap();
        assert_eq!(given.as_deref(), Some("wl_given"));
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
        let _published = runtime::publish(stage.places.runtime.as_deref(), address, &own).unwrap();
        let port = address.port();
        for url in [format!("http://192.0.2.7:{port}"), format!("http://example.org:{port}")] {
            assert_eq!(stage.find(&url), None, "{url}");
        }
        let url = stage.url();
        drop(stage.listener);
        let found = find(None, &url, &stage.places).unwrap();
        assert_eq!(found, None, "the daemon has ended, and anyone may listen there now");
    }
}
