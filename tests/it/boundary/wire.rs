//! What sessions ask for at their start, as it goes over the wire to PostgreSQL.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

const PROTOCOL_3: u32 = 0x0003_0000;

/// Stands between the product and PostgreSQL.
pub(super) struct Wire {
    port: u16,
    asked: Arc<Mutex<BTreeSet<String>>>,
    _accepts: AbortOnDropHandle<()>,
}

impl Wire {
    pub(super) async fn before(url: &str) -> Self {
        let place =
            url.rsplit('@').next().and_then(|rest| rest.split('/').next()).expect("a place").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let asked = Arc::<Mutex<BTreeSet<String>>>::default();
        let seen = asked.clone();
        let accepts = tokio::spawn(async move {
            while let Ok((caller, _)) = listener.accept().await {
                tokio::spawn(carry(caller, place.clone(), seen.clone()));
            }
        });
        Self { port, asked, _accepts: AbortOnDropHandle::new(accepts) }
    }

    /// The URL with this in place of the server.
    pub(super) fn through(&self, url: &str) -> String {
        let (login, rest) = url.split_once('@').expect("a login");
        let (_, database) = rest.split_once('/').expect("a database");
        format!("{login}@127.0.0.1:{}/{database}", self.port)
    }

    /// The different `options` that sessions have asked for so far.
    pub(super) fn asked(&self) -> BTreeSet<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Carries one connection, and notes the options of its start.
async fn carry(
    mut caller: TcpStream,
    place: String,
    seen: Arc<Mutex<BTreeSet<String>>>,
) -> std::io::Result<()> {
    let mut server = TcpStream::connect(place).await?;
    loop {
        let length = caller.read_u32().await?;
        let mut rest = vec![0; usize::try_from(length).unwrap_or(0).saturating_sub(4)];
        caller.read_exact(&mut rest).await?;
        server.write_u32(length).await?;
        server.write_all(&rest).await?;
        if rest.starts_with(&PROTOCOL_3.to_be_bytes()) {
            let options = parameters(&rest[4..]).remove("options").unwrap_or_default();
            seen.lock().unwrap_or_else(PoisonError::into_inner).insert(options);
            break;
        }
        // It asked for TLS: the server says N.
        caller.write_u8(server.read_u8().await?).await?;
    }
    tokio::io::copy_bidirectional(&mut caller, &mut server).await?;
    Ok(())
}

fn parameters(bytes: &[u8]) -> BTreeMap<String, String> {
    let words: Vec<String> =
        bytes.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    words.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}
