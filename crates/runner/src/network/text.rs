//! A policy as text, one line per entry:
//!
//! ```text
//! mode only
//! only 10.1.2.3:5432
//! allow 10.1.2.0/24:5432
//! own 192.168.1.7
//! door 7600
//! resolver 127.0.0.53
//! ```

use std::fmt;
use std::str::FromStr;

use windlass_core::network::{Destination, Host};

use super::{Allow, Mode, Policy};

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.mode {
            Mode::None => writeln!(f, "mode none")?,
            Mode::Public => writeln!(f, "mode public")?,
            Mode::Only(list) => {
                writeln!(f, "mode only")?;
                list.iter().try_for_each(|entry| writeln!(f, "only {entry}"))?;
            }
        }
        self.allow.iter().try_for_each(|entry| writeln!(f, "allow {entry}"))?;
        self.own.iter().try_for_each(|address| writeln!(f, "own {address}"))?;
        self.doors.iter().try_for_each(|port| writeln!(f, "door {port}"))?;
        self.resolvers.iter().try_for_each(|address| writeln!(f, "resolver {address}"))
    }
}

impl FromStr for Policy {
    type Err = String;

    /// The mode comes first: without it there is no policy.
    fn from_str(text: &str) -> Result<Policy, String> {
        let mut lines = text.lines();
        let mode = match lines.next() {
            Some("mode none") => Mode::None,
            Some("mode public") => Mode::Public,
            Some("mode only") => Mode::Only(Vec::new()),
            first => return Err(format!("a policy begins with its mode, not {first:?}")),
        };
        let (allow, own, doors, resolvers) = Default::default();
        let mut policy = Policy { mode, allow, own, doors, resolvers };
        for line in lines {
            let (word, value) = line.split_once(' ').unwrap_or((line, ""));
            let wrong = || format!("'{line}' is not a line of a policy");
            match (word, &mut policy.mode) {
                ("only", Mode::Only(list)) => list.push(value.parse()?),
                ("allow", _) => policy.allow.push(value.parse()?),
                ("own", _) => policy.own.push(value.parse().map_err(|_| wrong())?),
                ("door", _) => policy.doors.push(value.parse().map_err(|_| wrong())?),
                ("resolver", _) => policy.resolvers.push(value.parse().map_err(|_| wrong())?),
                _ => return Err(wrong()),
            }
        }
        Ok(policy)
    }
}

impl fmt::Display for Allow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Destination { host: Host::Net(self.net), port: self.port }.fmt(f)
    }
}

impl FromStr for Allow {
    type Err = String;

    fn from_str(text: &str) -> Result<Allow, String> {
        match text.parse()? {
            Destination { host: Host::Net(net), port } => Ok(Allow { net, port }),
            Destination { host: Host::Name(name), .. } => {
                Err(format!("'{name}' is a name, and a policy has addresses"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = "mode only\nonly 10.1.2.3:5432\nonly [fd00::/8]:1\nallow 10.1.2.0/24:5432\n\
                        allow ::/0\nown 192.168.1.7\nown fd00::7\ndoor 7600\ndoor 8888\n\
                        resolver 127.0.0.53\n";

    #[test]
    fn a_policy_is_read_back_from_its_text() {
        for text in [FULL, "mode none\n", "mode public\n", "mode only\n", "mode none\ndoor 1\n"] {
            assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
        }
        let policy: Policy = FULL.parse().unwrap();
        assert!(matches!(&policy.mode, Mode::Only(list) if list.len() == 2));
        assert_eq!((policy.allow.len(), policy.own.len(), policy.doors.len()), (2, 2, 2));
    }

    #[test]
    fn a_text_with_anything_else_is_refused_as_a_whole() {
        for text in [
            "",
            "\n",
            "mode",
            "mode all\n",
            "allow ::/0\nmode public\n",
            "mode public\nmode none\n",
            "mode public\nonly 1.2.3.4\n",
            "mode public\nallow db.internal\n",
            "mode public\nallow\n",
            "mode public\nown 1.2.3.4/8\n",
            "mode public\ndoor x\n",
            "mode public\ndoor 65536\n",
            "mode public\n\n",
            "mode public\nopen ::/0\n",
        ] {
            assert!(text.parse::<Policy>().is_err(), "{text:?}");
        }
    }
}
