//! Before the first job: missing tables, missing rights, names of all kinds.

use crate::table::{self, Owner, Storage, Table, TableError};

use crate::table::tests::harness::{
    LEASE, NO_LEASE, NOBODY, World, documented_tables, end, everywhere, ids, names,
};

everywhere! {
    a_missing_table_is_refused
    a_missing_column_is_refused
    preparing_twice_is_fine
}

async fn a_missing_table_is_refused(world: World) {
    world.sql("DROP TABLE jobs");
    let told = world.worker("w").prepare().await.unwrap_err();
    assert!(matches!(&told, TableError::Refused(text) if text.contains("jobs")), "{told}");
}

async fn a_missing_column_is_refused(world: World) {
    world.sql("ALTER TABLE jobs DROP COLUMN sig");
    let told = world.worker("w").prepare().await.unwrap_err();
    assert!(matches!(&told, TableError::Refused(text) if text.contains("sig")), "{told}");
}

async fn preparing_twice_is_fine(world: World) {
    let (one, two) = (world.worker("one"), world.worker("two"));
    let (first, second) = tokio::join!(one.prepare(), two.prepare());
    first.unwrap();
    second.unwrap();
    one.prepare().await.unwrap();
    one.close().await;
    assert!(matches!(two.prepare().await, Ok(())));
}

fn open(url: &str) -> std::sync::Arc<dyn Table> {
    table::open(&Storage::parse(url, None).unwrap(), Owner { name: "w".into(), boot: 4 })
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_told() {
    let world = World::mysql();
    let url = world.url().replace(world.server().password(), "guesswork");
    let told = open(&url).prepare().await.unwrap_err();
    assert!(matches!(&told, TableError::Refused(_)), "{told}");
    assert!(!told.to_string().contains("guesswork"), "{told}");
}

#[tokio::test]
async fn nobody_there_is_away() {
    for kind in ["mysql", "postgres"] {
        let told = open(&format!("{kind}://w:w@127.0.0.1:1/x")).prepare().await.unwrap_err();
        assert!(matches!(&told, TableError::Away(_)), "{told}");
    }
}

#[tokio::test]
async fn a_missing_file_is_refused_and_not_made() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("none.db");
    let told = open(&format!("sqlite://{}", file.display())).prepare().await.unwrap_err();
    assert!(matches!(&told, TableError::Refused(_)), "{told}");
    assert!(!file.exists());
}

/// With only the rights that the original needs, everything works except recovery after a crash.
#[tokio::test]
async fn without_the_right_to_make_a_table_there_are_no_marks() {
    let world = World::mysql();
    works_without_marks(&world, "SELECT, UPDATE").await;
    assert_eq!(world.sql("SHOW TABLES"), "jobs\n");
}

#[tokio::test]
async fn without_the_right_to_write_marks_there_are_none() {
    let world = World::mysql();
    works_without_marks(&world, "SELECT, UPDATE, CREATE").await;
    assert_eq!(world.marks(), "");
}

#[test]
fn the_guide_has_the_tables_that_are_tested() {
    let guide = include_str!("../../../../../docs/guide/moving-from-jobd.md");
    assert!(documented_tables().iter().all(|table| guide.contains(table)));
}

/// As in the guide: rights on the table itself, and on the table of marks before it exists.
#[tokio::test]
async fn rights_on_two_tables_are_enough() {
    let world = World::mysql();
    let (database, port) = (world.database(), world.server().port());
    world.sql(&format!(
        "CREATE USER u_{database} IDENTIFIED BY 'pw'; \
         GRANT SELECT, UPDATE ON {database}.jobs TO u_{database}; \
         GRANT CREATE, SELECT, INSERT, UPDATE, DELETE ON {database}.jobs_windlass TO u_{database}"
    ));
    world.add("waiting", &["a"]);
    let worker = open(&format!("mysql://u_{database}:pw@127.0.0.1:{port}/{database}"));
    worker.fetch(&names(&["a"]), 1, LEASE).await.unwrap();
    assert_eq!(world.marks(), "1\tw\twaiting\n");
    assert_eq!(worker.start(&[1], 1).await.unwrap(), [1]);
    assert_eq!(worker.finish(&[end(1)]).await.unwrap(), []);
}

async fn works_without_marks(world: &World, rights: &str) {
    let database = world.database();
    world.sql(&format!(
        "CREATE USER u_{database} IDENTIFIED BY 'pw'; \
         GRANT {rights} ON {database}.* TO u_{database}"
    ));
    let port = world.server().port();
    let worker = open(&format!("mysql://u_{database}:pw@127.0.0.1:{port}/{database}"));
    world.add("waiting", &["a", "a", "a"]);
    world.add("manual", &["a"]);
    let targets = names(&["a"]);
    let fetched = worker.fetch(&targets, 10, NO_LEASE).await.unwrap();
    assert_eq!(ids(&fetched), [1, 2, 3]);
    worker.accept_manual(&[4], &targets, NO_LEASE).await.unwrap();
    assert_eq!(worker.renew(&[1, 2, 3, 4], LEASE).await.unwrap(), NOBODY);
    assert_eq!(worker.start(&[1, 4], 1).await.unwrap(), [1, 4]);
    let recovered = worker.recover(&[], Default::default(), 1, "lost").await.unwrap();
    assert!(recovered.back.is_empty() && recovered.failed.is_empty());
    assert_eq!(worker.finish(&[end(1), end(4)]).await.unwrap(), []);
    worker.hand_back(&fetched.rows).await.unwrap();
    let statuses = [1, 2, 3, 4].map(|id| world.status(id));
    assert_eq!(statuses, ["done", "waiting", "waiting", "done"]);
}

/// The original inserts the name into its SQL unchanged, so all of these work there.
#[tokio::test]
async fn a_table_may_be_named_with_its_database_and_quotes() {
    let world = World::mysql();
    let database = world.database();
    world.sql("CREATE TABLE `odd name` LIKE jobs");
    for table in [format!("{database}.jobs"), format!("`{database}`.`jobs`"), "odd name".into()] {
        let storage = Storage::parse(&world.url(), Some(&table)).unwrap();
        let worker = table::open(&storage, Owner { name: "w".into(), boot: 4 });
        worker.prepare().await.unwrap();
    }
    let tables = world.sql("SHOW TABLES");
    assert_eq!(tables, "jobs\njobs_windlass\nodd name\nodd name_windlass\n");
}
