//! Any bytes as the body of a message: refused, or read as a message that is read the same again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pgsemaphore::request::{Invalid, request, sync};
use queue_wire::{Problem, Reply};

fuzz_target!(|body: &[u8]| {
    match request(body) {
        Ok(message) => {
            let written = serde_json::to_vec(&message).expect("a message is JSON");
            assert_eq!(request(&written).expect("what was read can be written"), message);
            let synced = sync(body).expect("a request is a sync too");
            assert!(synced.demand.is_empty());
        }
        Err(refused) => {
            assert_eq!(sync(body), Err(refused.clone()));
            if let Invalid::Field { field, .. } = refused {
                assert!(field.is_empty() || field.starts_with('/'), "{field}");
            }
        }
    }
    // What a client reads.
    let _ = serde_json::from_slice::<Reply>(body);
    let _ = serde_json::from_slice::<Problem>(body);
});
