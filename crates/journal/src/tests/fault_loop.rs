//! Fails every single operation of a workload in turn, and checks the result.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use windlass_core::JobId;
use windlass_core::store::IdempotencyKey;

use super::fault::{Fault, FaultDisk, Plan};
use super::*;

/// So small that the workload rotates often.
const SEGMENT: u64 = 700;
const STEPS: usize = 12;

/// What a client of the workload knows.
#[derive(Default)]
struct ClientView {
    accepted: BTreeMap<JobId, String>,
    /// Payloads whose append was answered with an error.
    refused: Vec<String>,
    /// The store has everything up to this.
    position: Option<JobId>,
    /// Whether the newest append was accepted.
    ends_well: bool,
}

fn open_small(disk: &FaultDisk, ingested: Option<JobId>) -> Result<Journal, Error> {
    let mut small = options(Path::new("/data"));
    small.segment_bytes_max = SEGMENT;
    super::open_on(Arc::new(disk.clone()), small, clock(), ingested)
}

/// Appends of several shapes, with reading and dropping in between; carries on after errors.
async fn workload(disk: &FaultDisk) -> ClientView {
    let mut known = ClientView::default();
    let Ok(journal) = open_small(disk, None) else { return known };
    for step in 0..STEPS {
        let texts: Vec<String> =
            (0..=step % 3).map(|n| format!("step {step}\nentry {n}")).collect();
        let batch = match step % 4 {
            3 => spooled(&journal, &texts).await,
            _ => Ok(texts.iter().map(|text| entry(text.clone())).collect()),
        };
        let key =
            (step % 2 == 0).then(|| IdempotencyKey { key: format!("key {step}"), fingerprint: 1 });
        let appended = match batch {
            Ok(batch) => journal.append(batch, key).await,
            Err(error) => Err(error),
        };
        known.ends_well = appended.is_ok();
        match appended {
            Ok(ids) => known.accepted.extend(ids.into_iter().zip(texts)),
            Err(_) => known.refused.extend(texts),
        }
        if step % 6 == 4 {
            // Whether the disk works again by now does not matter here.
            let _ = journal.wsync().await;
        }
        if step % 5 == 4
            && let Some(ticket) = journal.reserve(4, usize::MAX, Some(LONG))
            && journal.read(&ticket).await.is_ok()
        {
            known.position = Some(ticket.last());
            journal.commit(ticket).unwrap();
            // A segment that cannot be removed stays for later.
            let _ = journal.drop_until(known.position.unwrap()).await;
        }
    }
    journal.close().await;
    known
}

async fn spooled(journal: &Journal, texts: &[String]) -> Result<Vec<Entry>, Error> {
    let mut batch = Vec::new();
    for text in texts {
        let mut writer = journal.spool().await?;
        writer.write(Bytes::from(text.clone())).await?;
        let mut large = entry("");
        large.payload = AddPayload::Spooled(writer.finish().await?);
        batch.push(large);
    }
    Ok(batch)
}

/// Everything accepted is there once and intact, and nothing of what was refused.
async fn check(disk: &FaultDisk, known: &ClientView, refused_may_be_there: bool, note: &str) {
    let journal =
        open_small(disk, known.position).unwrap_or_else(|error| panic!("{note}: {error}"));
    let mut found = BTreeMap::new();
    for record in drain(&journal).await {
        let text = match &record.spool {
            Some(path) => disk.content(path).unwrap_or_else(|| panic!("{note}: {path:?} is gone")),
            None => payload(&record).to_vec(),
        };
        let before = found.insert(record.job.id, String::from_utf8(text).unwrap());
        assert!(before.is_none(), "{note}: {} came twice", record.job.id);
    }
    for (id, text) in known.accepted.iter().filter(|(id, _)| Some(**id) > known.position) {
        assert_eq!(found.remove(id).as_ref(), Some(text), "{note}: {id}");
    }
    for (id, text) in &found {
        let allowed = refused_may_be_there && known.refused.contains(text);
        assert!(allowed, "{note}: {id} {text:?} was not accepted");
    }
    let newest = journal.append(entries(&["works again"]), None).await;
    assert!(
        newest.unwrap()[0] > known.accepted.keys().max().copied().unwrap_or(JobId::new(1).unwrap())
    );
    journal.close().await;
}

fn operations_of_workload(runtime: &tokio::runtime::Runtime) -> u64 {
    let disk = FaultDisk::default();
    let known = runtime.block_on(workload(&disk));
    assert_eq!(known.refused, Vec::<String>::new());
    disk.operations()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

#[test]
fn s0_41_every_operation_may_fail_and_nothing_accepted_is_lost() {
    let runtime = runtime();
    let operations = operations_of_workload(&runtime);
    assert!(operations > 60);
    for fault in [Fault::Refuse, Fault::Halfway] {
        for length in [1, 2, 3, 9] {
            for from in 1..=operations {
                let note = format!("{fault:?} {length} from operation {from} on");
                let disk = FaultDisk::failing(Plan { fault, from, until: from + length });
                runtime.block_on(async {
                    let known = workload(&disk).await;
                    // With a single fault, the refused frame could be cut.
                    let uncut = length > 1 && !known.ends_well;
                    check(&disk.restarted(), &known, uncut, &note).await;
                    let mut luck = fastrand::Rng::with_seed(from);
                    let cut = disk.after_power_cut(&mut luck);
                    check(&cut, &known, !known.ends_well, &note).await;
                });
            }
        }
    }
}

#[test]
fn s0_24_a_power_cut_at_any_operation_loses_nothing_accepted() {
    let runtime = runtime();
    let operations = operations_of_workload(&runtime);
    for from in 1..=operations {
        let disk = FaultDisk::failing(Plan { fault: Fault::PowerCut, from, until: u64::MAX });
        let known = runtime.block_on(workload(&disk));
        for seed in 0..10 {
            let mut luck = fastrand::Rng::with_seed(seed);
            let cut = disk.after_power_cut(&mut luck);
            let note = format!("power cut at operation {from}, seed {seed}");
            runtime.block_on(check(&cut, &known, true, &note));
        }
    }
}

#[test]
fn s0_24_a_power_cut_after_a_restart_loses_nothing_that_the_restart_found() {
    let runtime = runtime();
    let operations = operations_of_workload(&runtime);
    for from in 1..=operations {
        // To the process, a kill looks like a disk that does nothing any more.
        let disk = FaultDisk::failing(Plan { fault: Fault::PowerCut, from, until: u64::MAX });
        let note = format!("killed at operation {from}");
        runtime.block_on(async {
            let mut known = workload(&disk).await;
            let restarted = disk.restarted();
            check(&restarted, &known, true, &note).await;
            known.refused.push("works again".into());
            check(&restarted.after_worst_power_cut(), &known, true, &note).await;
        });
    }
}
