//! What the proxy recognises in a stream of bytes, however it is cut into pieces.

/// Looks for a pattern across pieces.
#[derive(Debug, Default)]
pub(super) struct Scan {
    tail: Vec<u8>,
}

impl Scan {
    /// Whether `bytes` complete the pattern.
    pub(super) fn finds(&mut self, pattern: &[u8], bytes: &[u8]) -> bool {
        self.tail.extend_from_slice(bytes);
        let found = self.tail.windows(pattern.len()).any(|window| window == pattern);
        let keep = if found { 0 } else { self.tail.len().min(pattern.len() - 1) };
        self.tail.drain(..self.tail.len() - keep);
        found
    }
}

/// Follows the messages of a PostgreSQL server; of other streams it makes nothing.
#[derive(Debug, Default)]
pub(super) struct PgFrames {
    started: bool,
    head: Vec<u8>,
    /// Bytes of the current message that are still to come; the last one of a `ReadyForQuery` is its status.
    left: usize,
}

/// Messages that ended in some bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// `ReadyForQuery`.
    pub(super) ready: u64,
    /// Of those, how many within a transaction.
    pub(super) in_transaction: u64,
}

const HEAD: usize = 5;

impl PgFrames {
    pub(super) fn count_ready(&mut self, bytes: &[u8]) -> Seen {
        let mut seen = Seen::default();
        for byte in bytes {
            if !std::mem::replace(&mut self.started, true) && matches!(byte, b'N' | b'S') {
                continue; // the answer to "may we speak TLS?", which is no message
            }
            if self.left == 0 {
                self.head.push(*byte);
                if let [_, length @ ..] = &self.head[..]
                    && let Ok(length) = <[u8; 4]>::try_from(length)
                {
                    self.left = (u32::from_be_bytes(length) as usize).saturating_sub(4);
                    if self.left == 0 {
                        self.head.clear();
                    }
                }
                continue;
            }
            self.left -= 1;
            if self.left == 0 {
                if self.head.len() == HEAD && self.head[0] == b'Z' {
                    seen.ready += 1;
                    seen.in_transaction += u64::from(*byte == b'T');
                }
                self.head.clear();
            }
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_found_across_pieces_and_once() {
        let mut scan = Scan::default();
        assert!(!scan.finds(b"COMMIT", b"xxCO"));
        assert!(!scan.finds(b"COMMIT", b"MM"));
        assert!(scan.finds(b"COMMIT", b"ITyy"));
        assert!(!scan.finds(b"COMMIT", b"COMM"));
    }

    #[test]
    fn ready_messages_are_counted_across_pieces() {
        let stream = b"NR\0\0\0\x08\0\0\0\0Z\0\0\0\x05I1\0\0\0\x04D\0\0\0\x06ZZZ\0\0\0\x05T";
        for size in 1..stream.len() {
            let mut frames = PgFrames::default();
            let mut total = Seen::default();
            for piece in stream.chunks(size) {
                let seen = frames.count_ready(piece);
                total.ready += seen.ready;
                total.in_transaction += seen.in_transaction;
            }
            assert_eq!(total, Seen { ready: 2, in_transaction: 1 }, "pieces of {size}");
        }
    }
}
