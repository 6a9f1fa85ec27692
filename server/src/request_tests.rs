use super::{Invalid, request, sync};
use queue_wire::Demand;

/// The field at fault, or the kind of fault where there is none.
fn fault(body: &str) -> String {
    match request(body.as_bytes()) {
        Ok(message) => panic!("accepted {body:.200}: {message:?}"),
        Err(Invalid::Json(_)) => "json".to_owned(),
        Err(Invalid::Version) => "version".to_owned(),
        Err(Invalid::Field { field, detail }) => {
            assert!(!detail.is_empty() && !detail.contains(" at line "), "{detail}");
            field
        }
    }
}

/// A body with one more member.
fn with(member: &str) -> String {
    format!(r#"{{"v":1,"client_id":"w",{member}}}"#)
}

const NUMBERS: [(&str, u64); 10] = [
    (r#""generation":N"#, (1 << 53) - 1),
    (r#""call":N"#, (1 << 53) - 1),
    (r#""seen":N"#, (1 << 53) - 1),
    (r#""wait_ms":N"#, 60_000),
    (r#""demand":[{"group":"g","count":N}]"#, 1_000_000),
    (r#""demand":[{"group":"g","count":1,"oldest_age_ms":N}]"#, 10 * 365 * 86_400_000),
    (r#""grants":[{"id":"a","claimed":N}]"#, 1_000_000),
    (r#""grants":[{"id":"a","released":N}]"#, 1_000_000),
    (r#""leases":[{"id":"a","drawn":N}]"#, 1_000_000),
    (r#""leases":[{"id":"a","released":N}]"#, 1_000_000),
];

const TEXTS: [(&str, &str, usize, usize); 6] = [
    (r#"{"v":1,"client_id":T}"#, "/client_id", 1, 256),
    (r#"{"v":1,"client_id":"w","process":T}"#, "/process", 1, 64),
    (r#"{"v":1,"client_id":"w","known_state":T}"#, "/known_state", 0, 64),
    (r#"{"v":1,"client_id":"w","demand":[{"group":T,"count":1}]}"#, "/demand/0/group", 0, 256),
    (r#"{"v":1,"client_id":"w","grants":[{"id":T}]}"#, "/grants/0/id", 1, 64),
    (r#"{"v":1,"client_id":"w","leases":[{"id":T}]}"#, "/leases/0/id", 1, 64),
];

fn place_of(template: &str) -> String {
    let member = template.split('"').nth(1).unwrap_or_default();
    let inner = template.split('"').rev().nth(1).unwrap_or_default();
    if member == inner { format!("/{member}") } else { format!("/{member}/0/{inner}") }
}

#[test]
fn every_number_is_an_integer_in_its_range() {
    for (template, max) in NUMBERS {
        let place = place_of(template);
        for good in [0, 1, max] {
            let body =
                with(&template.replace('N', &good.to_string())).replace(r#""w""#, r#""w","process":"p""#);
            assert!(request(body.as_bytes()).is_ok(), "{body}");
        }
        let over = (max + 1).to_string();
        for bad in [
            "-1",
            "-0",
            "1.0",
            "1.5",
            "1e3",
            "1E0",
            r#""5""#,
            "null",
            "true",
            "[]",
            "{}",
            &over,
            "9007199254740993",
            "9223372036854775807",
            "9223372036854775808",
            "18446744073709551616",
            "-9223372036854775809",
            "1e400",
        ] {
            assert_eq!(fault(&with(&template.replace('N', bad))), place, "{template} {bad}");
        }
    }
}

#[test]
fn every_text_is_of_its_length_and_without_nul() {
    for (template, place, min, max) in TEXTS {
        let body = |text: &str| template.replace('T', text);
        for good in ["a".repeat(max), "é".repeat(max / 2), " \u{feff}\u{200f} ".to_owned(), "../x".to_owned()]
        {
            assert!(request(body(&format!("\"{good}\"")).as_bytes()).is_ok(), "{template} {good}");
        }
        for bad in [
            format!("\"{}\"", "a".repeat(max + 1)),
            format!("\"{}\"", "é".repeat(max / 2 + 1)),
            r#""a\u0000b""#.to_owned(),
            r#""\ud800""#.to_owned(),
            r#""\ud800x""#.to_owned(),
            r#""\ud800\u0041""#.to_owned(),
            r#""\udc00""#.to_owned(),
            r#"".""#.to_owned(),
            r#""..""#.to_owned(),
            "5".to_owned(),
            "true".to_owned(),
            "[]".to_owned(),
        ] {
            assert_eq!(fault(&body(&bad)), place, "{template} {bad:.40}");
        }
        assert_eq!(request(body("\"\"").as_bytes()).is_ok(), min == 0, "{template}");
        let nullable = ["/process", "/known_state"].contains(&place);
        assert_eq!(request(body("null").as_bytes()).is_ok(), nullable, "{template}");
    }
}

#[test]
fn faults_of_grammar_are_invalid_json() {
    let deep = format!(r#"{{"v":1,"client_id":"w","x":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    for body in [
        "",
        " ",
        "{",
        "nul",
        r#"{"v":1,"client_id":"w",}"#,
        r#"{"v":1,"client_id":"w"}}"#,
        r#"{"v":1 "client_id":"w"}"#,
        "\u{feff}{}",
        r#"{'v':1}"#,
        r#"{"v":01,"client_id":"w"}"#,
        r#"{"v":+1,"client_id":"w"}"#,
        r#"{"v":NaN,"client_id":"w"}"#,
        "{\"v\":1,\"client_id\":\"a\nb\"}",
        &deep,
    ] {
        assert_eq!(fault(body), "json", "{body:.60}");
    }
    assert!(matches!(request(b"{\"v\":1,\"client_id\":\"\xff\"}"), Err(Invalid::Json(_))));
}

#[test]
fn the_version_comes_first() {
    for v in ["0", "2", "-1", "9223372036854775807"] {
        assert_eq!(fault(&format!(r#"{{"v":{v}}}"#)), "version");
        assert_eq!(fault(&format!(r#"{{"client_id":5,"client_id":1e400,"v":{v}}}"#)), "/client_id");
        assert_eq!(fault(&format!(r#"{{"v":{v},"client_id":5,"client_id":6}}"#)), "version");
    }
    for v in ["1.0", "\"1\"", "null", "true", "[]", "{}", "1e400"] {
        assert_eq!(fault(&format!(r#"{{"v":{v},"client_id":"w"}}"#)), "/v", "{v}");
    }
    assert_eq!(fault(r#"{"client_id":"w"}"#), "/v");
    assert_eq!(fault(r#"{"v":1}"#), "/client_id");
}

#[test]
fn duplicate_members_are_refused_at_every_depth() {
    assert_eq!(fault(r#"{"v":1,"client_id":"w","client_id":"w"}"#), "/client_id");
    assert_eq!(fault(&with(r#""demand":[{"count":1,"group":"a","count":2}]"#)), "/demand/0/count");
    assert_eq!(fault(&with(r#""unknown":{"a":[{"b/~":1,"b/~":1}]}"#)), "/unknown/a/0/b~1~0");
}

#[test]
fn shapes_are_those_of_the_protocol() {
    for body in ["[]", "5", "null", "\"x\"", r#"[1,"w"]"#] {
        assert_eq!(fault(body), "", "{body}");
    }
    assert_eq!(fault(&with(r#""demand":[["g",1]]"#)), "/demand/0");
    assert_eq!(fault(&with(r#""grants":[{"id":"a"},["a",1,1]]"#)), "/grants/1");
    assert_eq!(fault(&with(r#""leases":[null]"#)), "/leases/0");
    for list in ["demand", "grants", "leases"] {
        assert_eq!(fault(&with(&format!(r#""{list}":null"#))), format!("/{list}"));
        assert_eq!(fault(&with(&format!(r#""{list}":{{}}"#))), format!("/{list}"));
    }
    for flag in ["resume", "all"] {
        assert_eq!(fault(&with(&format!(r#""{flag}":1"#))), format!("/{flag}"));
        assert_eq!(fault(&with(&format!(r#""{flag}":null"#))), format!("/{flag}"));
    }
    assert_eq!(fault(&with(r#""demand":[{"group":"g"}]"#)), "/demand/0/count");
    assert_eq!(fault(&with(r#""grants":[{"claimed":1}]"#)), "/grants/0/id");
    assert!(request(with(r#""unknown":{"x":[[1.5,"\u0000"]]}"#).as_bytes()).is_ok());
}

#[test]
fn rules_between_fields() {
    assert_eq!(fault(&with(r#""generation":1"#)), "/process");
    assert_eq!(fault(&with(r#""generation":1,"process":null"#)), "/process");
    assert_eq!(fault(&with(r#""all":true,"leases":[]"#)), "/grants");
    assert_eq!(fault(&with(r#""all":true,"grants":[]"#)), "/leases");
    assert!(request(with(r#""all":true,"grants":[],"leases":[]"#).as_bytes()).is_ok());
}

#[test]
fn lists_have_a_size() {
    let list = |entry: &str, n: usize| vec![entry; n].join(",");
    let reports = |grants, leases| {
        let (a, b) = (list(r#"{"id":"a"}"#, grants), list(r#"{"id":"a"}"#, leases));
        with(&format!(r#""grants":[{a}],"leases":[{b}]"#))
    };
    assert!(request(reports(4_000, 6_000).as_bytes()).is_ok());
    assert_eq!(fault(&reports(4_000, 6_001)), "/leases");
    assert_eq!(fault(&reports(10_001, 0)), "/grants");
    let demand = |n| with(&format!(r#""demand":[{}]"#, list(r#"{"count":1}"#, n)));
    assert!(request(demand(1_000).as_bytes()).is_ok());
    assert_eq!(fault(&demand(1_001)), "/demand");
}

#[test]
fn a_group_named_twice_is_one_entry() {
    let body = with(
        r#""demand":[{"group":"a","count":1,"oldest_age_ms":5},{"group":"b","count":1},
           {"group":"a","count":2,"oldest_age_ms":9}]"#,
    );
    let message = request(body.as_bytes()).expect("a good body");
    let entry = |group: &str, count, oldest_age_ms| Demand { group: group.to_owned(), count, oldest_age_ms };
    assert_eq!(message.demand, [entry("a", 3, 9), entry("b", 1, 0)]);
    let body = with(r#""demand":[{"group":"a","count":1000000},{"group":"a","count":1}]"#);
    assert_eq!(fault(&body), "/demand/1/count");
}

#[test]
fn a_sync_ignores_demand() {
    let message = sync(with(r#""demand":[{"count":1}],"seen":7"#).as_bytes()).expect("a good body");
    assert_eq!((message.demand.len(), message.seen), (0, 7));
}
