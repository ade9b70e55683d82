//! Output in files: written in both forms, read in both, checked, removed.

use std::time::Duration;

use crate::config::Gfs;
use crate::database::Database;
use crate::gridfs::{CHUNK_SIZE, ChunkForm, Cleaner, LoadError, Output, remove, store};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Document, doc};
use windlass_test_servers::MongoDb;

use crate::tests::base::{collection, connect, fresh};
use crate::tests::harness::load;
use crate::tests::proxy::{Fate, Proxy, server_address};

const FORMS: [ChunkForm; 2] = [ChunkForm::Text, ChunkForm::Binary];

const MIB: usize = 1024 * 1024;

fn now() -> DateTime {
    DateTime::now()
}

fn days_ago(days: u64) -> DateTime {
    let past = Duration::from_secs(days * 24 * 3600).as_millis();
    DateTime::from_millis(now().timestamp_millis() - i64::try_from(past).unwrap())
}

/// An id with a creation time this many days ago.
fn id_of(days: u64) -> ObjectId {
    let seconds = u32::try_from(days_ago(days).timestamp_millis() / 1000).unwrap();
    let random = fastrand::u64(..).to_be_bytes();
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&seconds.to_be_bytes());
    bytes[4..].copy_from_slice(&random);
    ObjectId::from_bytes(bytes)
}

fn output<'a>(task: ObjectId, stdout: &'a str, stderr: &'a str) -> Output<'a> {
    Output { task, held: 0, stdout, stderr }
}

async fn stored(database: &Database, form: ChunkForm, text: &str) -> ObjectId {
    let said = output(ObjectId::new(), text, "");
    let (stdout, _) = store(database, form, Gfs::Always, said, now()).await.unwrap();
    stdout.as_object_id().unwrap()
}

async fn all(database: &Database, name: &str, filter: Document) -> Vec<Document> {
    collection(database, name).all(filter, doc! {"n": 1}).await.unwrap()
}

async fn count(database: &Database, name: &str) -> u64 {
    collection(database, name).count_documents(doc! {}).await.unwrap()
}

/// Several chunks, with characters of every length and a chunk boundary within a character.
fn long_text() -> String {
    "aä€𝄞".repeat(CHUNK_SIZE / 4 * 2 + 7) + "end"
}

#[tokio::test]
async fn what_is_written_is_read_again() {
    let database = fresh().await;
    for form in FORMS {
        for text in ["", "x", "line\nnul \0 end", &long_text()] {
            let id = stored(&database, form, text).await;
            assert_eq!(load(&database, id).await.unwrap(), text);
        }
    }
}

#[tokio::test]
async fn a_file_looks_as_disbatch_writes_it() {
    let database = fresh().await;
    let task = ObjectId::new();
    let text = "ä".repeat(CHUNK_SIZE + 1);
    let at = now();
    let said = output(task, &text, "");
    let (stdout, stderr) = store(&database, ChunkForm::Text, Gfs::Always, said, at).await.unwrap();
    let files = all(&database, "tasks.files", doc! {"metadata.task_id": task}).await;
    assert_eq!(files.len(), 2);
    for (id, name, length) in [(stdout, "stdout", 2 * (CHUNK_SIZE + 1)), (stderr, "stderr", 0)] {
        let file = files.iter().find(|file| file.get("_id") == Some(&id)).unwrap();
        assert_eq!(file.get_str("filename").unwrap(), name);
        assert_eq!(file.get_i32("chunkSize").unwrap(), 261_120);
        assert_eq!(file.get_i64("length").unwrap(), i64::try_from(length).unwrap());
        assert_eq!(file.get_datetime("uploadDate").unwrap(), &at);
        assert_eq!(file.get_document("metadata").unwrap(), &doc! {"task_id": task});
        let chunks = all(&database, "tasks.chunks", doc! {"files_id": id}).await;
        let sizes: Vec<usize> =
            chunks.iter().map(|chunk| chunk.get_str("data").unwrap().chars().count()).collect();
        assert_eq!(sizes, if name == "stdout" { vec![CHUNK_SIZE, 1] } else { vec![] });
    }
    let empty = files.iter().find(|file| file.get_str("filename").unwrap() == "stderr");
    let md5 = empty.unwrap().get_str("md5").unwrap().to_owned();
    assert_eq!(md5, "d41d8cd98f00b204e9800998ecf8427e");
}

#[tokio::test]
async fn the_standard_form_has_bytes_in_chunks_of_their_size() {
    let database = fresh().await;
    let text = long_text();
    let id = stored(&database, ChunkForm::Binary, &text).await;
    let chunks = all(&database, "tasks.chunks", doc! {"files_id": id}).await;
    let mut bytes = Vec::new();
    for (number, chunk) in chunks.iter().enumerate() {
        let Some(Bson::Binary(data)) = chunk.get("data") else { panic!("{chunk}") };
        let is_last = number + 1 == chunks.len();
        assert!(is_last || data.bytes.len() == CHUNK_SIZE, "{}", data.bytes.len());
        assert_eq!(chunk.get_i32("n").unwrap(), i32::try_from(number).unwrap());
        bytes.extend_from_slice(&data.bytes);
    }
    assert!(chunks.len() > 4 && bytes == text.as_bytes());
}

#[tokio::test]
async fn a_foreign_file_of_either_form_is_read() {
    let database = fresh().await;
    let (text, binary) = (ObjectId::new(), ObjectId::new());
    // As the original writes them: short text chunks, no digest, numbers as doubles.
    let file = doc! {"_id": text, "filename": "stdout", "length": 6.0, "chunkSize": 261_120};
    collection(&database, "tasks.files").insert_one(file).await.unwrap();
    let file = doc! {"_id": binary, "length": 3_i64, "md5": "900150983cd24fb0d6963f7d28e17f72"};
    collection(&database, "tasks.files").insert_one(file).await.unwrap();
    let data = Binary { subtype: BinarySubtype::Generic, bytes: b"abc".to_vec() };
    let chunks = [
        doc! {"files_id": text, "n": 1.0, "data": "bc"},
        doc! {"files_id": text, "n": 0, "data": "äö"},
        doc! {"files_id": binary, "n": 0_i64, "data": data},
    ];
    collection(&database, "tasks.chunks").insert_many(chunks).await.unwrap();
    assert_eq!(load(&database, text).await.unwrap(), "äöbc");
    assert_eq!(load(&database, binary).await.unwrap(), "abc");
}

#[tokio::test]
async fn bytes_that_are_no_text_are_shown_as_far_as_they_are() {
    let database = fresh().await;
    let id = ObjectId::new();
    let data = Binary { subtype: BinarySubtype::Generic, bytes: b"a\xffb".to_vec() };
    let file = doc! {"_id": id, "length": 3};
    collection(&database, "tasks.files").insert_one(file).await.unwrap();
    let chunk = doc! {"files_id": id, "n": 0, "data": data};
    collection(&database, "tasks.chunks").insert_one(chunk).await.unwrap();
    assert_eq!(load(&database, id).await.unwrap(), "a\u{fffd}b");
}

#[tokio::test]
async fn a_broken_file_is_an_error_that_says_what_is_wrong() {
    let database = fresh().await;
    let chunks = collection(&database, "tasks.chunks");
    let text = "x".repeat(CHUNK_SIZE + 5);
    let mut told = Vec::new();
    for change in [
        None,
        Some(doc! {"$set": {"data": "y"}}),
        Some(doc! {"$set": {"data": "y".repeat(CHUNK_SIZE)}}),
        Some(doc! {"$set": {"data": 5}}),
        Some(doc! {"$set": {"n": 7}}),
    ] {
        let id = stored(&database, ChunkForm::Text, &text).await;
        let first = doc! {"files_id": id, "n": 0};
        match change {
            None => drop(chunks.delete_one(first).await.unwrap()),
            Some(change) => drop(chunks.update_one(first, change).await.unwrap()),
        }
        match load(&database, id).await {
            Err(LoadError::Broken { why, .. }) => told.push(why),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        told,
        [
            "chunk 0 is missing",
            "it should have 261125 bytes, its chunks have 6",
            "its MD5 digest is not that of its chunks",
            "chunk 0 holds neither a string nor bytes",
            "chunk 0 is missing",
        ]
    );
    let absent = ObjectId::new();
    let error = load(&database, absent).await.unwrap_err();
    assert_eq!(error.to_string(), format!("there is no output file {absent}"));
}

#[tokio::test]
async fn small_output_stays_inline_and_large_goes_to_files() {
    let database = fresh().await;
    let task = ObjectId::new();
    let small = output(task, "out", "err");
    let kept = store(&database, ChunkForm::Text, Gfs::Auto, small, now()).await.unwrap();
    assert_eq!(kept, ("out".into(), "err".into()));
    assert_eq!(count(&database, "tasks.files").await, 0);
    let long = "€".repeat(5 * MIB);
    let large = output(task, &long, "err");
    let (stdout, stderr) =
        store(&database, ChunkForm::Text, Gfs::Auto, large, now()).await.unwrap();
    assert_eq!(stderr, "err".into());
    let text = load(&database, stdout.as_object_id().unwrap()).await.unwrap();
    assert_eq!(text.len(), 15 * MIB);
}

/// The document is really written with its output: the server accepts it.
#[tokio::test]
async fn whatever_the_rule_keeps_inline_fits_into_a_document() {
    let database = fresh().await;
    let tasks = collection(&database, "tasks");
    for (gfs, params) in [(Gfs::Never, 0), (Gfs::Never, 9 * MIB), (Gfs::Auto, 9 * MIB)] {
        let params = doc! {"params": "p".repeat(params), "status": 0};
        let held = params.to_vec().unwrap().len();
        let id = tasks.insert_one(params).await.unwrap().inserted_id;
        let task = id.as_object_id().unwrap();
        let (out, err) = ("o".repeat(12 * MIB), "e".repeat(7 * MIB));
        let said = Output { held, ..output(task, &out, &err) };
        let (stdout, stderr) = store(&database, ChunkForm::Binary, gfs, said, now()).await.unwrap();
        let ended = doc! {"$set": {"status": 1, "stdout": &stdout, "stderr": &stderr}};
        tasks.update_one(doc! {"_id": task}, ended).await.unwrap();
        if gfs == Gfs::Never {
            let note = "bytes of output do not fit into the task's document and gfs is off]\n";
            assert!(stdout.as_str().unwrap().ends_with(note));
        } else {
            assert!(stdout.as_object_id().is_some() && stderr.as_object_id().is_some());
        }
    }
}

#[tokio::test]
async fn the_files_of_a_task_are_removed_with_their_chunks() {
    let database = fresh().await;
    let (one, other) = (ObjectId::new(), ObjectId::new());
    for task in [one, other] {
        let said = output(task, "out", "err");
        store(&database, ChunkForm::Text, Gfs::Always, said, now()).await.unwrap();
    }
    assert_eq!(remove(&database, &[one]).await.unwrap(), 2);
    assert_eq!(remove(&database, &[one]).await.unwrap(), 0);
    assert_eq!(remove(&database, &[]).await.unwrap(), 0);
    assert_eq!(count(&database, "tasks.chunks").await, 2);
    let left = all(&database, "tasks.files", doc! {}).await;
    let owner = |file: &Document| file.get_document("metadata").unwrap().clone();
    assert!(left.iter().all(|file| owner(file) == doc! {"task_id": other}));
}

/// Creates a leftover file of this age and returns its id.
async fn leave(database: &Database, days: u64, file: Document) -> ObjectId {
    let id = id_of(days);
    let mut whole = doc! {"_id": id, "length": 1, "uploadDate": days_ago(days)};
    whole.extend(file);
    collection(database, "tasks.files").insert_one(whole).await.unwrap();
    let chunk = doc! {"files_id": id, "n": 0, "data": "x"};
    collection(database, "tasks.chunks").insert_one(chunk).await.unwrap();
    id
}

#[tokio::test]
async fn leftovers_are_removed_and_nothing_else() {
    let database = fresh().await;
    let tasks = collection(&database, "tasks");
    let of = |task: ObjectId| doc! {"filename": "stdout", "metadata": {"task_id": task}};
    let mut kept = Vec::new();
    // In use under either name; of a task in progress; young; not task output; without a task.
    let used = ObjectId::new();
    let file = leave(&database, 9, of(used)).await;
    tasks.insert_one(doc! {"_id": used, "status": 1, "stdout": file}).await.unwrap();
    kept.push(file);
    let erring = ObjectId::new();
    let file = leave(&database, 9, of(erring)).await;
    tasks.insert_one(doc! {"_id": erring, "status": 2, "stderr": file}).await.unwrap();
    kept.push(file);
    for status in [Bson::Int32(0), Bson::Int64(-1), Bson::Double(0.0)] {
        let running = ObjectId::new();
        tasks.insert_one(doc! {"_id": running, "status": status, "stdout": null}).await.unwrap();
        kept.push(leave(&database, 9, of(running)).await);
    }
    kept.push(leave(&database, 0, of(ObjectId::new())).await);
    let other = doc! {"filename": "photo", "metadata": {"task_id": ObjectId::new()}};
    kept.push(leave(&database, 9, other).await);
    kept.push(leave(&database, 9, doc! {"filename": "stdout"}).await);
    // Task gone; task refers to another file; chunks without a file, old and young.
    leave(&database, 9, of(ObjectId::new())).await;
    leave(&database, 9, of(used)).await;
    let chunk = |id: ObjectId| doc! {"files_id": id, "n": 0, "data": "x"};
    let young = id_of(0);
    collection(&database, "tasks.chunks").insert_one(chunk(id_of(2))).await.unwrap();
    collection(&database, "tasks.chunks").insert_one(chunk(young)).await.unwrap();

    let mut cleaner = Cleaner::default();
    assert_eq!(cleaner.step(&database, now()).await.unwrap(), 3);
    for _ in 0..3 {
        assert_eq!(cleaner.step(&database, now()).await.unwrap(), 0);
    }
    let mut left: Vec<ObjectId> = all(&database, "tasks.files", doc! {})
        .await
        .iter()
        .map(|file| file.get_object_id("_id").unwrap())
        .collect();
    left.sort();
    kept.sort();
    assert_eq!(left, kept);
    let mut chunks: Vec<ObjectId> = all(&database, "tasks.chunks", doc! {})
        .await
        .iter()
        .map(|chunk| chunk.get_object_id("files_id").unwrap())
        .collect();
    chunks.sort();
    kept.push(young);
    kept.sort();
    assert_eq!(chunks, kept);
}

/// Inline output may be large and must not be read.
#[tokio::test]
async fn a_search_for_leftovers_reads_no_output() {
    let proxy = Proxy::start(server_address().await).await;
    let database = proxy.database(&windlass_test_servers::mongodb().new_database()).await;
    let task = ObjectId::new();
    let of = |task: ObjectId| doc! {"filename": "stdout", "metadata": {"task_id": task}};
    let used = leave(&database, 9, of(task)).await;
    let left = leave(&database, 9, of(task)).await;
    let large = "e".repeat(4 * MIB);
    let ended = doc! {"_id": task, "status": 1, "stdout": used, "stderr": large};
    collection(&database, "tasks").insert_one(ended).await.unwrap();
    let before = proxy.answered_bytes();
    assert_eq!(Cleaner::default().step(&database, now()).await.unwrap(), 1);
    let read = proxy.answered_bytes() - before;
    assert!(read < MIB, "{read} bytes");
    let files = all(&database, "tasks.files", doc! {}).await;
    assert_eq!(files.len(), 1);
    assert_eq!(files[0].get_object_id("_id").unwrap(), used, "{left} is gone");
}

/// A file's chunks are found by its first one.
#[tokio::test]
async fn chunks_of_which_only_some_could_be_removed_are_found_again() {
    let proxy = Proxy::start(server_address().await).await;
    let database = proxy.database(&windlass_test_servers::mongodb().new_database()).await;
    let file = id_of(2);
    let chunks = (0..3).map(|n| doc! {"files_id": file, "n": n, "data": "x"});
    database.ask(collection(&database, "tasks.chunks").insert_many(chunks)).await.unwrap();
    let rest =
        proxy.each(Fate::Refuse, |it| it.is_on("delete", "tasks.chunks") && !it.mentions("$gt"));
    let mut cleaner = Cleaner::default();
    assert!(cleaner.step(&database, now()).await.is_err());
    let left = all(&database, "tasks.chunks", doc! {}).await;
    let numbers: Vec<i32> = left.iter().map(|chunk| chunk.get_i32("n").unwrap()).collect();
    assert_eq!(numbers, [0]);
    rest.release();
    assert_eq!(cleaner.step(&database, now()).await.unwrap(), 1);
    assert_eq!(count(&database, "tasks.chunks").await, 0);
}

/// More files than one step covers.
#[tokio::test]
async fn many_leftovers_go_step_by_step() {
    let database = fresh().await;
    let files = (0..450).map(|_| {
        doc! {
            "_id": id_of(3), "filename": "stderr", "uploadDate": days_ago(3),
            "metadata": {"task_id": ObjectId::new()},
        }
    });
    collection(&database, "tasks.files").insert_many(files).await.unwrap();
    let mut cleaner = Cleaner::default();
    let mut steps = Vec::new();
    while count(&database, "tasks.files").await > 0 {
        steps.push(cleaner.step(&database, now()).await.unwrap());
        assert!(steps.len() < 10, "{steps:?}");
    }
    assert_eq!(steps.iter().sum::<u64>(), 450);
    assert!(steps.len() > 2, "{steps:?}");
}

/// The second chunk is refused: no file document may claim to be complete.
#[tokio::test]
async fn a_file_stands_only_when_all_its_chunks_do() {
    for form in FORMS {
        let database = fresh().await;
        let chunks = collection(&database, "tasks.chunks");
        let options = mongodb::options::IndexOptions::builder().unique(true).build();
        let once = mongodb::IndexModel::builder().keys(doc! {"n": 1}).options(options).build();
        chunks.create_index(once).await.unwrap();
        chunks.insert_one(doc! {"files_id": ObjectId::new(), "n": 1, "data": "x"}).await.unwrap();
        let text = long_text();
        let said = output(ObjectId::new(), &text, "");
        assert!(store(&database, form, Gfs::Always, said, now()).await.is_err());
        let files = all(&database, "tasks.files", doc! {"filename": "stdout"}).await;
        assert_eq!(files, [], "{form:?}");
    }
}

#[tokio::test]
async fn an_insert_that_is_carried_out_twice_is_one() {
    let proxy = Proxy::start(server_address().await).await;
    for form in FORMS {
        for name in ["tasks.chunks", "tasks.files"] {
            let database = proxy.database(&windlass_test_servers::mongodb().new_database()).await;
            let twice = proxy.next(Fate::Twice, move |it| it.is_on("insert", name));
            let text = long_text();
            let id = stored(&database, form, &text).await;
            assert_eq!(twice.count(), 1, "{name}");
            assert_eq!(load(&database, id).await.unwrap(), text, "{name}, {form:?}");
        }
    }
}

/// A failed write is an error, and earlier files stay complete.
#[tokio::test]
async fn a_database_that_goes_away_leaves_no_half_file() {
    let server = MongoDb::start();
    let name = server.new_database();
    let database = connect(&server.url(), &name).await;
    let kept = stored(&database, ChunkForm::Text, "kept").await;
    server.kill();
    let text = long_text();
    let said = output(ObjectId::new(), &text, "");
    assert!(store(&database, ChunkForm::Text, Gfs::Always, said, now()).await.is_err());
    server.restart();
    let database = connect(&server.url(), &name).await;
    assert_eq!(load(&database, kept).await.unwrap(), "kept");
    assert_eq!(count(&database, "tasks.files").await, 2);
}
