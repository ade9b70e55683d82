//! What a job reports while it runs: new jobs and progress.

use serde_json::{Value, json};

use crate::harness::{Context, Lang, ends, of_kind};

pub(crate) fn sends_text_bytes_and_json(lang: Lang) {
    let body = lang.pick(
        "emit('mail', 'ü\\0🙂'); emit('m', Buffer.from([255, 0]));\n\
         emit('m', new Uint8Array([254])); emit('m', {a: [1, null]});\n\
         emit('m', 5); emit('m', null); emit('m', '')",
        "emit('mail', 'ü\\0🙂'); emit('m', b'\\xff\\0'); emit('m', bytearray([254]))\n\
         emit('m', {'a': [1, None]}); emit('m', 5); emit('m', None); emit('m', '')",
        "$emit('mail', \"ü\\0🙂\"); $emit('m', \"\\xff\\0\"); $emit('m', \"\\xfe\");\n\
         $emit('m', ['a' => [1, null]]); $emit('m', 5); $emit('m', null); $emit('m', '');",
    );
    let answers = Context::loaded(lang, body).run(&[""]);
    let emit = |kind: &str, payload| json!({"kind": "emit", "type": "m", kind: payload});
    let expected = [
        json!({"kind": "emit", "type": "mail", "payload": "ü\0🙂"}),
        emit("payload_base64", "/wA="),
        emit("payload_base64", "/g=="),
        emit("payload", "{\"a\":[1,null]}"),
        emit("payload", "5"),
        emit("payload", "null"),
        emit("payload", ""),
    ];
    assert_eq!(of_kind(&answers, "emit"), expected);
    assert_eq!(answers.len(), expected.len() + 3);
}

pub(crate) fn sends_options(lang: Lang) {
    let body = lang.pick(
        "emit('m', 'x', {delay: '5s', priority: 1}); emit('m', 'x', {})",
        "emit('m', 'x', {'delay': '5s', 'priority': 1}); emit('m', 'x', delay='5s', priority=1)",
        "$emit('m', 'x', ['delay' => '5s', 'priority' => 1]); $emit('m', 'x', null);",
    );
    let answers = Context::loaded(lang, body).run(&[""]);
    let emitted = of_kind(&answers, "emit");
    assert_eq!(emitted.len(), 2, "{answers:?}");
    assert_eq!(emitted[0]["options"], json!({"delay": "5s", "priority": 1}));
    let second = lang.pick(json!({}), emitted[0]["options"].clone(), Value::Null);
    assert_eq!(emitted[1]["options"], second);
}

pub(crate) fn refuses_what_it_cannot_send(lang: Lang) {
    let bodies: &[&str] = lang.pick(
        &[
            "emit('', 'x')",
            "emit(5, 'x')",
            "emit(null, 'x')",
            "emit('\\ud800', 'x')",
            "emit('m')",
            "emit('m', () => 1)",
            "emit('m', '\\ud800')",
            "emit('m', [NaN])",
            "emit('m', 1n)",
            "emit('m', 'x', 'soon')",
            "emit('m', 'x'.repeat(40000000))",
        ],
        &[
            "emit('', 'x')",
            "emit(5, 'x')",
            "emit(None, 'x')",
            "emit('\\ud800', 'x')",
            "emit('m')",
            "emit('m', lambda: 1)",
            "emit('m', '\\ud800')",
            "emit('m', [float('nan')])",
            "emit('m', 'x', 'soon')",
            "emit('m', 'x' * 40000000)",
        ],
        &[
            "$emit('', 'x');",
            "$emit(5, 'x');",
            "$emit(null, 'x');",
            "$emit(\"\\xff\", 'x');",
            "$emit('m');",
            "$emit('m', STDIN);",
            "$emit('m', [\"\\xff\"]);",
            "$emit('m', [NAN]);",
            "$emit('m', 'x', 'soon');",
            "$emit('m', str_repeat('x', 40000000));",
        ],
    );
    let mut context = Context::greeted(lang);
    for body in bodies {
        context.load(&json!({"body": body}));
        let answers = context.run(&[""]);
        assert_eq!(of_kind(&answers, "emit"), Vec::<Value>::new(), "{body}");
        assert_eq!(ends(&answers)[0]["status"], 500, "{body}");
    }
}

/// Both functions belong to their job; another one must not get their output.
pub(crate) fn refuses_jobs_that_have_ended(lang: Lang) {
    let bodies = lang.pick(
        [
            "ctx.emit ??= emit; ctx.emit('m', 'x')",
            "ctx.progress ??= job.progress; ctx.progress(50)",
        ],
        [
            "ctx.emit = ctx.get('emit', emit); ctx.emit('m', 'x')",
            "ctx.progress = ctx.get('progress', job.progress); ctx.progress(50)",
        ],
        [
            "$ctx->emit ??= $emit; ($ctx->emit)('m', 'x');",
            "$ctx->job ??= $job; $ctx->job->progress(50);",
        ],
    );
    for body in bodies {
        let ends = ends(&Context::loaded(lang, body).run(&["", ""]));
        assert_eq!((&ends[0]["status"], &ends[1]["status"]), (&json!(200), &json!(500)), "{body}");
        assert!(ends[1]["error"].as_str().unwrap().contains("the job has ended"));
    }
}

pub(crate) fn progress_is_sent(lang: Lang) {
    let body = lang.pick(
        "job.progress(0); job.progress(50, 'half'); job.progress(99.5, null); job.progress(100, 5)",
        "job.progress(0); job.progress(50, 'half'); job.progress(99.5, None); job.progress(100, 5)",
        "$job->progress(0); $job->progress(50, 'half'); $job->progress(99.5, null); \
         $job->progress(100, 5);",
    );
    let answers = Context::loaded(lang, body).run(&[""]);
    let expected = [
        json!({"kind": "progress", "percent": 0}),
        json!({"kind": "progress", "percent": 50, "message": "half"}),
        json!({"kind": "progress", "percent": 99.5}),
        json!({"kind": "progress", "percent": 100, "message": "5"}),
    ];
    assert_eq!(of_kind(&answers, "progress"), expected);
}

pub(crate) fn progress_refuses_what_is_no_percentage(lang: Lang) {
    let mut context = Context::greeted(lang);
    for percent in ["-1", "100.5", "'5'", lang.pick("NaN", "float('nan')", "NAN")] {
        let body = match lang {
            Lang::Node => format!("job.progress({percent})"),
            Lang::Python => format!("job.progress({percent})"),
            Lang::Php => format!("$job->progress({percent});"),
        };
        context.check_error(&body, "the percentage must be a number from 0 to 100");
    }
}
