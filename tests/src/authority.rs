//! An authority that issues certificates, for one test.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// Issues certificates, and has one of its own.
pub struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its private key, in PEM.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The certificate.
    pub pem: String,
    /// Its private key.
    pub key_pem: String,
}

impl Authority {
    /// An authority that nobody knows yet.
    ///
    /// # Panics
    ///
    /// When keys can't be made.
    #[must_use]
    pub fn new() -> Self {
        let mut params = CertificateParams::new([]).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// Its own certificate, in PEM.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for these names and addresses.
    ///
    /// # Panics
    ///
    /// When a name is none.
    #[must_use]
    pub fn issue(&self, names: &[&str]) -> Certificate {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = CertificateParams::new(names).expect("names");
        let key = KeyPair::generate().expect("a key");
        let pem = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Certificate { pem, key_pem: key.serialize_pem() }
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Certificate {
    /// Writes `cert.pem` and `key.pem` into a folder, and says where they are.
    ///
    /// # Panics
    ///
    /// When that is not possible.
    pub fn write(&self, folder: &Path) -> (PathBuf, PathBuf) {
        let (certificate, key) = (folder.join("cert.pem"), folder.join("key.pem"));
        std::fs::write(&certificate, &self.pem).expect("the certificate is written");
        std::fs::write(&key, &self.key_pem).expect("the key is written");
        (certificate, key)
    }
}
