//! Who may do what: tokens, their scopes, and the keys that they are for.
//!
//! Authoritative for which token has which rights. Not authoritative for which rights a call needs: `http::needs`.
//! Without tokens every caller has every right. Tokens are kept as hashes.

mod keys;
mod shown;
mod tokens;

pub use keys::Keys;
pub use shown::Shown;
pub use tokens::{Source, Text};

use crate::live::{Live, Unusable};
use tokens::Tokens;

/// What a token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Asking for permits and reporting them.
    Client,
    /// Reading what is in use, and policies.
    Reader,
    /// Everything.
    Admin,
    /// Passing on requests of clients that another holder has let in, and nothing else.
    Holder,
}

/// What a caller may do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rights {
    client: Option<Keys>,
    reader: bool,
    admin: bool,
    holder: bool,
}

impl Rights {
    fn all() -> Self {
        Self { client: Some(Keys::all()), reader: true, admin: true, holder: true }
    }

    fn add(&mut self, scope: Scope, keys: &Keys) {
        match scope {
            Scope::Client => self.client.get_or_insert_default().extend(keys),
            Scope::Reader => self.reader = true,
            Scope::Admin => *self = Self::all(),
            Scope::Holder => self.holder = true,
        }
    }

    /// The keys that this caller may use `scope` for; `None` if it lacks the scope.
    pub fn keys(&self, scope: Scope) -> Option<Keys> {
        match scope {
            Scope::Client => self.client.clone(),
            Scope::Reader => self.reader.then(Keys::all),
            Scope::Admin => self.admin.then(Keys::all),
            Scope::Holder => self.holder.then(Keys::all),
        }
    }
}

/// The tokens that are valid now.
#[derive(Debug, Clone, Default)]
pub struct Access(Option<Live<Tokens>>);

impl Access {
    /// Reads tokens from `sources`, and those in files again when they change. No source: every caller may do everything.
    ///
    /// # Errors
    /// A source can't be read, holds no token, or something that is none.
    pub async fn of(sources: Vec<Source>) -> Result<Self, Unusable> {
        if sources.is_empty() {
            return Ok(Self::default());
        }
        let files = sources.iter().filter_map(Source::file).map(ToOwned::to_owned).collect();
        let read = move |contents: &[Vec<u8>]| Tokens::read(&sources, contents);
        Ok(Self(Some(Live::of(files, read).await?)))
    }

    /// Whether callers need a token.
    pub fn needs_token(&self) -> bool {
        self.0.is_some()
    }

    /// What the bearer of this token may do; `None` if it is not valid.
    pub fn rights(&self, token: Option<&[u8]>) -> Option<Rights> {
        match &self.0 {
            None => Some(Rights::all()),
            Some(tokens) => tokens.current().rights(token?),
        }
    }
}
