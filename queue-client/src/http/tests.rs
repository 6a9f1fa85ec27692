//! Against a holder of a few lines: what goes over the wire, and which holder is asked.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use queue_wire::{Code, Reply};

use super::*;

/// Answers each connection once with `response`, and does not understand HTTP/2; gives the URL and the first lines of
/// what it was asked.
async fn holder_that_says(response: String) -> (String, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (asked, lines) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let Some(read) = read_call(&mut stream).await else { continue };
            stream.write_all(response.as_bytes()).await.unwrap();
            asked.send(read).unwrap();
        }
    });
    (url, lines)
}

/// A call of HTTP/1.1 with its body.
async fn read_call(stream: &mut TcpStream) -> Option<String> {
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains("\"v\":1") {
        if stream.read_buf(&mut read).await.unwrap() == 0 {
            return None;
        }
        if read.starts_with(b"PRI * HTTP/2.0") {
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n").await.unwrap();
            return None;
        }
    }
    Some(String::from_utf8(read).unwrap())
}

fn response(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}

const PROBLEM: &str = "content-type: application/problem+json\r\n";

fn problem(status: u16, code: &str) -> String {
    format!(
        r#"{{"type":"about:blank","title":"t","status":{status},"code":"{code}","detail":"d","generation":4}}"#
    )
}

async fn ask(urls: &[String]) -> Result<Reply, CallError> {
    let transport = HttpTransport::new(urls, &Credentials::default().token("secret")).unwrap();
    transport.call("account:42/ä b", Endpoint::Sync, &Message::new("w")).await
}

#[tokio::test]
async fn a_key_is_one_segment_and_the_token_goes_with_it() {
    let (url, mut asked) = holder_that_says(response("200 OK", "", r#"{"v":1,"round":7,"new":[]}"#)).await;
    assert_eq!(ask(&[format!("{url}/")]).await.unwrap().round, 7);
    let asked = asked.recv().await.unwrap();
    assert!(asked.starts_with("POST /v1/semaphores/account%3A42%2F%C3%A4%20b/sync HTTP/1.1\r\n"), "{asked}");
    assert!(asked.contains("authorization: Bearer secret"), "{asked}");
}

#[tokio::test]
async fn a_token_that_is_not_accepted_is_read_again() {
    let file = std::env::temp_dir().join(format!("queue-client-token-{:032x}", rand::random::<u128>()));
    std::fs::write(&file, "# the old one\nold a:*\n").unwrap();
    let (url, mut asked) =
        holder_that_says(response("401 Unauthorized", PROBLEM, &problem(401, "unauthenticated"))).await;
    let transport = HttpTransport::new(&[url], &Credentials::default().token_file(&file)).unwrap();
    let message = Message::new("w");
    let refused = async || match transport.call("k", Endpoint::Sync, &message).await {
        Err(CallError::Refused(problem)) => problem.code,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused().await, Code::Unauthenticated);
    assert!(asked.recv().await.unwrap().contains("authorization: Bearer old\r\n"));
    std::fs::write(&file, "new\n").unwrap();
    assert_eq!(refused().await, Code::Unauthenticated);
    for token in ["old", "new"] {
        assert!(asked.recv().await.unwrap().contains(&format!("authorization: Bearer {token}\r\n")));
    }
    std::fs::remove_file(&file).unwrap();
    assert_eq!(refused().await, Code::Unauthenticated);
    assert!(asked.recv().await.unwrap().contains("authorization: Bearer new\r\n"));
    assert!(asked.try_recv().is_err(), "nothing is said twice with the same token");
}

#[tokio::test]
async fn another_holder_answers_when_one_is_away_or_stopping() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone_url = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let stopping = response(
        "503 Service Unavailable",
        &format!("{PROBLEM}retry-after: 3\r\n"),
        &problem(503, "shutting_down"),
    );
    let (stopping, _asked) = holder_that_says(stopping).await;
    let (good, _asked_too) = holder_that_says(response("200 OK", "", r#"{"v":1,"round":7}"#)).await;
    assert_eq!(ask(&[gone_url.clone(), stopping.clone(), good]).await.unwrap().round, 7);

    let error = ask(&[gone_url.clone(), stopping]).await.unwrap_err();
    let CallError::RetryLater { after, .. } = error else { panic!("{error:?}") };
    assert_eq!(after, Some(Duration::from_secs(3)));
    assert!(matches!(ask(&[gone_url]).await.unwrap_err(), CallError::Unreachable(_)));
}

#[tokio::test]
async fn each_refusal_is_told_apart() {
    let refusal = async |status: u16, code: &str| {
        let (url, _asked) =
            holder_that_says(response(&format!("{status} X"), PROBLEM, &problem(status, code))).await;
        ask(&[url]).await.unwrap_err()
    };
    assert!(matches!(refusal(404, "semaphore_not_found").await, CallError::NotFound(_)));
    assert!(matches!(refusal(404, "not_found").await, CallError::Refused(_)));
    assert!(matches!(refusal(400, "invalid_request").await, CallError::Refused(_)));
    assert!(matches!(refusal(403, "forbidden").await, CallError::Refused(_)));
    assert!(matches!(refusal(409, "superseded").await, CallError::Superseded));
    assert!(matches!(refusal(409, "client_fenced").await, CallError::Fenced { generation: Some(4) }));
    assert!(matches!(refusal(429, "too_many_waiting").await, CallError::RetryLater { .. }));
    assert!(matches!(refusal(500, "internal").await, CallError::RetryLater { .. }));
}

/// O-18: what is no answer of a holder says nothing about the message.
#[tokio::test]
async fn a_foreign_answer_is_told_apart_from_a_refusal() {
    let html = "content-type: text/html\r\n";
    let problem_of_another = r#"{"type":"about:blank","title":"t","status":404,"detail":"no upstream"}"#;
    let foreign = [
        response("404 Not Found", html, "<html>no such host</html>"),
        response("404 Not Found", "content-type: application/json\r\n", &problem(404, "semaphore_not_found")),
        response("404 Not Found", PROBLEM, problem_of_another),
        response("404 Not Found", PROBLEM, &problem(404, "code_of_somebody")),
        response("421 Misdirected Request", "", ""),
        response("502 Bad Gateway", html, "<html>"),
        response("200 OK", html, "<html>Log in</html>"),
        response("200 OK", "content-encoding: gzip\r\n", "\u{1f}\u{8b}"),
        response("204 No Content", "", ""),
        response("302 Found", "location: http://elsewhere/login\r\n", ""),
    ];
    for answer in foreign {
        let (url, _asked) = holder_that_says(answer.clone()).await;
        let error = ask(&[url]).await.unwrap_err();
        assert!(matches!(error, CallError::Foreign { .. }), "{error:?} for {answer}");
        let (foreign, _asked) = holder_that_says(answer).await;
        let (good, _asked_too) = holder_that_says(response("200 OK", "", r#"{"v":1,"round":7}"#)).await;
        assert_eq!(ask(&[foreign, good]).await.unwrap().round, 7, "another address is asked");
    }
}

/// O-18: a redirect that lasts is an error that says where it leads.
#[tokio::test]
async fn a_permanent_redirect_is_refused_with_its_target() {
    for status in ["301 Moved Permanently", "308 Permanent Redirect"] {
        let (url, _asked) =
            holder_that_says(response(status, "location: https://holders.example\r\n", "")).await;
        let CallError::Refused(problem) = ask(&[url]).await.unwrap_err() else { panic!("{status}") };
        assert!(problem.detail.contains("permanently to \"https://holders.example\""), "{}", problem.detail);
    }
}

/// O-12: an address that takes calls and never answers them is left for another one within seconds.
#[tokio::test]
async fn a_call_that_waits_where_nothing_lives_ends() {
    let frozen = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let frozen = format!("http://{}", frozen.local_addr().unwrap());
    let (good, _asked) = holder_that_says(response("200 OK", "", r#"{"v":1,"round":7}"#)).await;
    let transport = HttpTransport::new(&[frozen, good], &Credentials::default()).unwrap();
    let waiting = Message { wait_ms: 50_000, ..Message::new("w") };
    let error = transport.call("k", Endpoint::Request, &waiting).await.unwrap_err();
    assert!(matches!(error, CallError::Unreachable(_)), "{error:?}");
    assert_eq!(transport.call("k", Endpoint::Request, &waiting).await.unwrap().round, 7);
}

/// O-10: a sync that is said again while the first one hangs goes to the other address.
#[tokio::test]
async fn what_is_said_again_meets_another_address() {
    let frozen = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let frozen = format!("http://{}", frozen.local_addr().unwrap());
    let (good, _asked) = holder_that_says(response("200 OK", "", r#"{"v":1,"round":7}"#)).await;
    let transport = HttpTransport::new(&[frozen, good], &Credentials::default()).unwrap();
    let message = Message::new("w");
    let mut hangs = transport.call("k", Endpoint::Sync, &message);
    let again = async {
        sleep(Duration::from_millis(50)).await; // the first one is under way
        transport.call("k", Endpoint::Sync, &message).await
    };
    tokio::select! {
        biased;
        ended = &mut hangs => panic!("{ended:?}"),
        again = again => assert_eq!(again.unwrap().round, 7),
    }
}

#[test]
fn what_is_no_holder_is_said_when_the_client_is_built() {
    let none = Credentials::default();
    let build = |url: &str| HttpTransport::new(&[url], &none).unwrap_err().to_string();
    assert!(build("holder:7432").contains("write http://holder:7432"));
    assert!(matches!(HttpTransport::new::<&str>(&[], &none), Err(BuildError::NoHolder)));
    for connections in [0, 2, 1_001] {
        let options = Options { connections, ..Options::default() };
        let error = HttpTransport::with(&["http://holder"], &none, options).unwrap_err();
        assert!(error.to_string().contains("must be 3 to 1000"), "{error}");
    }
}

#[tokio::test]
async fn a_takeover_names_the_client_in_its_path() {
    let taken =
        r#"{"v":1,"keys":[{"key":"k","grants":3,"leases":10}],"fenced":[{"key":"l","generation":5}]}"#;
    let (url, mut asked) = holder_that_says(response("200 OK", "", taken)).await;
    let transport = HttpTransport::new(&[url], &Credentials::default()).unwrap();
    let taken = transport.take_over("worker 7", &Takeover::new(4, "p", true)).await.unwrap();
    assert_eq!((taken.keys[0].key.as_str(), taken.fenced[0].generation), ("k", 5));
    let asked = asked.recv().await.unwrap();
    assert!(asked.starts_with("POST /v1/clients/worker%207/takeover HTTP/1.1"), "{asked}");
}
