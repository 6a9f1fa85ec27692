//! A listener that speaks TLS: what axum serves behind it is none the wiser.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::serve::Listener;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::Certificate;

/// Connections whose handshake succeeded; others are closed.
pub(crate) struct Encrypted {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Encrypted {
    pub(crate) fn new(listener: TcpListener, certificate: &Certificate) -> Self {
        let chain = CertificateDer::pem_slice_iter(certificate.pem.as_bytes());
        let chain = chain.collect::<Result<Vec<_>, _>>().expect("a certificate");
        let key = PrivateKeyDer::from_pem_slice(certificate.key_pem.as_bytes()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
        let mut config = config.with_single_cert(chain, key).expect("a certificate of this key");
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Self { listener, acceptor: TlsAcceptor::from(Arc::new(config)) }
    }
}

impl Listener for Encrypted {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = Listener::accept(&mut self.listener).await;
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}
