//! What web pages can do to a holder that wants no token: nothing, although the browser on its machine is a caller.

use std::net::SocketAddr;

use pgsemaphore_tests::{Db, InProcess, Serve, client};
use reqwest::{Client, Method, Response};
use serde_json::Value;

const PATHS: [&str; 5] = ["/v1/semaphores", "/healthz", "/metrics", "/openapi.json", "/nothing"];
const ASK: &str = r#"{"v":1,"client_id":"w","demand":[{"count":1}]}"#;

fn address(url: &str) -> SocketAddr {
    url.trim_start_matches("http://").parse().expect("an address")
}

/// A browser in which `name` resolves to the holder.
fn rebound(name: &str, holder: SocketAddr, http2: bool) -> Client {
    let _provider = client();
    let browser = Client::builder().resolve(name, holder).no_proxy();
    let browser = if http2 { browser.http2_prior_knowledge() } else { browser };
    browser.build().expect("an HTTP client")
}

async fn get(name: &str, holder: SocketAddr, http2: bool, path: &str) -> Response {
    let url = format!("http://{name}:{}{path}", holder.port());
    rebound(name, holder, http2).get(url).send().await.expect("an answer")
}

#[tokio::test]
async fn a_name_that_was_rebound_to_loopback_is_not_answered() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    for http2 in [false, true] {
        for path in PATHS {
            let refused = get("rebound.example", address(holder.url()), http2, path).await;
            assert_eq!(refused.status(), 403, "{path}");
            let problem: Value = refused.json().await.expect("a problem");
            assert_eq!(problem["code"], "forbidden", "{problem}");
            let detail = problem["detail"].as_str().unwrap_or_default();
            assert!(detail.contains("localhost") && detail.contains("--insecure"), "{detail}");
        }
        for name in ["localhost", "app.localhost"] {
            let answered = get(name, address(holder.url()), http2, "/v1/semaphores").await;
            assert_eq!(answered.status(), 200, "{name}");
        }
    }
}

/// A `fetch` without a content type needs no preflight, and the holder reads its body.
async fn post(holder: &str, headers: &[(&str, &str)]) -> Response {
    let post = client().request(Method::POST, format!("{holder}/v1/semaphores/k/request")).body(ASK);
    let post = headers.iter().fold(post, |post, (name, value)| post.header(*name, *value));
    post.send().await.expect("an answer")
}

#[tokio::test]
async fn a_write_of_a_page_of_another_site_is_refused() {
    let db = Db::new().await;
    let holder = InProcess::start(db.url()).await;
    holder.policy("*", serde_json::json!({"limit": 100, "round_wait_ms": 0})).await;
    for headers in [
        [("origin", "https://evil.example")],
        [("origin", "null")],
        [("sec-fetch-site", "cross-site")],
        [("sec-fetch-site", "same-site")],
    ] {
        let refused = post(holder.url(), &headers).await;
        assert_eq!(refused.status(), 403, "{headers:?}");
        assert!(refused.text().await.expect("a problem").contains("Sec-Fetch-Site"));
    }
    let query = sqlx::query_scalar("SELECT count(*) FROM pgsemaphore_data.semaphores");
    let keys: i64 = query.fetch_one(db.pool()).await.expect("the keys");
    assert_eq!(keys, 0, "nobody was heard");
    let own = [("origin", holder.url()), ("sec-fetch-site", "same-origin")];
    assert_eq!(post(holder.url(), &own).await.status(), 200);
    assert_eq!(post(holder.url(), &[]).await.status(), 200, "programs send neither");
    let link = client().get(format!("{}/metrics", holder.url())).header("sec-fetch-site", "cross-site");
    assert_eq!(link.send().await.expect("an answer").status(), 200, "a link may lead here");
}

#[tokio::test]
async fn with_tokens_or_at_ones_own_risk_any_name_is_answered() {
    let db = Db::new().await;
    let token = [("PGSEMAPHORE_CLIENT_TOKEN", "t0ken")];
    let with_tokens = Serve::start_in(&["--database-url", db.url()], &token).await;
    let refused = get("holder.example", address(with_tokens.url()), false, "/v1/semaphores").await;
    assert_eq!(refused.status(), 401, "a page does not know the token");
    assert_eq!(get("holder.example", address(with_tokens.url()), false, "/healthz").await.status(), 200);

    let insecure = Serve::start_with(db.url(), &["--insecure"]).await;
    let answered = get("holder.example", address(insecure.url()), true, "/v1/semaphores").await;
    assert_eq!(answered.status(), 200);
    assert_eq!(post(insecure.url(), &[("origin", "https://evil.example")]).await.status(), 403);
}
