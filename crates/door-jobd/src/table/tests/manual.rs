//! Rows that a client requests are accepted or refused with a reason.

use crate::table::{Manual, Origin, Row};

use crate::table::tests::harness::{LEASE, World, everywhere, names};

everywhere! {
    each_id_has_its_answer_in_the_order_asked
    what_cannot_be_run_becomes_ignored
    one_of_two_workers_gets_a_row
}

async fn each_id_has_its_answer_in_the_order_asked(world: World) {
    world.add("manual", &["a", "b"]);
    let worker = world.worker("w");
    let answers = worker.accept_manual(&[2, 99, 1], &names(&["a", "b"]), LEASE).await.unwrap();
    let row = |id, target: &str| {
        Manual::Accepted(Row { id, target: target.into(), origin: Origin::Manual })
    };
    assert_eq!(answers, [row(2, "b"), Manual::Missing(99), row(1, "a")]);
    assert_eq!(world.marks(), "1\tw\tmanual\n2\tw\tmanual\n");
    assert_eq!(worker.accept_manual(&[], &names(&["a"]), LEASE).await.unwrap(), []);
    let far = worker.accept_manual(&[u64::MAX], &names(&["a"]), LEASE).await.unwrap();
    assert_eq!(far, [Manual::Missing(u64::MAX)]);
}

async fn what_cannot_be_run_becomes_ignored(world: World) {
    let statuses = ["waiting", "accepted", "running", "done", "ignored"];
    statuses.iter().for_each(|status| world.add(status, &["a"]));
    world.add("manual", &["other", "a"]);
    let worker = world.worker("w");
    let answers =
        worker.accept_manual(&[1, 2, 3, 4, 5, 6, 7], &names(&["a"]), LEASE).await.unwrap();
    for (id, status) in (1..).zip(statuses) {
        let wanted = Manual::WrongStatus { id, status: status.into() };
        assert!(answers.contains(&wanted), "{answers:?}");
        assert_eq!(world.status(id), "ignored");
    }
    assert!(answers.contains(&Manual::UnknownTarget { id: 6, target: "other".into() }));
    assert_eq!((world.status(6), world.status(7)), ("ignored".into(), "accepted".into()));
}

async fn one_of_two_workers_gets_a_row(world: World) {
    for id in 1..=10 {
        world.add("manual", &["a"]);
        let (one, two) = (world.worker("one"), world.worker("two"));
        let (ids, targets) = ([id], names(&["a"]));
        let (first, second) = tokio::join!(
            one.accept_manual(&ids, &targets, LEASE),
            two.accept_manual(&ids, &targets, LEASE)
        );
        let answers = [first.unwrap(), second.unwrap()].concat();
        let got = answers.iter().filter(|answer| matches!(answer, Manual::Accepted(_))).count();
        assert_eq!(got, 1, "{answers:?}");
    }
}
