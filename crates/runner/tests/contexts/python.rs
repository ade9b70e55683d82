//! Specific to python: indentation, exits, threads, forks.

use serde_json::json;

use crate::harness::{Context, Lang, ends, run, text};

const PYTHON: Lang = Lang::Python;

#[test]
fn a_source_may_be_indented_as_a_whole() {
    let mut context = Context::greeted(PYTHON);
    let body = "\n    text = '''a\n    b'''\n    if text:\n        return text\n";
    context.check(body, &json!({"status": 200, "data": "a\n    b"}));
    let answers = Context::greeted(PYTHON).try_load(&json!({"body": "  a = 1\n  b = = 2"}));
    let message = answers[0]["message"].as_str().unwrap();
    assert!(message.contains("(line 2)"), "{message}");
}

#[test]
fn exits_are_errors_like_any_other() {
    for body in ["exit()", "quit(3)", "import sys; sys.exit('bye')", "raise SystemExit"] {
        let mut context = Context::loaded(PYTHON, body);
        for end in ends(&context.run(&["", ""])) {
            assert_eq!(end["status"], 500, "{body}");
            assert!(end["error"].as_str().unwrap().contains("SystemExit"), "{end}");
        }
    }
}

#[test]
fn functions_that_would_not_run_are_refused() {
    for body in ["yield 1", "x = yield", "await thing()", "async with a: pass", "nonlocal x"] {
        let answers = Context::greeted(PYTHON).try_load(&json!({"body": body}));
        assert_eq!(answers[0]["field"], "body", "{body}: {answers:?}");
    }
}

#[test]
fn sources_are_like_a_main_module() {
    let mut context = Context::greeted(PYTHON);
    let body = "from __future__ import annotations\nimport dataclasses, typing\n\
        @dataclasses.dataclass\nclass Point:\n  x: int\n  y: typing.ClassVar[int] = 2\n\
        global kept\nkept = Point(1)\ndef inner(): return kept.x + kept.y\n\
        return [__name__, inner(), [payload for _ in range(1)]]";
    context.check(body, &json!({"status": 200, "data": ["__main__", 3, [""]]}));
}

#[test]
fn too_deep_recursion_is_an_error_like_any_other() {
    let mut context = Context::loaded(PYTHON, "def f(): return f() + 1\nf()");
    for _ in 0..2 {
        let end = context.run_one("");
        assert!(end["error"].as_str().unwrap().contains("RecursionError: maximum"), "{end}");
    }
}

#[test]
fn a_forked_child_has_no_word_in_the_protocol() {
    let body = "import os\nchild = os.fork()\nif child == 0:\n  print('from the child')\n  \
        return 299\nos.waitpid(child, 0)\nprint('from the context')";
    let mut context = Context::loaded(PYTHON, body);
    let answers = context.run(&["", ""]);
    assert_eq!(text(&answers, "stdout"), "from the context\n".repeat(2));
    assert!(ends(&answers).iter().all(|end| end["status"] == 200));
    assert_eq!(context.stdout(), "from the child\n".repeat(2));
}

#[test]
fn threads_do_not_hold_the_process() {
    let body = "import threading\nthreading.Thread(target=threading.Event().wait).start()\n\
        import atexit\natexit.register(print, 'at the end')";
    let mut context = Context::loaded(PYTHON, body);
    context.run(&[""]);
    context.close();
    assert_eq!(context.answer(), None);
    assert_eq!(context.stdout(), "at the end\n");
    assert_eq!(context.ended().code, Some(0));
}

#[test]
fn threads_that_print_break_no_frame() {
    let body = "import threading\n\
        for _ in range(4): threading.Thread(target=lambda: [print('x' * 5000) for _ in range(50)], \
        daemon=True).start()";
    let mut context = Context::loaded(PYTHON, body);
    context.ask(&run(1, false, (0..20).map(|_| json!({"payload": ""}))));
    assert_eq!(ends(&context.answers()).len(), 20);
    assert_eq!(context.run_one("")["status"], 200);
}

#[test]
fn streams_take_what_those_of_python_take() {
    let body = "import sys, logging, subprocess\n\
        sys.stdout.writelines(['a', 'b']); sys.stdout.reconfigure(line_buffering=True)\n\
        logging.warning('logged')\n\
        subprocess.run('echo from a program', shell=True, stdout=sys.stdout)\n\
        try: sys.stdout.write(b'x')\nexcept TypeError as e: pass\n\
        out = sys.stdout\n\
        return [out.isatty(), out.encoding, out.fileno(), out.writable()]";
    let mut context = Context::loaded(PYTHON, body);
    let answers = context.run(&[""]);
    assert_eq!(text(&answers, "stdout"), "ab");
    assert_eq!(text(&answers, "stderr"), "WARNING:root:logged\n");
    assert_eq!(ends(&answers)[0]["data"], json!([false, "utf-8", 1, true]));
    assert_eq!(context.stdout(), "from a program\n");
}
