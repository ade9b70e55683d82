//! The text in the files; everything is read back as it was written.

use std::process::Stdio;

use bytes::Bytes;
use windlass_core::add::Expiry;
use windlass_core::store::IdempotencyKey;
use windlass_core::{Priority, TypeKey, TypeName};

use super::*;
use crate::chunk::FrameState;
use crate::decode::{Decoder, records};

fn output_of(program: &str, arguments: &[&str], file: &Path) -> String {
    let mut command = Command::new(program);
    command.args(arguments).arg(file).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = start(&mut command).wait_with_output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn s0_40_grep_and_awk_read_the_file() {
    let root = tempfile::tempdir().unwrap();
    let journal = open(root.path());
    let mut other = entry("third");
    other.key = TypeKey::new("beta", "ä b/c, d").unwrap();
    let batch = vec![entry("first"), entry("sec|ond|"), other, entry("#:Batch no frame")];
    let made = journal.append(batch, None).await.unwrap();
    let file = &segments(root.path())[0];

    let script = r#"/^[0-9]+[|]/ { split($0, f, "|");
        print f[1] "," f[2] "," substr($0, length(f[1]) + length(f[2]) + 3) }"#;
    let expected = format!(
        "{},acme/mail,first\n{},acme/mail,sec|ond|\n{},beta/ä b/c, d,third\n\
         {},acme/mail,#:Batch no frame\n",
        made[0], made[1], made[2], made[3]
    );
    assert_eq!(output_of("awk", &[script], file), expected);
    assert_eq!(output_of("grep", &["-c", r"^[0-9]*|acme/mail|"], file), "3\n");
    assert_eq!(
        output_of("grep", &[&format!("^{}|", made[1])], file),
        format!("{}|acme/mail|sec|ond|\n", made[1])
    );
    let head = output_of("head", &["-n", "2"], file);
    let mut lines = head.lines();
    assert!(lines.next().unwrap().starts_with("#:Windlass-Journal version=1,sysid=7,"));
    let frame = lines.next().unwrap();
    assert!(frame.starts_with("#:Batch date=2027-01-15T08:00:00.123Z,records=4,bytes="), "{frame}");
    assert_eq!(output_of("tail", &["-n", "1"], file), "#:EndBatch\n");
}

#[tokio::test]
async fn s0_44_payloads_of_any_bytes_arrive_unchanged() {
    let root = tempfile::tempdir().unwrap();
    let journal = open(root.path());
    let all: Vec<u8> = (0..=255).collect();
    let nasty: Vec<Bytes> = [
        &b""[..],
        b"\n",
        b"\0",
        b"a\0b\nc",
        b"\n\n\n",
        b"\r\n",
        b"|",
        b"#:EndBatch",
        b"#:EndBatch\n",
        b"x\n#:Bytes 1\n1|acme/mail|y\n#:EndBatch\n",
        b"1|acme/mail|z",
        b"\xff\xfe",
        &all,
    ]
    .iter()
    .map(|bytes| Bytes::copy_from_slice(bytes))
    .collect();
    let batch = nasty.iter().map(|bytes| entry(bytes.clone())).collect();
    journal.append(batch, None).await.unwrap();
    for bytes in &nasty {
        journal.append(vec![entry(bytes.clone())], None).await.unwrap();
    }
    let expected: Vec<&[u8]> = nasty.iter().chain(&nasty).map(|bytes| &bytes[..]).collect();
    let records = drain(&journal).await;
    assert_eq!(records.iter().map(payload).collect::<Vec<_>>(), expected);
    journal.close().await;
    let records = drain(&open(root.path())).await;
    assert_eq!(records.iter().map(payload).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn s0_44_random_payloads_and_options_arrive_unchanged() {
    for seed in 0..20 {
        let mut luck = fastrand::Rng::with_seed(seed);
        let root = tempfile::tempdir().unwrap();
        let journal = open(root.path());
        let mut sent = Vec::new();
        for _ in 0..luck.usize(1..20) {
            let batch: Vec<_> = (0..luck.usize(1..30)).map(|_| random_entry(&mut luck)).collect();
            journal.append(batch.clone(), None).await.unwrap();
            sent.extend(batch);
        }
        check_same(&sent, &drain(&journal).await, seed);
        journal.close().await;
        let journal = open(root.path());
        let mut records = Vec::new();
        while let Some(ticket) = journal.reserve(luck.usize(1..9), luck.usize(1..900), Some(LONG)) {
            records.extend(journal.read(&ticket).await.unwrap());
            journal.commit(ticket).unwrap();
        }
        check_same(&sent, &records, seed);
    }
}

fn random_entry(luck: &mut fastrand::Rng) -> Entry {
    const ALPHABET: &[u8] = b"ab|#:\n\0\xff1 ";
    let size = luck.usize(0..40);
    let payload: Vec<u8> = (0..size).map(|_| ALPHABET[luck.usize(..ALPHABET.len())]).collect();
    let mut made = entry(payload);
    if luck.bool() {
        made.key = TypeKey::new(["a", "b-1"][luck.usize(..2)], "t/x").unwrap();
        let options = &mut made.options;
        options.priority = Priority::new(luck.i64(0..=1000)).unwrap();
        options.run_at = luck.bool().then(|| Timestamp(luck.i64(..)));
        let expiry = [
            Expiry::At(Timestamp(luck.i64(..))),
            Expiry::After(Duration::from_millis(luck.u64(..1 << 40))),
        ];
        options.expires = luck.bool().then(|| expiry[luck.usize(..2)]);
        options.then =
            luck.bool().then(|| TypeName::new(["u", "ä, %=b"][luck.usize(..2)]).unwrap());
        let text = |luck: &mut fastrand::Rng| {
            luck.bool().then(|| ["HOURLY", "a, b%\n=ä"][luck.usize(..2)].into())
        };
        options.extra.repeat = text(luck);
        options.extra.door_text = text(luck);
        options.extra.run_at_text = text(luck);
        options.extra.order_key = if luck.bool() { luck.i64(..) } else { 0 };
        options.extra.hidden = luck.bool();
        options.timeout = luck.bool().then(|| Duration::from_millis(luck.u64(..)));
    }
    made
}

fn check_same(sent: &[Entry], records: &[Record], seed: u64) {
    assert_eq!(sent.len(), records.len(), "seed {seed}");
    for (entry, record) in sent.iter().zip(records) {
        let AddPayload::Inline(bytes) = &entry.payload else { panic!("not inline") };
        let (job, options) = (&record.job, &entry.options);
        assert_eq!(payload(record), &bytes[..], "seed {seed}");
        assert_eq!(job.key, entry.key, "seed {seed}");
        assert_eq!(job.priority, options.priority, "seed {seed}");
        assert_eq!(job.created_at, NOW, "seed {seed}");
        assert_eq!(job.run_at, options.run_at.unwrap_or(NOW), "seed {seed}");
        assert_eq!(job.expires_at, options.expires.map(|expiry| expiry.of(NOW)), "seed {seed}");
        assert_eq!(job.timeout, options.timeout, "seed {seed}");
        assert_eq!(job.then, options.then, "seed {seed}");
        assert_eq!(job.extra, options.extra, "seed {seed}");
    }
}

#[tokio::test]
async fn an_idempotency_key_comes_back_on_every_record_of_its_append_with_all_ids() {
    let root = tempfile::tempdir().unwrap();
    let journal = open(root.path());
    let key = IdempotencyKey { key: "ä, 100%=\n\"x\"|".into(), fingerprint: u64::MAX - 1 };
    let keyed = journal.append(vec![entry("a"); 3000], Some(key.clone())).await.unwrap();
    let plain = journal.append(entries(&["b"]), None).await.unwrap();
    for reopened in [false, true] {
        let journal = if reopened { open(root.path()) } else { journal.clone() };
        let mut records = Vec::new();
        while let Some(ticket) = journal.reserve(700, usize::MAX, Some(LONG)) {
            records.extend(journal.read(&ticket).await.unwrap());
            journal.commit(ticket).unwrap();
        }
        assert_eq!(ids(&records), [keyed.clone(), plain.clone()].concat());
        let noted = |record: &&Record| record.note.is_some();
        assert_eq!(records.iter().take_while(noted).count(), keyed.len());
        assert_eq!(records.iter().filter(noted).count(), keyed.len());
        for note in records.iter().filter_map(|record| record.note.as_ref()) {
            assert_eq!((&note.key, &note.ids), (&key, &keyed));
        }
        journal.close().await;
    }
}

#[test]
fn an_error_points_to_the_line_that_is_wrong() {
    let text = b"1|acme/mail|x\n#:Unknown\n";
    let mut decoder = Decoder::new(text, FrameState::default());
    assert!(decoder.next().is_ok_and(|line| line.is_some()));
    assert!(decoder.next().is_err());
    assert_eq!(decoder.at(), b"1|acme/mail|x\n".len());
}

#[test]
fn records_up_to_the_floor_are_left_out() {
    let text = Bytes::from_static(b"1|acme/mail|a\n2|acme/mail|b\n3|acme/mail|c\n");
    let ids_after = |floor| {
        let mut found = Vec::new();
        let (state, floor) = (FrameState::default(), JobId::new(floor));
        records(&text, state, floor, Path::new("payload"), &mut found).unwrap();
        ids(&found).into_iter().map(JobId::get).collect::<Vec<_>>()
    };
    assert_eq!([ids_after(0), ids_after(2), ids_after(3)], [vec![1, 2, 3], vec![3], vec![]]);
}

#[test]
fn a_run_of_ids_is_no_longer_than_any_that_is_written() {
    let reads = |last: u64| {
        let text = format!("#:Key fingerprint=1,key=a,ids=1000000-{last}\n");
        Decoder::new(text.as_bytes(), FrameState::default()).next().is_ok()
    };
    assert!(reads(1_001_023), "1024 ids");
    assert!(!reads(1_001_024));
}

#[test]
fn a_key_belongs_to_the_records_that_its_line_names() {
    let text = "#:Key fingerprint=1,ids=2-3,key=a\n\
                2|acme/mail|a\n3|acme/mail|b\n4|acme/mail|c\n\
                #:Key fingerprint=1,ids=6-6,key=b\n5|acme/mail|d\n";
    let mut found = Vec::new();
    let text = Bytes::from_static(text.as_bytes());
    records(&text, FrameState::default(), None, Path::new("payload"), &mut found).unwrap();
    let keys = found.iter().map(|record| record.note.as_ref().map(|note| note.key.key.as_str()));
    assert_eq!(keys.collect::<Vec<_>>(), [Some("a"), Some("a"), None, None]);
}
