//! Parses files in every language.

use super::*;

fn handler(lang: Lang, text: &str) -> Value {
    match read(lang, text) {
        Ok(source) => Value::Object(source.into_handler(lang)),
        Err(wrong) => panic!("{wrong}"),
    }
}

#[track_caller]
fn wrong(text: &str) -> String {
    read(Lang::Sh, text).expect_err("the file is wrong").to_string()
}

#[test]
fn a_file_without_comments_of_ours_is_the_body() {
    for lang in [Lang::Node, Lang::Python, Lang::Sh] {
        for text in ["x = 1\n", "x", "", "\n# windlass is a queue\n"] {
            let expected = json!({ "lang": lang.as_str(), "body": text });
            assert_eq!(handler(lang, text), expected);
        }
    }
}

#[test]
fn options_stand_in_the_first_comment_of_every_language() {
    let said = "windlass: timeout=30s memory=64MB batch=10 retry.factor=1.5 env.A='b c=d' eid=x";
    let files = [
        (Lang::Sh, format!("#!/bin/sh\n\n# Hello.\n# {said}\ntrue\n")),
        (Lang::Python, format!("#{said}\npass\n")),
        (Lang::Node, format!("#!/usr/bin/env node\n// {said}\nreturn 1\n")),
        (Lang::Node, format!("/*\n * Hello.\n * {said}\n */\nreturn 1\n")),
        (Lang::Node, format!("/* {said} */\nreturn 1\n")),
        (Lang::Php, format!("<?php\n// {said}\nreturn 1;\n")),
        (Lang::Php, format!("#!/usr/bin/php\n<?php # Hello.\n# {said}\nreturn 1;\n?>\n")),
    ];
    for (lang, text) in files {
        let handler = handler(lang, &text);
        let options = json!({
            "timeout": "30s", "memory": "64MB", "batch": 10, "retry": { "factor": 1.5 },
            "env": { "A": "b c=d" },
        });
        assert_eq!(handler["options"], options, "{text}");
        assert_eq!(handler["eid"], "x");
    }
}

#[test]
fn options_may_be_spread_over_lines() {
    let handler = handler(Lang::Sh, "# windlass: batch=2\n# windlass: env.A=1 env.B=\ntrue\n");
    assert_eq!(handler["options"], json!({ "batch": 2, "env": { "A": "1", "B": "" } }));
}

#[test]
fn marks_split_a_file_and_every_line_keeps_its_number() {
    let text = "\
# windlass: batch=5
# windlass: before
a = 1
b = 2
# windlass: beforeEach
c = 3
# windlass: body
return a
# windlass: afterEach
d = 4
";
    let handler = handler(Lang::Python, text);
    assert_eq!(handler["before"], "\n\na = 1\nb = 2\n");
    assert_eq!(handler["beforeEach"], "\n\n\n\n\nc = 3\n");
    assert_eq!(handler["afterEach"].as_str().unwrap().lines().nth(9), Some("d = 4"));
    assert_eq!(handler["body"].as_str().unwrap().lines().nth(7), text.lines().nth(7));
    assert_eq!(handler["options"], json!({ "batch": 5 }));
}

#[test]
fn code_above_the_first_mark_is_the_body() {
    let handler = handler(Lang::Node, "return ctx.a\n// windlass: before\nctx.a = 1\n");
    assert_eq!(handler["body"], "return ctx.a\n");
    assert_eq!(handler["before"], "\n\nctx.a = 1\n");
}

#[test]
fn the_tags_of_php_and_the_line_for_the_kernel_are_no_code() {
    let body = |lang, text: &str| handler(lang, text)["body"].as_str().unwrap().to_owned();
    assert_eq!(body(Lang::Php, "<?php\nreturn 1;\n"), "\nreturn 1;\n");
    assert_eq!(body(Lang::Php, "\u{feff}<?php return 1; ?>\n"), " return 1; ");
    assert_eq!(body(Lang::Php, "#!/usr/bin/env php\n<?php\nreturn 1;"), "\n\nreturn 1;");
    assert_eq!(body(Lang::Php, "return 1;"), "return 1;");
    assert_eq!(body(Lang::Node, "#!/usr/bin/env node\nreturn 1"), "\nreturn 1");
    assert_eq!(body(Lang::Sh, "#!/bin/sh\ntrue"), "#!/bin/sh\ntrue");
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let unknown = wrong("#!/bin/sh\n# windlass: timeot=3s\n");
    assert!(unknown.starts_with("2: unknown option 'timeot'; did you mean timeout?"), "{unknown}");
    assert!(unknown.contains("retry.attempts") && unknown.contains("env.NAME"), "{unknown}");
    let cases = [
        ("# windlass: after\n", "1: 'after' is neither"),
        ("# windlass: timeout = 3s\n", "1: 'timeout' is neither"),
        ("# windlass: timeout=3\n", "1: timeout: "),
        ("# windlass: memory=much\n", "1: memory: "),
        ("# windlass: batch=many\n", "1: batch: 'many' is not a whole number"),
        ("# windlass: env.A=\"x\n", "1: the value of 'env.A' lacks its closing"),
        ("# windlass: env.=x\n", "1: unknown option 'env.'"),
        ("# windlass: batch=1 batch=2\n", "1: 'batch' is given twice"),
        ("# windlass: eid=1\n# windlass: eid=1\n", "2: 'eid' is given twice"),
        ("true\n# windlass: batch=1\n", "2: options belong in the first comment"),
        (
            "# windlass: before\na\n# windlass: before\nb\n",
            "3: the file already has a part 'before'",
        ),
        ("true\n# windlass: body\nfalse\n", "2: the file already has a body"),
        ("true\n  # windlass: before\nx\n", "2: the mark 'before' must be a comment"),
        ("# windlass: before\ntrue\n", "2: the file has no body"),
    ];
    for (text, expected) in cases {
        assert!(wrong(text).starts_with(expected), "{text:?}: {}", wrong(text));
    }
    let block = read(Lang::Node, "/*\nwindlass: before\n*/\nx\n").unwrap_err();
    assert_eq!(block.line, 2);
}

#[test]
fn the_language_follows_from_the_ending_or_the_first_line() {
    let cases = [
        ("a.js", "", Some(Lang::Node)),
        ("a.mjs", "", Some(Lang::Node)),
        ("a.py", "#!/bin/sh", Some(Lang::Python)),
        ("a.php", "", Some(Lang::Php)),
        ("a.bash", "", Some(Lang::Sh)),
        ("a", "#!/usr/bin/python3.11\n", Some(Lang::Python)),
        ("a.txt", "#! /usr/bin/env -S node --no-warnings\n", Some(Lang::Node)),
        ("a", "#!/bin/dash", Some(Lang::Sh)),
        ("a", "#!/usr/bin/perl\n", None),
        ("a.rb", "", None),
        ("a", "#!", None),
        ("a", "#!/usr/bin/env", None),
    ];
    for (file, text, expected) in cases {
        assert_eq!(lang(Path::new(file), text), expected, "{file} {text}");
    }
    assert!(
        how_to_name_language().contains(".mjs (node)") && how_to_name_language().contains("#!")
    );
}
