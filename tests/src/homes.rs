//! Which holder is a key's home: the product's rule, said a second time, in SQL.

use sqlx::PgPool;

use crate::until::{until, until_some};

/// Waits until so many holders are alive and each has heard of all others.
///
/// # Panics
///
/// When there are not as many.
pub async fn until_acquainted(pool: &PgPool, holders: i64) {
    let query = "SELECT count(*) = $1 AND min(last_heartbeat) > max(started_at) + interval '500 ms'
                 FROM pgsemaphore.holders WHERE live";
    until("all holders know each other", async || {
        let known: Option<bool> =
            sqlx::query_scalar(query).bind(holders).fetch_one(pool).await.expect("the view");
        known == Some(true)
    })
    .await;
}

/// Since when no holder has missed three heartbeats, as a text; another one tells that one has. On a machine that is
/// busy enough they do, and a key has two homes for a while.
///
/// # Panics
///
/// When there was never a holder.
pub async fn unbroken_since(pool: &PgPool) -> String {
    let query = sqlx::query_scalar("SELECT since::text FROM pgsemaphore_data.serving");
    query.fetch_one(pool).await.expect("a moment")
}

/// The URL of a key's home, as long as no holder has missed heartbeats.
///
/// # Panics
///
/// When there is no holder.
pub async fn home_of(pool: &PgPool, key: &str) -> String {
    let query = "SELECT url FROM pgsemaphore.holders WHERE live
                 ORDER BY sha256(convert_to(holder, 'UTF8') || '\\x00' || convert_to($1, 'UTF8')) DESC LIMIT 1";
    until_some("a live holder", async || {
        sqlx::query_scalar(query).bind(key).fetch_optional(pool).await.expect("the view")
    })
    .await
}

/// A key whose home is at this URL.
///
/// # Panics
///
/// When there is no holder.
pub async fn key_at(pool: &PgPool, url: &str) -> String {
    for number in 0..10_000 {
        let key = format!("k:{number}");
        if home_of(pool, &key).await == url {
            return key;
        }
    }
    panic!("{url} is home to no key");
}
