//! TLS of the holder: its certificate, and the authority of its clients' certificates.

use crate::live::{Live, Unusable};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// PEM files.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The holder's certificate, followed by those between it and its authority's.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Certificates of the authorities of clients. Without it clients need no certificate.
    pub client_ca: Option<PathBuf>,
}

/// Encrypts connections, by the files as they are now.
#[derive(Debug, Clone)]
pub struct Tls {
    config: Live<ServerConfig>,
    wants_certificate: bool,
}

impl Tls {
    /// Reads the files, and reads them again when they change.
    ///
    /// # Errors
    /// A file can't be read or holds something else, or the key is not the certificate's.
    pub async fn of(files: TlsFiles) -> Result<Self, Unusable> {
        let paths = [&files.certificate, &files.key].into_iter().chain(&files.client_ca).cloned().collect();
        let wants_certificate = files.client_ca.is_some();
        let config = Live::of(paths, move |contents| config(&files, contents)).await?;
        Ok(Self { config, wants_certificate })
    }

    pub(super) fn wants_certificate(&self) -> bool {
        self.wants_certificate
    }

    pub(super) async fn accept(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        TlsAcceptor::from(self.config.current()).accept(stream).await
    }
}

/// How another holder is called: verified by these authorities, a PEM file and what is in it, and shown `own`, with what
/// is in its two files, if it wants a certificate.
pub(super) fn client_config(
    authorities_of: Option<(&Path, &[u8])>,
    own: Option<(&TlsFiles, &[Vec<u8>; 2])>,
) -> Result<ClientConfig, Unusable> {
    let roots = authorities_of.map_or(Ok(RootCertStore::empty()), |(file, pem)| authorities(file, pem))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|why| Unusable::new("TLS", why.to_string()))?
        .with_root_certificates(roots);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some((files, [certificate, key])) => builder
            .with_client_auth_cert(certificates(&files.certificate, certificate)?, private_key(files, key)?)
            .map_err(|why| Unusable::file(&files.key, why.to_string()))?,
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

fn config(files: &TlsFiles, contents: &[Vec<u8>]) -> Result<ServerConfig, Unusable> {
    let [certificate, key, client_ca @ ..] = contents else {
        return Err(Unusable::file(&files.certificate, "it was not read"));
    };
    let chain = certificates(&files.certificate, certificate)?;
    let key = private_key(files, key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|why| Unusable::file(&files.certificate, why.to_string()))?;
    let builder = match files.client_ca.as_ref().zip(client_ca.first()) {
        None => builder.with_no_client_auth(),
        Some((file, pem)) => {
            let roots = Arc::new(authorities(file, pem)?);
            // Calls without a certificate are refused later, so that probes of health need none.
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider)
                .allow_unauthenticated()
                .build()
                .map_err(|why| Unusable::file(file, why.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config =
        builder.with_single_cert(chain, key).map_err(|why| Unusable::file(&files.key, why.to_string()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn private_key(files: &TlsFiles, pem: &[u8]) -> Result<PrivateKeyDer<'static>, Unusable> {
    PrivateKeyDer::from_pem_slice(pem)
        .map_err(|why| Unusable::file(&files.key, format!("it must hold a private key in PEM: {why}")))
}

fn authorities(file: &Path, pem: &[u8]) -> Result<RootCertStore, Unusable> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file, pem)? {
        roots.add(certificate).map_err(|why| Unusable::file(file, why.to_string()))?;
    }
    Ok(roots)
}

fn certificates(file: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Unusable> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match read {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(Unusable::file(file, "it must hold certificates in PEM")),
        Err(why) => Err(Unusable::file(file, format!("it must hold certificates in PEM: {why}"))),
    }
}
