//! A network namespace for one process, whose packets to and from each of its neighbours can be made to vanish.

use std::ffi::OsStr;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::Command;

use rand::Rng as _;

use crate::tools::program;

/// Addresses of benchmarks (RFC 2544), which no real network has: 2^15 blocks of four addresses.
const FIRST: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const BLOCKS: u32 = 1 << 15;

/// Drops what comes from and goes to the addresses in `cut`.
const RULES: &str = "table inet kit {
    set cut { type ipv4_addr; flags interval; }
    chain input { type filter hook input priority 0; ip saddr @cut drop; }
    chain output { type filter hook output priority 0; ip daddr @cut drop; }
}";

/// Who is on the other side. To each leads a way of its own, with addresses of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Neighbour {
    /// PostgreSQL.
    Database,
    /// Those who call the process.
    Clients,
    /// Other holders.
    Holders,
}

/// The namespace; it is deleted with this value.
#[derive(Debug)]
#[must_use = "the namespace is deleted when this value is dropped"]
pub struct Network {
    name: String,
    block: u32,
}

impl Network {
    /// A new one, which sees this one's addresses of each [`Neighbour`] and nothing else. None where this process is not
    /// root, which it has to be where `CI` is set.
    ///
    /// # Panics
    ///
    /// When the tools are missing.
    pub async fn new() -> Option<Self> {
        if !nix::unistd::Uid::effective().is_root() {
            assert!(std::env::var_os("CI").is_none(), "only root can make network namespaces");
            // `eprintln!` would be kept from whoever runs the tests.
            let _ = writeln!(std::io::stderr(), "left out: only root can make network namespaces");
            return None;
        }
        Some(tokio::task::spawn_blocking(Self::make).await.expect("no panic"))
    }

    fn make() -> Self {
        let _needed = [program("ip"), program("nft")];
        let number = rand::rng().random_range(0..BLOCKS / 4);
        let network = Self { name: format!("pgs{number}"), block: FIRST + number * 16 };
        let (name, outside, inside) =
            (&network.name, &format!("{}o", network.name), &format!("{}i", network.name));
        ip(&["netns", "add", name]);
        ip(&["link", "add", outside, "type", "veth", "peer", "name", inside, "netns", name]);
        for neighbour in [Neighbour::Database, Neighbour::Clients, Neighbour::Holders] {
            let (here, there) = (network.here(neighbour), network.there(neighbour));
            ip(&["address", "add", &format!("{here}/30"), "dev", outside]);
            ip(&["-n", name, "address", "add", &format!("{there}/30"), "dev", inside]);
        }
        ip(&["link", "set", outside, "up"]);
        ip(&["-n", name, "link", "set", inside, "up"]);
        ip(&["-n", name, "link", "set", "lo", "up"]);
        network.nft(&[RULES]);
        network
    }

    /// The address at which this side is reached from the namespace, as that neighbour.
    #[must_use]
    pub fn here(&self, neighbour: Neighbour) -> Ipv4Addr {
        Ipv4Addr::from(self.base(neighbour) + 1)
    }

    /// The address at which that neighbour reaches the namespace.
    #[must_use]
    pub fn there(&self, neighbour: Neighbour) -> Ipv4Addr {
        Ipv4Addr::from(self.base(neighbour) + 2)
    }

    /// Packets to and from that neighbour vanish, and nobody is told.
    pub fn cut(&self, neighbour: Neighbour) {
        self.nft(&["add element inet kit cut", &self.set(neighbour)]);
    }

    /// They arrive again.
    pub fn mend(&self, neighbour: Neighbour) {
        self.nft(&["delete element inet kit cut", &self.set(neighbour)]);
    }

    /// A command that runs a program in the namespace.
    pub(crate) fn command(&self, program: &OsStr) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    fn base(&self, neighbour: Neighbour) -> u32 {
        self.block + 4 * neighbour as u32
    }

    fn set(&self, neighbour: Neighbour) -> String {
        format!("{{ {}/30 }}", Ipv4Addr::from(self.base(neighbour)))
    }

    fn nft(&self, words: &[&str]) {
        run("ip", &[&["netns", "exec", &self.name, "nft"], words].concat());
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Both ends of its link go with it.
        let _ = Command::new("ip").args(["netns", "delete", &self.name]).status();
    }
}

fn ip(arguments: &[&str]) {
    run("ip", arguments);
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
}
