//! Handlers that share a context: each finds it as if it were alone.

use serde_json::{Value, json};

use crate::harness::{Context, Lang};

/// Two handlers: number 1 changes something, number 2 returns what it sees.
fn pair(lang: Lang, change: &str, look: &str) -> Context {
    let mut context = Context::greeted(lang);
    context.load(&json!({"handler": 1, "body": change, "type": "mail"}));
    context.load(&json!({"handler": 2, "body": look, "type": "news"}));
    context
}

fn data(context: &mut Context, handler: u32) -> Value {
    let end = context.run_one_as(handler, "");
    assert_eq!(end["status"], 200, "{end}");
    end["data"].clone()
}

pub(crate) fn each_handler_has_its_own_ctx(lang: Lang) {
    let body = lang.pick(
        "ctx.count = (ctx.count || 0) + 1; return [job.type, ctx.count]",
        "ctx.count = ctx.get('count', 0) + 1\nreturn [job.type, ctx.count]",
        "$ctx->count = ($ctx->count ?? 0) + 1; return [$job->type, $ctx->count];",
    );
    let mut context = pair(lang, body, body);
    for (handler, expected) in
        [(1, ("mail", 1)), (1, ("mail", 2)), (2, ("news", 1)), (1, ("mail", 3))]
    {
        assert_eq!(data(&mut context, handler), json!(expected));
    }
}

pub(crate) fn global_variables_are_put_back(lang: Lang) {
    let (change, look) = lang.pick(
        (
            "global.added = 1; global.setTimeout = null; JSON.stringify = () => 'no'; \
             Object.prototype.polluted = 1; Array.prototype.map = null; delete global.URL; \
             console.log = () => {}; process.exit = () => {}; process.stdout.write = () => {};",
            "console.log('heard'); return [typeof added, typeof setTimeout, JSON.stringify(1), \
             typeof ({}).polluted, typeof [].map, typeof URL]",
        ),
        (
            "global added\nadded = 1\nimport builtins\nbuiltins.len = None\nbuiltins.added = 1\n\
             del builtins.open\nimport sys\nsys.stdout = None\nsys.path.append('x')",
            "import sys\nprint('heard')\nreturn ['added' in globals(), len([1]), callable(open), \
             'x' in sys.path]",
        ),
        (
            "$GLOBALS['added'] = 1; $_SERVER['added'] = 1; ini_set('precision', '3'); \
             date_default_timezone_set('Asia/Tokyo'); set_error_handler(fn() => true); ob_start();",
            "echo 'heard'; return [isset($GLOBALS['added']), isset($_SERVER['added']), \
             ini_get('precision') === '3', date_default_timezone_get() === 'Asia/Tokyo'];",
        ),
    );
    let mut context = pair(lang, change, look);
    let expected = lang.pick(
        json!(["undefined", "function", "1", "undefined", "function", "function"]),
        json!([false, 1, true, false]),
        json!([false, false, false, false]),
    );
    for _ in 0..2 {
        data(&mut context, 1);
        let answers = context.run_as(2, &[""]);
        assert_eq!(crate::harness::text(&answers, "stdout").trim_end(), "heard");
        assert_eq!(crate::harness::ends(&answers)[0]["data"], expected);
    }
}

pub(crate) fn the_environment_is_put_back(lang: Lang) {
    let (change, look) = lang.pick(
        (
            "process.env.KEPT = 'changed'; process.env.ADDED = '1'; delete process.env.LANG",
            "const {KEPT, ADDED, LANG} = process.env; return [KEPT, ADDED === undefined, LANG]",
        ),
        (
            "import os\nos.environ['KEPT'] = 'changed'; os.environ['ADDED'] = '1'\n\
             del os.environ['LANG']",
            "import os\nreturn [os.getenv('KEPT'), os.getenv('ADDED') is None, os.getenv('LANG')]",
        ),
        (
            "putenv('KEPT=changed'); putenv('ADDED=1'); putenv('LANG');",
            "return [getenv('KEPT'), getenv('ADDED') === false, getenv('LANG')];",
        ),
    );
    let mut context = pair(lang, change, look);
    for _ in 0..2 {
        data(&mut context, 1);
        assert_eq!(data(&mut context, 2), json!(["as it was", true, "C.UTF-8"]));
    }
}

pub(crate) fn the_working_directory_is_put_back(lang: Lang) {
    let (change, look) = lang.pick(
        ("process.chdir('/')", "return process.cwd()"),
        ("import os\nos.chdir('/')", "import os\nreturn os.getcwd()"),
        ("chdir('/');", "return getcwd();"),
    );
    let mut context = pair(lang, change, look);
    data(&mut context, 1);
    let work_dir = context.work_dir();
    assert_eq!(data(&mut context, 2), json!(work_dir));
}

/// Between batches nothing is restored: that is what makes a context warm.
pub(crate) fn the_same_handler_keeps_what_it_changed(lang: Lang) {
    let body = lang.pick(
        "global.count = (global.count || 0) + 1; return [count]",
        "global count\ncount = globals().get('count', 0) + 1\nreturn [count]",
        "$GLOBALS['count'] = ($GLOBALS['count'] ?? 0) + 1; return [$GLOBALS['count']];",
    );
    let mut context = Context::loaded(lang, body);
    for count in 1..=3 {
        assert_eq!(data(&mut context, 1), json!([count]));
    }
}
