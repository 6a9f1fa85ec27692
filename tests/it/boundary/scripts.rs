//! Every script of rounds, on PostgreSQL: each transaction of a script, at its moment, gives the answers, the declarations
//! and the counters that the store in memory gives.

use pgsemaphore::{Heard, Moment, Store, TurnResult, transact_at};
use pgsemaphore_allocation::{Call, DbTime, Extra, Outcome, Policy, Provisioning, SemaphoreKey};
use pgsemaphore_sim::Limits;
use pgsemaphore_sim::script::{Event, Transacted, run, scripts};
use pgsemaphore_tests::{Db, hostile};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgPool};
use std::time::{Duration, Instant};

/// Later than PostgreSQL started: what was before that it does not count as heard.
const START: DbTime = DbTime(2_400_000_000_000_000);
/// More than any script says that somebody waited.
const LONG: Duration = Duration::from_secs(30 * 86_400);

/// What scripts say cannot be resolved, and who is not permitted, as functions of users.
const FUNCTIONS: &str = "
    CREATE SCHEMA script;
    CREATE TABLE script.unresolved (key text, grp text);
    CREATE TABLE script.forbidden (key text, client_id text, grp text);
    CREATE FUNCTION script.no_limit(key text) RETURNS integer LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
        AS $$ BEGIN RAISE EXCEPTION 'nobody knows'; END $$;
    CREATE FUNCTION script.ceiling(of_key text, of_grp text) RETURNS integer LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
        AS $$ BEGIN
            IF EXISTS (SELECT FROM script.unresolved AS u WHERE u.key = of_key AND u.grp = of_grp) THEN
                RAISE EXCEPTION 'nobody knows';
            END IF;
            RETURN NULL;
        END $$;
    CREATE FUNCTION script.may(of_key text, of_client text, of_grp text) RETURNS boolean LANGUAGE sql SET search_path = pg_catalog, pg_temp
        AS $$ SELECT NOT EXISTS (
            SELECT FROM script.forbidden AS f WHERE f.key = of_key AND f.client_id = of_client AND f.grp = of_grp
        ) $$;
";

/// What a copy of the store holds of a key: all tables that have one, and its policy.
const COPIED: [(&str, &str); 7] = [
    ("semaphores", "key"),
    ("group_usage", "key"),
    ("slots", "key"),
    ("pending", "key"),
    ("clients", "key"),
    ("policies", "pattern"),
    ("group_limits", "pattern"),
];

#[tokio::test]
async fn every_script_gives_the_same_answers_in_a_hostile_database() {
    let db = Db::hostile().await;
    sqlx::raw_sql(FUNCTIONS).execute(db.pool()).await.expect("functions");
    let store = Store::connect(db.url(), 2).await.expect("the test database");
    let mut failures = Vec::new();
    for (name, text) in scripts() {
        let events = run(&text, START).unwrap_or_else(|mismatch| panic!("{name}: {mismatch:?}"));
        let replay = Replay { store: &store, pool: db.pool(), key: SemaphoreKey::new(&name) };
        for (at, event) in events.iter().enumerate() {
            if let Err(difference) = replay.happens(event).await {
                failures.push(format!("{name}, event {at}: {difference}"));
                break;
            }
        }
    }
    assert!(failures.is_empty(), "\n\n{}\n", failures.join("\n\n"));
    assert_eq!(pgsemaphore_tests::verify(&db).await, []);
    assert_eq!(hostile::caught(db.pool()).await, 0);
}

struct Replay<'a> {
    store: &'a Store,
    pool: &'a PgPool,
    key: SemaphoreKey,
}

impl Replay<'_> {
    async fn happens(&self, event: &Event) -> Result<(), String> {
        match event {
            Event::Limits(Some(limits)) => self.set_limits(limits).await,
            Event::Limits(None) => {
                self.execute("DELETE FROM pgsemaphore_data.policies WHERE pattern = $1", &[]).await;
            }
            Event::Serving(since) => self.set_serving(*since).await,
            Event::Damaged { round } => {
                let damage = "INSERT INTO pgsemaphore_data.semaphores AS s (key, round) VALUES ($1, $2::bigint)
                              ON CONFLICT (key) DO UPDATE SET round = excluded.round, version = s.version + 1";
                self.execute(damage, &[&round.to_string()]).await;
            }
            Event::Copy => self.copy().await,
            Event::Restore => self.restore().await,
            Event::Transacted(transacted) => return self.transact(transacted).await,
        }
        Ok(())
    }

    async fn transact(&self, expected: &Transacted) -> Result<(), String> {
        let anchor = Instant::now() + LONG;
        let heard: Vec<Heard> = expected.calls.iter().map(|call| as_heard(call, anchor)).collect();
        let moment = Moment { now: expected.now, anchor };
        let turn = transact_at(self.store, &self.key, expected.work, &heard, moment).await;
        let turn = turn.map_err(|error| error.to_string())?;
        let TurnResult::Outcomes(answers) = turn.result else {
            return Err(format!("no outcomes but {:?}", turn.result));
        };
        same(
            "the answers",
            &sorted(expected.answers.clone()),
            &sorted(answers.into_iter().flatten().collect()),
        )?;
        same("the audit", &expected.audit, &turn.audit)?;
        let query = "SELECT round, grants, leases, (extract(epoch FROM next_deadline) * 1000000)::bigint
                     FROM pgsemaphore_data.semaphores WHERE key = $1";
        let row: Option<(i64, i64, i64, Option<i64>)> = sqlx::query_as(query)
            .bind(self.key.as_str())
            .fetch_optional(self.pool)
            .await
            .expect("the key's row");
        let semaphore = &expected.semaphore;
        let wanted = (
            i64::try_from(semaphore.round).expect("a round"),
            semaphore.grants,
            semaphore.leases,
            semaphore.next_deadline().map(|deadline| deadline.0),
        );
        // A key that nobody asked for has no row.
        same("the key's row", &wanted, &row.unwrap_or((0, 0, 0, None)))
    }

    async fn set_limits(&self, limits: &Limits) {
        self.execute("DELETE FROM script.unresolved WHERE key = $1", &[]).await;
        self.execute("DELETE FROM script.forbidden WHERE key = $1", &[]).await;
        for group in &limits.unresolved {
            self.execute("INSERT INTO script.unresolved VALUES ($1, $2)", &[group.as_str()]).await;
        }
        for (client, group) in &limits.not_permitted {
            let names = [client.as_str(), group.as_str()];
            self.execute("INSERT INTO script.forbidden VALUES ($1, $2, $3)", &names).await;
        }
        // Not by the validator: scripts use times that people may not.
        let policy = policy(limits).to_string();
        self.execute("SELECT pgsemaphore_data.write_policy($1, $2::jsonb, 'script')", &[&policy]).await;
    }

    /// A holder that never goes silent, or none.
    async fn set_serving(&self, since: Option<DbTime>) {
        sqlx::raw_sql("DELETE FROM pgsemaphore_data.holders; DELETE FROM pgsemaphore_data.serving")
            .execute(self.pool)
            .await
            .expect("no holder");
        if let Some(since) = since {
            let statement = format!(
                "INSERT INTO pgsemaphore_data.serving (since) VALUES ('epoch'::timestamptz + {} * interval '1 microsecond');
                 INSERT INTO pgsemaphore_data.holders (holder, url, started_at, last_heartbeat, database)
                     VALUES ('script', 'http://127.0.0.1:1', now(), 'infinity', pgsemaphore_data.this_database())",
                since.0
            );
            sqlx::raw_sql(AssertSqlSafe(statement)).execute(self.pool).await.expect("a holder");
        }
    }

    async fn copy(&self) {
        for (table, column) in COPIED {
            let made = format!("CREATE TABLE IF NOT EXISTS script.{table} (LIKE pgsemaphore_data.{table})");
            sqlx::raw_sql(AssertSqlSafe(made)).execute(self.pool).await.expect("a table for the copy");
            self.execute(&format!("DELETE FROM script.{table} WHERE {column} = $1"), &[]).await;
            let copy = format!(
                "INSERT INTO script.{table} SELECT * FROM pgsemaphore_data.{table} WHERE {column} = $1"
            );
            self.execute(&copy, &[]).await;
        }
    }

    async fn restore(&self) {
        for (table, column) in COPIED.iter().rev() {
            self.execute(&format!("DELETE FROM pgsemaphore_data.{table} WHERE {column} = $1"), &[]).await;
        }
        for (table, column) in COPIED {
            let columns: String = sqlx::query_scalar(
                "SELECT string_agg(attname, ', ') FROM pg_attribute
                 WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''",
            )
            .bind(format!("pgsemaphore_data.{table}"))
            .fetch_one(self.pool)
            .await
            .expect("its columns");
            let back = format!(
                "INSERT INTO pgsemaphore_data.{table} ({columns}) SELECT {columns} FROM script.{table} WHERE {column} = $1"
            );
            self.execute(&back, &[]).await;
        }
    }

    /// A statement whose first parameter is the key.
    async fn execute(&self, statement: &str, others: &[&str]) {
        let mut query = sqlx::query(AssertSqlSafe(statement.to_owned())).bind(self.key.as_str());
        for other in others {
            query = query.bind(*other);
        }
        query.execute(self.pool).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
}

fn as_heard(call: &Call, anchor: Instant) -> Heard {
    let waited = Duration::from_micros(u64::try_from(call.waited).expect("a time"));
    Heard {
        client: call.client.clone(),
        from: call.from.clone(),
        seen: call.seen,
        all: call.all,
        arrival: anchor - waited,
        asks: call.asks,
        demand: call.demand.clone(),
        grants: call.grants.clone(),
        leases: call.leases.clone(),
        takes_leases: call.takes_leases,
        applied: call.applied,
    }
}

/// A policy as `write_policy` takes it.
fn policy(limits: &Limits) -> Value {
    let Limits { policy, groups, unresolved, not_permitted } = limits;
    let Policy { limit, provisioning, .. } = policy;
    let ceilings: serde_json::Map<_, _> =
        groups.iter().map(|(group, limit)| (group.to_string(), json!(limit))).collect();
    let (mode, reserve, extra, ratio) = match provisioning {
        Provisioning::None => ("none", None, None, None),
        Provisioning::Strict => ("strict", None, None, None),
        Provisioning::Under { reserve } => ("under", Some(reserve), None, None),
        Provisioning::Over { extra: Extra::Permits(extra) } => ("over", None, Some(extra), None),
        Provisioning::Over { extra: Extra::Millionths(ratio) } => {
            ("over", None, None, Some(format!("{}.{:06}", ratio / 1_000_000, ratio % 1_000_000)))
        }
    };
    let paused_groups: Vec<_> = policy.paused_groups.iter().map(ToString::to_string).collect();
    json!({
        "limit": limit,
        "limit_function": limit.is_none().then_some("script.no_limit"),
        "group_limits": ceilings,
        "paused": policy.paused,
        "paused_groups": paused_groups,
        "group_limit_function": (!unresolved.is_empty()).then_some("script.ceiling"),
        "can_grant_function": (!not_permitted.is_empty()).then_some("script.may"),
        "round_wait_ms": 0,
        "round_period_ms": policy.round_period / 1000,
        "eager": false,
        "grant_timeout_ms": policy.grant_timeout / 1000,
        "provisioning": mode,
        "lease_reserve": reserve,
        "lease_extra": extra,
        "lease_extra_ratio": ratio,
        "permits_per_lease": policy.permits_per_lease,
        "lease_ttl_ms": policy.lease_ttl / 1000,
        "limited_groups": if policy.leases_within_group_limit { "within_group_limit" } else { "excluded" },
        "settle_lost_clients_after_ms": policy.settle_after.map(|after| after / 1000),
    })
}

/// The order of verdicts is free.
fn sorted(mut outcomes: Vec<Outcome>) -> Vec<Outcome> {
    for outcome in &mut outcomes {
        if let Outcome::Answered(answer) = outcome {
            answer.verdicts.sort_by(|one, other| one.id.cmp(&other.id));
        }
    }
    outcomes
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, expected: &T, found: &T) -> Result<(), String> {
    if expected == found {
        return Ok(());
    }
    Err(format!("{what} differs\n  in memory:     {expected:?}\n  in PostgreSQL: {found:?}"))
}
