//! The return value of a body decides.

use serde_json::json;

use crate::harness::{Context, Lang, RESULT_BYTES_MAX};

pub(crate) fn nothing_is_200(lang: Lang) {
    let mut context = Context::greeted(lang);
    let bodies = lang.pick(
        ["", "return", "return null", "return undefined"],
        ["", "return", "return None", "pass"],
        ["", "return;", "return null;", ";"],
    );
    for body in bodies {
        context.check(body, &json!({"status": 200}));
    }
}

pub(crate) fn a_whole_number_is_a_status_if_it_can_be_one(lang: Lang) {
    let mut context = Context::greeted(lang);
    for result in [0, 42, 99, 600, -1] {
        let body = format!("return {result}{}", lang.pick("", "", ";"));
        context.check(&body, &json!({"status": 200, "data": result}));
    }
    for status in [100, 200, 299, 404, 599] {
        let body = format!("return {status}{}", lang.pick("", "", ";"));
        context.check(&body, &json!({"status": status}));
    }
}

pub(crate) fn a_status_that_is_none_is_an_error(lang: Lang) {
    let mut context = Context::greeted(lang);
    let bodies = lang.pick(
        ["return {status: 99}", "return {status: '200'}", "return {status: true}"],
        ["return {'status': 99}", "return {'status': '200'}", "return {'status': True}"],
        ["return ['status' => 99];", "return ['status' => '200'];", "return ['status' => true];"],
    );
    for body in bodies {
        context.check_error(body, "the status must be a whole number from 100 to 599, not ");
    }
    let body = lang.pick(
        "return {status: 200.5, data: 1}",
        "return {'status': 200.5, 'data': 1}",
        "return ['status' => 200.5, 'data' => 1];",
    );
    context.check_error(body, "200.5");
}

pub(crate) fn status_and_data(lang: Lang) {
    let mut context = Context::greeted(lang);
    let cases = lang.pick(
        ["{status: 201, data: [1]}", "{status: 404}", "{data: null}", "{status: null, data: 5}"],
        [
            "{'status': 201, 'data': [1]}",
            "{'status': 404}",
            "{'data': None}",
            "{'status': None, 'data': 5}",
        ],
        [
            "['status' => 201, 'data' => [1]]",
            "['status' => 404]",
            "['data' => null]",
            "['status' => null, 'data' => 5]",
        ],
    );
    let expected = [
        json!({"status": 201, "data": [1]}),
        json!({"status": 404}),
        json!({"status": 200, "data": null}),
        json!({"status": 200, "data": 5}),
    ];
    for (value, expected) in cases.iter().zip(&expected) {
        context.check(&format!("return {value};"), expected);
    }
}

pub(crate) fn anything_else_is_data(lang: Lang) {
    let mut context = Context::greeted(lang);
    let cases = lang.pick(
        ["'Grüße'", "true", "1.5", "[]", "{status: 1, other: 2}", "['status']", "''"],
        ["'Grüße'", "True", "1.5", "()", "{'status': 1, 'other': 2}", "['status']", "''"],
        ["'Grüße'", "true", "1.5", "[]", "['status' => 1, 'other' => 2]", "['status']", "''"],
    );
    let data = [
        json!("Grüße"),
        json!(true),
        json!(1.5),
        json!([]),
        json!({"status": 1, "other": 2}),
        json!(["status"]),
        json!(""),
    ];
    for (value, data) in cases.iter().zip(&data) {
        context.check(&format!("return {value};"), &json!({"status": 200, "data": data}));
    }
}

pub(crate) fn what_is_no_json_is_an_error(lang: Lang) {
    let mut context = Context::greeted(lang);
    let bodies: &[&str] = lang.pick(
        &[
            "return {data: 10n}",
            "return [NaN, null]",
            "return -Infinity",
            "const a = {}; a.a = [a]; return a",
            "return () => 1",
            "return Symbol('x')",
            "return new Set([1])",
            "return new Map()",
            "return Buffer.from('x')",
            "return ['\\ud800']",
            "return {['\\udc00']: 1}",
            "return {toJSON() { throw new Error('never') }}",
        ],
        &[
            "return {'data': b'x'}",
            "return [float('nan')]",
            "return float('-inf')",
            "a = {}; a['a'] = [a]; return a",
            "return lambda: 1",
            "return object()",
            "return {1, 2}",
            "return ['\\ud800']",
            "return {(1, 2): 3}",
        ],
        &[
            "return ['data' => \"\\xff\"];",
            "return [NAN];",
            "return -INF;",
            "$a = []; $a['a'] = &$a; return $a;",
            "return STDIN;",
            "return new class implements JsonSerializable { function jsonSerialize(): mixed { \
             throw new Exception('never'); } };",
        ],
    );
    for body in bodies {
        context.check_error(body, "the result is no JSON value: ");
    }
}

pub(crate) fn the_largest_result_and_one_byte_more(lang: Lang) {
    let body = lang.pick(
        "return 'x'.repeat(Number(payload) - 2)",
        "return 'x' * (int(payload) - 2)",
        "return str_repeat('x', $payload - 2);",
    );
    let mut context = Context::loaded(lang, body);
    let end = context.run_one(&RESULT_BYTES_MAX.to_string());
    assert_eq!(end["data"].as_str().map(str::len), Some(RESULT_BYTES_MAX - 2));
    let end = context.run_one(&(RESULT_BYTES_MAX + 1).to_string());
    assert_eq!((&end["status"], end.get("data")), (&json!(500), None));
    assert_eq!(end["error"], "the result has 16777217 bytes, at most 16777216");
    // Bytes count, not characters.
    let body = lang.pick(
        "return 'ü'.repeat(8388608)",
        "return 'ü' * 8388608",
        "return str_repeat('ü', 8388608);",
    );
    context.check_error(body, "the result has 16777218 bytes");
}

pub(crate) fn deep_data(lang: Lang) {
    let body = lang.pick(
        "let a = []; for (let i = 0; i < Number(payload); i++) a = [a]; return a",
        "a = []\nfor i in range(int(payload)): a = [a]\nreturn a",
        "$a = []; for ($i = 0; $i < $payload; $i++) $a = [$a]; return $a;",
    );
    let mut context = Context::loaded(lang, body);
    assert_eq!(context.run_one("100")["status"], 200);
    // Nesting too deep for the language's own encoder is an ordinary error.
    let too_deep = lang.pick("1000000", "1000000", "1000");
    assert_eq!(context.run_one(too_deep)["status"], 500);
    assert_eq!(context.run_one("100")["status"], 200);
}
