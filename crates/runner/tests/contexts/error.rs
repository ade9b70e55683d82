//! What a source throws.

use serde_json::json;

use crate::harness::{Context, Lang, ends};

pub(crate) fn has_message_and_trace(lang: Lang) {
    let mut context = Context::greeted(lang);
    let body = lang.pick(
        "// The first line.\nconst fail = () => {\n  throw new TypeError('no such thing')\n}\n\
         fail()",
        "# The first line.\ndef fail():\n  raise TypeError('no such thing')\n\nfail()",
        "// The first line.\n$fail = function () {\n  throw new TypeError('no such thing');\n};\n\
         $fail();",
    );
    let end = context.end_of(body);
    assert_eq!((&end["status"], end.get("data")), (&json!(500), None));
    let error = end["error"].as_str().unwrap();
    assert!(error.contains("TypeError: no such thing"), "{error}");
    let places = lang.pick(
        ["handler mail body:3:", "handler mail body:5:"],
        ["\"handler mail body\", line 3", "\"handler mail body\", line 5"],
        ["handler://mail/body:3", "handler://mail/body:5"],
    );
    for place in places {
        assert!(error.contains(place), "{error}");
    }
    assert!(!error.contains("bootstrap"), "our own frames are of no use: {error}");
}

fn throws_status(lang: Lang, status: &str) -> String {
    let class = "$e = new class('no') extends Exception { public $status; }";
    match lang {
        Lang::Node => format!("const e = new Error('no'); e.status = {status}; throw e"),
        Lang::Python => format!("e = Exception('no'); e.status = {status}; raise e"),
        Lang::Php => format!("{class}; $e->status = {status}; throw $e;"),
    }
}

pub(crate) fn may_have_a_status(lang: Lang) {
    let mut context = Context::greeted(lang);
    for status in [100, 404, 599] {
        let end = context.end_of(&throws_status(lang, &status.to_string()));
        assert_eq!(end["status"], status);
        assert!(end["error"].as_str().unwrap().contains("no"), "{end}");
    }
}

pub(crate) fn a_status_that_is_none_is_500(lang: Lang) {
    let mut context = Context::greeted(lang);
    for status in ["99", "600", "'404'", "404.5", lang.pick("null", "None", "null")] {
        assert_eq!(context.end_of(&throws_status(lang, status))["status"], 500, "{status}");
    }
}

pub(crate) fn tells_its_cause(lang: Lang) {
    let mut context = Context::greeted(lang);
    let body = lang.pick(
        "throw new Error('the effect', {cause: new Error('the cause')})",
        "raise Exception('the effect') from Exception('the cause')",
        "throw new Exception('the effect', 0, new Exception('the cause'));",
    );
    let error = context.end_of(body)["error"].to_string();
    assert!(error.contains("the effect") && error.contains("the cause"), "{error}");
}

pub(crate) fn of_one_job_does_not_touch_the_next(lang: Lang) {
    let body = lang.pick(
        "if (payload === 'a') throw new Error('no'); return payload",
        "if payload == 'a': raise Exception('no')\nreturn payload",
        "if ($payload === 'a') throw new Exception('no'); return $payload;",
    );
    let answers = Context::loaded(lang, body).run(&["a", "b", "a", "b"]);
    let statuses: Vec<_> = ends(&answers).iter().map(|end| end["status"].clone()).collect();
    assert_eq!(statuses, [500, 200, 500, 200]);
}

pub(crate) fn is_cut_when_it_is_long(lang: Lang) {
    let mut context = Context::greeted(lang);
    let body = lang.pick(
        "throw new Error('é'.repeat(40000000))",
        "raise Exception('é' * 40000000)",
        "throw new Exception(str_repeat('é', 40000000));",
    );
    let end = context.end_of(body);
    let error = end["error"].as_str().unwrap();
    assert!(error.chars().count() <= 65_536 && error.contains("éé"));
    assert!(!error.contains('\u{fffd}'), "cut between characters");
}

pub(crate) fn that_cannot_be_shown(lang: Lang) {
    let bodies: &[&str] = lang.pick(
        &[
            "throw null",
            "throw undefined",
            "throw 'a text'",
            "throw {get message() { throw new Error('never') }}",
            "throw {get status() { throw new Error('never') }, get stack() { throw 1 }}",
            "throw new Proxy({}, {get() { throw new Error('never') }})",
            "const e = new Error('x'); e.cause = e; throw e",
            "const e = new Error('x'); e.message = e.stack = '\\ud800'; throw e",
            "throw Object.create(null)",
            "throw 10n",
        ],
        &[
            "class E(Exception):\n  def __str__(self): raise Exception('never')\nraise E()",
            "class E(Exception):\n  @property\n  def status(self): raise Exception('never')\n\
             raise E()",
            "e = Exception('x'); e.__cause__ = e; raise e",
            "raise Exception('\\ud800')",
            "raise BaseException()",
            "raise KeyboardInterrupt",
            "raise SystemExit",
            "raise 5",
        ],
        &[
            "throw new Exception(\"\\xff\\xc3\");",
            "throw new class extends Exception { private $status = 404; };",
            "throw new class extends Exception { function __get($n) { throw new Exception('n'); } \
             function __isset($n) { return true; } };",
            "throw new class extends Exception { function __toString(): string { \
             throw new Exception('never'); } };",
        ],
    );
    let mut context = Context::greeted(lang);
    for body in bodies {
        context.load(&json!({"body": body}));
        for _ in 0..2 {
            let end = context.run_one("");
            assert_eq!(end["status"], 500, "{body}: {end}");
            assert_ne!(end["error"].as_str().unwrap(), "", "{body}");
        }
    }
}
