//! A permit on paper: what an application stores with a job that goes on without the process.
//!
//! Authoritative for the reference's form, which later versions read. Not authoritative for whether it counts still.

use serde::{Deserialize, Serialize};

const VERSION: u64 = 1;

/// A permit that no process has to hold: the reference of a job that outlives its process. Made by
/// [`Permit::detach`](crate::Permit::detach).
///
/// Store it with the job, by any serde format, before the job begins; small, of plain text and stable across versions of
/// this crate. It stays counted until it is made a permit again, by [`QueueClient::resume`](crate::QueueClient::resume),
/// and that permit is dropped. After a restart hand those of the jobs that still run to
/// [`Builder::resume`](crate::Builder::resume): whatever is not among them is released.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct DetachedPermit {
    pub(crate) key: String,
    pub(crate) client_id: String,
    pub(crate) group: String,
    pub(crate) block: String,
    /// Its name, unique.
    pub(crate) permit: String,
}

impl DetachedPermit {
    /// The semaphore's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The item's group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Whose permit it is: only a process of this `client_id` can resume it.
    pub fn client_id(&self) -> &str {
        &self.client_id
    }
}

#[derive(Serialize, Deserialize)]
struct Stored {
    v: u64,
    key: String,
    client_id: String,
    group: String,
    block: String,
    permit: String,
}

impl From<DetachedPermit> for Stored {
    fn from(detached: DetachedPermit) -> Self {
        let DetachedPermit { key, client_id, group, block, permit } = detached;
        Self { v: VERSION, key, client_id, group, block, permit }
    }
}

impl TryFrom<Stored> for DetachedPermit {
    type Error = String;

    fn try_from(stored: Stored) -> Result<Self, String> {
        let Stored { v, key, client_id, group, block, permit } = stored;
        if v != VERSION {
            return Err(format!(
                "a detached permit of version {v}: this queue-client reads version {VERSION}"
            ));
        }
        Ok(Self { key, client_id, group, block, permit })
    }
}

#[cfg(test)]
mod tests {
    use super::DetachedPermit;

    const STORED: &str =
        r#"{"v":1,"key":"account:42","client_id":"worker-7","group":"g","block":"9-1","permit":"ab"}"#;

    #[test]
    fn its_form_is_stable() {
        let detached: DetachedPermit = serde_json::from_str(STORED).unwrap();
        assert_eq!((detached.key(), detached.group(), detached.client_id()), ("account:42", "g", "worker-7"));
        assert_eq!(serde_json::to_string(&detached).unwrap(), STORED);
    }

    #[test]
    fn another_version_is_refused() {
        let error =
            serde_json::from_str::<DetachedPermit>(&STORED.replace("\"v\":1", "\"v\":2")).unwrap_err();
        assert!(error.to_string().contains("version 2"), "{error}");
    }
}
