//! A panic of the writer is noticed: nothing hangs, and the errors say what happened.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// A journal whose writer panics at the first frame that is synced after the switch is set.
fn open_with_switch(root: &Path) -> (Journal, Arc<AtomicBool>) {
    let switch = Arc::new(AtomicBool::new(false));
    let mut options = options(root);
    let seen = switch.clone();
    options.on_sync = Some(Arc::new(move |_| {
        assert!(!seen.load(Ordering::SeqCst), "the test wants a panic");
    }));
    (Journal::open(options, clock() as Arc<dyn Clock>, None, None).unwrap(), switch)
}

fn is_the_panic(error: &Error) -> bool {
    matches!(error, Error::Writer(_)) && error.to_string().contains("the test wants a panic")
}

#[tokio::test]
async fn a_panic_of_the_writer_refuses_appends_and_hangs_nobody() {
    let root = tempfile::tempdir().unwrap();
    let (journal, switch) = open_with_switch(root.path());
    journal.append(entries(&["before"]), None).await.unwrap();
    assert_eq!(journal.stats().refusal, None);
    switch.store(true, Ordering::SeqCst);
    let (first, second, sync) = tokio::join!(
        journal.append(entries(&["in the middle"]), None),
        journal.append(entries(&["waits"]), None),
        journal.wsync(),
    );
    for error in [first.unwrap_err(), second.unwrap_err(), sync.unwrap_err()] {
        assert!(is_the_panic(&error), "{error}");
    }
    let later = journal.append(entries(&["later"]), None).await.unwrap_err();
    assert!(is_the_panic(&later), "{later}");
    let refusal = journal.stats().refusal.unwrap();
    assert!(refusal.contains("the test wants a panic"), "{refusal}");
    assert_eq!(texts(&drain(&journal).await), ["before"], "reading goes on");
    journal.close().await;
    assert_eq!(texts(&drain(&open(root.path())).await)[0], "before");
}

#[tokio::test]
async fn a_payload_that_a_synced_frame_names_survives_a_panic_of_the_writer() {
    let root = tempfile::tempdir().unwrap();
    let (journal, switch) = open_with_switch(root.path());
    let mut writer = journal.spool().await.unwrap();
    writer.write(Bytes::from_static(b"large")).await.unwrap();
    let mut large = entry("");
    large.payload = AddPayload::Spooled(writer.finish().await.unwrap());
    switch.store(true, Ordering::SeqCst);
    assert!(journal.append(vec![large], None).await.is_err());
    journal.close().await;
    let records = drain(&open(root.path())).await;
    assert_eq!(std::fs::read(records[0].spool.as_ref().unwrap()).unwrap(), b"large");
}

#[tokio::test]
async fn no_lock_is_lost_to_a_panic_of_its_holder() {
    let root = tempfile::tempdir().unwrap();
    let journal = open(root.path());
    let inner = journal.inner.clone();
    let holder = std::thread::spawn(move || {
        let _state = inner.state();
        panic!("while it holds the state");
    });
    assert!(holder.join().is_err());
    let made = journal.append(entries(&["a", "b"]), None).await.unwrap();
    assert_eq!(journal.stats().unread_records, 2);
    assert_eq!(ids(&drain(&journal).await), made);
    journal.close().await;
}
