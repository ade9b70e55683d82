//! Pure decisions on existing jobs, and the edits that they return: all are applied or none.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use windlass_core::edit::{
    Ask, ChildMove, Children, Decision, Edit, FamilyView, Only, Put, Refusal, Target,
};
use windlass_core::handler::TypeSettings;
use windlass_core::job::{Ended, Progress};
use windlass_core::limit::{PAYLOAD_INLINE_BYTES_MAX, PAYLOAD_PIECE_BYTES};
use windlass_core::store::{Error, Inserted, Settled, Settlement, TypeStats};
use windlass_core::{
    Extra, Job, Json, NewJob, Payload, State, Status, Timestamp, TypeKey, TypeName,
};

use crate::Harness;
use crate::fixture::{
    FAILED, FINISHED, NOW, Subject, acme, after, claimed_numbers, globex, id, job, job_of, key,
    lease_ref, priority, queued, release, said, settlement,
};
use crate::kin::{ask, child, edits, insert, leased, put};

pub async fn a_decision_gets_the_stores_time(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    for time in [NOW, after(5), after(60)] {
        let (told, tells) = std::sync::mpsc::channel();
        let decide = move |_, _: &FamilyView, now| {
            told.send(now).unwrap();
            Ok(Decision::default())
        };
        let ask = Ask { decide: Arc::new(decide), ..ask(vec![Target::Job(id(1))], |_, _| no()) };
        store.at(time).job_decide(ask).await.unwrap();
        let times: Vec<Timestamp> = tells.try_iter().collect();
        assert!(!times.is_empty() && times.iter().all(|now| *now == time), "{times:?}");
    }
}

fn no() -> Result<Decision, Refusal> {
    Err(Refusal::new(400, "no"))
}

pub async fn a_decision_sees_a_job_with_its_family(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.parent_with([2, 3, 4]).await;
    store.alter(3, |job| job.state = State::Failed).await;
    store.alter(4, |job| job.state = State::Finished).await;

    let seen = store.seen(Target::Job(id(2))).await;
    let whole = seen.job.unwrap();
    assert_eq!((whole.job, whole.payload), (store.get(2).await, child(2, 1).payload));
    assert_eq!(whole.retention, None);
    assert_eq!(seen.parent.unwrap().job, store.get(1).await);
    assert_eq!(seen.children, Children::default());
    let ended = Children { failed: true, finished: true, ..Children::default() };
    assert_eq!(seen.siblings, ended, "the others");

    let seen = store.seen(Target::Job(id(1))).await;
    assert_eq!(seen.children, Children { paused: true, ..ended });
    assert_eq!((seen.parent, seen.siblings), (None, Children::default()));

    let seen = store.seen(Target::New { only: None, parent: Some(id(1)) }).await;
    assert_eq!(seen.siblings, Children { paused: true, ..ended });
    assert_eq!((seen.job, seen.parent.unwrap().job.id), (None, id(1)));
}

pub async fn a_decision_sees_the_lease_and_how_long_jobs_are_kept(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let retention = Some(Duration::from_secs(5));
    let settings = TypeSettings { retention, ..TypeSettings::default() };
    store.type_settings_put(&key("t"), settings).await.unwrap();
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    let whole = store.full_job(1).await;
    assert_eq!(whole.job.lease, claimed.job.lease);
    assert_eq!(whole.retention, retention);
}

pub async fn a_decision_sees_only_jobs_of_its_tenant(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let theirs = TypeKey { tenant: globex(), ..key("t") };
    store.add([NewJob { key: theirs.clone(), ..job(1) }]).await;
    let of_one = Some(Only { name: theirs.name.clone(), hidden: false });
    for target in
        [Target::Job(id(1)), Target::Job(id(9)), Target::New { only: of_one, parent: Some(id(1)) }]
    {
        assert_eq!(store.seen(target).await, Default::default());
    }
    let stolen = store.job_get(&globex(), id(1)).await.unwrap().unwrap();
    let stolen = Job { key: key("t"), ..stolen };
    store.refused(edits(vec![put(stolen)])).await;
    assert_eq!(store.find(1).await, None);
}

pub async fn the_only_one_is_the_oldest_that_counts(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let only = async |hidden: bool| {
        let only = Some(Only { name: TypeName::new("t").unwrap(), hidden });
        let seen = store.seen(Target::New { only, parent: None }).await;
        seen.job.map(|whole| whole.job.id.get())
    };
    assert_eq!(only(false).await, None);
    let hidden = Extra { hidden: true, ..Extra::default() };
    store.add((2..=8).map(job)).await;
    store.add([NewJob { extra: hidden.clone(), ..job(1) }, job_of("other", 9)]).await;
    store.add([NewJob { extra: hidden, ..job(10) }]).await;
    assert_eq!((only(false).await, only(true).await), (Some(2), Some(1)));

    // Ended ones without a parent do not count, failed ones do.
    store.alter(1, |job| job.state = State::Finished).await;
    store.alter(2, |job| job.state = State::Finished).await;
    store.alter(3, |job| job.state = State::Cancelled).await;
    store.alter(4, |job| job.state = State::Failed).await;
    assert_eq!((only(false).await, only(true).await), (Some(4), Some(10)));
    store.alter(4, |job| job.state = State::Finished).await;
    let running = leased(&store.full_job(5).await, NOW);
    store.edit(vec![put(running)]).await;
    assert_eq!(only(false).await, Some(5), "it runs");
    store.alter(5, |job| job.state = State::Paused).await;
    assert_eq!(only(false).await, Some(5), "it is paused");
    for number in [3, 10] {
        store.alter(number, |job| job.parent = Some(id(9))).await;
        store.alter(number, |job| job.state = State::Cancelled).await;
    }
    assert_eq!((only(false).await, only(true).await), (Some(3), Some(10)), "children");
    assert!(store.get(9).await.children);
}

pub async fn a_put_job_is_what_it_says(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1), job(2)]).await;
    let new = Job {
        key: key("other"),
        priority: priority(7),
        run_at: after(20),
        due_at: after(19),
        attempt: 3,
        created_at: after(1),
        started_at: Some(after(2)),
        expires_at: Some(after(90)),
        timeout: Some(Duration::from_millis(1500)),
        last: Some(Ended::from(Status::RETRY)),
        unique: Some("u".into()),
        then: Some(TypeName::new("next").unwrap()),
        parent: Some(id(2)),
        extra: Extra {
            repeat: Some("FINISHED, +1 DAY".into()),
            door_text: Some("+5 SECONDS".into()),
            run_at_text: Some("tomorrow".into()),
            order_key: -1 << 60,
            lent: true,
            hidden: true,
        },
        ..store.get(1).await
    };
    store.edit(vec![put(new.clone())]).await;
    assert_eq!(store.get(1).await, new);
    assert!(store.get(2).await.children);
    assert_eq!(store.job_payload(&acme(), id(1)).await.unwrap(), Some(job(1).payload));
    let plain = Job { extra: Extra::default(), parent: None, ..new };
    store.edit(vec![put(plain.clone())]).await;
    assert_eq!(store.get(1).await, plain);
    store.refused(edits(vec![put(queued(&job(9)))])).await;
}

pub async fn what_does_not_go_with_a_state_is_gone(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let running = leased(&store.full_job(1).await, NOW);
    let odd = Job { finished_at: Some(NOW), ..running.clone() };
    store.edit(vec![put(Job { extra: Extra { lent: true, ..Extra::default() }, ..odd })]).await;
    assert_eq!(store.get(1).await, running);
    store.edit(vec![put(Job { state: State::Failed, ..running.clone() })]).await;
    let failed = Job { state: State::Failed, lease: None, finished_at: Some(NOW), ..running };
    assert_eq!(store.get(1).await, failed);
    assert!(
        store.job_decide(edits(vec![put(Job { state: State::Running, ..failed })])).await.is_err()
    );
}

pub async fn a_put_job_moves_between_queue_lease_and_end(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let numbers = async || {
        let stats = store.stats("t", NOW).await.unwrap();
        let TypeStats { ready, deferred, running, paused, failed, .. } = stats;
        [ready, deferred, running, paused, failed]
    };
    store.alter(1, |job| job.state = State::Paused).await;
    assert_eq!(numbers().await, [0, 0, 0, 1, 0]);
    assert!(store.claim("t", 1, NOW).await.is_empty());
    store.alter(1, |job| (job.state, job.run_at) = (State::Queued, after(9))).await;
    assert_eq!(numbers().await, [0, 1, 0, 0, 0]);
    assert_eq!(store.waiting(NOW).await.next_due_at, Some(after(9)));
    let running = leased(&store.full_job(1).await, NOW);
    store.edit(vec![put(running)]).await;
    assert_eq!(numbers().await, [0, 0, 1, 0, 0]);
    assert!(store.claim("t", 1, after(3600)).await.is_empty());
    store.alter(1, |job| job.state = State::Failed).await;
    assert_eq!(numbers().await, [0, 0, 0, 0, 1]);
    store.alter(1, |job| (job.state, job.run_at) = (State::Queued, NOW)).await;
    assert_eq!(numbers().await, [1, 0, 0, 0, 0]);
    assert_eq!(store.get(1).await.finished_at, None);
    assert_eq!(claimed_numbers(&store.claim("t", 2, NOW).await), [1]);
    store.alter(1, |job| (job.state, job.key) = (State::Queued, key("new"))).await;
    assert_eq!(numbers().await, [0, 0, 0, 0, 0]);
    assert_eq!(claimed_numbers(&store.claim("new", 2, NOW).await), [1]);
}

pub async fn a_lease_that_was_put_is_a_lease(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    let job = leased(&store.full_job(1).await, NOW);
    assert!(job.lease.unwrap().token > lease_ref(&claimed).token);
    let decided = store.edit(vec![put(job.clone())]).await;
    assert_eq!(decided.moved.stopped, [lease_ref(&claimed).attempt_id()]);
    assert_eq!(store.settle(settlement(&claimed, FINISHED)).await, Settled::Stale);
    let claimed = windlass_core::store::Claimed { job: job.clone(), ..claimed };
    assert_eq!(store.renew(vec![lease_ref(&claimed)], after(99)).await, []);
    assert_eq!(store.at(after(99)).lease_expired(9).await.unwrap().len(), 1);
    assert_eq!(store.settle(settlement(&claimed, FINISHED)).await, Settled::Done);
    let ended = store.get(1).await;
    assert_eq!((ended.state, ended.attempt), (State::Finished, job.attempt));
    store.rerun(1, after(1)).await;
    let again = store.claim_one("t", after(1)).await;
    assert!(lease_ref(&again).token > lease_ref(&claimed).token);
}

pub async fn a_lease_with_a_smaller_token_is_not_put(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let early = leased(&store.full_job(1).await, NOW);
    let claimed = store.claim_one("t", NOW).await;
    let refused = store.job_decide(edits(vec![put(early.clone())])).await;
    assert!(matches!(refused, Err(Error::Conflict(_))), "the job runs: {refused:?}");
    store.settle(settlement(&claimed, release(NOW))).await;
    let refused = store.job_decide(edits(vec![put(early)])).await;
    assert!(matches!(refused, Err(Error::Conflict(_))), "it has run before: {refused:?}");
    assert_eq!(store.get(1).await.state, State::Queued);
    store.edit(vec![put(leased(&store.full_job(1).await, NOW))]).await;
    assert_eq!(store.get(1).await.state, State::Running);
}

pub async fn result_log_and_progress_stay(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    let progress = Progress { percent: 50.0, message: "half".into(), at: NOW };
    let data = Some(Json::string("done"));
    let end = Settlement {
        data: data.clone(),
        log: said("hello"),
        progress: Some(progress.clone()),
        ..settlement(&claimed, FAILED)
    };
    store.settle(end).await;
    store.alter(1, |job| job.state = State::Queued).await;
    assert_eq!(store.get(1).await.progress, Some(progress));
    assert_eq!(store.job_result(&acme(), id(1)).await.unwrap(), data);
    assert_eq!(store.job_log(&acme(), id(1)).await.unwrap().unwrap().len(), 1);
    let running = leased(&store.full_job(1).await, NOW);
    store.edit(vec![put(running)]).await;
    assert_eq!(store.get(1).await.progress, None, "of the attempt before");
}

pub async fn a_put_payload_replaces_the_old_one_at_every_size(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let inline = PAYLOAD_INLINE_BYTES_MAX;
    for bytes in [0, 2048, 2049, inline + 1, 1, inline, inline + PAYLOAD_PIECE_BYTES, 5000, 7] {
        let payload = Bytes::from(vec![b'x'; bytes]);
        let job = store.get(1).await;
        let change = Put { job, payload: Some(payload.clone()), purge_at: None };
        store.edit(vec![Edit::Put(Box::new(change))]).await;
        assert_eq!(store.get(1).await.payload_bytes, bytes as u64);
        let kept = store.job_payload(&acme(), id(1)).await.unwrap();
        let piece = store.payload_piece(id(1), 0).await.unwrap();
        if bytes > inline {
            assert_eq!(kept, Some(Payload::Pieces { bytes: bytes as u64 }));
            assert_eq!(piece, Some(payload.slice(..PAYLOAD_PIECE_BYTES)));
        } else {
            assert_eq!((kept, piece), (Some(Payload::Inline(payload.clone())), None));
        }
        assert_eq!(store.full_job(1).await.payload, Payload::Inline(payload), "it is shown whole");
        store.alter(1, |job| job.attempt += 1).await;
        assert_eq!(store.get(1).await.payload_bytes, bytes as u64, "no new one, no change");
    }
}

pub async fn a_unique_key_goes_with_its_job(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let unique = |number, name| NewJob { unique: Some("k".into()), ..job_of(name, number) };
    store.add([unique(1, "t"), unique(2, "other")]).await;
    let renamed = Job { key: key("other"), ..store.get(1).await };
    store.refused(edits(vec![put(renamed.clone())])).await;
    assert_eq!(store.get(1).await.key, key("t"));

    store.alter(2, |job| job.state = State::Failed).await;
    store.edit(vec![put(renamed)]).await;
    assert_eq!(store.insert([unique(3, "t")]).await, [Inserted::New], "free where it was");
    assert_eq!(store.insert([unique(4, "other")]).await, [Inserted::Held(id(1))]);
    let back = Job { state: State::Queued, ..store.get(2).await };
    store.refused(edits(vec![put(back.clone())])).await;
    store.edit(vec![Edit::Delete(id(1)), put(back)]).await;
    assert_eq!(store.insert([unique(5, "other")]).await, [Inserted::Held(id(2))]);
    store.alter(2, |job| job.unique = None).await;
    assert_eq!(store.insert([unique(5, "other")]).await, [Inserted::New]);
}

pub async fn an_insert_enters_with_its_parent_marked(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.parent_with([]).await;
    let extra = Extra { repeat: Some("FINISHED, +1 DAY".into()), ..Extra::default() };
    let large = Payload::Inline(vec![7; PAYLOAD_INLINE_BYTES_MAX + 1].into());
    let new = NewJob { extra, payload: large, ..child(2, 1) };
    let later = NewJob { run_at: after(60), ..job(3) };
    let decided = store.edit(vec![insert(new.clone()), insert(job(4)), insert(later)]).await;
    assert_eq!(store.get(2).await, Job { state: State::Paused, ..queued(&new) });
    assert!(store.get(1).await.children && !store.get(2).await.children);
    let bytes = PAYLOAD_INLINE_BYTES_MAX as u64 + 1;
    let payload = store.job_payload(&acme(), id(2)).await.unwrap();
    assert_eq!(payload, Some(Payload::Pieces { bytes }));
    assert!(store.payload_piece(id(2), 0).await.unwrap().is_some());
    let entered = [(id(2), key("child")), (id(4), key("t")), (id(3), key("t"))];
    assert_eq!(decided.moved.entered, entered);
    assert_eq!(decided.moved.ready, [(key("t"), 1)].into());
    assert_eq!(decided.moved.due, Some(after(60)));
    assert_eq!(store.stats("child", NOW).await.unwrap().paused, 1);

    store.refused(edits(vec![insert(job(4))])).await;
    store.add([NewJob { unique: Some("k".into()), ..job(5) }]).await;
    store.refused(edits(vec![insert(NewJob { unique: Some("k".into()), ..job(6) })])).await;
    assert_eq!(store.find(6).await, None);
}

pub async fn a_delete_removes_all_that_belongs_to_a_job(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let extra = Extra { run_at_text: Some("soon".into()), ..Extra::default() };
    store.add([job(1), NewJob { extra, unique: Some("k".into()), ..job(2) }]).await;
    let claimed = store.claim("t", 1, NOW).await.remove(0);
    let decided = store.edit([1, 2, 9].map(|number| Edit::Delete(id(number))).into()).await;
    let stopped = vec![lease_ref(&claimed).attempt_id()];
    assert_eq!((decided.moved.stopped, decided.moved.touched), (stopped, vec![id(2)]));
    for number in 1..=2 {
        assert_eq!(store.find(number).await, None);
        assert_eq!(store.job_payload(&acme(), id(number)).await.unwrap(), None);
    }
    let stats = store.stats("t", NOW).await.unwrap();
    assert_eq!((stats.ready, stats.running), (0, 0));
    store.add([NewJob { unique: Some("k".into()), ..job(2) }]).await;
    assert_eq!(store.get(2).await.extra, Extra::default());
}

pub async fn children_are_moved_in_bulk(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.parent_with([2, 3, 4, 5, 6]).await;
    let later = after(30);
    store.alter(3, |job| job.run_at = later).await;
    store.alter(4, |job| job.state = State::Finished).await;
    let running = Job { state: State::Running, ..leased(&store.full_job(6).await, NOW) };
    store.edit(vec![put(running)]).await;
    let all = |from, to| Edit::Children { parent: id(1), from, to };
    let decided = store.edit(vec![all(State::Paused, ChildMove::Queue)]).await;
    assert_eq!(decided.moved.ready, [(key("child"), 2)].into());
    assert_eq!((decided.moved.due, decided.moved.touched), (Some(later), [2, 3, 5].map(id).into()));
    let (queued, ran) = (State::Queued, State::Running);
    assert_eq!(store.states(2..=6).await, [queued, queued, State::Finished, queued, ran]);

    let purge_at = after(50);
    store.edit(vec![all(State::Queued, ChildMove::Cancel { purge_at })]).await;
    let cancelled = State::Cancelled;
    assert_eq!(store.states(2..=6).await, [cancelled, cancelled, State::Finished, cancelled, ran]);
    assert_eq!(store.get(2).await.finished_at, Some(NOW));
    store.edit(vec![all(State::Finished, ChildMove::Detach { purge_at: after(40) })]).await;
    assert_eq!((store.get(4).await.parent, store.get(2).await.parent), (None, Some(id(1))));
    assert_eq!(store.at(after(40)).job_purge(9).await.unwrap(), 1);
    assert_eq!(store.at(after(50)).job_purge(9).await.unwrap(), 3);
}

pub async fn an_ended_job_without_a_time_to_go_stays(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.ran(job(1), FINISHED).await;
    store.alter(1, |job| job.attempt = 9).await;
    assert_eq!(store.at(after(366 * 24 * 3600)).job_purge(9).await.unwrap(), 0);
    let change = Put { job: store.get(1).await, payload: None, purge_at: Some(after(9)) };
    store.edit(vec![Edit::Put(Box::new(change))]).await;
    assert_eq!(store.at(after(9)).job_purge(9).await.unwrap(), 1);
}

pub async fn later_decisions_see_what_earlier_ones_changed(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let only = || Some(Only { name: TypeName::new("t").unwrap(), hidden: false });
    let targets = (0..3).map(|_| Target::New { only: only(), parent: None }).collect();
    let decided = ask(targets, |index, seen| {
        let found = seen.job.as_ref().map(|whole| whole.job.id);
        let new = insert(job(index as i64 + 1));
        let edits = if found.is_none() { vec![new] } else { Vec::new() };
        Ok(Decision { edits, id: found })
    });
    let decided = store.job_decide(decided).await.unwrap();
    assert_eq!(decided.ids, [None, Some(id(1)), Some(id(1))]);
    assert_eq!((store.find(1).await.is_some(), store.find(2).await), (true, None));
}

pub async fn a_refusal_undoes_all_before_it(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let unique = NewJob { unique: Some("k".into()), ..job(2) };
    store.add([job(1), unique.clone()]).await;
    let claimed = store.claim("t", 1, NOW).await.remove(0);
    let (first, second) = (store.get(1).await, store.get(2).await);
    let stats = store.type_stats(Some(&acme())).await.unwrap();
    let renamed = Job { state: State::Finished, key: key("new"), ..second.clone() };
    let first_edits = vec![
        put(renamed),
        Edit::Delete(id(1)),
        insert(NewJob { priority: priority(1000), ..job_of("newer", 3) }),
        insert(NewJob { priority: priority(1000), unique: Some("k".into()), ..job(4) }),
    ];
    let three = || (1..=3).map(|number| Target::Job(id(number))).collect::<Vec<_>>();
    let edits = first_edits.clone();
    let refusing = ask(three(), move |index, _| match index {
        0 => Ok(Decision { edits: edits.clone(), id: None }),
        1 => Err(Refusal::new(405, "no")),
        _ => panic!("nobody asks after a refusal"),
    });
    let refused = store.job_decide(refusing).await;
    assert_eq!(refused, Err(Error::Refused(Refusal::new(405, "no"))));
    // So does an edit that cannot be applied.
    let twice = [first_edits, vec![insert(job(4))]].concat();
    store.refused(crate::kin::edits(twice)).await;

    assert_eq!((store.get(1).await, store.get(2).await), (first, second));
    assert_eq!((store.find(3).await, store.find(4).await), (None, None));
    let stats_now = store.type_stats(Some(&acme())).await.unwrap();
    assert_eq!(stats_now, stats, "no new type, no other number");
    assert_eq!(store.insert([NewJob { id: id(9), ..unique }]).await, [Inserted::Held(id(2))]);
    assert_eq!(store.take_of(crate::kin::glob("*"), 9).await, [2]);
    assert_eq!(store.settle(settlement(&claimed, FINISHED)).await, Settled::Done);
    store.add([job_of("newer", 3)]).await;
    assert_eq!(store.claim("newer", 9, NOW).await.len(), 1, "the type can be made again");
}

pub async fn a_refusal_does_not_reach_others(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let mut calls = tokio::task::JoinSet::new();
    for number in 1..=40 {
        let store = store.clone();
        let insert = insert(job(number));
        calls.spawn(async move {
            let targets = vec![Target::Job(id(1)), Target::Job(id(2))];
            let refuse = ask(targets, move |index, _| match index == 1 && number % 2 == 0 {
                true => Err(Refusal::new(405, "no")),
                false if index == 0 => Ok(Decision { edits: vec![insert.clone()], id: None }),
                false => Ok(Decision::default()),
            });
            store.job_decide(refuse).await.is_ok()
        });
    }
    let done = calls.join_all().await.into_iter().filter(|done| *done).count();
    assert_eq!((done, store.stats("t", NOW).await.unwrap().ready), (20, 20));
    assert!(store.find(2).await.is_none() && store.find(3).await.is_some());
}

pub async fn a_decision_that_panics_is_an_internal_error_and_changes_nothing(
    harness: &dyn Harness,
) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let before = store.get(1).await;
    let entered = insert(NewJob { key: key("new"), ..job(2) });
    let targets = vec![Target::Job(id(1)), Target::Job(id(1))];
    let panicking = ask(targets, move |index, _| match index {
        0 => Ok(Decision { edits: vec![entered.clone(), Edit::Delete(id(1))], id: None }),
        _ => panic!("the rules are broken"),
    });
    let answer = store.job_decide(panicking).await;
    let told = matches!(&answer, Err(Error::Internal(why)) if why.contains("the rules are broken"));
    assert!(told, "{answer:?}");
    assert_eq!((store.get(1).await, store.find(2).await), (before, None));
    store.add([job(3)]).await;
    assert_eq!(claimed_numbers(&store.claim("t", 9, NOW).await), [1, 3], "the store goes on");
}

pub async fn what_moved_is_told(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1), job(2), job(3)]).await;
    let data = store.alter(1, |job| job.attempt = 1).await.moved;
    assert_eq!((data.touched, data.ready, data.due), (vec![id(1)], [].into(), None));
    let later = store.alter(1, |job| job.run_at = after(8)).await.moved;
    assert_eq!((later.ready, later.due), ([].into(), Some(after(8))));
    let sooner = store.alter(1, |job| job.run_at = NOW).await.moved;
    assert_eq!((sooner.ready, sooner.due), ([(key("t"), 1)].into(), None));
    let renamed = store.alter(1, |job| job.key = key("other")).await.moved;
    assert_eq!(renamed.ready, [(key("other"), 1)].into());
    let running = leased(&store.full_job(2).await, NOW);
    let moved = store.edit(vec![put(running.clone())]).await.moved;
    assert_eq!((moved.ready, moved.stopped.len()), ([].into(), 0));
    let renewed = windlass_core::Lease { expires_at: after(99), ..running.lease.unwrap() };
    let moved = store.alter(2, |job| job.lease = Some(renewed)).await.moved;
    assert_eq!((moved.touched, moved.stopped.len()), (vec![id(2)], 0), "the same lease");
    let moved = store.alter(2, |job| job.state = State::Queued).await.moved;
    assert_eq!((moved.touched.len(), moved.stopped), (0, vec![running.attempt_id().unwrap()]));
}
