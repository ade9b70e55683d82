//! Handlers that break their surroundings harm only themselves.

use serde_json::{Value, json};

use crate::harness::{Context, Lang, ends, run, text};

fn check_alive(context: &mut Context, expected: &Value) {
    for _ in 0..2 {
        let answers = context.run(&["a", "b"]);
        let ends = ends(&answers);
        assert_eq!(ends.len(), 2);
        assert_eq!((&ends[1]["status"], &ends[1]["data"]), (&json!(201), expected), "{}", ends[1]);
    }
}

pub(crate) fn broken_built_ins_break_no_protocol(lang: Lang) {
    let body = lang.pick(
        "const no = () => { throw new Error('broken') };\n\
         const broken = [[JSON, ['parse', 'stringify']], [Math, ['floor']], [Date, ['now']],\n\
           [Number, ['isInteger', 'isFinite']], [Object, ['keys', 'hasOwn', 'defineProperty']],\n\
           [Buffer, ['from', 'allocUnsafe', 'byteLength', 'isBuffer']], [performance, ['now']],\n\
           [Array.prototype, ['push', 'map', 'filter', 'forEach', Symbol.iterator]],\n\
           [String.prototype, ['slice', 'indexOf', 'charCodeAt', 'startsWith', 'toWellFormed']],\n\
           [Promise.prototype, ['then']], [Map.prototype, ['get', 'set']],\n\
           [Reflect, ['ownKeys']],\n\
           [Buffer.prototype, ['utf8Write', 'utf8Slice', 'toString', 'copy']],\n\
           [Atomics, ['wait']],\n\
           [require('fs'), ['writeSync', 'readFileSync']], [require('util'), ['inspect']],\n\
           [process, ['exit', 'cwd', 'chdir', 'nextTick']], [Object.prototype, ['toJSON']]];\n\
         for (let i = 0; i < broken.length; i++)\n\
           for (let n = 0; n < broken[i][1].length; n++) broken[i][0][broken[i][1][n]] = no;\n\
         Object.prototype.payload = 'x'; Object.prototype.status = 404;\n\
         return {status: 201, data: 'ü'}",
        "if ctx.get('broken'): return {'status': 201, 'data': {'text': 'ü', 'list': [1]}}\n\
         ctx.broken = True\nimport builtins, json, os, time, codecs, base64, traceback, io, sys\n\
         for module in (json, os, time, codecs, base64, traceback, io, json.encoder):\n\
         \x20 for name in list(vars(module)):\n\
         \x20   if callable(vars(module)[name]) and not name.startswith('__'):\n\
         \x20     setattr(module, name, None)\n\
         for name in [n for n in vars(builtins) if not n.startswith('__')]:\n\
         \x20 delattr(builtins, name)\n\
         return {'status': 201, 'data': {'text': 'ü', 'list': [1]}}",
        "set_error_handler(function () { throw new Exception('broken'); }); error_reporting(0);\n\
         ini_set('display_errors', '0'); if (in_array('php', stream_get_wrappers()))\n\
         stream_wrapper_unregister('php'); foreach ($GLOBALS as $n => $v) \n\
         unset($GLOBALS[$n]); while (ob_get_level()) ob_end_clean(); ob_start(fn() => 'x');\n\
         return ['status' => 201, 'data' => ['text' => 'ü', 'list' => [1]]];",
    );
    let mut context = Context::loaded(lang, body);
    // Just one text from node: like all of its objects, it has a `toJSON` that throws.
    let list = json!({"text": "ü", "list": [1]});
    check_alive(&mut context, &lang.pick(json!("ü"), list.clone(), list));
}

pub(crate) fn replaced_streams_break_no_protocol(lang: Lang) {
    let body = lang.pick(
        "if (process.stdout) process.stdout.write = () => { throw new Error('broken') };\n\
         process.stderr.write = () => { throw new Error('broken') }; global.console = null;\n\
         Object.defineProperty(process, 'stdout', {value: null, configurable: true});\n\
         return {status: 201, data: payload}",
        "import sys\nsys.stdout = sys.stderr = None\n\
         sys.__stdout__ = None\nreturn {'status': 201, 'data': payload}",
        "while (ob_get_level()) ob_end_clean();\n\
         ob_start(fn($t) => throw new Exception('broken'));\n\
         echo 'x'; return ['status' => 201, 'data' => $payload];",
    );
    check_alive(&mut Context::loaded(lang, body), &json!("b"));
}

pub(crate) fn noise_on_the_ordinary_descriptors_is_no_answer(lang: Lang) {
    let body = lang.pick(
        "for (const fd of [1, 2]) require('fs').writeSync(fd, '\\0\\0\\0\\2{}' +\n\
            'x'.repeat(70000))\n\
         process.stdout.end('a', 'utf8', () => {}); process.stdout.destroy(); console.log('b')\n\
         return {status: 201, data: payload}",
        "import os, sys\nfor fd in (1, 2): os.write(fd, b'\\0\\0\\0\\2{}' + b'x' * 70000)\n\
         sys.stdout.write('a'); sys.stdout.close(); sys.stdout.buffer.close(); print('b')\n\
         return {'status': 201, 'data': payload}",
        "foreach (['php://stdout', 'php://stderr'] as $name) file_put_contents($name, \
         \"\\0\\0\\0\\2{}\" . str_repeat('x', 70000)); echo 'a'; flush();\n\
         ob_flush(); echo \"b\\n\";\n\
         return ['status' => 201, 'data' => $payload];",
    );
    let mut context = Context::loaded(lang, body);
    assert_eq!(text(&context.run(&["a"]), "stdout"), "ab\n");
    check_alive(&mut context, &json!("b"));
}

pub(crate) fn closed_ordinary_descriptors_break_no_protocol(lang: Lang) {
    let body = lang.pick(
        "const fs = require('fs'); for (const fd of [0, 1, 2]) try { fs.closeSync(fd) } catch {}\n\
         console.log('still heard'); return {status: 201, data: payload}",
        "import os\nfor fd in (0, 1, 2):\n  try: os.close(fd)\n  except OSError: pass\n\
         print('still heard')\nreturn {'status': 201, 'data': payload}",
        "foreach ([STDIN, STDOUT, STDERR] as $s) if (is_resource($s)) fclose($s);\n\
         echo \"still heard\\n\"; return ['status' => 201, 'data' => $payload];",
    );
    let mut context = Context::loaded(lang, body);
    assert_eq!(text(&context.run(&["a"]), "stdout"), "still heard\n");
    check_alive(&mut context, &json!("b"));
}

/// A context that cannot read must not block: it ends, and its end shows that.
pub(crate) fn closed_channels_end_the_context(lang: Lang) {
    // Php has no way to close them.
    let body = lang.pick(
        "require('fs').closeSync(Number(payload))",
        "import os\nos.close(int(payload))",
        "posix_kill(getmypid(), SIGKILL);",
    );
    for descriptor in ["3", "4", "5"] {
        let mut context = Context::loaded(lang, body);
        for payload in [descriptor, "9"] {
            context.ask(&run(1, false, [json!({"payload": payload})].into_iter()));
        }
        while context.answer().is_some() {}
        assert_ne!(context.ended().code, Some(0));
    }
}

/// A frame is longer than the pipe, and nothing blocks in the kernel any more.
pub(crate) fn a_channel_that_does_not_block_is_waited_for(lang: Lang) {
    let body = lang.pick(
        "if (payload === 'a') ctx.socket = new (require('net').Socket)({fd: 4, readable: false}); \
         return 'x'.repeat(1000000)",
        "import os\nos.set_blocking(4, False)\nreturn 'x' * 1000000",
        "stream_set_blocking(fopen('php://fd/4', 'w'), false); return str_repeat('x', 1000000);",
    );
    let mut context = Context::loaded(lang, body);
    for end in ends(&context.run(&["a", "b", "c"])) {
        assert_eq!(end["data"].as_str().map(str::len), Some(1_000_000));
    }
}
