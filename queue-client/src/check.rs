//! Whether a client can do its work, asked once: for the start of an application.
//!
//! Why: `acquire` waits through every outage, and to a client a wrong address is one. What is asked is a message of a
//! client that has nothing, under one name for all: so it touches no permit, and a key remembers at most one such client.

use std::time::Duration;

use queue_wire::{Code, KEY_MAX_BYTES, Message};
use tokio::time::timeout;

use crate::client::QueueClient;
use crate::error::CheckError;
use crate::hint::explained;
use crate::transport::{CallError, Endpoint};

const LIMIT: Duration = Duration::from_secs(15);
/// Who asks.
const CLIENT: &str = "queue-client-check";
/// In place of a semaphore's key, for a client that has none yet.
const NO_KEY: &str = "queue-client/check";

impl QueueClient {
    /// Asks a holder once whether this client can do its work: that it can be reached, by TLS where that is used, and
    /// accepts the token, and that a policy covers the key of each [`Semaphore`](crate::Semaphore) that exists now. For the
    /// start of an application, since [`acquire`](crate::Semaphore::acquire) waits as long as no holder answers.
    ///
    /// # Errors
    ///
    /// What is wrong, and what to do about it; see [`CheckError`]. At most 15 s for each key.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it asks, and that is all.
    pub async fn check(&self) -> Result<(), CheckError> {
        if !self.0.is_original() {
            return Err(CheckError::Forked);
        }
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(CheckError::NoRuntime);
        }
        let keys: Vec<String> = self.0.in_use().iter().map(|shared| shared.key.clone()).collect();
        if keys.is_empty() {
            return match self.ask(NO_KEY).await {
                // The token is known, but not for each key; or no policy covers this one.
                Err(CallError::NotFound(_)) => Ok(()),
                Err(CallError::Refused(problem)) if problem.code == Code::Forbidden => Ok(()),
                answer => judged(NO_KEY, answer),
            };
        }
        for key in keys {
            queue_wire::check_text(&key, 1, KEY_MAX_BYTES).map_err(CheckError::InvalidKey)?;
            let answer = self.ask(&key).await;
            judged(&key, answer)?;
        }
        Ok(())
    }

    async fn ask(&self, key: &str) -> Result<(), CallError> {
        match timeout(LIMIT, self.0.transport.call(key, Endpoint::Sync, &Message::new(CLIENT))).await {
            Ok(answer) => answer.map(drop),
            Err(_) => Err(CallError::Unreachable(format!("no answer in {} s", LIMIT.as_secs()).into())),
        }
    }
}

fn judged(key: &str, answer: Result<(), CallError>) -> Result<(), CheckError> {
    match answer {
        Ok(()) | Err(CallError::Superseded | CallError::Fenced { .. }) => Ok(()),
        Err(CallError::NotFound(_)) => Err(CheckError::SemaphoreNotFound { key: key.to_owned() }),
        Err(CallError::Refused(problem)) => Err(CheckError::Refused { key: key.to_owned(), problem }),
        Err(error) => Err(CheckError::Unreachable { error: explained(&error) }),
    }
}
