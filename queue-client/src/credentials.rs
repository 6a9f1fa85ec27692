//! What a client shows to holders, and which holders it trusts.
//!
//! None of it is ever in a log, an error or a `Debug` text.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use reqwest::header::HeaderValue;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls_platform_verifier::BuilderVerifierExt;

use crate::error::BuildError;

/// A token, certificates, or nothing of it: how a client and its holders know each other.
#[derive(Clone, Default)]
#[must_use]
pub struct Credentials {
    token: Option<Token>,
    authorities: Option<Vec<u8>>,
    certificate: Option<(Vec<u8>, Vec<u8>)>,
}

#[derive(Clone)]
enum Token {
    Here(String),
    InFile(PathBuf),
}

impl Credentials {
    /// This token goes into the header `Authorization: Bearer` of each call. The end of a line behind it is no part of it:
    /// files that hold a token have one.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(Token::Here(token.into()));
        self
    }

    /// The first token in this file does. It is read again when a holder does not accept it any more.
    pub fn token_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.token = Some(Token::InFile(path.into()));
        self
    }

    /// Trusts holders with a certificate of one of these authorities, in PEM, in place of those that the system trusts.
    pub fn authorities(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authorities = Some(pem.into());
        self
    }

    /// Shows this certificate to holders that ask for one: in PEM, followed by those between it and its authority's, and
    /// its private key.
    pub fn certificate(mut self, pem: impl Into<Vec<u8>>, key_pem: impl Into<Vec<u8>>) -> Self {
        self.certificate = Some((pem.into(), key_pem.into()));
        self
    }

    /// TLS with a provider of its own: the process's default one is left to the application. `used`: some holder is
    /// reached by `https`.
    pub(crate) fn tls(&self, used: bool) -> Result<ClientConfig, BuildError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(BuildError::Tls)?;
        let config = match &self.authorities {
            Some(pem) => config.with_root_certificates(roots(pem)?),
            None if used => config.with_platform_verifier().map_err(BuildError::Tls)?,
            None => config.with_root_certificates(rustls::RootCertStore::empty()),
        };
        let mut config = match &self.certificate {
            None => config.with_no_client_auth(),
            Some((chain, key)) => {
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| BuildError::InvalidCertificate {
                    what: "private key of the client's certificate",
                })?;
                let chain = certificates(chain, "client's certificate")?;
                config.with_client_auth_cert(chain, key).map_err(BuildError::Tls)?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    pub(crate) fn bearer(&self) -> Result<Bearer, BuildError> {
        Ok(match &self.token {
            None => Bearer::default(),
            Some(Token::Here(token)) => Bearer { header: Mutex::new(Some(header(token)?)), file: None },
            Some(Token::InFile(path)) => {
                Bearer { header: Mutex::new(Some(read(path)?)), file: Some(path.clone()) }
            }
        })
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// The header that shows the token, as it is now.
#[derive(Debug, Default)]
pub(crate) struct Bearer {
    header: Mutex<Option<HeaderValue>>,
    file: Option<PathBuf>,
}

impl Bearer {
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        self.header.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the token again: the one that was `sent` is not accepted. Whether there is another one now.
    pub(crate) async fn renewed(&self, sent: Option<&HeaderValue>) -> bool {
        let Some(file) = self.file.clone() else { return false };
        match tokio::task::spawn_blocking(move || read(&file)).await {
            Ok(Ok(header)) => {
                *self.header.lock().unwrap_or_else(PoisonError::into_inner) = Some(header);
                self.header().as_ref() != sent
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "the token can't be read again");
                false
            }
            Err(_) => false,
        }
    }
}

/// As holders read theirs: one a line, more words behind it are not of the token, `#` begins a comment.
fn read(path: &Path) -> Result<HeaderValue, BuildError> {
    let unusable = |why: String| BuildError::TokenFile { path: path.to_owned(), why };
    let text = std::fs::read_to_string(path).map_err(|error| unusable(error.to_string()))?;
    let mut words = text.lines().filter_map(|line| line.split_ascii_whitespace().next());
    let token = words.find(|word| !word.starts_with('#'));
    header(token.ok_or_else(|| unusable("there is no token in it".to_owned()))?)
}

fn header(token: &str) -> Result<HeaderValue, BuildError> {
    let token = token.trim_end_matches(['\r', '\n']);
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(BuildError::InvalidToken);
    }
    let mut header =
        HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| BuildError::InvalidToken)?;
    header.set_sensitive(true);
    Ok(header)
}

fn roots(pem: &[u8]) -> Result<rustls::RootCertStore, BuildError> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in certificates(pem, "certificate of an authority")? {
        roots.add(certificate).map_err(BuildError::Tls)?;
    }
    Ok(roots)
}

fn certificates(pem: &[u8], what: &'static str) -> Result<Vec<CertificateDer<'static>>, BuildError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or(BuildError::InvalidCertificate { what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_credential_is_said_without_telling_it() {
        let bearer = |token: &str| Credentials::default().token(token).bearer().map(|bearer| bearer.header());
        assert!(bearer("abc").unwrap().unwrap().is_sensitive());
        for line in ["abc\n", "abc\r\n"] {
            assert_eq!(bearer(line).unwrap().unwrap(), "Bearer abc");
        }
        for token in ["", "\n", " ", "secr\u{e9}t", "secret\nsecret", " secret", "se cret"] {
            let error = bearer(token).unwrap_err().to_string();
            assert!(error.contains("token") && !error.contains("secr"), "{error}");
        }
        let missing = Credentials::default().token_file("/nonexistent/token").bearer().unwrap_err();
        assert!(missing.to_string().contains("/nonexistent/token"), "{missing}");
        let no_ca = Credentials::default().authorities("secret").tls(true).unwrap_err();
        assert!(no_ca.to_string().contains("PEM"), "{no_ca}");
        let no_key = Credentials::default().certificate("secret", "secret").tls(true).unwrap_err();
        assert!(no_key.to_string().contains("private key"), "{no_key}");
        let shown = format!("{:?}", Credentials::default().token("secret").certificate("secret", "secret"));
        assert!(!shown.contains("secret"), "{shown}");
    }
}
