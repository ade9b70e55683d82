//! Documents with fields that look like other types in extended JSON: they are ordinary documents
//! and hide no others.

use crate::database::{Ending, Finished, Run};
use crate::dialect::Dialect;
use crate::gridfs;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Document, doc};

use crate::tests::base::fresh;
use crate::tests::harness::{at, insert, load, me, queue, read, task};

fn lookalikes() -> [Document; 6] {
    [
        doc! { "$oid": "x" },
        doc! { "$date": { "$numberLong": "x" } },
        doc! { "$numberLong": "x" },
        doc! { "$binary": 5 },
        doc! { "$timestamp": {} },
        doc! { "$symbol": [] },
    ]
}

#[tokio::test]
async fn queues_and_nodes_are_read_as_they_are() {
    let db = fresh().await;
    for like in lookalikes() {
        insert(&db, "queues", doc! { "name": "q", "constructor": like.clone() }).await;
        insert(&db, "nodes", doc! { "node": "n", "timestamp": like.clone() }).await;
    }
    let queues = db.queues().await.unwrap();
    let nodes = db.nodes().await.unwrap();
    for like in lookalikes() {
        assert!(queues.iter().any(|queue| queue.get_document("constructor").unwrap() == &like));
        assert!(nodes.iter().any(|node| node.get_document("timestamp").unwrap() == &like));
    }
    assert!(db.learn_dialect().await.unwrap());
    assert_eq!(db.dialect(), Dialect::Seed);
}

#[tokio::test]
async fn tasks_go_their_way() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Seed, 9).await;
    let me = me("n", "b");
    for like in lookalikes() {
        let id = task(&db, queue.id, doc! { "parameters": { "a": like.clone() } }).await;
        let claimed = db.claim(&queue, &me, "t", at(0)).await.unwrap().unwrap();
        assert_eq!(claimed.get_document("parameters").unwrap(), &doc! { "a": like.clone() });
        let run = Run::of(&claimed).unwrap();
        assert!(db.start(&run, &me, at(0)).await.unwrap());
        assert_eq!(db.claimed_by(&me).await.unwrap().len(), 1);
        let ending = Ending {
            status: 1,
            stdout: like.clone().into(),
            stderr: "".into(),
            cmd_exit: None,
            cmd_err: None,
            complete: true,
        };
        let finished = db.speaking(Dialect::Seed).finish(&run, &me, &ending, at(0)).await.unwrap();
        assert_eq!(finished, Finished::Ended);
        assert_eq!(read(&db, id).await.get_document("stdout").unwrap(), &like);
        task(&db, queue.id, doc! { "status": like }).await;
    }
    let counts = db.queue_counts(&[queue.id]).await.unwrap()[&queue.id];
    assert_eq!((counts.completed, counts.total), (6, 12));
    assert!(db.owners().await.unwrap().is_empty());
}

#[tokio::test]
async fn files_are_read_and_cleaned_beside_them() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Seed, 9).await;
    let mut files = Vec::new();
    for like in lookalikes() {
        let task = task(&db, queue.id, doc! { "status": 1, "stdout": like.clone() }).await;
        let file = ObjectId::new();
        insert(
            &db,
            "tasks.files",
            doc! {
                "_id": file, "filename": "stdout", "length": 2, "uploadDate": at(-1_000_000),
                "metadata": { "task_id": task, "like": like },
            },
        )
        .await;
        insert(&db, "tasks.chunks", doc! { "files_id": file, "n": 0, "data": "ab" }).await;
        files.push(file);
    }
    for file in files {
        assert_eq!(load(&db, file).await.unwrap(), "ab");
    }
    let mut cleaner = gridfs::Cleaner::default();
    assert_eq!(cleaner.step(&db, at(0)).await.unwrap(), 6, "no task points to them");
}
