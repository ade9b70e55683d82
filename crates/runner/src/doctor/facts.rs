//! What a handler sees of itself, and what that says about the layers that it shows.

use super::{Finding, found};

/// Variables that a shell sets by itself.
const OF_SHELL: [&str; 4] = ["PWD", "OLDPWD", "SHLVL", "_"];
const OF_HANDLER: [&str; 4] = ["PATH", "HOME", "TMPDIR", "LANG"];

/// Prints what it sees, one fact per line.
pub(super) const LOOK: &str = r#"
read -r stat < /proc/$$/stat; echo "stat $$ ${stat##*) }"
env | while IFS== read -r name rest; do echo "env $name"; done
echo "descriptors $(ls /proc/self/fd | tr '\n' ' ')"
while read -r line; do echo "status $line"; done < /proc/self/status
while read -r line; do echo "limit $line"; done < /proc/self/limits
echo "dir $(stat -c %a ..) $(ls -A | wc -l)"
echo x > own && echo "own written"
exit 0
"#;

/// What a handler printed, one fact per line.
pub(super) struct Facts(pub(super) String);

impl Facts {
    fn values<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.lines().filter_map(move |line| line.strip_prefix(key)?.strip_prefix(' '))
    }

    /// A field of `/proc/self/status`.
    fn status(&self, name: &str) -> &str {
        let mut lines = self.values("status").filter_map(|line| line.split_once(':'));
        lines.find(|(found, _)| *found == name).map_or("unknown", |(_, value)| value.trim())
    }

    pub(super) fn session(&self) -> Finding {
        // Its number, then state, parent, group, session.
        let fields: Vec<&str> =
            self.values("stat").next().unwrap_or_default().split_whitespace().collect();
        let own = fields.len() > 4 && fields[3] == fields[0] && fields[4] == fields[0];
        found(
            "session",
            own,
            if own { "its own, with its own process group" } else { "not its own" },
        )
    }

    pub(super) fn environment(&self) -> Finding {
        let strange = |name: &&str| {
            !name.starts_with("WINDLASS_") && !OF_SHELL.contains(name) && !OF_HANDLER.contains(name)
        };
        let names: Vec<&str> = self.values("env").collect();
        match names.iter().find(|name| strange(name)) {
            _ if names.is_empty() => found("environment", false, "it could not be read"),
            None => found("environment", true, "nothing from the daemon"),
            Some(name) => found("environment", false, format!("{name} comes from the daemon")),
        }
    }

    pub(super) fn directory(&self) -> Finding {
        let private = self.values("dir").any(|value| value == "700 0");
        let written = self.values("own").count() == 1;
        let detail = match (private, written) {
            (true, true) => "empty, its own and writable",
            (false, _) => "it is not empty, or others may read it",
            (true, false) => "it cannot be written to",
        };
        found("private directory", private && written, detail)
    }

    pub(super) fn descriptors(&self) -> Finding {
        // The fourth is the descriptor used to list them.
        let open = self.values("descriptors").next().unwrap_or_default().trim();
        let closed = open == "0 1 2 3";
        let detail = if closed { "the three standard streams" } else { open };
        found("descriptors", closed, detail)
    }

    pub(super) fn signals(&self) -> Finding {
        let sets = [self.status("SigIgn"), self.status("SigBlk")];
        let clear = sets.iter().all(|set| is_zero(set));
        let detail =
            if clear { "none is ignored or blocked" } else { "some are ignored or blocked" };
        found("signals", clear, detail)
    }

    pub(super) fn privileges(&self) -> Finding {
        let gained = self.status("NoNewPrivs") != "1";
        let left = !is_zero(self.status("CapEff")) || !is_zero(self.status("CapPrm"));
        let detail = match (left, gained) {
            (false, false) => "no capabilities, and no way to gain any (no_new_privs)",
            (true, _) => "handlers keep capabilities of the daemon",
            (false, true) => "programs can grant new ones: no_new_privs is not set",
        };
        found("privileges", !left && !gained, detail)
    }

    pub(super) fn core_files(&self) -> Finding {
        let none = self.values("limit").any(|line| {
            let rest = line.strip_prefix("Max core file size");
            rest.is_some_and(|rest| rest.split_whitespace().next() == Some("0"))
        });
        found("core files", none, if none { "none are written" } else { "they may be written" })
    }
}

/// Whether a set in hexadecimal is empty; an unknown one is not.
fn is_zero(set: &str) -> bool {
    !set.is_empty() && set.bytes().all(|digit| digit == b'0')
}
