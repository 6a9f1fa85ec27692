//! Requests that are passed on to their key's home: one queue, whichever holder is asked, and none that is lost with a
//! holder.

use std::time::{Duration, Instant};

use crate::calls::{call, heard, park};
use futures_util::future::join_all;
use pgsemaphore_tests::{
    Api, Caller, Db, Heard, InProcess, Mode, Proxy, Serve, Worker, home_of, key_at, message, unbroken_since,
    until, until_acquainted, verify, within_reason,
};
use serde_json::{Value, json};
use tokio::task::JoinError;

type Answered = Result<Option<Heard>, JoinError>;

fn policy(limit: u64) -> Value {
    json!({"limit": limit, "round_wait_ms": 0, "round_period_ms": 0, "grant_timeout_ms": 3_600_000})
}

/// Asks for one permit, which must be there, and uses it.
async fn take(caller: &Caller, key: &str, worker: &mut Worker) {
    worker.hear(&caller.insist(key, &worker.wants(1)).await);
    worker.claim();
    worker.hear(&caller.insist_sync(key, &worker.reports()).await);
    assert_eq!(worker.running(), 1);
}

async fn give_back(caller: &Caller, key: &str, worker: &mut Worker) {
    worker.release();
    worker.hear(&caller.insist_sync(key, &worker.reports()).await);
}

/// What a worker says that waits for one permit, already for so long.
fn waits(worker: &Worker, age_ms: u64) -> Value {
    let mut message = worker.wants(1);
    message["wait_ms"] = json!(60_000);
    message["demand"][0]["oldest_age_ms"] = json!(age_ms);
    message
}

/// Two holders in this process: the home of the key that is returned, and another one.
async fn home_and_other(db: &Db) -> (InProcess, InProcess, String) {
    let (home, other) = (InProcess::start(db.url()).await, InProcess::start(db.url()).await);
    until_acquainted(db.pool(), 2).await;
    let key = key_at(db.pool(), home.url()).await;
    home.policy("*", policy(1)).await;
    (home, other, key)
}

#[tokio::test]
async fn the_oldest_is_first_whichever_holder_is_asked() {
    let db = Db::new().await;
    let (home, other, key) = home_and_other(&db).await;
    let callers = [home.caller(), other.caller()];
    let mut attempt = 0;
    for [older_at, younger_at] in [[0, 1], [1, 0]] {
        until("the older one is first", async || {
            attempt += 1;
            let unbroken = unbroken_since(db.pool()).await;
            let [mut busy, mut older, mut younger] =
                ["busy", "older", "younger"].map(|name| Worker::new(format!("{name}-{attempt}")));
            take(&callers[0], &key, &mut busy).await;
            let mut parked_younger = park(&db, &callers[younger_at], &key, waits(&younger, 0)).await;
            let mut parked_older = park(&db, &callers[older_at], &key, waits(&older, 600_000)).await;
            // Where the younger one waits that is known first.
            give_back(&callers[younger_at], &key, &mut busy).await;
            let served = async |worker: &mut Worker, answer: Answered| {
                worker.hear(&answer.expect("no panic").expect("an answer").ok());
                assert_eq!(worker.permits(), 1);
                give_back(&callers[0], &key, worker).await;
            };
            tokio::select! {
                answer = &mut parked_older => {
                    assert!(!parked_younger.is_finished());
                    served(&mut older, answer).await;
                    served(&mut younger, within_reason("an answer", parked_younger).await).await;
                    true
                }
                answer = &mut parked_younger => {
                    served(&mut younger, answer).await;
                    served(&mut older, within_reason("an answer", parked_older).await).await;
                    until("heartbeats were missed", async || unbroken_since(db.pool()).await != unbroken).await;
                    false
                }
            }
        })
        .await;
    }
    assert_eq!(verify(&db).await, []);
}

#[tokio::test]
async fn what_the_home_answers_is_the_answer() {
    let db = Db::new().await;
    let (_home, other, key) = home_and_other(&db).await;
    let target = format!("/v1/semaphores/{key}/request");
    let id = ["content-type: application/json", "x-request-id: of-the-caller"];
    let granted = Api::new(other.url()).call("POST", &target, &id, br#"{"v":1,"client_id":"w"}"#).await;
    assert_eq!((granted.status, granted.header("x-request-id")), (200, Some("of-the-caller")));
    assert_eq!(granted.header("content-type"), Some("application/json"));
    assert_eq!(granted.header("pgsemaphore-home"), None, "nobody else's business");
    let body = br#"{"v":1,"client_id":"w","seen":9007199254740991}"#;
    let refused = Api::new(other.url()).call("POST", &target, &id, body).await;
    assert_eq!((refused.code(), refused.field()), ((400, "invalid_request"), (400, "/seen")));
    assert_eq!(refused.body["request_id"], "of-the-caller");
    assert_eq!(other.send(reqwest::Method::DELETE, "/v1/policies/%2A", &Value::Null).await.0, 204);
    let refused = other.caller().request(&key, &Worker::new("w").wants(1)).await.expect("an answer");
    assert_eq!((refused.status, &refused.body["code"]), (404, &json!("semaphore_not_found")));
}

#[tokio::test]
async fn time_counts_from_the_arrival_at_the_first_holder() {
    let db = Db::new().await;
    let (home, other, key) = home_and_other(&db).await;
    let mut busy = Worker::new("busy");
    take(&home.caller(), &key, &mut busy).await;
    let mut message = waits(&Worker::new("waiter"), 0);
    message["wait_ms"] = json!(1_000);
    let started = Instant::now();
    let reply = heard(call(&other.caller(), &key, message)).await.ok();
    assert_eq!(reply["blocked"][0]["reason"], "limit", "{reply}");
    assert!(started.elapsed() >= Duration::from_millis(1_000));
    let query = sqlx::query_as("SELECT holder, database FROM pgsemaphore.holders WHERE url = $1");
    let (name, database): (String, String) =
        query.bind(home.url()).fetch_one(db.pool()).await.expect("the home");
    let of_the_hop = [format!("pgsemaphore-home: {name}"), format!("pgsemaphore-database: {database}")];
    let headers = [&of_the_hop[0], &of_the_hop[1][..], "pgsemaphore-waited-ms: 30000"];
    let target = format!("/v1/semaphores/{key}/request");
    let mut message = waits(&Worker::new("waiter"), 0);
    message["wait_ms"] = json!(30_000);
    let body = message.to_string();
    let started = Instant::now();
    let passed_on = Api::new(home.url()).call("POST", &target, &headers, body.as_bytes()).await;
    assert!(started.elapsed() < Duration::from_secs(30), "its time was over when it came");
    assert!(passed_on.body["held_ms"].as_u64().is_some_and(|held| held >= 30_000), "{passed_on:?}");
    assert_eq!(passed_on.header("pgsemaphore-home"), Some(&name[..]));
    let another = ["pgsemaphore-home: 0123456789abcdef"];
    let refused = Api::new(home.url()).call("POST", &target, &another, body.as_bytes()).await;
    assert_eq!((refused.code(), refused.header("pgsemaphore-home")), ((503, "unavailable"), None));
}

#[tokio::test]
async fn who_hangs_up_elsewhere_leaves_the_queue_of_the_home() {
    let db = Db::new().await;
    let (_home, other, key) = home_and_other(&db).await;
    let caller = other.caller();
    let mut attempt = 0;
    // How soon the end of a connection is noticed is nobody's promise, so this is tried until it was soon enough.
    until("a round without who hung up", async || {
        attempt += 1;
        let [mut busy, mut gone, mut stays] =
            ["busy", "gone", "stays"].map(|name| Worker::new(format!("{name}-{attempt}")));
        take(&caller, &key, &mut busy).await;
        let parked = park(&db, &caller, &key, waits(&gone, 600_000)).await;
        let staying = park(&db, &caller, &key, waits(&stays, 0)).await;
        parked.abort();
        tokio::time::sleep(Duration::from_millis(50)).await;
        give_back(&caller, &key, &mut busy).await;
        let held = caller.insist_sync(&key, &gone.reports()).await;
        gone.hear(&held);
        let in_time = gone.permits() == 0;
        give_back(&caller, &key, &mut gone).await;
        stays.hear(&heard(staying).await.ok());
        give_back(&caller, &key, &mut stays).await;
        in_time
    })
    .await;
    assert_eq!(verify(&db).await, []);
}

/// The only thing that a home has is who waits; and they wait on, elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_who_waits_is_lost_with_the_home() {
    let db = Db::new().await;
    for kill in [true, false] {
        let mut home = Serve::start(db.url()).await;
        let others = [Serve::start(db.url()).await, Serve::start(db.url()).await];
        until_acquainted(db.pool(), 3).await;
        let key = key_at(db.pool(), home.url()).await;
        let callers = others.each_ref().map(|other| Caller::of(other.url()));
        callers[0].policy("*", &policy(1)).await;
        let mut busy = Worker::new(format!("busy-{kill}"));
        take(&callers[0], &key, &mut busy).await;
        let mut parked = Vec::new();
        for n in 0..8 {
            let waiter = Worker::new(format!("waiter-{n}-{kill}"));
            let call = park(&db, &callers[n % 2], &key, waits(&waiter, 0)).await;
            parked.push(async move { (waiter, heard(call).await.ok()) });
        }
        if kill {
            home.kill()
        } else {
            home.terminate()
        }
        home.wait().await;
        let served = join_all(parked.into_iter().map(|parked| async {
            let (mut waiter, reply) = parked.await;
            waiter.hear(&reply);
            assert_eq!(waiter.permits(), 1);
            give_back(&callers[1], &key, &mut waiter).await;
        }));
        give_back(&callers[1], &key, &mut busy).await;
        within_reason("all who wait are served", served).await;
        assert_eq!(callers[0].usage(&key).await["grants"], 0);
        for mut other in others {
            other.terminate();
            other.wait().await;
        }
    }
    assert_eq!(verify(&db).await, []);
}

#[tokio::test]
async fn a_home_that_is_frozen_costs_a_bounded_time() {
    let db = Db::new().await;
    let (home, other) = (Serve::start(db.url()).await, Serve::start(db.url()).await);
    until_acquainted(db.pool(), 2).await;
    let key = key_at(db.pool(), home.url()).await;
    let caller = Caller::of(other.url());
    caller.policy("*", &policy(1)).await;
    let mut busy = Worker::new("busy");
    take(&caller, &key, &mut busy).await;
    let mut waiter = Worker::new("waiter");
    let parked = park(&db, &caller, &key, waits(&waiter, 0)).await;
    home.freeze();
    give_back(&caller, &key, &mut busy).await;
    waiter.hear(&heard(parked).await.ok());
    assert_eq!(waiter.permits(), 1, "while its home is frozen");
    home.thaw();
    give_back(&Caller::of(home.url()), &key, &mut waiter).await;
    assert_eq!(verify(&db).await, []);
}

/// The network between holders swallows everything, while both write their heartbeats.
#[tokio::test]
async fn a_home_that_does_not_answer_is_not_asked_for_each_request() {
    let db = Db::new().await;
    let listen = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listen.local_addr().expect("an address").to_string();
    drop(listen);
    let between = Proxy::before(&address).await;
    let advertised = between.through(&format!("http://{address}"));
    let options = ["--listen", &address, "--advertise-url", &advertised];
    let home = Serve::start_with(db.url(), &options).await;
    let other = Serve::start(db.url()).await;
    until_acquainted(db.pool(), 2).await;
    let key = key_at(db.pool(), &advertised).await;
    let caller = Caller::of(other.url());
    caller.policy("*", &policy(100)).await;
    until("one is passed on", async || {
        caller.insist(&key, &Worker::new("before").wants(1)).await;
        between.accepted() > 0
    })
    .await;
    between.set(Mode::Drop);
    until("that is noticed", async || {
        caller.insist(&key, &Worker::new("noticed").wants(1)).await;
        other.stderr().contains("does not answer")
    })
    .await;
    let (before, started) = (between.accepted(), Instant::now());
    for n in 0..30 {
        let reply = caller.insist(&key, &Worker::new(format!("w{n}")).wants(1)).await;
        assert_eq!(reply["grants"].as_array().map(Vec::len), Some(1));
    }
    let periods = started.elapsed().as_secs() / 5 + 1;
    let asked = between.accepted() - before;
    assert!(asked <= 2 * periods, "{asked} times in {periods} periods");
    between.set(Mode::Pass);
    let before = between.accepted();
    until("it is asked again", async || {
        caller.insist(&key, &Worker::new("after").wants(1)).await;
        between.accepted() > before
    })
    .await;
    drop(home);
    assert_eq!(verify(&db).await, []);
}

/// A request waits where its key's home was; a newer one of its process goes to the new home.
#[tokio::test]
async fn a_request_gives_way_to_a_newer_one_at_another_home() {
    let db = Db::new().await;
    let (one, other) = (InProcess::start(db.url()).await, InProcess::start(db.url()).await);
    until_acquainted(db.pool(), 2).await;
    one.policy("*", policy(0)).await;
    let caller = one.caller();
    let say = |client: &str, call: u64| {
        let demand = json!([{"group": "", "count": 1}]);
        message(client, json!({"process": "p", "call": call, "wait_ms": 60_000, "demand": demand}))
    };
    let mut parked = Vec::new();
    for n in 0..12 {
        let (key, client) = (format!("k:{n}"), format!("w{n}"));
        let before = home_of(db.pool(), &key).await;
        let call = park(&db, &caller, &key, say(&client, 1)).await;
        parked.push((key, client, before, call));
    }
    let newcomers = [InProcess::start(db.url()).await, InProcess::start(db.url()).await];
    until_acquainted(db.pool(), 4).await;
    let mut moved = 0;
    for (key, client, before, old) in parked {
        if home_of(db.pool(), &key).await == before {
            continue;
        }
        moved += 1;
        assert!(!old.is_finished(), "a parked call stays where it is");
        let new = call(&caller, &key, say(&client, 2));
        let refused = heard(old).await;
        assert_eq!((refused.status, &refused.body["code"]), (409, &json!("superseded")));
        assert!(!new.is_finished());
        new.abort();
    }
    assert!(moved > 0, "with twice as many holders half of the keys move");
    drop((other, newcomers));
}

/// Who is back after a pause may pause again; but when all were away that says nothing about anybody.
#[tokio::test]
async fn a_holder_that_missed_heartbeats_is_no_home_for_a_while() {
    const BEAT: &str = include_str!("../../server/queries/write_heartbeat.sql");
    let db = Db::new().await;
    let beat = async |holder: &str| {
        let query = sqlx::query_as(BEAT).bind(holder).bind("http://x");
        let mut live: Vec<(String, String, String, bool)> =
            query.fetch_all(db.pool()).await.expect("a heartbeat");
        live.sort();
        live.into_iter().map(|(holder, _, _, steady)| (holder, steady)).collect::<Vec<_>>()
    };
    let age = async |what: &str| {
        sqlx::raw_sql(sqlx::AssertSqlSafe(what.to_owned())).execute(db.pool()).await.expect("SQL");
    };
    let known = |holders: &[(&str, bool)]| -> Vec<(String, bool)> {
        holders.iter().map(|(holder, steady)| ((*holder).to_owned(), *steady)).collect()
    };
    assert_eq!(beat("a").await, known(&[("a", true)]));
    assert_eq!(beat("b").await, known(&[("a", true), ("b", true)]));
    age("UPDATE pgsemaphore_data.serving SET since = since - interval '1 minute'").await;
    age("UPDATE pgsemaphore_data.holders SET last_heartbeat = last_heartbeat - interval '4 s' WHERE holder = 'b'")
        .await;
    assert_eq!(beat("a").await, known(&[("a", true)]), "b has missed three");
    assert_eq!(beat("b").await, known(&[("a", true), ("b", false)]));
    assert_eq!(beat("b").await, known(&[("a", true), ("b", false)]));
    age("UPDATE pgsemaphore_data.holders SET returned_at = returned_at - interval '11 s'").await;
    assert_eq!(beat("a").await, known(&[("a", true), ("b", true)]));

    age("UPDATE pgsemaphore_data.serving SET since = since - interval '1 minute'").await;
    age("UPDATE pgsemaphore_data.holders SET last_heartbeat = last_heartbeat - interval '4 s'").await;
    assert_eq!(beat("b").await, known(&[("b", true)]));
    assert_eq!(beat("a").await, known(&[("a", true), ("b", true)]));
}
