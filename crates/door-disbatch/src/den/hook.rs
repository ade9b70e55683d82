//! The program that is run before each pass that claims.

use std::future::pending;
use std::time::Duration;

use windlass_core::launch::{Fence, Input, LaunchSpec, Launched, Launcher, Running};

use crate::config::Hook;

const TIME_MAX: Duration = Duration::from_secs(10);
const OUTPUT_BYTES_MAX: usize = 4096;

/// A running hook. Dropping it kills the hook.
pub(super) struct Started {
    pub(super) hook: Hook,
    running: Box<dyn Running>,
}

/// `None` if the hook is not a program.
pub(super) fn start(hook: &Hook, launcher: &dyn Launcher, fence: &dyn Fence) -> Option<Started> {
    let running = launcher.launch(LaunchSpec {
        program: hook.program()?.display().to_string(),
        args: Vec::new(),
        cwd: None,
        env: vec![fence.mark()],
        input: Input::Ended,
        output_bytes_max: OUTPUT_BYTES_MAX,
        time_limit: Some(TIME_MAX),
    });
    Some(Started { hook: hook.clone(), running })
}

/// Waits for its end; an error describes the failure. Without a hook it never returns.
pub(super) async fn ended(started: Option<&Started>) -> Result<(), String> {
    match started {
        Some(started) => judge(&started.running.wait().await),
        None => pending().await,
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.running.kill_tree();
    }
}

fn judge(launched: &Launched) -> Result<(), String> {
    if let Some(failure) = &launched.failure {
        return Err(failure.clone());
    }
    if launched.timed_out {
        return Err(format!("it was ended after {} seconds", TIME_MAX.as_secs()));
    }
    let said = String::from_utf8_lossy(&launched.stderr.bytes);
    let said = match said.trim() {
        "" => String::new(),
        text => format!(": {text}"),
    };
    match (launched.code, &launched.signal) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => Err(format!("it ended with status {code}{said}")),
        (None, signal) => {
            let signal = signal.as_deref().unwrap_or("a signal");
            Err(format!("it was ended by {signal}{said}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::launch::Output;

    #[test]
    fn only_status_0_is_well() {
        let ended = |code| Launched { code, ..Launched::default() };
        assert_eq!(judge(&ended(Some(0))), Ok(()));
        let stderr = Output { bytes: b"no disk\n".to_vec(), dropped: 0 };
        let failed = Launched { stderr, ..ended(Some(3)) };
        assert_eq!(judge(&failed), Err("it ended with status 3: no disk".into()));
        let killed = Launched { signal: Some("SIGSEGV".into()), ..ended(None) };
        assert_eq!(judge(&killed), Err("it was ended by SIGSEGV".into()));
        let slow = Launched { timed_out: true, ..ended(None) };
        assert_eq!(judge(&slow), Err("it was ended after 10 seconds".into()));
        let missing = Launched { failure: Some("spawn /x ENOENT".into()), ..ended(None) };
        assert_eq!(judge(&missing), Err("spawn /x ENOENT".into()));
    }
}
