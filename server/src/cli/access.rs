//! Who may call a holder: tokens and certificates, as options of `serve`.

use std::path::PathBuf;

use clap::Args;

use crate::access::{Access, Scope, Shown, Source, Text};
use crate::http::{Peers, Tls, TlsFiles};
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

    /// Tokens by which holders know each other: a file with one a line, the same for all holders. May be repeated
    ///
    /// The first one is shown to others, all are accepted. Holders that want tokens of clients pass requests on to each
    /// other only with such a token; without, each of them serves its own queue. Also in PGSEMAPHORE_HOLDER_TOKEN.
    #[arg(long, env = "PGSEMAPHORE_HOLDER_TOKEN_FILE", value_name = "FILE")]
    holder_token_file: Vec<PathBuf>,

    /// Verify certificates of other holders by these authorities: a PEM file. Without it none is called by https
    ///
    /// To holders that want a certificate of their callers, the one of --tls-cert is shown.
    #[arg(long, env = "PGSEMAPHORE_HOLDER_CA", value_name = "FILE")]
    holder_ca: Option<PathBuf>,

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
        let callers = [
            (Scope::Client, &self.client_token_file, "PGSEMAPHORE_CLIENT_TOKEN"),
            (Scope::Reader, &self.reader_token_file, "PGSEMAPHORE_READER_TOKEN"),
            (Scope::Admin, &self.admin_token_file, "PGSEMAPHORE_ADMIN_TOKEN"),
        ];
        let mut sources = Vec::new();
        for (scope, files, variable) in callers {
            sources.extend(self::sources(scope, files, variable)?);
        }
        let holders = self.holder_tokens()?;
        if sources.is_empty() && !holders.is_empty() {
            let why = "it protects nothing while callers need no token: give --client-token-file too";
            return Err(Unusable::new("--holder-token-file", why));
        }
        Access::of(sources.into_iter().chain(holders).collect()).await
    }

    pub(super) async fn tls(&self) -> Result<Option<Tls>, Unusable> {
        match self.tls_files() {
            Some(files) => Ok(Some(Tls::of(files).await?)),
            None => Ok(None),
        }
    }

    pub(super) async fn peers(&self) -> Result<Peers, Unusable> {
        let token = match self.holder_tokens()?.into_iter().next() {
            Some(source) => Some(Shown::of(source).await?),
            None => None,
        };
        Peers::of(token, self.holder_ca.clone(), self.tls_files()).await
    }

    fn holder_tokens(&self) -> Result<Vec<Source>, Unusable> {
        sources(Scope::Holder, &self.holder_token_file, "PGSEMAPHORE_HOLDER_TOKEN")
    }

    fn tls_files(&self) -> Option<TlsFiles> {
        let (certificate, key) = self.tls_cert.clone().zip(self.tls_key.clone())?;
        Some(TlsFiles { certificate, key, client_ca: self.tls_client_ca.clone() })
    }
}

fn sources(scope: Scope, files: &[PathBuf], variable: &'static str) -> Result<Vec<Source>, Unusable> {
    let texts = files.iter().cloned().map(Text::File).chain(variable_text(variable)?);
    Ok(texts.map(|text| Source { scope, text }).collect())
}

fn variable_text(name: &'static str) -> Result<Option<Text>, Unusable> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(Text::Variable { name, value })),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(Unusable::new(name, "it must be UTF-8")),
    }
}
