//! `CrashBedrockJob` and `ClearCrashedBedrockJobs`: patterns of names whose jobs fail instead of
//! being handed out. They are kept in memory only.

use std::net::Ipv4Addr;
use std::sync::Mutex;

use windlass_core::glob;
use windlass_core::sync::lock;

use crate::execute::{Call, Reply};
use crate::wire::Request;

use super::value;
use super::{Bedrock, Refusal, done};

/// Maximum number of patterns.
const PATTERNS_MAX: usize = 1000;

#[derive(Default)]
pub(super) struct Crashed(Mutex<Vec<String>>);

/// Whether one of these patterns matches the name.
pub(super) fn matches(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| glob::matches(pattern, name))
}

impl Crashed {
    pub(super) fn list(&self) -> Vec<String> {
        self.patterns().clone()
    }

    fn patterns(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        // A panic cannot leave a list of texts in an inconsistent state.
        lock(&self.0)
    }
}

pub(super) async fn add(door: &Bedrock, request: &Request, call: Call) -> Result<Reply, Refusal> {
    only_from_here(&call)?;
    let names = request.header("names").unwrap_or_default();
    let mut patterns = door.crashed.patterns();
    for name in value::list(names) {
        let known = patterns.iter().any(|pattern| pattern == name);
        if !known && patterns.len() < PATTERNS_MAX {
            patterns.push(name.to_owned());
        }
    }
    done()
}

pub(super) async fn clear(door: &Bedrock, call: Call) -> Result<Reply, Refusal> {
    only_from_here(&call)?;
    door.crashed.patterns().clear();
    done()
}

fn only_from_here(call: &Call) -> Result<(), Refusal> {
    if call.peer == Ipv4Addr::LOCALHOST { Ok(()) } else { Err((401, "Unauthorized").into()) }
}
