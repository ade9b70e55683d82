//! Parses the command line: options, then a command whose own arguments are left alone.

use std::time::Duration;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Args {
    pub(crate) help: bool,
    pub(crate) version: bool,
    pub(crate) master: bool,
    pub(crate) ask_password: bool,
    pub(crate) json: bool,
    pub(crate) host: Option<String>,
    pub(crate) port: Option<String>,
    pub(crate) log_level: Option<String>,
    pub(crate) config: Option<String>,
    pub(crate) timeout: Option<Duration>,
    /// The command and its arguments.
    pub(crate) words: Vec<String>,
}

impl Args {
    pub(crate) fn parse(args: &[String]) -> Result<Args, String> {
        let mut parsed = Args::default();
        let mut rest = args.iter();
        while let Some(word) = rest.next() {
            if word == "--" {
                break;
            }
            if !word.starts_with('-') {
                parsed.words.push(word.clone());
                break;
            }
            let (name, joined) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (word.as_str(), None),
            };
            if let Some(switch) = parsed.switch(name) {
                *switch = joined.as_deref() != Some("false");
            } else if name == "--timeout" {
                let value = joined.as_ref().or_else(|| rest.next());
                parsed.timeout = Some(seconds(name, value)?);
            } else if let Some(place) = parsed.value(name) {
                let value = joined.or_else(|| rest.next().cloned());
                *place = Some(value.ok_or_else(|| format!("Option {name} needs a value."))?);
            } else {
                return Err(format!("Unknown option: '{name}'"));
            }
        }
        parsed.words.extend(rest.cloned());
        Ok(parsed)
    }

    fn switch(&mut self, name: &str) -> Option<&mut bool> {
        match name {
            "--help" => Some(&mut self.help),
            "--version" => Some(&mut self.version),
            "--master" => Some(&mut self.master),
            "--password" => Some(&mut self.ask_password),
            "--json" => Some(&mut self.json),
            _ => None,
        }
    }

    fn value(&mut self, name: &str) -> Option<&mut Option<String>> {
        match name {
            "--host" => Some(&mut self.host),
            "--port" => Some(&mut self.port),
            "--log-level" => Some(&mut self.log_level),
            "--config" => Some(&mut self.config),
            _ => None,
        }
    }
}

/// A time above zero that a clock can measure.
fn seconds(name: &str, value: Option<&String>) -> Result<Duration, String> {
    let number = value.and_then(|text| text.parse::<f64>().ok()).filter(|number| *number > 0.0);
    let time = number.and_then(|number| Duration::try_from_secs_f64(number).ok());
    time.ok_or_else(|| format!("Option {name} needs a number of seconds above 0."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Args::parse(&words)
    }

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn options_come_before_the_command() {
        let line = "--master --host h --port=7 --config c --password --log-level info --json poke";
        let expected = Args {
            master: true,
            ask_password: true,
            json: true,
            host: Some("h".to_owned()),
            port: Some("7".to_owned()),
            log_level: Some("info".to_owned()),
            config: Some("c".to_owned()),
            words: words("poke"),
            ..Args::default()
        };
        assert_eq!(parse(line), Ok(expected));
    }

    #[test]
    fn options_after_the_command_are_its_arguments() {
        let args = parse("poll --master a --help").unwrap();
        assert_eq!(args, Args { words: words("poll --master a --help"), ..Args::default() });
        assert_eq!(parse("-- --master").unwrap().words, words("--master"));
    }

    #[test]
    fn switches_may_be_off_and_options_must_be_known() {
        assert!(!parse("--master=false poke").unwrap().master);
        assert!(parse("--help").unwrap().help);
        assert!(parse("--version").unwrap().version);
        assert_eq!(parse(""), Ok(Args::default()));
        assert_eq!(parse("--bogus poll").unwrap_err(), "Unknown option: '--bogus'");
        assert_eq!(parse("-p poll").unwrap_err(), "Unknown option: '-p'");
        assert_eq!(parse("--port").unwrap_err(), "Option --port needs a value.");
    }

    #[test]
    fn a_time_out_is_a_number_of_seconds() {
        let timeout = |line: &str| parse(line).map(|args| args.timeout);
        assert_eq!(timeout("poll a"), Ok(None));
        assert_eq!(timeout("--timeout 2 poll a"), Ok(Some(Duration::from_secs(2))));
        assert_eq!(timeout("--timeout=0.5 poll a"), Ok(Some(Duration::from_millis(500))));
        let error = "Option --timeout needs a number of seconds above 0.";
        for value in ["", "x", "0", "-1", "inf", "nan", "1e300"] {
            assert_eq!(timeout(&format!("--timeout={value} poll")).unwrap_err(), error, "{value}");
        }
        assert_eq!(timeout("--timeout").unwrap_err(), error);
    }
}
