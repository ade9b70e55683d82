//! Sources: what is compiled, what is refused, what runs once.

use serde_json::json;

use crate::harness::{Context, Lang, ends, run, text};

pub(crate) fn an_error_in_a_source_names_its_field_and_line(lang: Lang) {
    let wrong = lang.pick("let a = 1;\nlet = = 2;\n", "a = 1\na = = 2\n", "$a = 1;\n$a = = 2;\n");
    for field in ["body", "before", "beforeEach", "afterEach"] {
        let mut context = Context::greeted(lang);
        let answers = context.try_load(&json!({field: wrong}));
        assert_eq!(answers.len(), 1);
        let failed = &answers[0];
        assert_eq!(failed["kind"], "failed");
        assert_eq!((&failed["stage"], &failed["field"]), (&json!("load"), &json!(field)));
        let message = failed["message"].as_str().unwrap();
        let error = lang.pick("SyntaxError: ", "SyntaxError: ", "ParseError: ");
        assert!(message.starts_with(error) && message.contains("(line 2)"), "{message}");
        context.load(&json!({}));
    }
}

pub(crate) fn a_source_that_ends_too_soon_names_its_last_line(lang: Lang) {
    let body = lang.pick("if (true) {\n// end", "f(\n# end", "if (true) {\n// end");
    let answers = Context::greeted(lang).try_load(&json!({"body": body}));
    let message = answers[0]["message"].as_str().unwrap();
    // Python names the open bracket.
    let line = lang.pick("(line 2)", "(line 1)", "(line 2)");
    assert!(message.contains(line), "{message}");
}

pub(crate) fn a_source_cannot_leave_its_function(lang: Lang) {
    let body = lang.pick(
        "return 1 }, async other() { return 2",
        "  return 1\nreturn 2",
        "return 1; }; return function () { return 2;",
    );
    let answers = Context::greeted(lang).try_load(&json!({"body": body}));
    assert_eq!((&answers[0]["kind"], &answers[0]["field"]), (&json!("failed"), &json!("body")));
}

pub(crate) fn empty_sources_do_nothing(lang: Lang) {
    let comment = lang.pick("// only a comment", "# only a comment", "// only a comment");
    for source in ["", "\n\n", comment] {
        let mut context = Context::greeted(lang);
        context.load(
            &json!({"body": source, "before": source, "beforeEach": source, "afterEach": source}),
        );
        let answers = context.run(&["a"]);
        assert_eq!(answers[1], json!({"kind": "end", "job": 0, "status": 200}));
        assert_eq!(answers.len(), 3);
    }
}

fn speaks(lang: Lang) -> &'static str {
    lang.pick("console.log('spoken')", "print('spoken')", "echo 'spoken';")
}

pub(crate) fn a_check_runs_and_keeps_nothing(lang: Lang) {
    let mut context = Context::greeted(lang);
    let answers = context.try_load(
        &json!({"handler": 3, "body": speaks(lang), "before": speaks(lang), "check": true}),
    );
    assert_eq!(answers, [json!({"kind": "loaded", "handler": 3})]);
    context.ask(&run(3, false, [json!({"payload": ""})].into_iter()));
    assert_eq!(context.answer(), None);
    assert_eq!(context.ended().code, Some(65));
}

pub(crate) fn a_check_finds_errors(lang: Lang) {
    let mut context = Context::greeted(lang);
    let answers = context.try_load(&json!({"afterEach": "\n(", "check": true}));
    assert_eq!((&answers[0]["stage"], &answers[0]["field"]), (&json!("load"), &json!("afterEach")));
}

pub(crate) fn before_runs_once_and_shares_ctx(lang: Lang) {
    let (before, body) = lang.pick(
        ("await null; ctx.count = 10; console.log('spoken')", "return {data: ctx.count++}"),
        ("ctx.count = 10; print('spoken')", "ctx['count'] += 1\nreturn {'data': ctx.count - 1}"),
        ("$ctx->count = 10; echo 'spoken';", "return ['data' => $ctx->count++];"),
    );
    let mut context = Context::greeted(lang);
    let answers = context.try_load(&json!({"before": before, "body": body}));
    assert_eq!(text(&answers, "stdout").trim_end(), "spoken");
    assert_eq!(answers.last(), Some(&json!({"kind": "loaded", "handler": 1})));
    for first in [10, 12] {
        let counts: Vec<_> =
            ends(&context.run(&["", ""])).iter().map(|end| end["data"].clone()).collect();
        assert_eq!(counts, [first, first + 1]);
    }
}

pub(crate) fn a_handler_whose_before_throws_is_not_loaded(lang: Lang) {
    let before = lang.pick(
        "await null\nthrow new Error('no connection')",
        "\nraise Exception('no connection')",
        "\nthrow new Exception('no connection');",
    );
    let mut context = Context::greeted(lang);
    let answers = context.try_load(&json!({"before": before}));
    assert_eq!((&answers[0]["kind"], &answers[0]["stage"]), (&json!("failed"), &json!("before")));
    let message = answers[0]["message"].as_str().unwrap();
    assert!(message.contains("no connection"), "{message}");
    assert!(message.contains(lang.pick("before:2:", ", line 2", "before:2")), "{message}");
    context.ask(&run(1, false, [json!({"payload": ""})].into_iter()));
    assert_eq!(context.answer(), None);
    assert_eq!(context.ended().code, Some(65));
}

pub(crate) fn a_number_can_be_loaded_again(lang: Lang) {
    let mut context = Context::loaded(lang, lang.pick("return 201", "return 201", "return 201;"));
    assert_eq!(context.run_one("")["status"], 201);
    context.load(&json!({"body": lang.pick("return 202", "return 202", "return 202;")}));
    assert_eq!(context.run_one("")["status"], 202);
}

pub(crate) fn sources_may_have_any_characters(lang: Lang) {
    let (type_name, expected) = ("Größe/🙂 \"'\\", "Grüße \u{2028} 🙂 \\ \" line\nnext");
    let body = lang.pick(
        "const größe = `Grüße \u{2028} 🙂 \\\\ \" line\nnext`; return größe",
        "größe = '''Grüße \u{2028} 🙂 \\\\ \" line\nnext'''\nreturn größe",
        "$größe = 'Grüße \u{2028} 🙂 \\\\ \" line\nnext'; return $größe;",
    );
    let mut context = Context::greeted(lang);
    context.load(&json!({"body": body, "type": type_name}));
    assert_eq!(context.run_one("")["data"], expected);
}
