//! Golden JSON: what travels, spelt out. A change here is a change of the protocol.

use queue_wire::{
    Blocked, Code, Demand, FencedKey, GrantReport, GrantVerdict, LeaseReport, LeaseVerdict, Message, Problem,
    Reason, Reply, Status, TakenOver, TakenOverKey, Takeover,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;

/// `value` is written as `golden`, and `golden` is read as `value`.
fn golden<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: T, golden: Value) {
    assert_eq!(serde_json::to_value(&value).expect("it can be written"), golden);
    assert_eq!(serde_json::from_value::<T>(golden).expect("it can be read"), value);
}

#[test]
fn a_request_with_everything() {
    let message = Message {
        generation: 3,
        process: Some("5f0c".into()),
        resume: true,
        call: Some(17),
        seen: 1_764_428_000_123_456,
        all: true,
        wait_ms: 30_000,
        known_state: Some("s1".into()),
        demand: vec![Demand { group: "nightly".into(), count: 5, oldest_age_ms: 1200 }],
        grants: Some(vec![GrantReport { id: "a".into(), claimed: 3, released: 1 }]),
        leases: Some(vec![LeaseReport { id: "b".into(), drawn: 10, released: 4, stopped: false }]),
        ..Message::new("worker-7")
    };
    golden(
        message,
        json!({
            "v": 1,
            "client_id": "worker-7",
            "generation": 3,
            "process": "5f0c",
            "resume": true,
            "call": 17,
            "seen": 1_764_428_000_123_456_u64,
            "all": true,
            "wait_ms": 30000,
            "known_state": "s1",
            "demand": [{"group": "nightly", "count": 5, "oldest_age_ms": 1200}],
            "grants": [{"id": "a", "claimed": 3, "released": 1}],
            "leases": [{"id": "b", "drawn": 10, "released": 4, "stopped": false}]
        }),
    );
}

#[test]
fn a_message_that_says_nothing() {
    golden(
        Message::new("worker-7"),
        json!({
            "v": 1, "client_id": "worker-7", "generation": 0, "resume": false, "seen": 0, "all": false, "wait_ms": 0
        }),
    );
    let least: Message =
        serde_json::from_value(json!({"v": 1, "client_id": "worker-7"})).expect("only what is required");
    assert_eq!(least, Message::new("worker-7"));
}

#[test]
fn no_leases_and_an_empty_list_of_leases_differ() {
    let read = |body: Value| serde_json::from_value::<Message>(body).expect("a message");
    assert_eq!(read(json!({"v": 1, "client_id": "w"})).leases, None);
    assert_eq!(read(json!({"v": 1, "client_id": "w", "leases": []})).leases, Some(vec![]));
}

#[test]
fn reports_say_zero_by_leaving_out() {
    let body = json!({"v": 1, "client_id": "w", "grants": [{"id": "a"}], "leases": [{"id": "b"}], "demand": [{"count": 1}]});
    let message: Message = serde_json::from_value(body).expect("a message");
    assert_eq!(message.grants, Some(vec![GrantReport { id: "a".into(), claimed: 0, released: 0 }]));
    assert_eq!(
        message.leases,
        Some(vec![LeaseReport { id: "b".into(), drawn: 0, released: 0, stopped: false }])
    );
    assert_eq!(message.demand, [Demand { group: String::new(), count: 1, oldest_age_ms: 0 }]);
}

#[test]
fn a_reply_with_everything() {
    let grant = GrantVerdict {
        id: "c".into(),
        status: Status::Active,
        round: Some(1_764_428_002_123_456),
        group: Some("nightly".into()),
        permits: Some(3),
        claimed: Some(0),
        released: Some(0),
        claim_within_ms: Some(10_000),
    };
    let lease = LeaseVerdict {
        id: "b".into(),
        status: Status::Active,
        round: Some(1_764_427_999_123_456),
        group: Some("nightly".into()),
        permits: Some(64),
        drawn: Some(10),
        released: Some(4),
        ttl_ms: Some(1_800_000),
    };
    let reply = Reply {
        v: 1,
        round: 1_764_428_002_123_456,
        grants: vec![grant],
        leases: vec![lease],
        blocked: vec![Blocked { group: "nightly".into(), count: 2, reason: Reason::Limit }],
        contended: true,
        contended_groups: vec!["nightly".into()],
        state: "s2".into(),
        held_ms: 12,
        report_within_ms: Some(60_000),
        next_request_in_ms: 1873,
    };
    golden(
        reply,
        json!({
            "v": 1,
            "round": 1_764_428_002_123_456_u64,
            "grants": [{
                "id": "c", "round": 1_764_428_002_123_456_u64, "group": "nightly", "permits": 3, "claimed": 0,
                "released": 0, "status": "active", "claim_within_ms": 10000
            }],
            "leases": [{
                "id": "b", "round": 1_764_427_999_123_456_u64, "group": "nightly", "permits": 64, "drawn": 10,
                "released": 4, "status": "active", "ttl_ms": 1_800_000
            }],
            "blocked": [{"group": "nightly", "count": 2, "reason": "limit"}],
            "contended": true,
            "contended_groups": ["nightly"],
            "state": "s2",
            "held_ms": 12,
            "report_within_ms": 60000,
            "next_request_in_ms": 1873
        }),
    );
}

#[test]
fn a_verdict_of_an_unknown_block_has_id_and_status_only() {
    let grant = GrantVerdict {
        id: "x".into(),
        status: Status::NotFound,
        round: None,
        group: None,
        permits: None,
        claimed: None,
        released: None,
        claim_within_ms: None,
    };
    golden(grant, json!({"id": "x", "status": "not_found"}));
}

#[test]
fn statuses_and_reasons_are_spelt_in_snake_case() {
    let statuses = [
        (Status::Active, "active"),
        (Status::Expired, "expired"),
        (Status::Retired, "retired"),
        (Status::Settled, "settled"),
        (Status::NotFound, "not_found"),
    ];
    for (status, text) in statuses {
        golden(status, json!(text));
    }
    let reasons = [
        (Reason::Paused, "paused"),
        (Reason::NotPermitted, "not_permitted"),
        (Reason::LimitResolutionError, "limit_resolution_error"),
        (Reason::GroupLimit, "group_limit"),
        (Reason::Limit, "limit"),
    ];
    for (reason, text) in reasons {
        golden(reason, json!(text));
    }
}

#[test]
fn a_reply_of_a_newer_holder_can_be_read() {
    let reply: Reply = serde_json::from_value(json!({
        "v": 1,
        "round": 7,
        "grants": [{"id": "a", "status": "moonlit", "phase": 3}],
        "blocked": [{"group": "", "count": 1, "reason": "weather"}],
        "new_field": {"x": 1}
    }))
    .expect("a reply");
    assert_eq!(reply.grants[0].status, Status::Other);
    assert_eq!(reply.blocked[0].reason, Reason::Other);
    assert!(!reply.contended);
}

#[test]
fn a_problem() {
    let problem = Problem {
        kind: "about:blank".into(),
        title: "Bad Request".into(),
        status: 400,
        code: Code::InvalidRequest,
        detail: "count must be 0 to 1000000".into(),
        field: Some("/demand/0/count".into()),
        generation: None,
        request_id: Some("r1".into()),
    };
    golden(
        problem,
        json!({
            "type": "about:blank",
            "title": "Bad Request",
            "status": 400,
            "code": "invalid_request",
            "detail": "count must be 0 to 1000000",
            "field": "/demand/0/count",
            "request_id": "r1"
        }),
    );
}

#[test]
fn a_fenced_client_is_told_its_generation() {
    let problem: Problem = serde_json::from_value(json!({
        "type": "about:blank", "title": "Conflict", "status": 409, "code": "client_fenced", "detail": "-", "generation": 5
    }))
    .expect("a problem");
    assert_eq!((problem.code, problem.generation), (Code::ClientFenced, Some(5)));
    let newer: Code = serde_json::from_value(json!("moonlit")).expect("a code");
    assert_eq!(newer, Code::Other);
}

#[test]
fn a_takeover() {
    golden(
        Takeover::new(3, "5f0c", true),
        json!({"v": 1, "generation": 3, "process": "5f0c", "resume": true}),
    );
    let keys = vec![TakenOverKey { key: "account:42".into(), grants: 3, leases: 10 }];
    let fenced = vec![FencedKey { key: "account:43".into(), generation: 5 }];
    golden(
        TakenOver { v: 1, keys, fenced },
        json!({
            "v": 1,
            "keys": [{"key": "account:42", "grants": 3, "leases": 10}],
            "fenced": [{"key": "account:43", "generation": 5}]
        }),
    );
}
