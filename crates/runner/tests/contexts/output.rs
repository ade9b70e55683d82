//! What handlers print, and the marks that attribute the rest.

use serde_json::{Value, json};

use crate::harness::{Context, Lang, MARK, ends, of_kind, run, text};

pub(crate) fn belongs_to_its_job(lang: Lang) {
    let body = lang.pick(
        "console.log(payload); await null; console.error('not ' + payload)",
        "import sys\nprint(payload); print('not', payload, file=sys.stderr)",
        "echo \"$payload\\n\"; fwrite(STDERR, \"not $payload\\n\");",
    );
    let answers = Context::loaded(lang, body).run(&["a", "b"]);
    let places: Vec<usize> =
        answers.iter().enumerate().filter(|(_, a)| a["kind"] == "end").map(|(at, _)| at).collect();
    let (first, second) = (&answers[..places[0]], &answers[places[0]..places[1]]);
    assert_eq!((text(first, "stdout"), text(first, "stderr")), ("a\n".into(), "not a\n".into()));
    assert_eq!((text(second, "stdout"), text(second, "stderr")), ("b\n".into(), "not b\n".into()));
}

/// What was printed before a process ends is known.
pub(crate) fn comes_at_once(lang: Lang) {
    let body = lang.pick(
        "process.stdout.write('last'); process.stderr.write('words'); process.abort()",
        "import os, sys\nsys.stdout.write('last'); sys.stderr.write('words'); os.abort()",
        "echo 'last'; fwrite(STDERR, 'words'); posix_kill(getmypid(), SIGKILL);",
    );
    let mut context = Context::loaded(lang, body);
    context.ask(&run(1, false, [json!({"payload": ""})].into_iter()));
    let mut answers = Vec::new();
    while let Some(answer) = context.answer() {
        answers.push(answer);
    }
    assert_eq!(
        (text(&answers, "stdout"), text(&answers, "stderr")),
        ("last".into(), "words".into())
    );
}

pub(crate) fn of_all_four_sources(lang: Lang) {
    let print = |word| match lang {
        Lang::Node => format!("console.log('{word}')"),
        Lang::Python => format!("print('{word}')"),
        Lang::Php => format!("echo \"{word}\\n\";"),
    };
    let mut context = Context::greeted(lang);
    let loaded = context.try_load(&json!({"before": print("1"), "beforeEach": print("2"),
        "body": print("3"), "afterEach": print("4")}));
    assert_eq!(text(&loaded, "stdout"), "1\n");
    let answers = context.run(&[""]);
    let place = |kind| answers.iter().position(|answer| answer["kind"] == kind).unwrap();
    assert_eq!(text(&answers[..place("begun")], "stdout"), "2\n");
    assert_eq!(text(&answers[place("begun")..place("end")], "stdout"), "3\n");
    assert_eq!(text(&answers[place("end")..], "stdout"), "4\n");
}

pub(crate) fn of_both_streams_keeps_its_order(lang: Lang) {
    let body = lang.pick(
        "process.stdout.write('a'); process.stderr.write('b'); console.info('c'); \
         console.warn('d'); process.stdout.write('e', 'utf8', () => {})",
        "import sys\nsys.stdout.write('a'); sys.stderr.write('b'); print('c', flush=True)\n\
         sys.stderr.buffer.write(b'd\\n'); print('e', end='')",
        "echo 'a'; fwrite(STDERR, 'b'); print \"c\\n\"; fwrite(STDERR, \"d\\n\"); printf('e');",
    );
    let answers = Context::loaded(lang, body).run(&[""]);
    let outputs = of_kind(&answers, "output");
    let all: String = outputs.iter().map(|output| output["text"].as_str().unwrap()).collect();
    assert_eq!(all, "abc\nd\ne");
    assert_eq!(text(&answers, "stderr"), "bd\n");
}

pub(crate) fn in_long_pieces_is_cut(lang: Lang) {
    let body = lang.pick(
        "process.stdout.write('x' + '🙂'.repeat(100000))",
        "print('x' + '🙂' * 100000, end='')",
        "echo 'x' . str_repeat('🙂', 100000);",
    );
    let answers = Context::loaded(lang, body).run(&[""]);
    for output in of_kind(&answers, "output") {
        assert!(output["text"].as_str().unwrap().chars().count() <= 65_536);
    }
    assert!(text(&answers, "stdout") == format!("x{}", "🙂".repeat(100_000)));
}

pub(crate) fn keeps_characters_whole(lang: Lang) {
    let body = lang.pick(
        "for (const byte of Buffer.from('ü€🙂')) process.stdout.write(Buffer.from([byte]))",
        "import sys\nfor byte in 'ü€🙂'.encode(): sys.stdout.buffer.write(bytes([byte]))",
        "foreach (str_split('ü€🙂') as $byte) echo $byte;",
    );
    assert_eq!(text(&Context::loaded(lang, body).run(&[""]), "stdout"), "ü€🙂");
}

pub(crate) fn that_is_not_utf8_is_replaced(lang: Lang) {
    let body = lang.pick(
        "process.stdout.write(Buffer.from([0x61, 0xff, 0x62, 0xe2, 0x82]))",
        "import sys\nsys.stdout.buffer.write(b'a\\xffb\\xe2\\x82')",
        "echo \"a\\xffb\\xe2\\x82\";",
    );
    let answers = Context::loaded(lang, body).run(&["", ""]);
    // How many characters stand for half a character depends on the language.
    let ended = answers.iter().position(|answer| answer["kind"] == "end").unwrap();
    let first = text(&answers[..ended], "stdout");
    assert!(first.starts_with("a\u{fffd}b\u{fffd}"), "{first}");
    assert_eq!(text(&answers, "stdout"), first.repeat(2));
}

pub(crate) fn with_half_a_character_is_replaced(lang: Lang) {
    let body = lang.pick(
        "console.log('a\\ud800b'); throw new Error('a\\udc00b')",
        "print('a\\ud800b')\nraise Exception('a\\udc00b')",
        "echo \"a\\xc3b\\n\"; throw new Exception(\"a\\xc3b\");",
    );
    let answers = Context::loaded(lang, body).run(&[""]);
    assert_eq!(text(&answers, "stdout"), "a\u{fffd}b\n");
    assert!(ends(&answers)[0]["error"].as_str().unwrap().contains("a\u{fffd}b"), "{answers:?}");
}

pub(crate) fn warnings_are_errors_output(lang: Lang) {
    let body = lang.pick(
        "process.emitWarning('careful'); await new Promise(setImmediate)",
        "import warnings\nwarnings.warn('careful')",
        "trigger_error('careful', E_USER_WARNING);",
    );
    let answers = Context::loaded(lang, body).run(&[""]);
    assert!(text(&answers, "stderr").contains("Warning: careful"), "{answers:?}");
}

/// Writes the payload past the language's streams.
fn rounder(lang: Lang) -> &'static str {
    lang.pick(
        "const {writeSync} = require('fs'); writeSync(1, payload); writeSync(2, payload)",
        "import os\nos.write(1, payload.encode()); os.write(2, payload.encode())",
        "file_put_contents('php://stdout', $payload); file_put_contents('php://stderr', $payload);",
    )
}

pub(crate) fn marks_divide_what_goes_round_the_streams(lang: Lang) {
    let mut context = Context::loaded(lang, rounder(lang));
    let jobs = ["a", "b"].iter().map(|payload| json!({"payload": payload}));
    context.ask(&run(1, true, jobs));
    assert_eq!(context.answer(), Some(json!({"kind": "begun"})));
    let mut expected = String::new();
    for payload in ["a", "b"] {
        assert_eq!(context.answer().unwrap()["kind"], "end");
        expected += &format!("{payload}\0{MARK}\n");
        // They arrive before the `end`.
        assert!(context.stdout().starts_with(&expected));
        assert!(context.stderr().starts_with(&expected));
    }
    assert_eq!(context.answer(), Some(json!({"kind": "done"})));
    assert_eq!((context.stdout(), context.stderr()), (expected.clone(), expected));
}

pub(crate) fn no_marks_unless_asked_for(lang: Lang) {
    let mut context = Context::loaded(lang, rounder(lang));
    context.run(&["a", "b"]);
    assert_eq!((context.stdout(), context.stderr()), ("ab".into(), "ab".into()));
}

pub(crate) fn a_mark_that_cannot_be_written_is_no_matter(lang: Lang) {
    // Php cannot close a descriptor, and a shell would close only its own.
    let body = lang.pick(
        "const {closeSync} = require('fs'); try { closeSync(1) } catch {}\ncloseSync(2)",
        "import os\nos.close(1); os.close(2)",
        "fclose(STDOUT); fclose(STDERR);",
    );
    let mut context = Context::loaded(lang, body);
    context.ask(&run(1, true, [json!({"payload": ""}), json!({"payload": ""})].into_iter()));
    let answers: Vec<Value> = ends(&context.answers());
    assert_eq!(answers.len(), 2);
    assert_eq!(answers[0]["status"], 200);
}
