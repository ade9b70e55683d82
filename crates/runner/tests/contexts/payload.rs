//! Payloads: text, bytes, and files of either.

use serde_json::{Value, json};

use crate::harness::{Context, Lang, ends, run};

/// Returns the kind of the payload's value, its length as the language counts it, and its bytes.
fn shows(lang: Lang) -> &'static str {
    lang.pick(
        "return [typeof payload === 'string' ? 'text' : Buffer.isBuffer(payload) ? 'bytes' : '?', \
         Buffer.from(payload).toString('hex')]",
        "return ['text', payload.encode().hex()] if type(payload) is str \
         else ['bytes' if type(payload) is bytes else '?', payload.hex()]",
        "return [preg_match('//u', $payload) ? 'text' : 'bytes', bin2hex($payload)];",
    )
}

fn shown(context: &mut Context, payloads: Vec<Value>) -> Vec<Value> {
    context.ask(&run(1, false, payloads.into_iter()));
    ends(&context.answers()).iter().map(|end| end["data"].clone()).collect()
}

pub(crate) fn text_and_bytes(lang: Lang) {
    let mut context = Context::loaded(lang, shows(lang));
    let payloads = vec![
        json!({"payload": ""}),
        json!({"payload": "ü\u{0}\u{feff}🙂\r\n"}),
        json!({"payload_base64": "//8="}),
    ];
    let expected = [
        json!(["text", ""]),
        json!(["text", "c3bc00efbbbff09f99820d0a"]),
        json!(["bytes", "ffff"]),
    ];
    assert_eq!(shown(&mut context, payloads), expected);
}

pub(crate) fn in_files(lang: Lang) {
    let mut context = Context::loaded(lang, shows(lang));
    let text = context.file("payload-0", "\u{feff}ü\r\n".as_bytes());
    let bytes = context.file("payload-1", &[0xff, 0x00, 0x0d, 0x0a]);
    let empty = context.file("payload-2", b"");
    let payloads = vec![
        json!({"payload_file": text, "payload_text": true}),
        json!({"payload_file": bytes, "payload_text": false}),
        json!({"payload_file": empty, "payload_text": true}),
    ];
    let expected =
        [json!(["text", "efbbbfc3bc0d0a"]), json!(["bytes", "ff000d0a"]), json!(["text", ""])];
    assert_eq!(shown(&mut context, payloads), expected);
}

pub(crate) fn that_is_gone_fails_its_job_only(lang: Lang) {
    let mut context = Context::loaded(lang, "");
    let gone = json!({"payload_file": "/nowhere/payload", "payload_text": true});
    context.ask(&run(1, false, [gone.clone(), json!({"payload": ""}), gone].into_iter()));
    let ends = ends(&context.answers());
    let statuses: Vec<_> = ends.iter().map(|end| end["status"].clone()).collect();
    assert_eq!(statuses, [500, 200, 500]);
    assert!(ends[0]["error"].is_string());
}

pub(crate) fn of_many_bytes(lang: Lang) {
    let body = lang.pick(
        "return require('crypto').createHash('sha256').update(payload).digest('hex')",
        "import hashlib\nreturn hashlib.sha256(payload.encode()).hexdigest()",
        "return hash('sha256', $payload);",
    );
    let mut context = Context::loaded(lang, body);
    let sixteen_million = "ü".repeat(8 * 1024 * 1024);
    let file = context.file("payload-0", sixteen_million.as_bytes());
    let payloads = vec![
        json!({"payload": sixteen_million}),
        json!({"payload_file": file, "payload_text": true}),
    ];
    let data = shown(&mut context, payloads);
    assert_eq!(data[0].as_str().map(str::len), Some(64));
    assert_eq!(data[0], data[1]);
}
