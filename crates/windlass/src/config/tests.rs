//! Where values come from, in which order, and that the example file and the reference page say
//! the same as the table of keys.

use super::*;

const EXAMPLE: &str = include_str!("../../../../windlass.example.toml");
const REFERENCE: &str = include_str!("../../../../docs/config.md");
const HTTP_PAGE: &str = include_str!("../../../../docs/protocols/http.md");
const CORES: usize = 2;

fn load(
    flags: &[(&'static str, &str)],
    environment: &[(&str, &str)],
    file: &str,
) -> Result<Config, Error> {
    let variable = |name: &str| {
        let found = environment.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let inputs = Inputs {
        flags: flags.iter().map(|(name, text)| (*name, (*text).to_owned())).collect(),
        config_flag: None,
        environment: &variable,
        cores: CORES,
    };
    Config::merge(&inputs, file::parse(Path::new("windlass.toml"), file)?)
}

#[test]
fn a_flag_wins_over_the_environment_the_environment_over_the_file_and_the_file_over_the_default() {
    let file = "listen = \"127.0.0.1:3\"\nstop_grace = \"3s\"\n[log]\nlevel = \"warn\"\n";
    let environment = [("WINDLASS_LISTEN", "127.0.0.1:2"), ("WINDLASS_STOP_GRACE", "2s")];
    let config = load(&[("listen", "127.0.0.1:1")], &environment, file).unwrap();
    assert_eq!(config.listen.port(), 1);
    assert_eq!(config.stop_grace, Duration::from_secs(2));
    assert_eq!(config.log.level, tracing::Level::WARN);
    assert_eq!(config.retry.attempts, 25);
}

#[test]
fn every_key_can_be_set_in_the_environment() {
    for key in KEYS {
        let name = key.environment();
        let refused = load(&[], &[(&name, "\u{1}")], "");
        match key.name {
            "data_dir" => assert_eq!(refused.unwrap().data_dir, Path::new("\u{1}")),
            "secrets.key_file" => {
                assert_eq!(refused.unwrap().secrets_key_file, Path::new("\u{1}"));
            }
            _ => assert!(refused.unwrap_err().to_string().starts_with(&name), "{name}"),
        }
    }
}

#[test]
fn a_misspelt_variable_is_told_from_one_of_somebody_else() {
    let meant = misspelt("WINDLASS_SCHEDULER_SLOT");
    assert_eq!(meant.as_deref(), Some("WINDLASS_SCHEDULER_SLOTS"));
    for name in ["WINDLASS_LISTEN", "WINDLASS_URL", "WINDLASS_SERVICE_HOST", "WINDLASS_JOB_ID"] {
        assert_eq!(misspelt(name), None, "{name}");
    }
}

#[test]
fn an_error_names_the_place_that_the_wrong_value_came_from() {
    let by_flag = load(&[("sysid", "0")], &[], "").unwrap_err();
    assert!(
        by_flag.by_flag && by_flag.to_string().starts_with("--sysid: sysid takes"),
        "{by_flag}"
    );
    let by_environment = load(&[], &[("WINDLASS_POLL_MIN", "soon")], "").unwrap_err();
    assert!(!by_environment.by_flag);
    assert!(by_environment.to_string().starts_with("WINDLASS_POLL_MIN: poll.min takes a duration"));
    let by_file = load(&[], &[], "\nsysid = 5000").unwrap_err().to_string();
    assert!(by_file.starts_with("windlass.toml, line 2: sysid takes"), "{by_file}");
}

#[test]
fn keys_that_contradict_each_other_are_refused() {
    let refused = load(&[], &[("WINDLASS_POLL_MIN", "2s")], "").unwrap_err().to_string();
    assert!(refused.starts_with("WINDLASS_POLL_MIN: poll.min (2s)"), "{refused}");
    let refused = load(&[], &[("WINDLASS_POLL_MAX", "2ms")], "").unwrap_err().to_string();
    assert!(refused.starts_with("WINDLASS_POLL_MAX: "), "{refused}");
}

#[test]
fn an_address_of_the_network_needs_tls_or_insecure() {
    let refused = load(&[("listen", "0.0.0.0:7600")], &[], "").unwrap_err().to_string();
    assert!(refused.contains("--insecure") && refused.contains("tls.cert"), "{refused}");
    let tls = "[tls]\ncert = \"/c\"\nkey = \"/k\"\nclient_ca = \"a\"\n";
    let config = load(&[("listen", "0.0.0.0:7600")], &[], tls).unwrap();
    let files = tls::Files { cert: "/c".into(), key: "/k".into(), client_ca: Some("a".into()) };
    assert_eq!(config.tls, Some(files));
    assert!(load(&[("listen", "0.0.0.0:7600")], &[("WINDLASS_INSECURE", "true")], "").is_ok());
    assert!(load(&[("listen", "[::1]:7600")], &[], "").is_ok());
    let refused = load(&[("bedrock.listen", "0.0.0.0:8888")], &[], "").unwrap_err().to_string();
    assert!(refused.starts_with("--bedrock: 0.0.0.0:8888 can be reached"), "{refused}");
}

#[test]
fn a_certificate_needs_its_key_and_a_key_its_certificate() {
    for (name, needed) in
        [("tls.cert", "tls.key"), ("tls.key", "tls.cert"), ("tls.client_ca", "tls.cert")]
    {
        let refused = load(&[(name, "/x")], &[], "").unwrap_err().to_string();
        let told = format!("{name} is set, but {needed} is not");
        assert!(refused.starts_with("--tls-") && refused.contains(&told), "{refused}");
    }
}

#[test]
fn handlers_may_not_read_the_key() {
    let file = "tls.cert = \"/tls/c\"\ntls.key = \"/tls/k\"\nisolation.read = [\"/tls\"]\n";
    let refused = load(&[], &[], file).unwrap_err().to_string();
    assert!(refused.contains("isolation.read allows /tls"), "{refused}");
}

#[test]
fn there_is_no_bedrock_door_unless_it_has_an_address() {
    assert_eq!(load(&[], &[], "").unwrap().bedrock.listen, None);
    let file = "[bedrock]\nlisten = \"localhost:8888\"\ntenant = \"acme\"\n";
    let bedrock = load(&[], &[], file).unwrap().bedrock;
    assert_eq!(bedrock.listen, "127.0.0.1:8888".parse().ok());
    assert_eq!(bedrock.tenant.as_str(), "acme");
}

#[test]
fn the_store_lies_in_the_data_directory_unless_it_is_named() {
    let config = load(&[("data_dir", "/d")], &[], "").unwrap();
    assert_eq!(config.store.file(), Some(Path::new("/d/store.db")));
    let config = load(&[("data_dir", "/d"), ("store", "sqlite:/s.db")], &[], "").unwrap();
    assert_eq!(config.store.file(), Some(Path::new("/s.db")));
}

#[test]
fn the_defaults_are_those_of_the_engine_and_the_domain() {
    let config = Config::defaults(CORES);
    let engine = windlass_engine::Options::new(config.data_dir.clone());
    assert_eq!(config.retry, engine.retry);
    assert_eq!(config.lease.duration, engine.lease);
    assert_eq!(config.job.retention, engine.retention);
    assert_eq!(config.audit_retention, engine.audit_retention);
    assert_eq!(config.job.log_bytes_max, windlass_core::limit::LOG_BYTES_MAX);
    assert_eq!(config.maxima, engine.maxima);
    assert_eq!(config.scheduler.slots, 8);
}

#[test]
fn a_default_is_never_above_its_maximum() {
    let file = "[job]\ntimeout_max = \"5s\"\nretention_max = \"1h\"\n[isolation]\n\
                memory_max = \"64MB\"\ncpu_max = \"9s\"\nscratch_max = \"8MB\"\n";
    let config = load(&[], &[], file).unwrap();
    assert_eq!(config.job.timeout, Duration::from_secs(5));
    assert_eq!(config.job.retention, Duration::from_secs(3600));
    let limits = config.isolation.limits;
    assert_eq!((limits.memory, limits.scratch), (Some(64 << 20), Some(8 << 20)));
    assert_eq!((limits.cpu, limits.processes), (Some(Duration::from_secs(9)), Some(256)));
}

#[test]
fn the_http_door_and_its_page_have_the_same_defaults() {
    let http = Config::defaults(CORES).http;
    let door = windlass_door_http::Options::default();
    assert_eq!(door.body_bytes_max, http.body_bytes_max);
    assert_eq!(door.header_timeout, http.header_timeout);
    assert_eq!(door.body_timeout, http.body_timeout);
    assert_eq!(door.connections_max, http.connections_max);
    for key in KEYS.iter().filter(|key| key.name.starts_with("http.")) {
        let Default::Fixed(default) = key.default else { panic!("{} is computed", key.name) };
        let default = if default.is_empty() { "none".into() } else { format!("`{default}`") };
        let shown = format!("`{}` (default {default}", key.name);
        assert!(HTTP_PAGE.contains(&shown), "docs/protocols/http.md needs: {shown}");
    }
}

#[test]
fn the_example_file_is_exactly_the_defaults_and_shows_every_key() {
    assert_eq!(load(&[], &[], EXAMPLE).unwrap(), Config::defaults(CORES));
    let set = file::parse(Path::new("windlass.example.toml"), EXAMPLE).unwrap();
    for key in KEYS {
        let shown = match key.default {
            Default::Fixed(_) => set.contains_key(key.name),
            Default::Computed(_) => {
                let last = key.name.rsplit('.').next().unwrap();
                EXAMPLE.contains(&format!("\n# {last} = "))
            }
        };
        assert!(shown, "{} is missing in windlass.example.toml", key.name);
    }
}

#[test]
fn the_reference_page_has_the_table_of_all_keys() {
    let table = reference_table();
    assert!(REFERENCE.contains(&table), "docs/config.md needs this table:\n\n{table}");
}

fn reference_table() -> String {
    let mut table = String::from("| key | default | takes | what it does |\n|---|---|---|---|\n");
    for key in KEYS {
        let flag = key.flag().map_or(String::new(), |flag| format!("<br>`{flag}`"));
        let default = match key.default {
            Default::Fixed("") => "none".into(),
            Default::Fixed(text) => format!("`{text}`"),
            Default::Computed(how) => how.replace('<', "&lt;"),
        };
        let (environment, accepted) = (key.environment(), key.kind.accepted());
        let accepted = accepted.split(", such as").next().unwrap_or_default();
        table.push_str(&format!(
            "| `{}`<br>`{environment}`{flag} | {default} | {accepted} | {} |\n",
            key.name, key.help
        ));
    }
    table
}
