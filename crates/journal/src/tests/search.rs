//! Single records and the newest ones, while files are damaged, vanish, or have just enough.

use super::*;
use crate::reading::NEWEST_CHUNKS_MAX;

/// A journal whose only record is not in memory, and the segment that has it.
async fn with_record_in_file(root: &Path) -> (Journal, JobId, std::path::PathBuf) {
    let journal = open(root);
    let id = journal.append(entries(&["a"]), None).await.unwrap()[0];
    journal.close().await;
    (open(root), id, segments(root).remove(0))
}

#[tokio::test]
async fn a_record_whose_bytes_have_changed_is_damage_and_one_whose_file_is_gone_has_expired() {
    let root = tempfile::tempdir().unwrap();
    let (journal, id, file) = with_record_in_file(root.path()).await;
    let ticket = journal.reserve(1, usize::MAX, Some(LONG)).unwrap();
    let mut content = std::fs::read(&file).unwrap();
    let head_bytes = content.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    *content.last_mut().unwrap() ^= 1;
    std::fs::write(&file, content).unwrap();
    for error in [journal.read(&ticket).await.err(), journal.find(id).await.err()] {
        let Some(Error::Corrupt { file: named, offset, .. }) = error else { panic!("{error:?}") };
        assert_eq!((named, offset), (file.clone(), head_bytes as u64));
    }
    std::fs::remove_file(&file).unwrap();
    assert_eq!(journal.read(&ticket).await, Err(Error::Expired));
    assert_eq!(journal.find(id).await, Err(Error::Expired), "the store does not have it");
}

#[test]
fn a_record_that_the_store_gets_while_it_is_searched_is_not_found_and_no_error() {
    let root = tempfile::tempdir().unwrap();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let (journal, id, file) = with_record_in_file(root.path()).await;
        // The search cannot read the file before the only thread for that is free.
        let (free, is_free) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || is_free.recv());
        let searching = journal.clone();
        let found = tokio::spawn(async move { searching.find(id).await });
        tokio::task::yield_now().await;
        journal.commit_until(id);
        std::fs::remove_file(file).unwrap();
        free.send(()).unwrap();
        busy.await.unwrap().unwrap();
        assert_eq!(found.await.unwrap(), Ok(None));
    });
}

#[tokio::test]
async fn a_look_at_the_newest_records_has_a_rest_only_if_there_are_more_chunks() {
    let root = tempfile::tempdir().unwrap();
    let journal = open(root.path());
    let mut made = Vec::new();
    for (appends, rest) in [(NEWEST_CHUNKS_MAX, None), (1, Some(1))] {
        for _ in 0..appends {
            made.extend(journal.append(entries(&["a"]), None).await.unwrap());
        }
        let newest = journal.newest(None, |_| true).await.unwrap();
        assert_eq!(newest.records.len(), NEWEST_CHUNKS_MAX);
        assert_eq!(newest.rest_below, rest.map(|at: usize| made[at]));
    }
}
