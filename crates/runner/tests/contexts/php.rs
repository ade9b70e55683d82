//! Specific to php: output buffers, imports of names, errors that its compiler does not throw.

use serde_json::json;

use crate::harness::{Context, Lang, ends, run, text};

const PHP: Lang = Lang::Php;

#[test]
fn a_source_may_begin_like_a_file() {
    let mut context = Context::greeted(PHP);
    context.check("<?php\nreturn __LINE__ . ' lines';", &json!({"status": 200, "data": "2 lines"}));
    let body = "declare(strict_types=1);\nnamespace Own;\n// A comment.\nuse DateTime as Time;\n\
        use function str_repeat as again;\nreturn [again('x', 2), Time::class, __LINE__];";
    context.check(body, &json!({"status": 200, "data": ["xx", "DateTime", 6]}));
    context.check_error("declare(strict_types=1);\nreturn strlen(5);", "TypeError: strlen()");
    let answers = Context::loaded(PHP, "$a = 1; ?>page <?= $a ?>").run(&[""]);
    assert_eq!(text(&answers, "stdout"), "page 1");
}

#[test]
fn an_error_that_ends_the_compiler_is_told_before_the_context_ends() {
    let mut context = Context::greeted(PHP);
    let answers = context.try_load(&json!({"beforeEach": "$a = 1;\nunset($this);"}));
    assert_eq!(answers[0]["field"], "beforeEach");
    let message = answers[0]["message"].as_str().unwrap();
    assert!(message.contains("Cannot unset $this (line 2)"), "{message}");
    assert_eq!(context.answer(), None);
    assert!(context.ended().stderr.contains("Cannot unset $this"));
}

#[test]
fn a_fatal_error_ends_the_context_and_is_heard() {
    let mut context =
        Context::loaded(PHP, "echo 'before'; ob_start(); echo ' it';\nfunction f() {}");
    context.ask(&run(1, false, [json!({"payload": ""}), json!({"payload": ""})].into_iter()));
    let mut answers = Vec::new();
    while let Some(answer) = context.answer() {
        answers.push(answer);
    }
    assert_eq!(ends(&answers).len(), 1);
    assert_eq!(text(&answers, "stdout"), "before it".repeat(2));
    assert!(context.ended().stderr.contains("Cannot redeclare f()"));
}

#[test]
fn open_buffers_are_closed_with_their_job() {
    let body = "ob_start(); echo $payload; ob_start(fn($t) => strtoupper($t)); echo $payload;";
    let answers = Context::loaded(PHP, body).run(&["a", "b"]);
    assert_eq!(text(&answers[..3], "stdout") + &text(&answers[3..], "stdout"), "aAbB");
    let first = answers.iter().position(|answer| answer["kind"] == "end").unwrap();
    assert_eq!(text(&answers[..first], "stdout"), "aA");
}

#[test]
fn all_buffers_may_be_closed() {
    let body = "echo 'heard '; while (ob_get_level() > 0) ob_end_clean();";
    let mut context = Context::loaded(PHP, body);
    for _ in 0..2 {
        let answers = context.run(&["", ""]);
        assert_eq!(text(&answers, "stdout"), "heard heard ");
        assert!(ends(&answers).iter().all(|end| end["status"] == 200));
    }
}

#[test]
fn what_php_complains_about_is_errors_output() {
    let mut context = Context::greeted(PHP);
    let body = "echo $missing;\n$a = []; echo @$a['x']; error_log('logged');\n\
        file_get_contents('missing'); trigger_error('old', E_USER_DEPRECATED);\n\
        return [error_get_last() === null];";
    let answers = Context::loaded(PHP, body).run(&[""]);
    let stderr = text(&answers, "stderr");
    let lines: Vec<&str> = stderr.lines().collect();
    assert_eq!(lines[0], "Warning: Undefined variable $missing in handler://mail/body on line 1");
    assert_eq!(lines[1], "logged");
    assert!(lines[2].starts_with("Warning: file_get_contents(missing): "), "{stderr}");
    assert_eq!(lines[3], "Deprecated: old in handler://mail/body on line 3");
    assert_eq!(lines.len(), 4);
    context.check_error("trigger_error('grave', E_USER_ERROR);", "ErrorException: grave");
}

#[test]
fn a_forked_child_has_no_word_in_the_protocol() {
    let body = "$child = pcntl_fork(); if ($child === 0) {\n\
        echo \"from the child\\n\"; return 299; }\n\
        pcntl_waitpid($child, $status); echo \"from the context\\n\";";
    let mut context = Context::loaded(PHP, body);
    let answers = context.run(&["", ""]);
    assert_eq!(text(&answers, "stdout"), "from the context\n".repeat(2));
    assert!(ends(&answers).iter().all(|end| end["status"] == 200));
    assert_eq!(context.stdout(), "from the child\n".repeat(2));
}

#[test]
fn sources_do_not_see_into_the_bootstrap() {
    let mut context = Context::greeted(PHP);
    let body = "$seen = array_keys(get_defined_vars()); $global = array_keys($GLOBALS);\n\
        $own = array_diff($global, ['argv', 'argc'], preg_grep('/^_/', $global));\n\
        return [isset($this), $seen, $own];";
    let seen = json!([false, ["payload", "job", "ctx", "emit"], []]);
    context.check(body, &json!({"status": 200, "data": seen}));
    context.check_error("return self::$answers;", "Cannot access \"self\"");
}
