//! Output: in the task's document, in GridFS in both forms, and what is too large for either.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};
use serde_json::{Value, json};

use crate::harness::{Dialect, Fields, Home, in_both};

const MIB: usize = 1024 * 1024;

/// A plugin with this many bytes of output, in two-byte characters.
fn loud(home: &Home, stdout: usize, stderr: usize) -> String {
    let many = |count: usize| format!("yes ä | head -n {} | tr -d '\\n'", count / 2);
    let script = format!(
        "exec > \"${{task%.json}}-response.json\"\n\
         printf '{{\"status\":1,\"stdout\":\"'; {}; printf '\",\"stderr\":\"'; {}; printf '\"}}'",
        many(stdout),
        many(stderr)
    );
    home.plugin("default", &script)
}

/// Assembles a file of output according to its form, and checks its document.
fn file(home: &Home, name: &str, task: ObjectId, id: ObjectId) -> String {
    let file = home.mongo.get("tasks.files", id);
    let mut text = Vec::new();
    let chunks = home.mongo.all("tasks.chunks", doc! {"files_id": id});
    let mut chunks: Vec<(i64, Document)> =
        chunks.into_iter().map(|chunk| (chunk.int("n").unwrap(), chunk)).collect();
    chunks.sort_by_key(|(n, _)| *n);
    let last = chunks.len().saturating_sub(1);
    for (at, (n, chunk)) in chunks.iter().enumerate() {
        assert_eq!(usize::try_from(*n).unwrap(), at);
        let (bytes, size) = match (home.dialect, chunk.get("data")) {
            (Dialect::Seed, Some(Bson::String(text))) => (text.as_bytes(), text.chars().count()),
            (Dialect::Released, Some(Bson::Binary(data))) => (&data.bytes[..], data.bytes.len()),
            (_, other) => panic!("{other:?}"),
        };
        assert!(size == 261_120 || (at == last && size <= 261_120), "{size}");
        text.extend_from_slice(bytes);
    }
    assert_eq!(file.text("filename"), Some(name));
    assert_eq!(file.int("chunkSize"), Some(261_120));
    assert_eq!(file.int("length"), Some(i64::try_from(text.len()).unwrap()));
    assert_eq!(file.text("md5").map(str::len), Some(32));
    assert!(file.date("uploadDate").is_some());
    assert_eq!(file.get_document("metadata").unwrap().oid("task_id"), Some(task));
    String::from_utf8(text).unwrap()
}

fn run(home: &Home, plugin: &str, keys: Value) -> (ObjectId, Document) {
    let task = home.add(home.line(plugin, 1), 1)[0];
    let mut den = home.den_with(&format!("node-{task}"), keys);
    let ended = home.reaches(task, 1);
    den.stop();
    (task, ended)
}

#[test]
fn small_output_stands_in_the_document() {
    in_both(|home| {
        let (_, ended) = run(&home, &loud(&home, 3 * MIB, MIB), json!({}));
        assert_eq!(ended.text("stdout").map(str::len), Some(3 * MIB));
        assert_eq!(ended.text("stderr").map(str::len), Some(MIB));
        assert_eq!(home.mongo.count("tasks.files", doc! {}), 0);
    });
}

#[test]
fn large_output_goes_to_files_and_errors_stay() {
    in_both(|home| {
        let (task, ended) = run(&home, &loud(&home, 15 * MIB, 1000), json!({"gfs": "auto"}));
        assert_eq!(ended.text("stderr").map(str::len), Some(1000));
        let id = ended.oid("stdout");
        let id = id.unwrap_or_else(|| panic!("no file: {:.300?}", ended.get("stdout")));
        let text = file(&home, "stdout", task, id);
        assert!(text.len() == 15 * MIB && text.chars().all(|c| c == 'ä'));
        assert_eq!(ended.get("complete"), Some(&Bson::Boolean(true)));
    });
}

#[test]
fn all_output_goes_to_files_when_the_config_says_so() {
    in_both(|home| {
        let plugin = home.plugin("default", "say 1 'out ä' ''");
        let (task, ended) = run(&home, &plugin, json!({"gfs": true}));
        let ids = ["stdout", "stderr"].map(|name| (name, ended.oid(name).unwrap()));
        let texts = ids.map(|(name, id)| file(&home, name, task, id));
        assert_eq!(texts, ["out ä".to_owned(), String::new()]);
    });
}

#[test]
fn output_that_fits_nowhere_is_cut_and_says_so() {
    in_both(|home| {
        let (_, ended) = run(&home, &loud(&home, 17 * MIB, 1000), json!({"gfs": false}));
        let stdout = ended.text("stdout").unwrap();
        assert!(stdout.len() > 10 * MIB && stdout.len() < 16 * MIB, "{}", stdout.len());
        assert!(stdout.starts_with("ää") && stdout[stdout.len() - 200..].contains("cut"));
        assert_eq!(ended.text("stderr").map(str::len), Some(1000));
        assert_eq!(home.mongo.count("tasks.files", doc! {}), 0);
    });
}
