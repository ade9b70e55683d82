//! Batches: the order of events, the two scripts around the jobs, and jobs that end the process.

use serde_json::{Value, json};

use crate::harness::{Context, Lang, ends, of_kind, run, text};

pub(crate) fn answers_in_order(lang: Lang) {
    let body = lang.pick("return payload", "return payload", "return $payload;");
    let answers = Context::loaded(lang, body).run(&["a", "b", "c"]);
    let end = |job, data| json!({"kind": "end", "job": job, "status": 200, "data": data});
    let (begun, done) = (json!({"kind": "begun"}), json!({"kind": "done"}));
    assert_eq!(answers, [begun, end(0, "a"), end(1, "b"), end(2, "c"), done]);
}

pub(crate) fn ten_thousand_jobs_in_one_batch(lang: Lang) {
    let body = lang.pick("await null; return job.id", "return job.id", "return $job->id;");
    let mut context = Context::loaded(lang, body);
    context.ask(&run(1, false, (0..10_000).map(|_| json!({"payload": ""}))));
    let answers = context.answers();
    assert_eq!(answers.len(), 10_002);
    for (place, end) in ends(&answers).iter().enumerate() {
        assert_eq!((&end["job"], &end["data"]), (&json!(place), &json!(place.to_string())));
    }
}

/// A handler that counts what runs, and whose jobs return the counts.
fn counting(lang: Lang) -> Value {
    let (before, each, after, body) = lang.pick(
        (
            "ctx.begun = 0; ctx.done = 0",
            "await null; ctx.begun++",
            "await null; ctx.done++",
            "if (payload === 'fail') throw new Error('failed'); return [ctx.begun, ctx.done]",
        ),
        (
            "ctx.begun = 0; ctx.done = 0",
            "ctx.begun += 1",
            "ctx.done += 1",
            "if payload == 'fail': raise Exception('failed')\nreturn [ctx.begun, ctx.done]",
        ),
        (
            "$ctx->begun = 0; $ctx->done = 0;",
            "$ctx->begun++;",
            "$ctx->done++;",
            "if ($payload === 'fail') throw new Exception('failed'); \
             return [$ctx->begun, $ctx->done];",
        ),
    );
    json!({"before": before, "beforeEach": each, "afterEach": after, "body": body})
}

pub(crate) fn before_each_and_after_each_run_once_a_batch(lang: Lang) {
    let mut context = Context::greeted(lang);
    context.load(&counting(lang));
    for batch in 1..=3 {
        let answers = context.run(&["", "", ""]);
        for end in ends(&answers) {
            assert_eq!(end["data"], json!([batch, batch - 1]));
        }
    }
}

pub(crate) fn after_each_runs_when_jobs_failed(lang: Lang) {
    let mut context = Context::greeted(lang);
    context.load(&counting(lang));
    let answers = context.run(&["fail", "", "fail"]);
    let statuses: Vec<Value> = ends(&answers).iter().map(|end| end["status"].clone()).collect();
    assert_eq!(statuses, [500, 200, 500]);
    assert_eq!(context.run_one("")["data"], json!([2, 1]));
}

fn thrower(lang: Lang) -> &'static str {
    lang.pick(
        "\nif (!ctx.thrown) { ctx.thrown = true; await null; throw new Error('not now') }",
        "\nif 'thrown' not in ctx:\n  ctx.thrown = True\n  raise Exception('not now')",
        "\nif (!isset($ctx->thrown)) { $ctx->thrown = true; throw new Exception('not now'); }",
    )
}

fn check_failed(answer: &Value, stage: &str) {
    assert_eq!((&answer["kind"], &answer["stage"]), (&json!("failed"), &json!(stage)));
    assert!(answer["message"].as_str().unwrap().contains("not now"), "{answer}");
}

pub(crate) fn a_batch_is_over_when_before_each_throws(lang: Lang) {
    let mut context = Context::greeted(lang);
    let after = lang.pick("console.log('after')", "print('after')", "echo 'after';");
    context.load(&json!({"beforeEach": thrower(lang), "afterEach": after}));
    let answers = context.run(&["", ""]);
    assert_eq!(answers.len(), 1);
    check_failed(&answers[0], "beforeEach");
    assert_eq!(context.run_one("")["status"], 200);
}

pub(crate) fn a_batch_is_over_when_after_each_throws(lang: Lang) {
    let mut context = Context::greeted(lang);
    context.load(&json!({"afterEach": thrower(lang)}));
    let answers = context.run(&["", ""]);
    assert_eq!((ends(&answers).len(), answers.len()), (2, 4));
    check_failed(&answers[3], "afterEach");
    assert_eq!(of_kind(&context.run(&[""]), "done").len(), 1);
}

pub(crate) fn a_job_knows_itself(lang: Lang) {
    let body = lang.pick(
        "return {...job, payload}",
        "return {**{k: job[k] for k in job}, 'id': job.id, 'payload': payload}",
        "return ['id' => $job['id'], 'payload' => $payload] + (array) $job;",
    );
    let end = Context::loaded(lang, body).run_one("p");
    let expected = json!({"id": "0", "tenant": "acme", "type": "mail", "attempt": 1,
        "priority": 500, "created_at": "2026-11-15T22:23:32.000Z", "children": false,
        "payload": "p"});
    assert_eq!(end["data"], expected);
}

/// Ends the process when the payload says so.
fn ender(lang: Lang) -> &'static str {
    lang.pick(
        "if (payload === 'end') process.exit(3); return payload",
        "import os\nif payload == 'end': os._exit(3)\nreturn payload",
        "if ($payload === 'end') exit(3); return $payload;",
    )
}

pub(crate) fn an_end_is_written_before_the_next_job_starts(lang: Lang) {
    let mut context = Context::loaded(lang, ender(lang));
    context.ask(&run(1, false, ["a", "end", "b"].iter().map(|p| json!({"payload": p}))));
    let mut answers = Vec::new();
    while let Some(answer) = context.answer() {
        answers.push(answer);
    }
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert_eq!(answers[1]["data"], "a");
}

/// Jobs that take longer than a context may go without reading the byte, and print when they begin.
fn looking(lang: Lang) -> Value {
    let body = lang.pick(
        "console.log(payload); const fs = require('fs');
         while (fs.existsSync(payload)) await new Promise((go) => setTimeout(go, 5));
         await new Promise((go) => setTimeout(go, 5)); return payload",
        "import os, time\nprint(payload)\n\
         while os.path.exists(payload): time.sleep(0.005)\n\
         time.sleep(0.005)\nreturn payload",
        "echo $payload; while (file_exists($payload)) { usleep(5000); clearstatcache(); }
         usleep(5000); return $payload;",
    );
    let each = lang.pick("console.log('[')", "print('[')", "echo '[';");
    let after = lang.pick("console.log(']')", "print(']')", "echo ']';");
    json!({"body": body, "beforeEach": each, "afterEach": after})
}

fn without_output(answers: &[Value]) -> Vec<Value> {
    answers.iter().filter(|answer| answer["kind"] != "output").cloned().collect()
}

pub(crate) fn a_batch_that_is_halted_ends_before_its_next_job(lang: Lang) {
    let mut context = Context::greeted(lang);
    context.load(&looking(lang));
    let hold = context.file("hold", b"");
    let payloads = ["a", hold.to_str().unwrap(), "b", "c"];
    context.ask(&run(1, false, payloads.iter().map(|p| json!({"payload": p}))));
    let mut answers = Vec::new();
    while !text(&answers, "stdout").contains("hold") {
        answers.push(context.answer().unwrap());
    }
    context.halt(true);
    std::fs::remove_file(&hold).unwrap();
    answers.extend(context.answers());
    let end = |job, data| json!({"kind": "end", "job": job, "status": 200, "data": data});
    let (begun, done) = (json!({"kind": "begun"}), json!({"kind": "done"}));
    let halted = json!({"kind": "halted", "job": 2});
    let expected = [begun, end(0, payloads[0]), end(1, payloads[1]), halted, done];
    assert_eq!(without_output(&answers), expected);
    assert!(text(&answers, "stdout").trim_end().ends_with(']'), "afterEach runs: {answers:?}");
    context.halt(false);
    assert_eq!(ends(&context.run(&["b", "c"])).len(), 2, "the next batch is whole");
}

pub(crate) fn a_batch_that_is_halted_before_it_begins_runs_no_job(lang: Lang) {
    let mut context = Context::greeted(lang);
    context.load(&looking(lang));
    context.halt(true);
    let answers = context.run(&["a", "b"]);
    let halted = json!({"kind": "halted", "job": 0});
    let expected = [json!({"kind": "begun"}), halted, json!({"kind": "done"})];
    assert_eq!(without_output(&answers), expected);
    assert_eq!(text(&answers, "stdout").replace('\n', ""), "[]");
}

pub(crate) fn a_handler_that_ends_the_process_ends_the_context(lang: Lang) {
    let mut context = Context::loaded(lang, ender(lang));
    context.ask(&run(1, false, [json!({"payload": "end"})].into_iter()));
    assert_eq!(context.answer(), Some(json!({"kind": "begun"})));
    assert_eq!(context.answer(), None);
    assert_eq!(context.ended().code, Some(3));
}
