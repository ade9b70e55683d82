//! What a developer asks for: more calls, or a single one again.

use std::env;
use std::fmt;
use std::thread;

use crate::every::{FAULTS, Way};

/// Makes another part of the calls fail: 1 for all of them.
const STEP_VARIABLE: &str = "WINDLASS_NTH_STEP";
/// Makes only one call fail, such as `kill:17`.
const CALL_VARIABLE: &str = "WINDLASS_NTH_CALL";

/// The step that is asked for.
pub(crate) fn step() -> Option<usize> {
    env::var(STEP_VARIABLE).ok()?.parse().ok().filter(|step| *step > 0)
}

/// The only call that is to fail.
///
/// # Panics
/// If it cannot be read.
pub(crate) fn call() -> Option<(&'static Way, u64)> {
    let text = env::var(CALL_VARIABLE).ok()?;
    let names = FAULTS.each_ref().map(|way| way.name).join(", ");
    let call = read(&text);
    assert!(call.is_some(), "{CALL_VARIABLE} is FAULT:NUMBER, FAULT one of {names}: '{text}'");
    call
}

fn read(text: &str) -> Option<(&'static Way, u64)> {
    let (name, number) = text.split_once(':')?;
    let way = FAULTS.iter().find(|way| way.name == name)?;
    Some((way, number.parse().ok().filter(|number| *number > 0)?))
}

/// The command that repeats a run; of the test that calls this.
pub(crate) struct Command(pub(crate) Option<(&'static Way, u64)>);

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((way, number)) = self.0 {
            write!(f, "{CALL_VARIABLE}={}:{number} ", way.name)?;
        }
        f.write_str("cargo test")?;
        // Cargo names the package to its tests, and the test's thread has the name of the test.
        if let Ok(package) = env::var("CARGO_PKG_NAME") {
            write!(f, " -p {package}")?;
        }
        match thread::current().name() {
            Some(test) if test != "main" => write!(f, " -- --exact {test}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_read_as_it_is_printed() {
        for way in &FAULTS {
            let (read, number) = read(&format!("{}:17", way.name)).unwrap();
            assert_eq!((read.fault, number), (way.fault, 17));
            let test = "wanted::tests::a_call_is_read_as_it_is_printed";
            assert_eq!(
                Command(Some((way, 17))).to_string(),
                format!(
                    "WINDLASS_NTH_CALL={}:17 cargo test -p windlass-faulty-disk -- --exact {test}",
                    way.name
                )
            );
        }
        for text in ["", "17", "kill", "kill:", "kill:0", "kill:-1", "Kill:17", "other:17"] {
            assert!(read(text).is_none(), "{text}");
        }
    }
}
