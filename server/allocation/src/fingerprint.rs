//! What a client's `state` is made of: a number that differs when something the client must hear of differs.
//!
//! A pure function of what is stored, the same in every holder and every version that keeps this file: FNV-1a, 64 bits.
//! Fingerprints of blocks are added up, so that one that comes or goes costs one addition. So each is mixed until every
//! bit of it depends on all of the block: of two hashes that differ in their last bytes only, what one gains the other
//! may lose, and two leases that are retired together would leave the sum as it was.

use crate::names::Micros;
use crate::state::{Block, Provisioning, Status};

struct Fnv(u64);

impl Fnv {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(self, bytes: &[u8]) -> Self {
        let hash =
            bytes.iter().fold(self.0, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        Self(hash)
    }

    /// The hash, mixed as MurmurHash3 ends: a sum of such is no more like another than random numbers are.
    fn mixed(self) -> u64 {
        let hash = (self.0 ^ (self.0 >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        hash ^ (hash >> 33)
    }
}

/// The fingerprint of a block: of its id and status.
pub fn of_block(block: &Block) -> u64 {
    let status = match block.status {
        Status::Active => b'a',
        Status::Expired => b'e',
        Status::Retired => b'r',
    };
    Fnv::new().add(&block.id.round.to_be_bytes()).add(&block.id.slot.to_be_bytes()).add(&[status]).mixed()
}

/// The state of a client: its open blocks, what is contended, how leases are provisioned, and how soon it has to be
/// heard again.
pub(crate) fn of_client<'a>(
    open_blocks: u64,
    contended: bool,
    contended_groups: impl Iterator<Item = &'a str>,
    provisioning: Provisioning,
    report_within: Option<Micros>,
) -> String {
    let mode = match provisioning {
        Provisioning::None => b'n',
        Provisioning::Strict => b's',
        Provisioning::Under { .. } => b'u',
        Provisioning::Over { .. } => b'o',
    };
    let own = Fnv::new().add(&open_blocks.to_be_bytes()).add(&[u8::from(contended), mode]);
    let own = report_within.map_or(Fnv(own.0), |within| own.add(&within.to_be_bytes()));
    let all =
        contended_groups.fold(own, |hash, group| hash.add(&group.len().to_be_bytes()).add(group.as_bytes()));
    format!("{:016x}", all.0)
}
