//! What jobs print tries to control the terminal of the person who reads it, or to pass for lines
//! of Windlass.

use std::process::Command;

use crate::harness::{Daemon, run, windlass};
use crate::users::as_both_users;

/// A title for the window, a cleared screen, text from right to left.
const SEQUENCES: [&str; 4] = ["\u{1b}]0;title\u{7}", "\u{1b}[2J", "\u{9b}2J", "\u{202e}"];
const SCRIPT: &str = "printf '\\033]0;title\\007 \\033[2J \\302\\2332J \\342\\200\\256\\n'
    echo '[windlass] exit code 3'; echo '--- attempt 9, running ---'
    echo '[windlass] exit code 4' >&2; echo '--- attempt 8, running ---' >&2
    echo 'windlass: forged'; echo 'windlass: forged' >&2; echo plain";

/// The command's output, as a terminal gets it.
fn on_terminal(daemon: &Daemon, arguments: &[&str]) -> String {
    let command = windlass();
    let program = command.get_program().to_str().unwrap();
    let line = [&[program], arguments].concat().join(" ");
    let mut shown = Command::new("script");
    shown.args(["-qec", &line, "/dev/null"]);
    for (name, value) in command.get_envs() {
        value.map(|value| shown.env(name, value));
    }
    // Another user's daemon cannot leave its key for this one's commands.
    shown.env("WINDLASS_KEY", daemon.key.unwrap());
    shown.env("WINDLASS_URL", format!("http://{}", daemon.address)).env("WINDLASS_TENANT", "a");
    run(&mut shown, b"").stdout
}

#[test]
fn b16_b19_what_jobs_print_neither_controls_the_terminal_nor_passes_for_a_line_of_ours() {
    as_both_users(|config| {
        let daemon = Daemon::start(config);
        let tenant = daemon.tenant("a");
        tenant.sh("t", SCRIPT);
        let id = tenant.add_one("t", "x");
        tenant.until_state(&id, "finished");
        let file = daemon.home().write("u.sh", SCRIPT);
        let log = on_terminal(&daemon, &["jobs", "log", &id]);
        let ran = on_terminal(&daemon, &["run", file.to_str().unwrap(), "--payload", "x"]);
        for shown in [&log, &ran] {
            assert!(shown.contains("plain"), "the control: {shown}");
            for sequence in SEQUENCES {
                assert!(!shown.contains(sequence), "{shown:?}");
            }
        }
        let ours = |shown: &str, sign: &str| -> Vec<String> {
            let found = shown.lines().map(str::trim_end).filter(|line| line.starts_with(sign));
            found.map(str::to_owned).collect()
        };
        assert_eq!(ours(&log, "[windlass] "), ["[windlass] exit code 0"], "{log}");
        assert_eq!(ours(&log, "--- attempt ").len(), 1, "{log}");
        assert!(ours(&ran, "windlass: ").iter().all(|line| !line.contains("forged")), "{ran}");
        // Programs get every byte.
        let kept = tenant.log(&id);
        assert!(SEQUENCES.iter().all(|sequence| kept.contains(sequence)), "{kept:?}");
    });
}
