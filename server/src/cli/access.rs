//! Who may call a holder: tokens and certificates, as options of `serve`.

use std::path::PathBuf;

use clap::Args;

use crate::access::{Access, Scope, Source, Text};
use crate::http::{Tls, TlsFiles};
use crate::live::Unusable;

#[derive(Debug, Args)]
pub(super) struct AccessArgs {
    /// Tokens for job queues, which may ask for permits and report them: a file with one a line. May be repeated
    ///
    /// Patterns of keys behind a token, after a blank, restrict it to those keys: `TOKEN account:* mail`. All token files
    /// are read again when they change. Tokens may also be in the variables PGSEMAPHORE_CLIENT_TOKEN,
    /// PGSEMAPHORE_READER_TOKEN and PGSEMAPHORE_ADMIN_TOKEN, written as in a file.
    #[arg(long, env = "PGSEMAPHORE_CLIENT_TOKEN_FILE", value_name = "FILE")]
    client_token_file: Vec<PathBuf>,

    /// Tokens for who may read usage, policies and metrics: a file with one a line. May be repeated
    #[arg(long, env = "PGSEMAPHORE_READER_TOKEN_FILE", value_name = "FILE")]
    reader_token_file: Vec<PathBuf>,

    /// Tokens for who may do everything: a file with one a line. May be repeated
    #[arg(long, env = "PGSEMAPHORE_ADMIN_TOKEN_FILE", value_name = "FILE")]
    admin_token_file: Vec<PathBuf>,

    /// Speak TLS with this certificate, and those between it and its authority's: a PEM file, read again when it changes
    #[arg(long, env = "PGSEMAPHORE_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The private key of the certificate: a PEM file, read again when it changes
    #[arg(long, env = "PGSEMAPHORE_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Want a certificate of one of these authorities from callers, besides a token: a PEM file
    #[arg(long, env = "PGSEMAPHORE_TLS_CLIENT_CA", value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
}

impl AccessArgs {
    pub(super) async fn access(&self) -> Result<Access, Unusable> {
        let files = [
            (Scope::Client, &self.client_token_file, "PGSEMAPHORE_CLIENT_TOKEN"),
            (Scope::Reader, &self.reader_token_file, "PGSEMAPHORE_READER_TOKEN"),
            (Scope::Admin, &self.admin_token_file, "PGSEMAPHORE_ADMIN_TOKEN"),
        ];
        let mut sources = Vec::new();
        for (scope, files, variable) in files {
            let files = files.iter().cloned().map(Text::File);
            let texts = files.chain(variable_text(variable)?);
            sources.extend(texts.map(|text| Source { scope, text }));
        }
        Access::of(sources).await
    }

    pub(super) async fn tls(&self) -> Result<Option<Tls>, Unusable> {
        let (Some(certificate), Some(key)) = (self.tls_cert.clone(), self.tls_key.clone()) else {
            return Ok(None);
        };
        Ok(Some(Tls::of(TlsFiles { certificate, key, client_ca: self.tls_client_ca.clone() }).await?))
    }
}

fn variable_text(name: &'static str) -> Result<Option<Text>, Unusable> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(Text::Variable { name, value })),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(Unusable::new(name, "it must be UTF-8")),
    }
}
