//! Handlers that are refused when they are set, and the size of batches.

use windlass_core::{HandlerSpec, Lang, Runner};

use crate::harness::{fixture, handler, options, spec, with_env};
use windlass_runner::LocalRunner;

fn refused(spec: &HandlerSpec, field: &str, words: &str) {
    let invalid = fixture().runner.check(spec).unwrap_err();
    assert_eq!(invalid.field, field, "{invalid}");
    assert!(invalid.reason.contains(words), "{invalid}");
}

#[test]
fn a_missing_interpreter_is_named_when_the_handler_is_set() {
    let scratch = tempfile::tempdir().unwrap();
    let mut options = options(&scratch);
    options.path = "/nowhere".into();
    let runner = LocalRunner::new(options).unwrap();
    for (lang, program) in [(Lang::Node, "node"), (Lang::Python, "python3"), (Lang::Php, "php")] {
        let invalid = runner.check(&spec(lang, "return 200")).unwrap_err();
        assert_eq!(invalid.field, "lang");
        let words = format!("{program} is not installed: it was not found in /nowhere");
        assert!(invalid.reason.starts_with(&words), "{invalid}");
    }
}

#[test]
fn handlers_that_this_machine_can_run_are_accepted() {
    let runner = fixture().runner;
    for (lang, body) in [
        (Lang::Node, "return 200"),
        (Lang::Python, "return 200"),
        (Lang::Php, "return 200;"),
        (Lang::Sh, "exit 1"),
        (Lang::Exec, "some-program --flag 'one word'"),
        (Lang::Http, "http://localhost/x"),
        (Lang::Http, "https://user:password@example.org/x?y=z"),
    ] {
        runner.check(&spec(lang, body)).unwrap();
    }
    runner.check(&with_env(spec(Lang::Sh, "exit 1"), "A", "b")).unwrap();
}

#[test]
fn a_shell_that_is_not_installed_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    let mut options = options(&scratch);
    options.path = "/nowhere".into();
    let runner = LocalRunner::new(options).unwrap();
    let invalid = runner.check(&spec(Lang::Sh, "exit 1")).unwrap_err();
    assert_eq!(invalid.field, "lang");
    assert!(invalid.reason.contains("sh is not installed"), "{invalid}");
}

#[test]
fn bodies_that_cannot_be_run_are_refused() {
    refused(&spec(Lang::Exec, "program 'unended"), "body", "within a quote");
    refused(&spec(Lang::Exec, "# nothing"), "body", "names no program");
    refused(&spec(Lang::Http, "localhost:80"), "body", "http or https");
    refused(&spec(Lang::Http, "not a url"), "body", "not a URL");
}

#[test]
fn what_belongs_to_contexts_is_refused_without_one() {
    for lang in [Lang::Sh, Lang::Exec, Lang::Http] {
        let plain = spec(lang, "http://localhost/x");
        let script = Some("x".to_owned());
        let cases = [
            ("before", HandlerSpec { before: script.clone(), ..plain.clone() }),
            ("beforeEach", HandlerSpec { before_each: script.clone(), ..plain.clone() }),
            ("afterEach", HandlerSpec { after_each: script.clone(), ..plain.clone() }),
            ("eid", HandlerSpec { eid: script.clone(), ..plain.clone() }),
        ];
        for (field, spec) in cases {
            refused(&spec, field, "has no context");
        }
    }
}

#[test]
fn environments_that_cannot_be_given_are_refused() {
    refused(&with_env(spec(Lang::Sh, "x"), "A", "b\0c"), "options.env", "NUL byte");
    refused(&with_env(spec(Lang::Http, "http://h/"), "A", "b"), "options.env", "no environment");
}

#[test]
fn only_requests_take_more_than_one_job() {
    let runner = fixture().runner;
    for (lang, asked, most) in [
        (Lang::Sh, Some(100), 1),
        (Lang::Exec, Some(100), 1),
        (Lang::Http, None, 1),
        (Lang::Http, Some(0), 1),
        (Lang::Http, Some(100), 100),
        (Lang::Http, Some(5000), 1000),
    ] {
        let mut handler = handler(spec(lang, "http://localhost/x"));
        handler.spec.options.batch = asked;
        assert_eq!(runner.batch_max(&handler), most, "{lang} {asked:?}");
    }
}
