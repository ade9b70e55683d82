//! A bootstrap as a process: how it starts, reads, writes and ends.

use serde_json::{Value, json};

use crate::harness::{Context, Lang, ends, frame, hello, load, run};

pub(crate) fn says_what_it_is(lang: Lang) {
    let mut context = Context::silent(lang);
    context.ask(&hello(1));
    let ready = context.answer().unwrap();
    assert_eq!((&ready["kind"], &ready["protocol"]), (&json!("ready"), &json!(1)));
    let language = ready["language"].as_str().unwrap();
    assert!(language.starts_with(lang.pick("node ", "python 3.", "php ")), "{language}");
}

pub(crate) fn refuses_another_protocol(lang: Lang) {
    let mut context = Context::silent(lang);
    context.ask(&hello(2));
    assert_eq!(context.answer(), None);
    let ended = context.ended();
    assert_eq!(ended.code, Some(64));
    assert_eq!(ended.stderr, "this bootstrap speaks protocol 1, not 2\n");
}

pub(crate) fn ends_with_its_requests(lang: Lang) {
    for greet in [false, true] {
        let mut context = if greet { Context::loaded(lang, "") } else { Context::silent(lang) };
        context.close();
        assert_eq!(context.answer(), None);
        assert_eq!(context.ended().code, Some(0));
    }
}

pub(crate) fn answers_all_that_came_before_the_end(lang: Lang) {
    let body = lang.pick("return payload", "return payload", "return $payload;");
    let mut context = Context::silent(lang);
    context.ask(&hello(1));
    context.ask(&load(&json!({"body": body})));
    for payload in ["a", "b"] {
        context.ask(&run(1, false, [json!({"payload": payload})].into_iter()));
    }
    context.close();
    let mut data = Vec::new();
    while let Some(answer) = context.answer() {
        data.extend(answer.get("data").cloned());
    }
    assert_eq!(data, ["a", "b"]);
    assert_eq!(context.ended().code, Some(0));
}

pub(crate) fn takes_requests_in_any_pieces(lang: Lang) {
    let mut context = Context::loaded(lang, "");
    let request = run(1, false, ["a", "b"].iter().map(|payload| json!({"payload": payload})));
    for byte in frame(&serde_json::to_vec(&request).unwrap()) {
        context.write(&[byte]);
    }
    assert_eq!(ends(&context.answers()).len(), 2);
}

pub(crate) fn a_request_that_cannot_be_read_ends_it(lang: Lang) {
    let too_long = (32 * 1024 * 1024 + 1_u32).to_be_bytes().to_vec();
    let unknown = run(7, false, [json!({"payload": ""})].into_iter());
    let requests = [
        vec![0; 4],
        too_long,
        frame(b"{"),
        frame(b"[]"),
        frame(br#"{"kind":"sing"}"#),
        frame(&serde_json::to_vec(&unknown).unwrap()),
    ];
    for request in requests {
        let mut context = Context::greeted(lang);
        context.write(&request);
        check_refused(context, &request);
    }
    let mut context = Context::silent(lang);
    context.ask(&load(&json!({})));
    check_refused(context, b"a load before hello");
}

fn check_refused(mut context: Context, request: &[u8]) {
    let shown = String::from_utf8_lossy(request);
    assert_eq!(context.answer(), None, "{shown}");
    let ended = context.ended();
    assert_eq!(ended.code, Some(65), "{shown}: {}", ended.stderr);
    assert_ne!(ended.stderr, "", "{shown}");
}

pub(crate) fn ends_when_nobody_listens(lang: Lang) {
    let mut context = Context::loaded(lang, "");
    context.turn_away();
    let jobs = (0..10_000).map(|_| json!({"payload": ""}));
    context.ask(&run(1, false, jobs));
    assert_eq!(context.ended().code, Some(70));
}

pub(crate) fn keeps_its_descriptors_from_programs(lang: Lang) {
    let script = "for n in 3 4 5 6 7 8 9; do (: >&$n) 2>/dev/null && echo $n; done; :";
    let body = lang.pick(
        "return require('child_process').execFileSync('sh', ['-c', payload]).toString()",
        "import subprocess\nreturn subprocess.run(payload, shell=True, close_fds=False, \
         capture_output=True).stdout.decode()",
        "return (string) shell_exec($payload);",
    );
    let end = Context::loaded(lang, body).run_one(script);
    assert_eq!(end["data"], "", "a program sees these descriptors");
}

/// Answers wait in the pipe, which holds much less, until they are read.
pub(crate) fn waits_for_room(lang: Lang) {
    let body = lang.pick("return payload", "return payload", "return $payload;");
    let mut context = Context::loaded(lang, body);
    let long = "x".repeat(100_000);
    let jobs = (0..100).map(|_| json!({"payload": long}));
    context.ask(&run(1, false, jobs));
    let answers = context.answers();
    assert_eq!(answers.len(), 102);
    assert!(ends(&answers).iter().all(|end| end["data"] == *long));
}

pub(crate) fn what_is_said_between_requests_is_no_answer(lang: Lang) {
    // Php runs nothing while it waits.
    let body = lang.pick(
        "setImmediate(() => { console.log('late'); ctx.said = true }); return ctx.said === true",
        "import threading\n\
         threads = ctx.get('threads', [])\n\
         ctx.threads = [threading.Timer(0, print, ['late'])]\n\
         [t.start() for t in ctx.threads]\n\
         return bool(threads) and not threads[0].join()",
        "$said = isset($ctx->said); $ctx->said = true; return $said;",
    );
    let mut context = Context::loaded(lang, body);
    let mut said = Value::Bool(false);
    let mut batches_left = 100;
    while said == Value::Bool(false) {
        said = context.run_one("")["data"].clone();
        batches_left -= 1;
        assert!(batches_left > 0);
    }
    context.close();
    assert_eq!(context.answer(), None);
}
