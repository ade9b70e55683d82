//! Specific to node: promises, timers, modules.

use serde_json::json;

use crate::harness::{Context, Lang, ends, run, text};

const NODE: Lang = Lang::Node;

#[test]
fn bodies_may_wait() {
    let mut context = Context::greeted(NODE);
    context.check(
        "await new Promise((resolve) => setTimeout(resolve, 1)); return Promise.resolve(204)",
        &json!({"status": 204}),
    );
    context.check_error("await Promise.reject(new Error('refused'))", "Error: refused");
}

#[test]
fn an_error_outside_of_its_function_ends_the_job_that_caused_it() {
    for body in [
        "Promise.reject(new Error('forgotten')); await new Promise(() => {})",
        "setTimeout(() => { throw new Error('forgotten') }, 1); await new Promise(() => {})",
        "process.nextTick(() => { throw new Error('forgotten') }); await new Promise(() => {})",
        "queueMicrotask(() => { throw new Error('forgotten') }); await new Promise(() => {})",
        "new (require('events'))().emit('error', new Error('forgotten'))",
    ] {
        let mut context = Context::loaded(NODE, body);
        for _ in 0..2 {
            for end in ends(&context.run(&["", ""])) {
                assert_eq!(end["status"], 500, "{body}");
                assert!(end["error"].as_str().unwrap().contains("Error: forgotten"), "{end}");
            }
        }
    }
}

#[test]
fn an_error_of_a_job_that_has_ended_costs_no_other_job() {
    for late in [
        "setTimeout(() => { throw new Error('late') }, 1)",
        "setTimeout(() => Promise.reject(new Error('late')), 1)",
        "Promise.reject(new Error('late'))",
    ] {
        let wait = "await new Promise((resolve) => setTimeout(resolve, 50))";
        let body = format!("if (payload === 'late') {late}; else {wait}");
        let answers = Context::loaded(NODE, &body).run(&["late", "waits"]);
        for end in ends(&answers) {
            assert_eq!(end["status"], 200, "{late}");
        }
        assert!(text(&answers, "stderr").contains("Error: late"), "{answers:?}");
    }
}

#[test]
fn an_error_between_batches_does_not_end_the_context() {
    let body = "if (payload === 'late') setImmediate(() => { ctx.thrown = true; throw 'late' }); \
        return [ctx.thrown === true]";
    let mut context = Context::loaded(NODE, body);
    context.run(&["late"]);
    let mut batches_left = 100;
    while context.run_one("")["data"] != json!([true]) {
        batches_left -= 1;
        assert!(batches_left > 0);
    }
}

#[test]
fn errors_outside_of_the_other_three_sources_fail_them() {
    let source =
        "setTimeout(() => { throw new Error('forgotten') }, 1); await new Promise(() => {})";
    for field in ["before", "beforeEach", "afterEach"] {
        let mut context = Context::greeted(NODE);
        let mut answers = context.try_load(&json!({field: source}));
        if field != "before" {
            answers = context.run(&[""]);
        }
        let failed = answers.last().unwrap();
        assert_eq!((&failed["kind"], &failed["stage"]), (&json!("failed"), &json!(field)));
    }
}

#[test]
fn a_word_after_the_last_one_counts_for_nothing() {
    let body = "if (payload === 'two') {\n\
          await new Promise((resolve) => setTimeout(() => {\n\
            setImmediate(() => setImmediate(resolve)); throw new Error('first')\n\
          }));\n\
          setImmediate(ctx.go); return 201\n\
        }\n\
        await new Promise((resolve) => { ctx.go = resolve }); return 202";
    let ends = ends(&Context::loaded(NODE, body).run(&["two", "one"]));
    assert_eq!((&ends[0]["status"], &ends[1]["status"]), (&json!(500), &json!(202)));
    assert_eq!(ends.len(), 2);
}

#[test]
fn what_catches_errors_is_put_back() {
    let mut context = Context::loaded(NODE, "process.removeAllListeners(); return 201");
    assert_eq!(context.run_one("")["status"], 201);
    let body = "setTimeout(() => { throw new Error('forgotten') }, 1); await new Promise(() => {})";
    context.load(&json!({"handler": 2, "body": body}));
    assert_eq!(context.run_one_as(2, "")["status"], 500);
}

#[test]
fn a_job_that_waits_for_nothing_does_not_outlive_its_requests() {
    let mut context = Context::loaded(NODE, "await new Promise(() => {})");
    context.ask(&run(1, false, [json!({"payload": ""})].into_iter()));
    assert_eq!(context.answer(), Some(json!({"kind": "begun"})));
    context.close();
    assert_eq!(context.answer(), None);
    assert_eq!(context.ended().code, Some(0));
}

#[test]
fn modules_of_both_kinds_can_be_loaded() {
    let body = "const {create} = require('domain'); const os = await import('node:os'); \
        return [typeof create, typeof os.cpus, typeof require.resolve]";
    Context::greeted(NODE)
        .check(body, &json!({"status": 200, "data": ["function", "function", "function"]}));
    let mut context = Context::loaded(NODE, "return require('./own.js') + require('pack')");
    std::fs::create_dir_all(context.work_dir().join("node_modules/pack")).unwrap();
    std::fs::write(context.work_dir().join("own.js"), "module.exports = 'own '").unwrap();
    let index = context.work_dir().join("node_modules/pack/index.js");
    std::fs::write(index, "module.exports = 'pack'").unwrap();
    assert_eq!(context.run_one("")["data"], "own pack");
}

#[test]
fn too_deep_recursion_is_an_error_like_any_other() {
    let mut context = Context::loaded(NODE, "const f = () => f() + 1; return f()");
    for _ in 0..2 {
        let end = context.run_one("");
        assert!(end["error"].as_str().unwrap().starts_with("RangeError: Maximum call stack"));
    }
}

#[test]
fn streams_take_what_those_of_node_take() {
    let body = "const {stdout} = process; const said = [];\n\
        stdout.write('6869', 'hex'); stdout.write(new Uint8Array([33]));\n\
        await new Promise((resolve) => stdout.write('x', resolve));\n\
        await new Promise((resolve) => stdout.write('eA==', 'base64', resolve));\n\
        stdout.on('error', (e) => said.push(e));\n\
        try { stdout.write(5) } catch (e) { said.push(e.code) }\n\
        await require('stream/promises').pipeline(require('stream').Readable.from(['p', 'q']),\n\
        stdout, {end: false}); console.table; console.dir({a: 1}); console.log('%s-%d', 'a', 1);\n\
        return [said, stdout.fd, process.stderr.fd, stdout.writable]";
    let answers = Context::loaded(NODE, body).run(&[""]);
    assert_eq!(text(&answers, "stdout"), "hi!xxpq{ a: 1 }\na-1\n");
    assert_eq!(ends(&answers)[0]["data"], json!([["ERR_INVALID_ARG_TYPE"], 1, 2, true]));
}

#[test]
fn strict_mode_can_be_chosen() {
    let mut context = Context::greeted(NODE);
    context.check_error("'use strict'; undeclared = 1", "ReferenceError");
    context.check(
        "return [typeof this, typeof module]",
        &json!({"status": 200,
        "data": ["object", "undefined"]}),
    );
}
