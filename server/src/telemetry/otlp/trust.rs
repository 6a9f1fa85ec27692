//! Which collectors are believed to be who they say: those that the system's authorities vouch for, or those of the file
//! that `OTEL_EXPORTER_OTLP_CERTIFICATE` names.

use crate::live::Unusable;
use opentelemetry_otlp::tonic_types::transport::{Certificate, ClientTlsConfig};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt as _;
use std::sync::Arc;

const VARIABLE: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";

fn authorities() -> Result<Option<Vec<u8>>, Unusable> {
    let Some(file) = std::env::var_os(VARIABLE).filter(|file| !file.is_empty()) else { return Ok(None) };
    std::fs::read(&file).map(Some).map_err(|why| unusable(format!("{}: {why}", file.display())))
}

pub(super) fn of_grpc() -> Result<ClientTlsConfig, Unusable> {
    let trust = ClientTlsConfig::new();
    Ok(match authorities()? {
        Some(pem) => trust.ca_certificate(Certificate::from_pem(pem)),
        None => trust.with_enabled_roots(),
    })
}

/// A client for a collector; `encrypted`: by `https`.
pub(super) fn of_http(encrypted: bool) -> Result<reqwest::Client, Unusable> {
    let builder = reqwest::Client::builder()
        .tls_backend_preconfigured(config(encrypted)?)
        .redirect(reqwest::redirect::Policy::none());
    builder.build().map_err(unusable)
}

fn config(encrypted: bool) -> Result<ClientConfig, Unusable> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().map_err(unusable)?;
    let builder = match authorities()? {
        Some(pem) => builder.with_root_certificates(roots(&pem)?),
        None if encrypted => builder.with_platform_verifier().map_err(unusable)?,
        None => builder.with_root_certificates(RootCertStore::empty()),
    };
    Ok(builder.with_no_client_auth())
}

fn roots(pem: &[u8]) -> Result<RootCertStore, Unusable> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate.map_err(unusable)?).map_err(unusable)?;
    }
    Ok(roots)
}

fn unusable(why: impl std::fmt::Display) -> Unusable {
    Unusable::new(VARIABLE, why.to_string())
}
