//! The test kit itself: what the other tests lean on.

use pgsemaphore_tests::Db;

#[tokio::test]
async fn every_test_has_a_database_of_its_own() {
    let (one, two) = tokio::join!(Db::new(), Db::new());
    assert_ne!(one.url(), two.url());
    sqlx::raw_sql("create table mine ()").execute(one.pool()).await.expect("create");
    let elsewhere: bool = sqlx::query_scalar("select to_regclass('mine') is not null")
        .fetch_one(two.pool())
        .await
        .expect("a look into the other database");
    assert!(!elsewhere);
}

#[tokio::test]
async fn databases_are_migrated() {
    let db = Db::new().await;
    let applied: i64 = sqlx::query_scalar("select count(*) from pgsemaphore_data._sqlx_migrations")
        .fetch_one(db.pool())
        .await
        .expect("the table of migrations");
    assert_eq!(usize::try_from(applied).ok(), Some(pgsemaphore::MIGRATOR.iter().count()));
}
