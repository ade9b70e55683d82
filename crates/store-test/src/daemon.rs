//! What daemons say of themselves with their beats, and who is gone.

use windlass_core::Timestamp;
use windlass_core::limit::{
    DAEMON_GONE_RETENTION, DAEMON_LAYERS_MAX, DAEMON_LEFT_RETENTION, DAEMON_TEXT_BYTES_MAX,
};
use windlass_core::store::{
    Backlog, DaemonRecord, DaemonReport, Durability, Error, Insert, JournalMark, SysidGrant,
    SysidRenew, SysidReserve,
};

use crate::Harness;
use crate::fixture::{LEASE, NOW, Subject, after, id, job, journal, sysid};

async fn granted(store: &Subject, wanted: u16) -> SysidGrant {
    let reserve = SysidReserve { wanted: Some(sysid(wanted)), lease: LEASE };
    store.sysid_reserve(reserve).await.unwrap()
}

/// The journal of this daemon in the data directory number `place`.
fn journal_of(place: i64, number: u16) -> i64 {
    (place << 12) | i64::from(number)
}

/// With `jobs` in its journal that are not in the store, the newest of them with this id.
pub(crate) fn report(of: i64, jobs: u64, newest: i64) -> DaemonReport {
    let newest = (jobs > 0).then(|| id(newest));
    DaemonReport {
        journal: journal(of),
        host: "alpha".into(),
        version: "1.2.3".into(),
        listen: "10.1.2.3:7600".into(),
        started_at: NOW,
        picking: true,
        running: 3,
        backlog: Backlog { jobs, bytes: 100 * jobs, oldest: newest.map(|_| id(1)), newest },
        layers_missing: vec!["no landlock: an old kernel".into(), "no cgroup".into()],
    }
}

async fn beat(store: &Subject, grant: SysidGrant, report: DaemonReport) {
    let renew = SysidRenew { grant, lease: LEASE, id_newest: None, report: Some(report) };
    store.sysid_renew(renew).await.unwrap();
}

async fn ingested(store: &Subject, of: i64, position: i64) {
    let mark = JournalMark { journal: journal(of), from: None, position: id(position) };
    let jobs = vec![job(position)];
    let insert =
        Insert { jobs, keys: Vec::new(), mark: Some(mark), durability: Durability::Synced };
    store.job_insert(insert).await.unwrap();
}

async fn all(store: &Subject, now: Timestamp) -> Vec<DaemonRecord> {
    store.at(now).daemon_list(None, 100).await.unwrap()
}

/// Number, whether it is alive, jobs left.
async fn seen(store: &Subject, now: Timestamp) -> Vec<(u16, bool, u64)> {
    let short = |daemon: &DaemonRecord| (daemon.grant.sysid.get(), daemon.alive, daemon.left());
    all(store, now).await.iter().map(short).collect()
}

pub async fn what_a_daemon_says_comes_back(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let (of, grant) = (journal_of(8, 7), granted(&store, 7).await);
    assert_eq!(all(&store, NOW).await, [], "it has said nothing yet");
    let first = report(of, 5, 40);
    beat(store.at(after(1)), grant, first.clone()).await;
    let wanted = |report: &DaemonReport, beat_at, position| DaemonRecord {
        grant,
        beat_at,
        alive: true,
        position,
        report: report.clone(),
    };
    assert_eq!(all(&store, after(2)).await, [wanted(&first, after(1), None)]);
    ingested(&store, of, 9).await;
    let long = "é".repeat(DAEMON_TEXT_BYTES_MAX / 2);
    let second = DaemonReport {
        host: long.clone(),
        version: String::new(),
        listen: long.clone(),
        started_at: after(77),
        picking: false,
        running: 0,
        backlog: Backlog::default(),
        layers_missing: vec![long; DAEMON_LAYERS_MAX],
        ..first
    };
    beat(store.at(after(4)), grant, second.clone()).await;
    assert_eq!(all(&store, after(4)).await, [wanted(&second, after(4), Some(id(9)))]);
    let bare = DaemonReport { layers_missing: Vec::new(), ..second };
    beat(store.at(after(5)), grant, bare.clone()).await;
    let renew = SysidRenew { grant, lease: LEASE, id_newest: None, report: None };
    store.at(after(6)).sysid_renew(renew).await.unwrap();
    assert_eq!(all(&store, after(6)).await, [wanted(&bare, after(5), Some(id(9)))]);
}

pub async fn daemons_come_in_pages_by_number(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    for number in [9, 2, 5, 4095, 1] {
        let grant = granted(&store, number).await;
        beat(&store, grant, report(journal_of(i64::from(number) * 1000 % 7, number), 0, 0)).await;
    }
    let mut numbers = Vec::new();
    let mut after = None;
    loop {
        let page = store.daemon_list(after, 2).await.unwrap();
        assert!(page.len() <= 2);
        let Some(last) = page.last() else { break };
        after = Some(last.report.journal);
        numbers.extend(page.iter().map(|daemon| daemon.grant.sysid.get()));
    }
    assert_eq!(numbers, [1, 2, 5, 9, 4095]);
}

pub async fn a_daemon_whose_beat_has_ended_is_gone_with_what_it_left(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let (of, grant) = (journal_of(8, 7), granted(&store, 7).await);
    beat(&store, grant, report(of, 5, 40)).await;
    assert_eq!(seen(&store, after(9)).await, [(7, true, 5)]);
    assert_eq!(seen(&store, after(10)).await, [(7, false, 5)]);
    ingested(&store, of, 39).await;
    assert_eq!(seen(&store, after(10)).await, [(7, false, 5)], "not all of it");
    let mark = JournalMark { journal: journal(of), from: Some(id(39)), position: id(40) };
    let rest = Insert {
        jobs: vec![job(40)],
        keys: Vec::new(),
        mark: Some(mark),
        durability: Durability::Relaxed,
    };
    store.job_insert(rest).await.unwrap();
    assert_eq!(seen(&store, after(10)).await, [(7, false, 0)], "another one took it over");
    let renew = SysidRenew { grant, lease: LEASE, id_newest: None, report: None };
    store.at(after(11)).sysid_renew(renew).await.unwrap();
    assert_eq!(seen(&store, after(11)).await, [(7, true, 0)], "it was only late");
}

pub async fn a_number_used_again_hides_no_journal_of_its_last_owner(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let first = granted(&store, 7).await;
    beat(&store, first, report(journal_of(8, 7), 5, 40)).await;
    let second = granted(store.at(after(10)), 7).await;
    beat(&store, second, report(journal_of(9, 7), 0, 0)).await;
    assert_eq!(seen(&store, after(10)).await, [(7, false, 5), (7, true, 0)]);
    // The first one does not know yet that its number is gone.
    let renew = SysidRenew {
        grant: first,
        lease: LEASE,
        id_newest: None,
        report: Some(report(journal_of(9, 7), 1, 50)),
    };
    assert!(matches!(store.sysid_renew(renew).await, Err(Error::Conflict(_))));
    assert_eq!(seen(&store, after(10)).await, [(7, false, 5), (7, true, 0)]);
    // Restarted on the same directory, it is the same one.
    let again = granted(store.at(after(30)), 7).await;
    beat(&store, again, report(journal_of(8, 7), 5, 40)).await;
    assert_eq!(seen(&store, after(30)).await, [(7, true, 5), (7, false, 0)]);
}

pub async fn one_that_gave_its_number_back_is_listed_only_with_jobs_left(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    for (number, jobs) in [(1, 0), (2, 5), (3, 5)] {
        let grant = granted(&store, number).await;
        beat(&store, grant, report(journal_of(8, number), jobs, 40)).await;
        if number == 3 {
            ingested(&store, journal_of(8, 3), 40).await;
        }
        // Of an earlier start: it changes nothing.
        let other = SysidGrant { boot: windlass_core::job::Boot(0), ..grant };
        store.sysid_release(other.sysid, other.boot).await.unwrap();
        assert_eq!(
            seen(&store, NOW).await.last(),
            Some(&(number, true, if number == 2 { 5 } else { 0 }))
        );
        store.sysid_release(grant.sysid, grant.boot).await.unwrap();
    }
    assert_eq!(seen(&store, NOW).await, [(2, false, 5)]);
}

pub async fn a_daemon_that_is_gone_for_long_is_forgotten(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let alive = granted(&store, 1).await;
    beat(&store, alive, report(journal_of(8, 1), 0, 0)).await;
    for (number, jobs) in [(2, 0), (3, 5), (4, 5)] {
        let grant = granted(&store, number).await;
        beat(&store, grant, report(journal_of(8, number), jobs, 40)).await;
    }
    ingested(&store, journal_of(8, 4), 40).await;
    // A number is reserved at this time.
    let reserved_at = async |at: Timestamp| {
        let lease = DAEMON_LEFT_RETENTION * 2;
        let renew = SysidRenew { grant: alive, lease, id_newest: None, report: None };
        store.at(at).sysid_renew(renew).await.unwrap();
        let reserve = SysidReserve { wanted: None, lease: LEASE };
        store.sysid_reserve(reserve).await.unwrap();
        let seen = seen(&store, at).await;
        seen.into_iter().map(|(number, ..)| number).collect::<Vec<_>>()
    };
    let almost = |kept: std::time::Duration| NOW + (kept - std::time::Duration::from_millis(1));
    assert_eq!(reserved_at(almost(DAEMON_GONE_RETENTION)).await, [1, 2, 3, 4]);
    assert_eq!(reserved_at(NOW + DAEMON_GONE_RETENTION).await, [1, 3]);
    assert_eq!(reserved_at(almost(DAEMON_LEFT_RETENTION)).await, [1, 3]);
    assert_eq!(reserved_at(NOW + DAEMON_LEFT_RETENTION).await, [1]);
}

pub async fn what_a_daemon_said_survives_a_restart_of_the_store(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let grant = granted(&store, 7).await;
    beat(&store, grant, report(journal_of(8, 7), 5, 40)).await;
    let before = all(&store, NOW).await;
    let Some(store) = harness.reopen(store.store).await else { return };
    let store = Subject::of(harness, store);
    assert_eq!(all(&store, NOW).await, before);
}
