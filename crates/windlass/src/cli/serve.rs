//! `windlass serve`: the flags of the daemon.

use std::path::PathBuf;

use clap::{Args, Command};

use crate::config::{CONFIG_ENVIRONMENT, Default, KEYS, Key};

/// The address that clients of Bedrock::Jobs expect; used by `--bedrock` without an address.
const BEDROCK_ADDRESS: &str = "127.0.0.1:8888";

#[derive(Debug, Args)]
#[command(after_help = "Run `windlass help serve` for examples and all environment variables.")]
pub(crate) struct Serve {
    /// Configuration file [env: WINDLASS_CONFIG] [default: windlass.toml, if it exists].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<String>,
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<String>,
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_client_ca: Option<String>,
    #[arg(
        long = "bedrock",
        value_name = "ADDRESS",
        num_args = 0..=1,
        default_missing_value = BEDROCK_ADDRESS
    )]
    pub(crate) bedrock_listen: Option<String>,
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) data_dir: Option<String>,
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
    #[arg(long)]
    pub(crate) insecure: bool,
    #[arg(long, value_name = "WHERE")]
    pub(crate) accept: Option<String>,
    #[arg(long, value_name = "N")]
    pub(crate) sysid: Option<String>,
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<String>,
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
}

impl Serve {
    /// The given flags, by the names of their keys.
    pub(crate) fn flags(&self) -> Vec<(&'static str, String)> {
        let insecure = self.insecure.then(|| "true".to_owned());
        let all = [
            ("listen", &self.listen),
            ("tls.cert", &self.tls_cert),
            ("tls.key", &self.tls_key),
            ("tls.client_ca", &self.tls_client_ca),
            ("bedrock.listen", &self.bedrock_listen),
            ("data_dir", &self.data_dir),
            ("store", &self.store),
            ("insecure", &insecure),
            ("accept", &self.accept),
            ("sysid", &self.sysid),
            ("log.format", &self.log_format),
            ("log.level", &self.log_level),
        ];
        all.into_iter().filter_map(|(name, text)| Some((name, text.clone()?))).collect()
    }
}

/// Gives each flag the help of its key, and the command the list of all keys.
pub(super) fn with_keys(command: Command) -> Command {
    let flags = KEYS.iter().filter(|key| key.flag().is_some());
    let command = flags.fold(command, |command, key| {
        command.mut_arg(key.name.replace('.', "_"), |arg| {
            let help = key.help.trim_end_matches('.');
            let (environment, default) = (key.environment(), default_text(key));
            arg.help(format!("{help} [env: {environment}] [default: {default}]"))
        })
    });
    command.after_long_help(keys_help())
}

fn default_text(key: &Key) -> &'static str {
    match key.default {
        Default::Fixed("") => "none",
        Default::Fixed(text) => text,
        Default::Computed(how) => how,
    }
}

/// Examples and the list of all keys, for the long help.
fn keys_help() -> String {
    let mut help = format!(
        "\
Examples:
  windlass serve
  windlass serve --listen 127.0.0.1:0 --data-dir /var/lib/windlass --log-format json
  windlass serve --listen 0.0.0.0:7600 --tls-cert server.pem --tls-key server.key
  windlass serve --bedrock
  WINDLASS_SCHEDULER_SLOTS=64 windlass serve --config /etc/windlass.toml

Flags override environment variables, which override the file, which overrides the defaults.
The file is windlass.toml in the working directory, or the one named by --config or
{CONFIG_ENVIRONMENT}. Environment variables, their keys in the file and their defaults:
"
    );
    let names: Vec<_> = KEYS.iter().map(|key| key.environment()).collect();
    let wide = names.iter().map(String::len).max().unwrap_or_default();
    for (key, name) in KEYS.iter().zip(names) {
        let default = default_text(key);
        help.push_str(&format!("\n  {name:wide$}  {:27} {default}", key.name));
    }
    help
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[test]
    fn the_bedrock_door_has_an_address_of_its_own_if_none_is_given() {
        let flags = |line: &str| {
            let cli = crate::cli::Cli::try_parse_from(line.split(' ')).unwrap();
            let crate::cli::Action::Serve(serve) = cli.command else { panic!("it is serve") };
            serve.flags().into_iter().find(|(name, _)| *name == "bedrock.listen")
        };
        let given = |address: &str| Some(("bedrock.listen", address.to_owned()));
        assert_eq!(flags("windlass serve"), None);
        assert_eq!(flags("windlass serve --bedrock"), given("127.0.0.1:8888"));
        assert_eq!(flags("windlass serve --bedrock --insecure"), given("127.0.0.1:8888"));
        assert_eq!(flags("windlass serve --bedrock 127.0.0.1:0"), given("127.0.0.1:0"));
    }

    #[test]
    fn every_key_with_a_flag_is_a_flag_of_serve_and_no_other() {
        let command = crate::cli::Cli::command();
        let serve = command.find_subcommand("serve").unwrap();
        let mut flags: Vec<_> = serve.get_arguments().filter_map(|arg| arg.get_long()).collect();
        flags.retain(|flag| *flag != "config");
        let keys: Vec<_> = KEYS.iter().filter_map(|key| key.flag()).collect();
        let keys: Vec<_> = keys.iter().map(|flag| flag.trim_start_matches("--")).collect();
        assert_eq!(flags, keys);
    }
}
