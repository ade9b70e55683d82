//! Which handlers this machine can run. Checked when a handler is set, so that its author gets the
//! error.

use windlass_core::{HandlerSpec, Invalid, Lang, Limits};

use crate::context::language::{Language, find_program};
use crate::http;
use crate::launch;

pub(crate) fn check(spec: &HandlerSpec, path: &str) -> Result<(), Invalid> {
    match spec.lang {
        Lang::Node | Lang::Python | Lang::Php => {
            if let Some(language) = Language::of(spec.lang) {
                language.interpreter(path)?;
            }
            return check_env(spec);
        }
        Lang::Sh => check_shell(path)?,
        Lang::Exec => drop(launch::split(&spec.body)?),
        Lang::Http => drop(http::parse_url(&spec.body)?),
    }
    check_no_context(spec)?;
    check_env(spec)
}

fn check_shell(path: &str) -> Result<(), Invalid> {
    match find_program("sh", path) {
        Some(_) => Ok(()),
        None => {
            Err(Invalid::new("lang", format!("sh is not installed: it was not found in {path}")))
        }
    }
}

/// Scripts around a batch and shared contexts need a process that outlives a job.
fn check_no_context(spec: &HandlerSpec) -> Result<(), Invalid> {
    let fields = [
        ("before", &spec.before),
        ("beforeEach", &spec.before_each),
        ("afterEach", &spec.after_each),
        ("eid", &spec.eid),
    ];
    match fields.into_iter().find(|(_, value)| value.is_some()) {
        None => Ok(()),
        Some((field, _)) => {
            let reason =
                format!("a {} handler has no context, so it cannot have {field}", spec.lang);
            Err(Invalid::new(field, reason))
        }
    }
}

fn check_env(spec: &HandlerSpec) -> Result<(), Invalid> {
    if spec.lang == Lang::Http && !spec.options.env.is_empty() {
        return Err(Invalid::new("options.env", "an http handler has no environment"));
    }
    if spec.lang == Lang::Http && !spec.options.secrets.is_empty() {
        let reason = "an http handler has no process, so it cannot get secrets: keep them where \
                      its URL leads";
        return Err(Invalid::new("options.secrets", reason));
    }
    if spec.lang == Lang::Http && spec.options.limits != Limits::default() {
        let reason = "an http handler has no process, so memory, cpu, processes, file_size \
                      and scratch have no effect";
        return Err(Invalid::new("options", reason));
    }
    match spec.options.env.iter().find(|(_, value)| value.contains('\0')) {
        None => Ok(()),
        Some((name, _)) => {
            let reason = format!("the value of '{name}' contains a NUL byte");
            Err(Invalid::new("options.env", reason))
        }
    }
}
