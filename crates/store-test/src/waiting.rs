//! Open types: changes, by tenant, and by name; and limits of types.

use windlass_core::edit::Edit;
use windlass_core::limit::BATCH_JOBS_MAX;
use windlass_core::store::{ChangedLook, NamedLook, NamedTypes, Revision, Settled, WaitingType};
use windlass_core::{Job, NewJob, State, TypeKey, TypeName, TypeSettings};

use crate::Harness;
use crate::fixture::{
    DAY, FAILED, FINISHED, LEASE, NOW, Subject, acme, after, claim_of, claimed_numbers, globex,
    handler_spec, id, job, job_of, key, pick, settlement,
};
use crate::kin::{glob, put, take};

fn names(types: &[WaitingType]) -> Vec<&str> {
    types.iter().map(|of_type| of_type.key.name.as_str()).collect()
}

fn theirs(name: &str) -> TypeKey {
    TypeKey { tenant: globex(), ..key(name) }
}

async fn handle(store: &Subject, number: i64, key: &TypeKey) {
    store.at(NOW).handler_put(id(number), key, handler_spec()).await.unwrap();
}

fn most(concurrency: u32) -> TypeSettings {
    TypeSettings { concurrency: Some(concurrency), ..TypeSettings::default() }
}

pub async fn what_changed_is_told_in_pages_in_the_order_of_the_changes(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let look = ChangedLook { since: None, handled: false, each: 9, limit: 9 };
    let none = store.type_changed(look).await.unwrap();
    assert_eq!((none.types.len(), none.more), (0, false));
    for (number, name) in (1..).zip(["c", "a", "b"]) {
        store.add([job_of(name, number)]).await;
    }
    let first = store.changed_since(none.up_to, 2, NOW).await;
    assert_eq!((names(&first.types), first.more), (vec!["c", "a"], true));
    let second = store.changed_since(first.up_to, 2, NOW).await;
    assert_eq!((names(&second.types), second.more), (vec!["b"], false));
    assert!(store.changed_since(second.up_to, 2, NOW).await.types.is_empty());
    let now = store.type_changed(look).await.unwrap();
    assert_eq!((now.types.len(), now.up_to), (0, second.up_to));
}

pub async fn a_type_that_opens_again_has_a_new_revision(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1), NewJob { run_at: after(60), ..job_of("later", 2) }]).await;
    let open = store.waiting(NOW).await;
    let claimed = store.claim_one("t", NOW).await;
    assert!(store.waiting(NOW).await.types.is_empty());
    store.settle(settlement(&claimed, FINISHED)).await;
    store.add([job(3)]).await;
    let again = store.changed_since(open.up_to, 9, NOW).await;
    assert_eq!(names(&again.types), ["t"]);
    let due = store.changed_since(again.up_to, 9, after(60)).await;
    assert_eq!(names(&due.types), ["later"], "it opened when its job came due");
}

/// Also when its jobs left it without a claim, which would have found it empty.
pub async fn a_type_whose_jobs_were_cancelled_is_reported_when_it_opens_again(
    harness: &dyn Harness,
) {
    let store = Subject::fresh(harness).await;
    handle(&store, 100, &key("t")).await;
    store.add([job(1)]).await;
    let open = store.waiting(NOW).await;
    store.cancel(1, NOW).await;
    store.type_settings_put(&key("t"), most(5)).await.unwrap();
    let empty = store.changed_since(open.up_to, 9, NOW).await;
    store.add([job(2)]).await;
    let again = store.changed_since(empty.up_to, 9, NOW).await;
    assert_eq!(names(&again.types), ["t"]);
    assert_eq!(again.types[0].settings, most(5));
}

pub async fn a_change_of_handler_settings_or_suspension_is_told(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1), job_of("other", 2)]).await;
    let mut since = store.waiting(NOW).await.up_to;
    let mut changed = async |what: &str, count: usize| {
        let changed = store.changed_since(since, 9, NOW).await;
        since = changed.up_to;
        assert_eq!(names(&changed.types), vec!["t"; count], "{what}");
    };
    handle(&store, 100, &key("t")).await;
    changed("a handler", 1).await;
    store.type_settings_put(&key("t"), most(5)).await.unwrap();
    changed("settings", 1).await;
    store.type_suspend(&key("t"), true).await.unwrap();
    changed("suspended, it is not open", 0).await;
    store.type_suspend(&key("t"), false).await.unwrap();
    changed("resumed", 1).await;
    store.handler_delete(&key("t")).await.unwrap();
    changed("no handler any more", 1).await;
}

pub async fn types_without_a_handler_are_left_out_when_nobody_asks_for_them(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    for (number, name) in (1..).zip(["bare", "handled", "bare too"]) {
        store.add([job_of(name, number)]).await;
    }
    handle(&store, 100, &key("handled")).await;
    let look = ChangedLook { since: Some(Revision::default()), handled: true, each: 9, limit: 1 };
    let changed = store.type_changed(look).await.unwrap();
    assert_eq!((names(&changed.types), changed.more), (vec!["handled"], false));
    let look = ChangedLook { handled: false, limit: 9, ..look };
    let bare = store.type_changed(look).await.unwrap();
    assert_eq!((names(&bare.types), bare.up_to), (vec!["bare", "bare too"], changed.newest));
    store.handler_delete(&key("handled")).await.unwrap();
    let look = ChangedLook { since: Some(bare.up_to), ..look };
    assert_eq!(names(&store.type_changed(look).await.unwrap().types), ["handled"]);
    handle(&store, 101, &key("handled")).await;
    assert_eq!(names(&store.type_first(None, 9, 9).await.unwrap()), ["handled"]);
    let of = vec![(acme(), None)];
    assert_eq!(names(&store.type_next(of, 9).await.unwrap()), ["handled"]);
}

pub async fn the_types_without_a_handler_are_reported_of_those_asked_for(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job_of("bare", 1), job_of("handled", 2), job_of("other", 3)]).await;
    handle(&store, 100, &key("handled")).await;
    handle(&store, 101, &theirs("bare")).await;
    handle(&store, 102, &key("no jobs")).await;
    let all = [key("unknown"), key("handled"), theirs("bare"), key("no jobs"), key("bare")];
    let unhandled = async || store.type_unhandled(all.to_vec()).await.unwrap();
    assert_eq!(unhandled().await, [key("unknown"), key("bare")]);
    store.handler_delete(&key("handled")).await.unwrap();
    store.type_suspend(&key("no jobs"), true).await.unwrap();
    handle(&store, 103, &key("bare")).await;
    assert_eq!(unhandled().await, [key("unknown"), key("handled")]);
    assert!(store.type_unhandled(Vec::new()).await.unwrap().is_empty());
}

pub async fn a_tenant_with_very_many_changes_is_cut_and_others_are_reported(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    for handled in [false, true] {
        let from = store.waiting(NOW).await.newest;
        let name = |number: i64| format!("{handled} {number}");
        let many: Vec<TypeKey> = (1..=5).map(|number| key(&name(number))).collect();
        for (number, t) in (1..).zip(many.iter().chain([&theirs(&name(6)), &theirs(&name(7))])) {
            let number = 10 * i64::from(handled) + number;
            if handled {
                handle(&store, 100 + number, t).await;
            }
            store.add([NewJob { key: t.clone(), ..job(number) }]).await;
        }
        let look = ChangedLook { since: Some(from), handled, each: 2, limit: 3 };
        let told = store.type_changed(look).await.unwrap();
        assert_eq!(names(&told.types), [name(1), name(2), name(6)]);
        assert_eq!((told.cut, told.more), (vec![acme()], true));
        let look = ChangedLook { since: Some(told.up_to), ..look };
        let rest = store.type_changed(look).await.unwrap();
        assert_eq!((names(&rest.types), rest.cut, rest.more), (vec![&*name(7)], vec![], false));
        assert_eq!(rest.up_to, rest.newest);
    }
}

pub async fn types_that_closed_meanwhile_take_no_place_in_a_look(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    for (number, name) in (1..).zip(["a", "b", "c", "d", "e"]) {
        store.add([job_of(name, number)]).await;
    }
    for name in ["a", "b", "d"] {
        store.claim_one(name, NOW).await;
    }
    let since = Some(Revision::default());
    let look = ChangedLook { since, handled: false, each: 2, limit: 9 };
    let told = store.type_changed(look).await.unwrap();
    assert_eq!((names(&told.types), told.cut), (vec!["c", "e"], vec![]));
    store.add([job_of("f", 6)]).await;
    let told = store.type_changed(look).await.unwrap();
    assert_eq!((names(&told.types), told.cut), (vec!["c", "e"], vec![acme()]));
}

pub async fn tenants_come_one_after_the_other_each_with_its_first_types(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    for (number, name) in (1..).zip(["c", "a", "b"]) {
        handle(&store, 100 + number, &key(name)).await;
        handle(&store, 200 + number, &theirs(name)).await;
        let job = job_of(name, number);
        store.add([NewJob { key: theirs(name), ..job_of(name, number + 10) }, job]).await;
    }
    let page = store.type_first(None, 2, 1).await.unwrap();
    assert_eq!(page.iter().map(|t| t.key.clone()).collect::<Vec<_>>(), [key("a"), key("b")]);
    let rest = store.type_first(Some(acme()), 2, 9).await.unwrap();
    assert_eq!(rest.iter().map(|t| t.key.clone()).collect::<Vec<_>>(), [theirs("a"), theirs("b")]);
    assert!(store.type_first(Some(globex()), 2, 9).await.unwrap().is_empty());
    assert_eq!(store.type_first(None, 9, 9).await.unwrap().len(), 6);
}

pub async fn the_next_types_of_a_tenant_come_behind_a_name(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    for (number, name) in (1..).zip(["c", "a", "b"]) {
        handle(&store, 100 + number, &key(name)).await;
        store.add([job_of(name, number)]).await;
    }
    handle(&store, 200, &theirs("t")).await;
    store.add([NewJob { key: theirs("t"), ..job(9) }]).await;
    let first = store.type_next(vec![(acme(), None)], 2).await.unwrap();
    assert_eq!(names(&first), ["a", "b"]);
    let of = vec![(acme(), Some(first[1].key.name.clone())), (globex(), None)];
    assert_eq!(names(&store.type_next(of, 2).await.unwrap()), ["c", "t"]);
}

fn named(names: &[&str], after: Option<&str>, limit: usize) -> NamedLook {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    let after = after.map(|after| TypeName::new(after).unwrap());
    NamedLook { tenant: acme(), names, after, limit }
}

pub async fn types_are_found_by_name_and_by_pattern(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let all = ["mail", "mail/a", "mail/b", "x", "running", "suspended"];
    store.add(all.iter().zip(1..).map(|(name, number)| job_of(name, number))).await;
    store.add([NewJob { key: theirs("x"), ..job(20) }]).await;
    store.add([NewJob { run_at: after(9), ..job_of("later", 21) }]).await;
    store.claim_one("running", NOW).await;
    store.type_suspend(&key("suspended"), true).await.unwrap();
    let cases: [(&[&str], &[&str]); 8] = [
        (&["mail"], &["mail"]),
        (&["x", "nothing", "mail", "x"], &["mail", "x"]),
        (&["mail*"], &["mail", "mail/a", "mail/b"]),
        (&["mail/?", "x"], &["x", "mail/a", "mail/b"]),
        (&["*", "mail/a"], &["mail/a", "mail", "mail/b", "x"]),
        (&["*b", "m*", "mail/*"], &["mail", "mail/a", "mail/b"]),
        (&["later", "running", "suspended"], &[]),
        (&["[x]"], &["x"]),
    ];
    for (patterns, expected) in cases {
        let found = store.type_named(named(patterns, None, 9)).await.unwrap();
        assert_eq!(names(&found.types), expected, "{patterns:?}");
        assert_eq!((found.next, found.full), (None, false));
    }
    let due = named(&["later"], None, 9);
    assert_eq!(
        store.at(after(9)).type_named(due).await.unwrap().types.len(),
        1,
        "it is due by then"
    );
}

pub async fn a_search_by_pattern_goes_on_where_it_ended(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add((1..=9).map(|n| job_of(&format!("t{n}"), n))).await;
    let mut found: Vec<String> = Vec::new();
    let mut after: Option<TypeName> = None;
    for _ in 0..9 {
        let look = named(&["t[2-8]", "t9"], after.as_ref().map(TypeName::as_str), 3);
        let NamedTypes { types, next, .. } = store.type_named(look).await.unwrap();
        assert_eq!(types[0].key.name.as_str(), "t9", "a name is always looked for");
        found.extend(types[1..].iter().map(|of_type| of_type.key.name.to_string()));
        after = next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(found, ["t2", "t3", "t4", "t5", "t6", "t7", "t8"]);
}

pub async fn a_type_gives_no_more_than_its_concurrency(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add((1..=9).map(job)).await;
    store.type_settings_put(&key("t"), most(3)).await.unwrap();
    let is_full = async || store.type_named(named(&["t"], None, 9)).await.unwrap().full;
    assert_eq!(store.waiting(NOW).await.types[0].ready, 3);
    assert_eq!(store.claim("t", 2, NOW).await.len(), 2);
    assert_eq!((store.waiting(NOW).await.types[0].ready, is_full().await), (1, false));
    let took = store.job_take(take(glob("*"), 5, NOW)).await.unwrap();
    assert_eq!((took.given.len(), took.full), (1, true));
    assert!(store.claim("t", 5, NOW).await.is_empty());
    let full = store.job_take(take(glob("t"), 5, NOW)).await.unwrap();
    assert_eq!((full.given.len(), full.full), (0, true));
    let closed = store.waiting(NOW).await;
    assert!(closed.types.is_empty());
    for (pattern, full) in [("t", true), ("?", true), ("x*", false)] {
        let found = store.type_named(named(&[pattern], None, 9)).await.unwrap();
        assert_eq!((found.types.len(), found.full), (0, full), "{pattern}");
    }

    store.type_settings_put(&key("t"), most(4)).await.unwrap();
    let claimed = store.claim("t", 5, NOW).await;
    assert_eq!(claimed.len(), 1, "it is more now");
    store.type_settings_put(&key("running"), most(1)).await.unwrap();
    store.add([job_of("running", 20)]).await;
    store.claim_one("running", NOW).await;
    let found = store.type_named(named(&["running"], None, 9)).await.unwrap();
    assert!(!found.full, "no job of it waits");
    let closed = store.waiting(NOW).await;
    store.settle(settlement(&claimed[0], FINISHED)).await;
    let opened = store.changed_since(closed.up_to, 9, NOW).await;
    assert_eq!((names(&opened.types), opened.types[0].ready), (vec!["t"], 1));
}

pub async fn claims_of_all_kinds_at_once_keep_to_a_concurrency(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add((1..=60).map(job)).await;
    store.type_settings_put(&key("t"), most(7)).await.unwrap();
    let mut takers = tokio::task::JoinSet::new();
    for number in 0..16 {
        let store = store.clone();
        takers.spawn(async move {
            match number % 2 {
                0 => store.claim("t", 3, NOW).await.len(),
                _ => store.job_take(take(glob("t"), 3, NOW)).await.unwrap().given.len(),
            }
        });
    }
    assert_eq!(takers.join_all().await.into_iter().sum::<usize>(), 7);
}

pub async fn a_claim_says_how_many_more_there_are(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add((1..=9).map(job)).await;
    let left = async |limit| {
        let claimed = store.at(NOW).job_claim(claim_of(vec![pick("t", limit)])).await.unwrap().jobs;
        claimed.iter().map(|claimed| claimed.left).collect::<Vec<_>>()
    };
    assert_eq!(left(2).await, [7, 7]);
    store.type_settings_put(&key("t"), most(4)).await.unwrap();
    assert_eq!(left(1).await, [1], "four may run, and three do");
    assert_eq!(left(9).await, [0]);
}

/// However an attempt ends, the next one may start.
pub async fn every_end_of_an_attempt_gives_its_place_back(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.type_settings_put(&key("t"), most(1)).await.unwrap();
    for (number, how) in (1..).zip([
        "finished",
        "failed",
        "retried",
        "released",
        "cancelled",
        "broken",
        "decided",
        "deleted",
        "paused",
    ]) {
        let (job, next) = (job(2 * number), job(2 * number + 1));
        store.add([job.clone(), next.clone()]).await;
        let claimed = store.claim("t", 9, store.now()).await;
        assert_eq!(claimed_numbers(&claimed), [job.id.get()], "{how}");
        let claimed = &claimed[0];
        let far = store.now() + DAY * 99;
        let verdict = match how {
            "failed" => Some(FAILED),
            "retried" => Some(store.again(far)),
            "released" => Some(store.release(far)),
            "finished" | "broken" | "paused" => Some(FINISHED),
            _ => None,
        };
        let mut end = verdict.map(|verdict| settlement(claimed, verdict));
        match (how, &mut end) {
            ("broken", Some(end)) => {
                store.at(store.now() + LEASE);
                end.only_if_expired = true;
            }
            ("paused", Some(end)) => {
                let parent = Some(job.id);
                end.adds = vec![NewJob { parent, ..job_of("child", 100 + number) }];
            }
            ("cancelled", _) => drop(store.cancel(job.id.get(), store.now()).await),
            ("decided", _) => {
                let ended = Job { state: State::Failed, ..claimed.job.clone() };
                store.edit(vec![put(ended)]).await;
            }
            ("deleted", _) => drop(store.edit(vec![Edit::Delete(job.id)]).await),
            _ => {}
        }
        if let Some(end) = end {
            assert_ne!(store.settle(end).await, Settled::Stale, "{how}");
        }
        let claimed = store.claim("t", 9, store.now()).await;
        assert_eq!(claimed_numbers(&claimed), [next.id.get()], "{how}");
        assert_eq!(store.settle(settlement(&claimed[0], FINISHED)).await, Settled::Done);
    }
}

pub async fn a_smaller_concurrency_waits_for_those_that_run(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add((1..=6).map(job)).await;
    store.type_settings_put(&key("t"), most(3)).await.unwrap();
    let running = store.claim("t", 9, NOW).await;
    store.type_settings_put(&key("t"), most(2)).await.unwrap();
    assert!(store.claim("t", 9, NOW).await.is_empty(), "three run already");
    for (claimed, places) in running.iter().zip([0, 1, 1]) {
        assert_eq!(store.settle(settlement(claimed, FINISHED)).await, Settled::Done);
        assert_eq!(store.claim("t", 9, NOW).await.len(), places);
    }
}

pub async fn picks_of_one_claim_share_a_concurrency(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add((1..=6).map(job)).await;
    store.type_settings_put(&key("t"), most(3)).await.unwrap();
    let picks = vec![pick("t", 2), pick("t", 2), pick("t", 2)];
    let claimed = store.at(NOW).job_claim(claim_of(picks)).await.unwrap().jobs;
    assert_eq!(claimed_numbers(&claimed), [1, 2, 3]);
}

/// A claim takes a bounded number of jobs; a caller that asked for more must learn that there are
/// more.
pub async fn what_a_claim_had_no_room_for_is_reported_again(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let most = BATCH_JOBS_MAX as i64;
    store.add((1..=most).map(|n| job_of("very many", n))).await;
    store.add((1..=9).map(|n| job_of("few", most + n))).await;
    let since = store.waiting(NOW).await.newest;
    let picks = vec![pick("very many", most as u32), pick("few", 9)];
    let claimed = store.at(NOW).job_claim(claim_of(picks)).await.unwrap().jobs;
    let few = claimed.iter().filter(|claimed| claimed.job.key == key("few")).count();
    let changed = store.changed_since(since, 9, NOW).await;
    assert_eq!(names(&changed.types).contains(&"few"), few < 9, "{few} of them were taken");
    assert_eq!(store.claim("few", 9, NOW).await.len(), 9 - few);
}
