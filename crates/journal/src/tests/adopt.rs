//! Another daemon's journal.

use super::*;

fn adopt(root: &Path, ingested: Option<JobId>) -> Option<Journal> {
    Journal::adopt(options(root), clock() as Arc<dyn Clock>, ingested).unwrap()
}

#[tokio::test]
async fn a_journal_outlives_its_daemon_and_goes_when_it_is_ingested() {
    let root = tempfile::tempdir().unwrap();
    assert!(adopt(root.path(), None).is_none(), "there is nothing");
    assert!(!options(root.path()).dir.exists());
    let owner = open(root.path());
    assert!(adopt(root.path(), None).is_none(), "an owner without a record lives");
    let mut writer = owner.spool().await.unwrap();
    writer.write(bytes::Bytes::from_static(b"large")).await.unwrap();
    let mut large = entry("");
    large.payload = AddPayload::Spooled(writer.finish().await.unwrap());
    let made = owner.append(vec![entry("a"), entry("b"), large], None).await.unwrap();
    assert!(adopt(root.path(), None).is_none(), "its owner lives");
    owner.close().await;

    let journal = adopt(root.path(), Some(made[0])).unwrap();
    assert!(adopt(root.path(), None).is_none(), "somebody else has it");
    assert!(matches!(open_after(root.path(), None), Err(Error::Locked(_))));
    assert_eq!(journal.append(entries(&["c"]), None).await, Err(Error::Closed));
    assert_eq!(journal.make_id(), Err(Error::Closed));
    assert!(journal.spool().await.is_err());
    assert_eq!(journal.clone().remove().await, Err(Error::Unread { records: 2 }));
    let records = drain(&journal).await;
    assert_eq!(ids(&records), made[1..]);
    let spooled = records[1].spool.clone().unwrap();
    assert_eq!(std::fs::read(&spooled).unwrap(), b"large");
    journal.remove().await.unwrap();
    assert!(!options(root.path()).dir.exists() && !spooled.exists());
    assert_eq!(drain(&open(root.path())).await, Vec::new());
}

#[tokio::test]
async fn an_adopted_journal_with_a_torn_tail_is_repaired() {
    let root = tempfile::tempdir().unwrap();
    let owner = open(root.path());
    owner.append(entries(&["a"]), None).await.unwrap();
    owner.append(entries(&["torn"]), None).await.unwrap();
    owner.close().await;
    let file = &segments(root.path())[0];
    let content = std::fs::read(file).unwrap();
    std::fs::write(file, &content[..content.len() - 3]).unwrap();
    let journal = adopt(root.path(), None).unwrap();
    assert_eq!(texts(&drain(&journal).await), ["a"]);
}

#[tokio::test]
async fn an_empty_journal_is_adopted_and_removed() {
    let root = tempfile::tempdir().unwrap();
    open(root.path()).close().await;
    let journal = adopt(root.path(), None).unwrap();
    assert_eq!(drain(&journal).await, Vec::new());
    journal.remove().await.unwrap();
    assert!(!options(root.path()).dir.exists());
}

#[tokio::test]
async fn a_lock_that_the_disk_refuses_is_an_error_of_the_disk() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(options(root.path()).dir.join("lock")).unwrap();
    let cannot_lock = |what: &str| what.starts_with("cannot lock");
    let is_refused =
        |error: Option<Error>| matches!(error, Some(Error::Storage(what)) if cannot_lock(&what));
    let adopted = Journal::adopt(options(root.path()), clock() as Arc<dyn Clock>, None);
    assert!(is_refused(adopted.err()), "it may have an owner, and it exists");
    assert!(is_refused(open_after(root.path(), None).err()), "nobody uses it");
}
