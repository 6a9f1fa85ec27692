//! HTTP as bytes: what ordinary clients tidy up (`..`, `%zz`, duplicate members) reaches the holder as it is written.

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::until::within_reason;

/// A holder's HTTP interface.
#[derive(Debug, Clone)]
pub struct Api {
    address: String,
    token: Option<String>,
}

/// What it answered.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body as JSON, or as a string if it is plain text; null if there is none.
    pub body: Value,
    head: String,
}

impl Api {
    /// The interface at `http://HOST:PORT`.
    #[must_use]
    pub fn new(url: &str) -> Self {
        Self { address: url.trim_start_matches("http://").to_owned(), token: None }
    }

    /// The same, with a token in each call.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    /// A GET of a path with its query.
    pub async fn get(&self, target: &str) -> Answer {
        self.call("GET", target, &[], b"").await
    }

    /// A DELETE.
    pub async fn delete(&self, target: &str) -> Answer {
        self.call("DELETE", target, &[], b"").await
    }

    /// A PUT of a JSON text.
    pub async fn put(&self, target: &str, body: &str) -> Answer {
        self.call("PUT", target, &["content-type: application/json"], body.as_bytes()).await
    }

    /// A POST of a JSON text.
    pub async fn post(&self, target: &str, body: &str) -> Answer {
        self.call("POST", target, &["content-type: application/json"], body.as_bytes()).await
    }

    /// Any call, over a connection of its own.
    ///
    /// # Panics
    ///
    /// When the answer is not HTTP, or is an error without the shape of one.
    pub async fn call(&self, method: &str, target: &str, headers: &[&str], body: &[u8]) -> Answer {
        let head: String = headers.iter().flat_map(|header| ["\r\n", header]).collect();
        let token = self.token.as_ref().map(|token| format!("\r\nauthorization: Bearer {token}"));
        let head = format!(
            "{method} {target} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: {}{head}{}\r\n\r\n",
            self.address,
            body.len(),
            token.unwrap_or_default()
        );
        let whole = within_reason("an answer", async {
            let mut stream = TcpStream::connect(&self.address).await.expect("a connection");
            stream.write_all(head.as_bytes()).await.expect("the head is sent");
            stream.write_all(body).await.expect("the body is sent");
            let mut whole = Vec::new();
            stream.read_to_end(&mut whole).await.expect("an answer");
            whole
        })
        .await;
        Answer::read(&String::from_utf8(whole).expect("an answer in UTF-8"))
    }
}

impl Answer {
    fn read(whole: &str) -> Self {
        let (head, body) = whole.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no HTTP: {whole}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let head = head.to_lowercase();
        let body = if body.is_empty() {
            Value::Null
        } else if head.contains("content-type: text/plain") {
            Value::String(body.to_owned())
        } else {
            serde_json::from_str(body).expect("a JSON body")
        };
        let answer = Self { status: status.expect("a status"), body, head };
        if answer.status >= 400 && answer.body != Value::Null {
            assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{whole}");
            assert_eq!(answer.body["status"], answer.status, "{whole}");
            assert_eq!(answer.body["request_id"].as_str(), answer.header("x-request-id"), "{whole}");
        }
        answer
    }

    /// The value of a header, in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1);
        lines
            .filter_map(|line| line.split_once(": "))
            .find(|(found, _)| *found == name)
            .map(|(_, value)| value)
    }

    /// Status and code of a problem; the code of a success is empty.
    #[must_use]
    pub fn code(&self) -> (u16, &str) {
        (self.status, self.body["code"].as_str().unwrap_or_default())
    }

    /// Status and field of a problem.
    #[must_use]
    pub fn field(&self) -> (u16, &str) {
        (self.status, self.body["field"].as_str().unwrap_or("no field"))
    }
}
