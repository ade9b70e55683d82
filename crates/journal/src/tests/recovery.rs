//! Recovery at start: torn tails are cut, damage is refused.

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::encode::checksum;
use crate::segment;

/// A journal of one segment with one frame for each text; returns the offsets at which frames end.
async fn written(root: &Path, texts: &[&'static str]) -> (PathBuf, Vec<u64>) {
    let journal = open(root);
    let mut ends = Vec::new();
    for text in texts {
        journal.append(entries(&[text, "twin"]), None).await.unwrap();
        ends.push(journal.stats().disk_bytes);
    }
    journal.close().await;
    let mut files = segments(root);
    assert_eq!(files.len(), 1);
    (files.remove(0), ends)
}

/// A journal with one segment for each text.
async fn written_in_segments(root: &Path, texts: &[&'static str]) -> Vec<PathBuf> {
    for text in texts {
        let journal = open(root);
        journal.append(entries(&[text]), None).await.unwrap();
        journal.close().await;
    }
    assert_eq!(segments(root).len(), texts.len());
    segments(root)
}

async fn first_texts(root: &Path) -> Vec<String> {
    let journal = open(root);
    let records = drain(&journal).await;
    journal.close().await;
    texts(&records).into_iter().filter(|text| *text != "twin").map(str::to_owned).collect()
}

#[tokio::test]
async fn s0_23_a_file_cut_at_any_byte_opens_with_every_whole_frame() {
    let root = tempfile::tempdir().unwrap();
    let (file, ends) = written(root.path(), &["one", "two\nlines", "three"]).await;
    let content = fs::read(&file).unwrap();
    let names = ["one", "two\nlines", "three"];
    for length in (0..=content.len()).rev() {
        fs::write(&file, &content[..length]).unwrap();
        let whole = ends.iter().filter(|&&end| end <= length as u64).count();
        assert_eq!(first_texts(root.path()).await, names[..whole], "cut to {length} bytes");
        let journal = open(root.path());
        journal.append(entries(&["after"]), None).await.unwrap();
        journal.close().await;
        let expected = [&names[..whole], &["after"]].concat();
        assert_eq!(first_texts(root.path()).await, expected, "cut to {length} bytes");
        for added in segments(root.path()).into_iter().filter(|path| *path != file) {
            fs::remove_file(added).unwrap();
        }
    }
}

#[tokio::test]
async fn s0_23_zeros_or_rubbish_behind_the_last_frame_are_cut() {
    let rubbish: [&[u8]; 5] = [
        &[0; 5000],
        b"#:Batch date=",
        b"#:Batch date=2027-01-15T08:00:00.123Z,records=1,bytes=5,crc32c=00000000\n1|a/b",
        b"\xff\xfe rubbish \n 1|acme/mail|x\n#:EndBatch\n",
        b"1|acme/mail|not in a frame\n",
    ];
    for tail in rubbish {
        let root = tempfile::tempdir().unwrap();
        let (file, ends) = written(root.path(), &["one", "two"]).await;
        let content = fs::read(&file).unwrap();
        fs::write(&file, [&content, tail].concat()).unwrap();
        assert_eq!(first_texts(root.path()).await, ["one", "two"]);
        assert_eq!(fs::metadata(&file).unwrap().len(), ends[1]);
    }
}

#[tokio::test]
async fn s0_23_a_payload_that_imitates_a_frame_does_not_stop_the_repair() {
    let root = tempfile::tempdir().unwrap();
    let (file, _) = written(root.path(), &["one", "two"]).await;
    let imitation = fs::read(&file).unwrap();
    let journal = open(root.path());
    journal.append(vec![entry(imitation), entry(vec![b'x'; 100])], None).await.unwrap();
    journal.close().await;
    let newest = segments(root.path()).pop().unwrap();
    let content = fs::read(&newest).unwrap();
    fs::write(&newest, &content[..content.len() - 1]).unwrap();
    assert_eq!(first_texts(root.path()).await, ["one", "two"]);
}

#[tokio::test]
async fn a_changed_byte_before_the_last_frame_is_refused_and_nothing_is_touched() {
    let root = tempfile::tempdir().unwrap();
    let (file, ends) = written(root.path(), &["one", "two\0", "three"]).await;
    let content = fs::read(&file).unwrap();
    for at in 0..ends[1] as usize {
        for flip in [0x01, 0x20, 0xff] {
            let mut damaged = content.clone();
            damaged[at] ^= flip;
            fs::write(&file, &damaged).unwrap();
            match open_after(root.path(), None) {
                Err(Error::Corrupt { file: named, offset, .. }) => {
                    assert_eq!(named, file);
                    assert!(offset <= at as u64, "byte {at} flipped, reported at {offset}");
                }
                Err(other) => panic!("byte {at}: {other}"),
                Ok(_) => panic!("byte {at} flipped with {flip:x}: opened"),
            }
            assert_eq!(fs::read(&file).unwrap(), damaged);
        }
    }
}

#[tokio::test]
async fn a_changed_byte_in_the_last_frame_never_becomes_a_wrong_record() {
    let root = tempfile::tempdir().unwrap();
    let (file, ends) = written(root.path(), &["one", "two", "three"]).await;
    let content = fs::read(&file).unwrap();
    for at in ends[1] as usize..content.len() {
        let mut damaged = content.clone();
        damaged[at] ^= 0x01;
        fs::write(&file, &damaged).unwrap();
        assert_eq!(first_texts(root.path()).await, ["one", "two"], "byte {at}");
    }
}

#[tokio::test]
async fn damage_in_an_older_segment_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let files = written_in_segments(root.path(), &["one", "two", "three"]).await;
    for file in &files[..2] {
        let content = fs::read(file).unwrap();
        for at in 0..content.len() {
            let mut damaged = content.clone();
            damaged[at] ^= 0x01;
            fs::write(file, damaged).unwrap();
            let opened = open_after(root.path(), None);
            assert!(matches!(opened, Err(Error::Corrupt { .. })), "byte {at}");
        }
        for length in 0..content.len() {
            fs::write(file, &content[..length]).unwrap();
            let opened = open_after(root.path(), None);
            assert!(matches!(opened, Err(Error::Corrupt { .. })), "cut to {length} bytes");
        }
        fs::write(file, content).unwrap();
    }
    assert_eq!(first_texts(root.path()).await, ["one", "two", "three"]);
}

#[tokio::test]
async fn a_missing_segment_between_unread_ones_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let files = written_in_segments(root.path(), &["one", "two", "three"]).await;
    let content = fs::read(&files[1]).unwrap();
    fs::remove_file(&files[1]).unwrap();
    assert!(matches!(open_after(root.path(), None), Err(Error::Corrupt { .. })));
    fs::write(&files[1], content).unwrap();
    assert_eq!(first_texts(root.path()).await, ["one", "two", "three"]);
    fs::remove_file(&files[0]).unwrap();
    assert_eq!(
        first_texts(root.path()).await,
        ["two", "three"],
        "the oldest may have been dropped"
    );
}

#[tokio::test]
async fn bytes_behind_the_length_that_the_next_segment_states_do_not_count() {
    let root = tempfile::tempdir().unwrap();
    let (file, ends) = written(root.path(), &["one", "two"]).await;
    let refused = fs::read(&file).unwrap()[ends[0] as usize..].to_vec();
    let cut = fs::read(&file).unwrap()[..ends[0] as usize].to_vec();
    fs::write(&file, &cut).unwrap();
    let journal = open(root.path());
    journal.append(entries(&["later"]), None).await.unwrap();
    journal.close().await;
    fs::write(&file, [cut, refused].concat()).unwrap();
    assert_eq!(first_texts(root.path()).await, ["one", "later"]);
}

#[tokio::test]
async fn segments_without_records_are_fine() {
    let root = tempfile::tempdir().unwrap();
    let (file, ends) = written(root.path(), &["one"]).await;
    let head = fs::read(&file).unwrap().iter().position(|&byte| byte == b'\n').unwrap() + 1;
    let content = fs::read(&file).unwrap();
    let empty = file.with_file_name("0000000000000000001.log");
    for unfinished in [&b""[..], &[0; 100], &content[..head / 2]] {
        fs::write(&empty, unfinished).unwrap();
        assert_eq!(first_texts(root.path()).await, ["one"]);
        assert!(!empty.exists(), "a segment that was never begun goes");
    }
    fs::write(&file, &content[..head]).unwrap();
    assert_eq!(first_texts(root.path()).await, Vec::<String>::new());
    assert_eq!(ends.len(), 1);
}

#[tokio::test]
async fn another_daemons_segment_is_refused() {
    let root = tempfile::tempdir().unwrap();
    written(root.path(), &["one"]).await;
    let mut other = options(root.path());
    other.sysid = Sysid::new(8).unwrap();
    let opened = Journal::open(other, clock() as Arc<dyn Clock>, None, None);
    assert!(matches!(opened, Err(Error::Corrupt { what, .. }) if what.contains("daemon 7")));
}

#[tokio::test]
async fn behind_a_head_that_was_never_finished_there_may_be_zeros_and_nothing_else() {
    for (rest, opens) in [(&b"\0\0"[..], true), (b"x", false), (b"\0x", false)] {
        let root = tempfile::tempdir().unwrap();
        let (file, _) = written(root.path(), &["one"]).await;
        let first = segment::first_of_name(file.file_name().unwrap().to_str().unwrap()).unwrap();
        let next = JobId::new(first.get() + 100).unwrap();
        let unfinished = segment::path(&options(root.path()).dir, next);
        fs::write(&unfinished, [b"#:Windlass-Journal version=1,sys\n", rest].concat()).unwrap();
        if opens {
            assert_eq!(first_texts(root.path()).await, ["one"]);
            assert!(!unfinished.exists(), "its creation failed");
            continue;
        }
        match open_after(root.path(), None) {
            Err(Error::Corrupt { file: named, .. }) => assert_eq!(named, unfinished),
            other => panic!("{rest:?}: {:?}", other.err()),
        }
        assert!(unfinished.exists(), "nothing is touched");
    }
}

#[tokio::test]
async fn a_segment_may_be_gone_if_the_store_has_all_that_came_before_it() {
    let root = tempfile::tempdir().unwrap();
    let files = written_in_segments(root.path(), &["one", "two", "three"]).await;
    fs::remove_file(&files[1]).unwrap();
    match open_after(root.path(), None) {
        Err(Error::Corrupt { file, what, .. }) => {
            assert_eq!((file, what.as_str()), (files[0].clone(), "the next segment is missing"));
        }
        other => panic!("{:?}", other.err()),
    }
    let first = segment::first_of_name(files[0].file_name().unwrap().to_str().unwrap());
    let journal = open_after(root.path(), first).unwrap();
    assert_eq!(texts(&drain(&journal).await), ["three"]);
    journal.close().await;
}

#[tokio::test]
async fn a_whole_frame_with_a_wrong_line_is_refused_and_the_line_is_named() {
    let root = tempfile::tempdir().unwrap();
    let (file, ends) = written(root.path(), &["one"]).await;
    let content = fs::read(&file).unwrap();
    let line = content.iter().position(|byte| *byte == b'\n').unwrap();
    let salt = segment::Head::parse(&content[..=line]).unwrap().salt;
    let body = "#:Unknown\n";
    let head = format!("#:Batch date=2027-01-15T08:00:00.123Z,records=1,bytes={}", body.len());
    let sum = checksum(&salt, head.as_bytes(), body.as_bytes());
    let head = format!("{head},crc32c={sum:08x}\n");
    let frame = format!("{head}{body}#:EndBatch\n");
    fs::write(&file, [&content, frame.as_bytes()].concat()).unwrap();
    match open_after(root.path(), None) {
        Err(Error::Corrupt { offset, .. }) => assert_eq!(offset, ends[0] + head.len() as u64),
        other => panic!("{:?}", other.err()),
    }
}

#[tokio::test]
async fn a_segment_that_no_later_one_refers_to_goes_if_it_has_only_a_head() {
    for (rest, opens) in [(&b""[..], true), (b"#:Batch", false)] {
        let root = tempfile::tempdir().unwrap();
        let (file, _) = written(root.path(), &["one"]).await;
        let journal = open(root.path());
        journal.append(entries(&["two"]), None).await.unwrap();
        journal.close().await;
        // Between the two, with the head of the newer one.
        let newer = fs::read(&segments(root.path())[1]).unwrap();
        let line = newer.iter().position(|byte| *byte == b'\n').unwrap();
        let first = segment::first_of_name(file.file_name().unwrap().to_str().unwrap()).unwrap();
        let between = JobId::new(first.get() + 1).unwrap();
        let between = segment::path(&options(root.path()).dir, between);
        fs::write(&between, [&newer[..=line], rest].concat()).unwrap();
        assert_eq!(segments(root.path())[1], between);
        match open_after(root.path(), None) {
            Ok(journal) if opens => {
                assert_eq!(texts(&drain(&journal).await), ["one", "twin", "two"]);
                journal.close().await;
            }
            Err(Error::Corrupt { file, .. }) if !opens => assert_eq!(file, between),
            other => panic!("{rest:?}: {:?}", other.err()),
        }
        assert_eq!(between.exists(), !opens);
    }
}
