//! A process that appends is killed, again and again; everything acknowledged is there.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use windlass_core::time::SystemClock;

use super::*;

/// The variable with the directory for the child of this test.
const ROOT_VARIABLE: &str = "WINDLASS_JOURNAL_TEST_ROOT";
const TEST_NAME: &str = "tests::kill::s0_23_kill_nine_loses_nothing_accepted";
const ROUNDS: u64 = 25;
const SEGMENT: u64 = 16 * 1024;

#[test]
fn s0_23_kill_nine_loses_nothing_accepted() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if let Some(root) = std::env::var_os(ROOT_VARIABLE) {
        runtime.block_on(append_until_killed(Path::new(&root)));
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let mut position = None;
    let mut seen = HashSet::new();
    for seed in 0..ROUNDS {
        let accepted = accepted_until_kill(root.path(), seed);
        position = runtime.block_on(check(root.path(), position, &accepted, &mut seen, seed));
    }
}

/// The child: several tasks append at once and print what was accepted.
async fn append_until_killed(root: &Path) {
    let mut small = options(root);
    small.segment_bytes_max = SEGMENT;
    let journal = Journal::open(small, Arc::new(SystemClock), None, None).unwrap();
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let journal = journal.clone();
            tokio::spawn(async move {
                for number in 0.. {
                    let payloads: Vec<String> =
                        (0..number % 5 + 1).map(|n| format!("{task}.{number}.{n}")).collect();
                    let batch = payloads.iter().map(|text| entry(text.clone())).collect();
                    let ids = journal.append(batch, None).await.unwrap();
                    let mut lines = String::new();
                    for (id, text) in ids.iter().zip(&payloads) {
                        lines += &format!("accepted {id} {text}\n");
                    }
                    std::io::stdout().lock().write_all(lines.as_bytes()).unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// Runs the child and kills it at a moment chosen by the seed.
fn accepted_until_kill(root: &Path, seed: u64) -> HashMap<JobId, String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([TEST_NAME, "--exact", "--nocapture"]).env(ROOT_VARIABLE, root);
    let mut child = start(command.stdout(Stdio::piped()));
    let mut luck = fastrand::Rng::with_seed(seed);
    let lines_until_kill = luck.usize(1..400);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut accepted = HashMap::new();
    let mut note = |line: std::io::Result<String>| {
        let line = line.unwrap();
        // The test harness may have printed something before the first line.
        let Some((_, told)) = line.split_once("accepted ") else { return };
        let (id, text) = told.split_once(' ').unwrap();
        accepted.insert(id.parse().unwrap(), text.to_owned());
    };
    lines.by_ref().take(lines_until_kill).for_each(&mut note);
    child.kill().unwrap();
    lines.for_each(&mut note);
    child.wait().unwrap();
    assert!(!accepted.is_empty(), "the child accepted something");
    accepted
}

/// Reads the journal as a restarted daemon would, and drops what it has read in every other round.
async fn check(
    root: &Path,
    position: Option<JobId>,
    accepted: &HashMap<JobId, String>,
    seen: &mut HashSet<JobId>,
    seed: u64,
) -> Option<JobId> {
    let journal = open_after(root, position).unwrap();
    let records = drain(&journal).await;
    let found: HashMap<JobId, String> = records
        .iter()
        .map(|record| (record.job.id, String::from_utf8(payload(record).to_vec()).unwrap()))
        .collect();
    assert_eq!(found.len(), records.len(), "seed {seed}: an id came twice");
    for (id, text) in accepted {
        assert_eq!(found.get(id), Some(text), "seed {seed}");
        assert!(seen.insert(*id), "seed {seed}: {id} was given before");
    }
    let newest = records.last().map(|record| record.job.id);
    let dropped = if seed % 2 == 1 { newest } else { position };
    if let Some(dropped) = dropped {
        journal.drop_until(dropped).await.unwrap();
    }
    journal.close().await;
    dropped
}
