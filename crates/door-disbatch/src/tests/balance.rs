//! The balancer over the real wire protocol.

use crate::balance::{Balancer, Change, Outcome};
use crate::config::BalanceSettings;
use crate::database::Database;
use crate::dialect::Dialect;
use jiff::tz::TimeZone;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};

use crate::tests::base::{collection, fresh};
use crate::tests::harness::{BOTH, insert};
use crate::tests::proxy::{Fate, Proxy, server_address};

const ON: BalanceSettings =
    BalanceSettings { enabled: true, log: true, verbose: false, pretend: false };

fn balancer(db: &Database, settings: BalanceSettings) -> Balancer {
    Balancer::new(db.clone(), settings, TimeZone::UTC)
}

async fn queue(db: &Database, dialect: Dialect, name: &str, limit: Bson) -> ObjectId {
    let id = ObjectId::new();
    let queue = doc! {
        "_id": id, "name": name, dialect.plugin(): "Demo", dialect.limit(): limit,
    };
    insert(db, "queues", queue).await;
    id
}

async fn tasks(db: &Database, queue: ObjectId, status: i32, count: usize) {
    for _ in 0..count {
        insert(db, "tasks", doc! { "queue": queue, "status": status, "node": Bson::Null }).await;
    }
}

async fn document(db: &Database) -> Document {
    let mut all = db.balance().await.unwrap();
    assert_eq!(all.len(), 1);
    all.remove(0)
}

async fn limit(db: &Database, name: &str, field: &str) -> Option<i64> {
    let queue = db.queue(name).await.unwrap().unwrap();
    queue.get(field).and_then(|limit| limit.as_i64().or(limit.as_i32().map(i64::from)))
}

fn change(queue: &str, from: Option<i64>, to: i64) -> Change {
    Change { queue: queue.to_owned(), from, to }
}

/// At most ten tasks at any time.
fn plan(groups: &[&[&str]]) -> Document {
    let groups: Vec<Vec<String>> =
        groups.iter().map(|group| group.iter().map(|name| (*name).to_owned()).collect()).collect();
    doc! { "max_tasks": { "* 00:00": 10 }, "queues": groups }
}

#[tokio::test]
async fn limits_are_moved_in_the_dialect_in_force() {
    for dialect in BOTH {
        let db = fresh().await;
        let bulk = queue(&db, dialect, "bulk", Bson::Null).await;
        let api = queue(&db, dialect, "api", 4.into()).await;
        queue(&db, dialect, "other", 7.into()).await;
        tasks(&db, bulk, -2, 12).await;
        // Parked and orphaned tasks will never run.
        tasks(&db, api, -2, 2).await;
        tasks(&db, api, 0, 1).await;
        tasks(&db, api, -4, 2).await;
        tasks(&db, api, -6, 2).await;
        insert(&db, "balance", plan(&[&["bulk"], &["api"]])).await;
        let balancer = balancer(&db, ON);
        let changes = vec![change("bulk", None, 7), change("api", Some(4), 3)];
        assert_eq!(balancer.step().await.unwrap(), Outcome::Balanced(changes));
        let field = dialect.limit();
        assert_eq!(limit(&db, "bulk", field).await, Some(7));
        assert_eq!(limit(&db, "api", field).await, Some(3));
        assert_eq!(limit(&db, "other", field).await, Some(7));
        assert_eq!(balancer.step().await.unwrap(), Outcome::Balanced(Vec::new()));
        let told = document(&db).await;
        assert_eq!(told.get_str("status").unwrap(), "OK");
        assert_eq!(told.get_str("message").unwrap(), "QueueBalance is running");
        assert!(told.get_i64("timestamp").unwrap() > 1_700_000_000);
    }
}

#[tokio::test]
async fn in_pretence_nothing_moves() {
    let db = fresh().await;
    let bulk = queue(&db, Dialect::Released, "bulk", 1.into()).await;
    tasks(&db, bulk, -2, 3).await;
    let mut plan = plan(&[&["bulk"]]);
    plan.insert("disabled", 17_i64);
    insert(&db, "balance", plan).await;
    let pretending = balancer(&db, BalanceSettings { pretend: true, ..ON });
    let would = Outcome::Balanced(vec![change("bulk", Some(1), 3)]);
    assert_eq!(pretending.step().await.unwrap(), would);
    assert_eq!(limit(&db, "bulk", "threads").await, Some(1));
    assert_eq!(document(&db).await.get_i64("disabled").unwrap(), 17);
}

#[tokio::test]
async fn one_of_several_does_it_until_it_leaves() {
    let db = fresh().await;
    insert(&db, "balance", plan(&[])).await;
    let (one, two) = (balancer(&db, ON), balancer(&db, ON));
    let done = Outcome::Balanced(Vec::new());
    assert_eq!(one.step().await.unwrap(), done);
    assert_eq!(two.step().await.unwrap(), Outcome::NotMine);
    assert_eq!(one.step().await.unwrap(), done);
    let stop = tokio_util::sync::CancellationToken::new();
    stop.cancel();
    one.run(stop).await;
    assert_eq!(two.step().await.unwrap(), done);
    assert_eq!(one.step().await.unwrap(), Outcome::NotMine);
    // A balancer that is silent for too long loses the lease.
    let past = DateTime::from_millis(0);
    let set = doc! { "$set": { "windlass.until": past } };
    collection(&db, "balance").update_one(doc! {}, set).await.unwrap();
    assert_eq!(one.step().await.unwrap(), done);
}

#[tokio::test]
async fn an_empty_document_is_made_once() {
    let db = fresh().await;
    let balancers = [balancer(&db, ON), balancer(&db, ON)];
    let (one, two) = tokio::join!(balancers[0].step(), balancers[1].step());
    let outcomes = [one.unwrap(), two.unwrap()];
    assert!(outcomes.contains(&Outcome::Balanced(Vec::new())), "{outcomes:?}");
    assert!(outcomes.contains(&Outcome::NotMine), "{outcomes:?}");
    let made = document(&db).await;
    assert_eq!(made.get_document("max_tasks").unwrap(), &doc! {});
    assert_eq!(made.get_array("queues").unwrap(), &Vec::<Bson>::new());
    assert!(made.get_document("windlass").unwrap().get_bool("begun").unwrap());
    db.balance_set(doc! { "max_tasks": {}, "queues": [] }).await.unwrap();
    assert!(!document(&db).await.get_document("windlass").unwrap().contains_key("begun"));
}

#[tokio::test]
async fn it_may_be_off_until_later() {
    let db = fresh().await;
    queue(&db, Dialect::Released, "bulk", 5.into()).await;
    let mut plan = plan(&[&["bulk"]]);
    plan.insert("disabled", 4_102_444_800_i64);
    insert(&db, "balance", plan).await;
    let balancer = balancer(&db, ON);
    let until = "Fri Jan  1 00:00:00 2100".to_owned();
    assert_eq!(balancer.step().await.unwrap(), Outcome::Off(until.clone()));
    assert_eq!(limit(&db, "bulk", "threads").await, Some(5));
    let told = document(&db).await;
    assert_eq!(told.get_str("status").unwrap(), "OK");
    assert_eq!(told.get_str("message").unwrap(), format!("QueueBalance disabled until {until}"));
    let past = doc! { "$set": { "disabled": 17_i64 } };
    collection(&db, "balance").update_one(doc! {}, past).await.unwrap();
    let changes = vec![change("bulk", Some(5), 0)];
    assert_eq!(balancer.step().await.unwrap(), Outcome::Balanced(changes));
    assert_eq!(document(&db).await.get("disabled"), Some(&Bson::Null));
}

/// Balancing is enabled again when its time is over, unless a user changes it at the same moment.
#[tokio::test]
async fn who_switches_it_off_meanwhile_is_obeyed() {
    let proxy = Proxy::start(server_address().await).await;
    let db = fresh().await;
    let behind = proxy.database(db.raw().name()).await;
    queue(&db, Dialect::Released, "bulk", 5.into()).await;
    let mut plan = plan(&[&["bulk"]]);
    plan.insert("disabled", 17_i64);
    insert(&db, "balance", plan).await;
    let balancer = balancer(&behind, ON);
    let held = proxy.next(Fate::Hold, |command| {
        command.is_on("update", "balance") && command.mentions("disabled")
    });
    let later = 4_102_444_800_i64;
    let user = async {
        held.met().await;
        db.balance_set(doc! { "disabled": later }).await.unwrap();
        held.release();
    };
    let (turn, ()) = tokio::join!(balancer.step(), user);
    assert_eq!(turn.unwrap(), Outcome::Balanced(Vec::new()));
    assert_eq!(document(&db).await.get_i64("disabled").unwrap(), later);
    assert_eq!(limit(&db, "bulk", "threads").await, Some(5));
}

#[tokio::test]
async fn what_cannot_be_followed_is_told_in_the_document() {
    for (odd, why) in [
        (doc! { "max_tasks": {} }, "balance collection does not contain key 'queues'"),
        (
            doc! { "max_tasks": 5, "queues": { "$oid": "x" } },
            "balance collection value for 'queues' is not a list of lists of names",
        ),
        (doc! { "max_tasks": {}, "queues": [["bulk"]] }, "'max_tasks' has no entries"),
    ] {
        let db = fresh().await;
        queue(&db, Dialect::Released, "bulk", 5.into()).await;
        insert(&db, "balance", odd).await;
        let outcome = balancer(&db, ON).step().await.unwrap();
        assert_eq!(outcome, Outcome::Wrong(why.to_owned()));
        let told = document(&db).await;
        assert_eq!(told.get_str("status").unwrap(), "CRITICAL");
        assert_eq!(told.get_str("message").unwrap(), format!("QueueBalance: {why}"));
        assert_eq!(limit(&db, "bulk", "threads").await, Some(5));
    }
    let db = fresh().await;
    insert(&db, "balance", plan(&[])).await;
    insert(&db, "balance", plan(&[])).await;
    let why = "exactly one entry allowed in balance collection, but found 2";
    assert_eq!(balancer(&db, ON).step().await.unwrap(), Outcome::Wrong(why.to_owned()));
}

#[tokio::test]
async fn a_queue_that_is_gone_is_told_and_the_others_are_balanced() {
    let db = fresh().await;
    let api = queue(&db, Dialect::Released, "api", 0.into()).await;
    tasks(&db, api, -2, 2).await;
    insert(&db, "balance", plan(&[&["gone"], &["api"]])).await;
    let changes = vec![change("api", Some(0), 2)];
    assert_eq!(balancer(&db, ON).step().await.unwrap(), Outcome::Balanced(changes));
    let told = document(&db).await;
    assert_eq!(told.get_str("status").unwrap(), "WARNING");
    assert_eq!(told.get_str("message").unwrap(), "QueueBalance: there is no queue gone");
}

#[tokio::test]
async fn a_limit_that_is_missing_is_written_although_it_is_none() {
    let db = fresh().await;
    let id = ObjectId::new();
    let queue = doc! { "_id": id, "name": "bulk", "plugin": "Demo", "maxthreads": 5 };
    insert(&db, "queues", queue).await;
    insert(&db, "balance", plan(&[&["bulk"]])).await;
    let changes = vec![change("bulk", None, 0)];
    assert_eq!(balancer(&db, ON).step().await.unwrap(), Outcome::Balanced(changes));
    assert_eq!(limit(&db, "bulk", "threads").await, Some(0));
}
