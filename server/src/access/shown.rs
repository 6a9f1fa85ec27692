//! The token that this holder shows to others.

use super::tokens::{self, Source};
use crate::live::{Live, Unusable};
use axum::http::HeaderValue;

/// The first token between holders, as it is now. Never in a log or a `Debug` text.
#[derive(Clone)]
pub struct Shown(Live<HeaderValue>);

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shown").finish_non_exhaustive()
    }
}

impl Shown {
    /// The first token of `source`, which is read again when it changes.
    ///
    /// # Errors
    /// It can't be read, or holds no token.
    pub async fn of(source: Source) -> Result<Self, Unusable> {
        let files = source.file().map(ToOwned::to_owned).into_iter().collect();
        let read = move |contents: &[Vec<u8>]| {
            let token = tokens::first(source.text.bytes(&mut contents.iter()));
            let header = token.and_then(|token| HeaderValue::try_from(format!("Bearer {token}")).ok());
            let mut header = header.ok_or_else(|| Unusable::new(source.text.place(), "there is no token"))?;
            header.set_sensitive(true);
            Ok(header)
        };
        Ok(Self(Live::of(files, read).await?))
    }

    /// As the value of the header `Authorization`.
    pub(crate) fn bearer(&self) -> HeaderValue {
        HeaderValue::clone(&self.0.current())
    }
}
