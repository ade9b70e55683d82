//! Tasks that no node can ever claim are found and reported.

use crate::dialect::Dialect;
use mongodb::bson::{Bson, Document, doc};

use crate::tests::base::fresh;
use crate::tests::harness::{at, insert, queue, task};

#[tokio::test]
async fn tasks_that_wait_in_vain_are_found_with_the_reason() {
    let db = fresh().await;
    let one = queue(&db, Dialect::Seed, 1).await;
    let other = queue(&db, Dialect::Seed, 1).await;
    let cases: [(Document, &str); 9] = [
        (doc! { "status": "-2" }, "`status` is a string"),
        (doc! { "status": Bson::Null }, "`status` is null"),
        (doc! { "status": [-2] }, "`status` is an array"),
        (doc! { "windlass": 5 }, "`windlass` is a number"),
        (doc! { "windlass": [{}] }, "`windlass` is an array"),
        (doc! { "windlass": Bson::Null }, "`windlass` is null"),
        (doc! { "node": {} }, "`node` is a document"),
        (doc! { "status": -4, "windlass": { "not_before": "x" } }, "`windlass.not_before` is a"),
        (doc! { "status": -4, "windlass": { "after": 5 } }, "`windlass.after` is a number"),
    ];
    let mut wanted = Vec::new();
    for (fields, why) in cases {
        wanted.push((task(&db, one.id, fields.clone()).await.to_hex(), why));
        task(&db, other.id, fields).await;
    }
    insert(&db, "tasks", doc! { "_id": "mine", "queue": one.id, "status": -2 }).await;
    insert(&db, "tasks", doc! { "_id": 7, "queue": one.id, "node": -1 }).await;
    wanted.push(("\"mine\"".to_owned(), "`_id` is a string"));
    wanted.push(("7".to_owned(), "`_id` is a number"));
    for fields in [
        doc! {},
        doc! { "node": Bson::Null, "status": -2.0, "windlass": {} },
        doc! { "status": -4 },
        doc! { "status": -4, "windlass": { "not_before": at(1), "after": [] } },
        doc! { "status": 1, "windlass": 5 },
        doc! { "params": 5, "mtime": "x" },
    ] {
        task(&db, one.id, fields).await;
    }
    let found = db.tasks_invalid(&[one.id]).await.unwrap();
    assert_eq!(found.len(), wanted.len(), "{found:?}");
    for (id, why) in wanted {
        let (_, odd) = found.iter().find(|(found, _)| *found == id).unwrap();
        assert!(odd.to_string().starts_with(why), "{odd}");
    }
}
