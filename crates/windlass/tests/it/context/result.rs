//! What a function in a warm context returns (statuses, data, exceptions), and what it receives:
//! payloads of all kinds and sizes.

use serde_json::{Value, json};

use crate::harness::{Case, Random, Stage, in_every_language, sha256_of, text, until};

const MIB: usize = 1024 * 1024;
/// The longest JSON text of a result.
const RESULT_BYTES_MAX: usize = 16 * MIB;

/// Payload, then the state, code, status and data that must follow.
type Row<'a> = (&'a str, &'a str, &'a str, u16, Value);

/// Runs one job for each row, all in one batch.
#[track_caller]
fn check_rows(stage: &Stage, rows: &[Row]) {
    let payloads: Vec<&str> = rows.iter().map(|row| row.0).collect();
    let ids = stage.batch("t", &payloads);
    for (id, (payload, state, code, status, data)) in ids.iter().zip(rows) {
        let job = stage.end(id);
        let seen = (&job["state"], &job["code"], &job["exitcode"], &job["result"]);
        let wanted = (&json!(state), &json!(code), &json!(status), data);
        assert_eq!(seen, wanted, "{payload}: {}", stage.log_of(&job));
        assert_eq!(job["attempt"], 1, "{payload}");
    }
}

in_every_language! {
    fn s0_61_what_is_returned_decides_status_and_data(t) {
        node: "switch (payload) {
                   case 'nothing': return;
                   case 'null': return null;
                   case '204': return 204;
                   case '404': return 404;
                   case '599': return 599;
                   case '302': return 302;
                   case '150': return 150;
                   case 'both': return {status: 201, data: {a: [1, null, 'x']}};
                   case 'status': return {status: 422};
                   case 'data': return {data: false};
                   case 'other': return {status: 404, more: true};
                   case 'text': return 'text';
                   case 'true': return true;
                   case 'list': return [1, 2];
                   case 'float': return 1.5;
                   case 'empty': return {data: []};
               }",
        python: "
            return {
                'nothing': None, 'null': None, '204': 204, '404': 404, '599': 599, '302': 302,
                '150': 150,
                'both': {'status': 201, 'data': {'a': [1, None, 'x']}},
                'status': {'status': 422},
                'data': {'data': False},
                'other': {'status': 404, 'more': True},
                'text': 'text', 'true': True, 'list': [1, 2], 'float': 1.5, 'empty': {'data': []},
            }[payload]",
        php: "$results = [
                  'nothing' => null, 'null' => null, '204' => 204, '404' => 404, '599' => 599,
                  '302' => 302, '150' => 150,
                  'both' => ['status' => 201, 'data' => ['a' => [1, null, 'x']]],
                  'status' => ['status' => 422],
                  'data' => ['data' => false],
                  'other' => ['status' => 404, 'more' => true],
                  'text' => 'text', 'true' => true, 'list' => [1, 2], 'float' => 1.5,
                  'empty' => ['data' => []],
              ];
              return $results[$payload];",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 100}));
        check_rows(&stage, &[
            ("nothing", "finished", "ok", 200, Value::Null),
            ("null", "finished", "ok", 200, Value::Null),
            ("204", "finished", "ok", 204, Value::Null),
            ("404", "failed", "failed", 404, Value::Null),
            ("599", "failed", "error", 599, Value::Null),
            ("302", "failed", "error", 302, Value::Null),
            ("150", "failed", "retry", 150, Value::Null),
            ("both", "finished", "ok", 201, json!({"a": [1, null, "x"]})),
            ("status", "failed", "failed", 422, Value::Null),
            ("data", "finished", "ok", 200, json!(false)),
            ("other", "finished", "ok", 200, json!({"status": 404, "more": true})),
            ("text", "finished", "ok", 200, json!("text")),
            ("true", "finished", "ok", 200, json!(true)),
            ("list", "finished", "ok", 200, json!([1, 2])),
            ("float", "finished", "ok", 200, json!(1.5)),
            ("empty", "finished", "ok", 200, json!([])),
        ]);
    }

    fn a_whole_number_that_is_no_status_is_the_result(t) {
        node: "return {small: 99, large: 600, minus: -1, zero: 0}[payload];",
        python: "return {'small': 99, 'large': 600, 'minus': -1, 'zero': 0}[payload]",
        php: "return ['small' => 99, 'large' => 600, 'minus' => -1, 'zero' => 0][$payload];",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 100}));
        check_rows(&stage, &[
            ("small", "finished", "ok", 200, json!(99)),
            ("large", "finished", "ok", 200, json!(600)),
            ("minus", "finished", "ok", 200, json!(-1)),
            ("zero", "finished", "ok", 200, json!(0)),
        ]);
    }

    fn a_status_that_is_none_is_an_error_that_says_so(t) {
        node: "return {text: {status: 'ok'}, half: {status: 200.5}, huge: {status: 1e300},
                       small: {status: 99}, large: {status: 600}}[payload];",
        python: "
            return {'text': {'status': 'ok'}, 'half': {'status': 200.5},
                    'huge': {'status': 10 ** 300}, 'small': {'status': 99},
                    'large': {'status': 600}}[payload]",
        php: "return ['text' => ['status' => 'ok'], 'half' => ['status' => 200.5],
                      'huge' => ['status' => 1e300], 'small' => ['status' => 99],
                      'large' => ['status' => 600]][$payload];",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 100}));
        for id in stage.batch("t", &["text", "half", "huge", "small", "large"]) {
            let job = stage.end(&id);
            stage.failed(&job, "status");
            assert_eq!(job["exitcode"], 500, "{job}");
        }
    }

    fn an_exception_may_have_a_status(t) {
        node: "const status = JSON.parse(payload);
               throw Object.assign(new Error('at fault'), {status});",
        python: "
            import json
            class Gone(Exception):
                status = json.loads(payload)
            raise Gone('at fault')",
        php: "throw new class('at fault', json_decode($payload)) extends Exception {
                  public $status;
                  function __construct($message, $status) {
                      parent::__construct($message);
                      $this->status = $status;
                  }
              };",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 100}));
        let rows: [Row; 7] = [
            ("410", "failed", "failed", 410, Value::Null),
            ("503", "failed", "error", 503, Value::Null),
            ("100", "failed", "retry", 100, Value::Null),
            ("99", "failed", "error", 500, Value::Null),
            ("600", "failed", "error", 500, Value::Null),
            ("\"410\"", "failed", "error", 500, Value::Null),
            ("null", "failed", "error", 500, Value::Null),
        ];
        check_rows(&stage, &rows);
        for job in stage.tenant.list("type=t") {
            let log = stage.log_of(&job);
            assert!(log.contains("at fault"), "{log}");
        }
    }

    /// One after the other in one batch: each is an error of its own job only.
    fn data_that_is_no_json_is_an_error_of_its_job(t) {
        node: "const cycle = {}; cycle.self = cycle;
               return {data: {cycle, bigint: 1n, deep: {inside: [{x: 1n}]},
                              throws: {toJSON() { throw new Error('no'); }}, fine: 1}[payload]};",
        python: "
            cycle = []
            cycle.append(cycle)
            return {'data': {'cycle': cycle, 'object': object(), 'set': {1}, 'bytes': b'x',
                             'nan': float('nan'), 'infinity': [float('inf')],
                             'keys': {(1, 2): 3}, 'fine': 1}[payload]}",
        php: "$cycle = []; $cycle['self'] = &$cycle;
              $data = ['cycle' => $cycle, 'nan' => NAN, 'infinity' => [INF], 'bytes' => chr(255),
                       'resource' => fopen('php://memory', 'r'), 'fine' => 1];
              return ['data' => $data[$payload]];",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 100}));
        let bad: &[&str] = match t.lang {
            "node" => &["cycle", "bigint", "deep", "throws"],
            "python" => &["cycle", "object", "set", "bytes", "nan", "infinity", "keys"],
            _ => &["cycle", "nan", "infinity", "bytes", "resource"],
        };
        let payloads: Vec<&str> = bad.iter().flat_map(|payload| [*payload, "fine"]).collect();
        for (id, payload) in stage.batch("t", &payloads).iter().zip(&payloads) {
            let job = stage.end(id);
            match *payload {
                "fine" => stage.succeeded(&job),
                _ => stage.failed(&job, "JSON"),
            }
        }
    }

    /// Unusual JSON values. Whatever happens to them, their neighbours are unharmed.
    fn strange_data_costs_nobody_else_anything(t) {
        node: "let deep = []; for (let i = 0; i < 5000; i++) deep = [deep];
               return {data: {surrogate: 'x\\ud800y', deep, zero: '\\0', key: {'\\udfff': 1},
                              precise: 9007199254740993, tiny: 5e-324, huge: 1.7e308,
                              fine: 1}[payload]};",
        python: "
            deep = []
            for _ in range(500):
                deep = [deep]
            return {'data': {'surrogate': 'x\\ud800y', 'deep': deep, 'zero': '\\0',
                             'key': {'\\udfff': 1}, 'precise': 10 ** 30, 'tiny': 5e-324,
                             'huge': 10 ** 400, 'fine': 1}[payload]}",
        php: "$deep = []; for ($i = 0; $i < 500; $i++) $deep = [$deep];
              return ['data' => ['surrogate' => 'x', 'deep' => $deep, 'zero' => chr(0),
                                 'key' => ['' => 1], 'precise' => 9007199254740993,
                                 'tiny' => 5e-324, 'huge' => 1.7e308, 'fine' => 1][$payload]];",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 100}));
        let strange = ["surrogate", "deep", "zero", "key", "precise", "tiny", "huge"];
        let payloads: Vec<&str> = strange.iter().flat_map(|payload| [*payload, "fine"]).collect();
        let ids = stage.batch("t", &payloads);
        stage.end(ids.last().unwrap());
        for (id, payload) in ids.iter().zip(&payloads) {
            if ["deep", "huge"].contains(payload) {
                // This test's own parser does not go that deep.
                let job = stage.tenant.get(&format!("jobs/{id}")).expect(200).text();
                assert!(job.contains("\"attempt\":1") && !job.contains("queued"), "{job}");
                continue;
            }
            let job = stage.end(id);
            assert_eq!(job["attempt"], 1, "{payload}: {job}");
            match *payload {
                "fine" | "zero" | "tiny" => stage.succeeded(&job),
                _ if job["state"] == "failed" => stage.failed(&job, "JSON"),
                _ => stage.succeeded(&job),
            }
        }
    }

    /// Data is kept up to 16 MiB of JSON text, and not one byte more.
    fn s0_61_data_has_a_limit_of_sixteen_mebibytes(t) {
        node: "return {data: 'x'.repeat(Number(payload) - 2)};",
        python: "return {'data': 'x' * (int(payload) - 2)}",
        php: "return ['data' => str_repeat('x', (int) $payload - 2)];",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1}));
        let data = text(&stage.data("t", &RESULT_BYTES_MAX.to_string()));
        assert_eq!(data.len(), RESULT_BYTES_MAX - 2);
        assert!(data.bytes().all(|byte| byte == b'x'));
        let job = stage.run("t", &(RESULT_BYTES_MAX + 1).to_string());
        stage.failed(&job, &RESULT_BYTES_MAX.to_string());
        assert_eq!(job["result"], Value::Null);
        assert_eq!(stage.data("t", "3"), "x", "the type goes on");
    }

    fn s0_61_wait_holds_the_answer_until_the_result_is_there(t) {
        node: "while (require('fs').existsSync(payload)) {
                   await new Promise((go) => setTimeout(go, 20));
               }
               return {status: 202, data: 'at last'};",
        python: "
            import os, time
            while os.path.exists(payload):
                time.sleep(0.02)
            return {'status': 202, 'data': 'at last'}",
        php: "while (file_exists($payload)) { clearstatcache(); usleep(20000); }
              return ['status' => 202, 'data' => 'at last'];",
    } {
        let stage = t.stage();
        stage.set("t", json!({}));
        let file = stage.daemon.home().write("hold", "");
        let id = stage.add("t", file.to_str().unwrap());
        stage.tenant.until_state(&id, "running");
        let mut connection = stage.daemon.connection();
        let path = stage.tenant.path(&format!("jobs/{id}?wait=60s"));
        connection.send("GET", &path, &[], b"").unwrap();
        assert_eq!(stage.tenant.job(&id)["result"], Value::Null);
        stage.daemon.home().let_go("hold");
        let job = connection.receive().unwrap().expect(200).json();
        let seen = (&job["state"], &job["exitcode"], &job["result"]);
        assert_eq!(seen, (&json!("finished"), &json!(202), &json!("at last")));
    }

    /// A payload is text if it is UTF-8, otherwise the language's bytes.
    fn s2_29_payloads_arrive_as_text_or_as_bytes(t) {
        node: "const bytes = Buffer.isBuffer(payload);
               if (!bytes && typeof payload !== 'string') throw new Error(typeof payload);
               return {data: [bytes, Buffer.from(payload).toString('hex')]};",
        python: "
            is_bytes = isinstance(payload, bytes)
            assert is_bytes or isinstance(payload, str), type(payload)
            raw = payload if is_bytes else payload.encode()
            return {'data': [is_bytes, raw.hex()]}",
        php: "if (!is_string($payload)) throw new Exception(gettype($payload));
              return ['data' => [!preg_match('//u', $payload), bin2hex($payload)]];",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1}));
        let payloads: [(&[u8], bool); 9] = [
            (b"", false),
            (b"x", false),
            (b"\0", false),
            (b" lines\r\nand\ttabs\n", false),
            ("žluťoučký 🐎 \u{2028}\u{feff}\u{10ffff}".as_bytes(), false),
            (b"{\"kind\":\"end\"}", false),
            (b"\xff\xfe\0\x01", true),
            (b"cut in the middle \xf0\x9f\x90", true),
            (b"\xed\xa0\x80 a lone surrogate", true),
        ];
        for (payload, bytes) in payloads {
            let job = stage.run_bytes("t", payload);
            stage.succeeded(&job);
            let hex: String = payload.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(job["result"], json!([bytes, hex]));
        }
    }

    fn text_of_any_kind_survives_the_way_in_and_out(t) {
        node: "console.log(payload); return {data: payload};",
        python: "print(payload)\nreturn {'data': payload}",
        php: "echo $payload, PHP_EOL; return ['data' => $payload];",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1}));
        let texts = ["žluťoučký kůň 🐎", "\u{2028}\u{2029}", "</script>\\u0000\"'`${x}", "\u{7f}"];
        for payload in texts {
            let id = stage.add("t", payload);
            assert_eq!(stage.end(&id)["result"], payload);
            assert_eq!(stage.printed(&id), [payload]);
        }
    }

    fn s2_29_large_payloads_arrive_whole(t) {
        node: "const {createHash} = require('crypto');
               return {data: createHash('sha256').update(payload).digest('hex')};",
        python: "
            import hashlib
            raw = payload if isinstance(payload, bytes) else payload.encode()
            return {'data': hashlib.sha256(raw).hexdigest()}",
        php: "return ['data' => hash('sha256', $payload)];",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1}));
        let mut bytes = vec![0; 16 * MIB + 1];
        Random::new(7).fill(&mut bytes);
        let letters: Vec<u8> = bytes.iter().map(|byte| b'a' + byte % 26).collect();
        for size in [1, 64 * 1024, 64 * 1024 + 1, 16 * MIB + 1] {
            for payload in [&bytes[..size], &letters[..size]] {
                let file = stage.daemon.home().write("payload", payload);
                let job = stage.run_bytes("t", payload);
                stage.succeeded(&job);
                assert_eq!(job["result"], sha256_of(&file), "{size} bytes");
            }
        }
    }

    /// Small and large ones in one batch: each job gets its own.
    fn s2_29_payloads_of_one_batch_are_not_mixed_up(t) {
        node: "return {data: [payload.length, payload[0]]};",
        python: "return {'data': [len(payload), payload[0]]}",
        php: "return ['data' => [strlen($payload), $payload[0]]];",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 100}));
        let sizes = [1, 300_000, 2, 3_000_000, 70_000, 10];
        let letters = ["a", "b", "c", "d", "e", "f"];
        let payloads: Vec<String> =
            sizes.iter().zip(letters).map(|(size, letter)| letter.repeat(*size)).collect();
        for ((id, size), letter) in stage.batch("t", &payloads).iter().zip(sizes).zip(letters) {
            assert_eq!(stage.end(id)["result"], json!([size, letter]));
        }
    }
}

/// What running a payload costs the daemon; what the store keeps of it is not counted.
#[test]
fn s2_29_a_payload_of_a_hundred_megabytes_reaches_a_context_in_bounded_memory() {
    const BYTES: usize = 100_000_000;
    const GROWTH_KIB_MAX: u64 = 48 * 1024;
    let source = "
        import hashlib
        return {'data': [type(payload).__name__, hashlib.sha256(payload).hexdigest()]}";
    let stage = Case::new("python", source).stage();
    stage.set("t", json!({"contexts": 1}));
    let mut bytes = vec![0xff; BYTES];
    Random::new(9).fill(&mut bytes[10..]);
    let file = stage.daemon.home().write("payload", &bytes);
    stage.daemon.stop_picking();
    let id = stage.add_bytes("t", &bytes);
    until("it is in the store", || stage.tenant.type_row("t"), |row| row["ready"] == 1);
    let before = stage.daemon.memory_kib("VmHWM");
    stage.daemon.start_picking();
    let job = stage.end(&id);
    stage.succeeded(&job);
    assert_eq!(job["result"], json!(["bytes", sha256_of(&file)]));
    let grown = stage.daemon.memory_kib("VmHWM") - before;
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB more in the daemon");
}
