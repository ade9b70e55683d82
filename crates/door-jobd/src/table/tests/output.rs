//! Any output of a program can be written to its row.

use crate::table::{End, Table, Unwritten};
use windlass_core::launch::Output;

use crate::table::tests::harness::{LEASE, World, end, everywhere, names, output};

everywhere! {
    bytes_that_are_no_text_are_replaced
    huge_output_is_stored_or_cut
    what_the_runner_dropped_is_said
}

/// Runs one job to its end.
async fn finish(world: &World, worker: &dyn Table, ended: End) -> Vec<Unwritten> {
    world.add("waiting", &["a"]);
    let fetched = worker.fetch(&names(&["a"]), 1, LEASE).await.unwrap();
    assert_eq!(worker.start(&[fetched.rows[0].id], 1).await.unwrap(), [ended.id]);
    worker.finish(&[ended]).await.unwrap()
}

async fn bytes_that_are_no_text_are_replaced(world: World) {
    let worker = world.worker("w");
    let bytes = output(b"\xff\xc3(a\0b)\xf0\x9f\x98\x80\xe2\x82");
    let ended = End { stdout: bytes.clone(), stderr: bytes, ..end(1) };
    assert_eq!(finish(&world, &*worker, ended).await, []);
    let bad = '\u{FFFD}';
    let wanted = if world.is_mysql() {
        format!("{bad}{bad}(a\0b){bad}{bad}")
    } else if world.is_postgres() {
        format!("{bad}{bad}(a{bad}b)\u{1F600}{bad}")
    } else {
        format!("{bad}{bad}(a\0b)\u{1F600}{bad}")
    };
    let length = world.one("LENGTH(stdout)", 1);
    if world.is_postgres() {
        assert_eq!(world.one("stdout", 1), wanted);
    } else {
        let hex: String = wanted.bytes().map(|byte| format!("{byte:02X}")).collect();
        assert_eq!(world.one("HEX(stdout)", 1), hex, "{length}");
    }
}

async fn huge_output_is_stored_or_cut(world: World) {
    const BYTES: usize = 20 * 1024 * 1024;
    let worker = world.worker("w");
    let huge = output(&vec![b'x'; BYTES]);
    let ended = End { stdout: huge.clone(), stderr: huge, ..end(1) };
    assert_eq!(finish(&world, &*worker, ended).await, []);
    assert_eq!(world.status(1), "done");
    let length: usize = world.one("LENGTH(stdout)", 1).parse().unwrap();
    if world.is_mysql() {
        assert!(length > 1024 * 1024 && length < 16 * 1024 * 1024, "{length}");
        let tail = world.one("RIGHT(stdout, 30)", 1);
        assert!(tail.contains("xx\n[cut: ") && tail.ends_with(" bytes]"), "{tail}");
    } else {
        assert_eq!(length, BYTES);
    }
}

async fn what_the_runner_dropped_is_said(world: World) {
    let worker = world.worker("w");
    let cut = Output { bytes: b"begin".to_vec(), dropped: 12 };
    let ended = End { stdout: cut.clone(), stderr: cut, note: Some("why".into()), ..end(1) };
    assert_eq!(finish(&world, &*worker, ended).await, []);
    assert_eq!(world.one("stdout", 1), "begin\n[cut: 12 bytes]");
    assert_eq!(world.one("stderr", 1), "begin\n[cut: 12 bytes]\nwhy");
}

#[tokio::test]
async fn small_and_strange_columns_of_mysql_are_respected() {
    let small = [
        ("`stdout` mediumtext", "`stdout` varchar(40) CHARACTER SET utf8mb4"),
        ("`stderr` mediumtext", "`stderr` text CHARACTER SET latin1"),
        ("tinyint(3) UNSIGNED", "tinyint(3)"),
    ];
    let world = World::mysql_with(&small);
    let worker = world.worker("w");
    let text = "ä\u{1F600}".repeat(50_000);
    let ended = End {
        ok: false,
        code: Some(200),
        signal: Some("SIGRTMIN+12".into()),
        stdout: output(text.as_bytes()),
        stderr: output("ä\u{1F600}€Ω".as_bytes()),
        ..end(1)
    };
    assert_eq!(finish(&world, &*worker, ended).await, []);
    assert_eq!(world.one("stderr", 1), "ä???");
    let stdout = world.one("stdout", 1);
    assert!(stdout.starts_with("ä\u{1F600}") && stdout.ends_with(" bytes]"), "{stdout}");
    assert!(stdout.chars().count() <= 40);
    assert_eq!(
        (world.one("return_code", 1), world.one("sig", 1)),
        ("127".into(), "SIGRTMIN+1".into())
    );
}

/// A row that the database refuses with its output is written without it.
#[tokio::test]
async fn a_refused_output_does_not_keep_a_job_running() {
    let world = World::mysql();
    world.sql("ALTER TABLE jobs ADD CONSTRAINT clean CHECK (stdout NOT LIKE '%dirt%')");
    let worker = world.worker("w");
    world.add("waiting", &["a", "a"]);
    worker.fetch(&names(&["a"]), 2, LEASE).await.unwrap();
    worker.start(&[1, 2], 1).await.unwrap();
    let dirty = End { stdout: output(b"some dirt"), note: Some("late".into()), ..end(1) };
    let clean = End { stdout: output(b"some gold"), ..end(2) };
    assert_eq!(worker.finish(&[dirty, clean]).await.unwrap(), []);
    assert_eq!((world.status(1), world.status(2)), ("done".into(), "done".into()));
    assert_eq!((world.one("stdout", 1), world.one("stdout", 2)), ("".into(), "some gold".into()));
    let told = world.one("stderr", 1);
    assert!(told.starts_with("late\n[the output could not be stored: "), "{told}");
}

#[tokio::test]
async fn an_end_that_is_refused_altogether_is_told() {
    let world = World::mysql();
    world.add("waiting", &["a"]);
    let worker = world.worker("w");
    worker.fetch(&names(&["a"]), 1, LEASE).await.unwrap();
    world.sql("ALTER TABLE jobs ADD CONSTRAINT early CHECK (time_finished < 5)");
    let refused = worker.finish(&[end(1)]).await.unwrap();
    assert!(matches!(&refused[..], [Unwritten::Refused(1, _)]), "{refused:?}");
}
