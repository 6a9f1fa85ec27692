//! What the environment says of a client.
//!
//! Authoritative for the names of variables. What they mean, and what holds without them, `builder.rs` says.

use std::env::VarError;
use std::path::PathBuf;

use crate::builder::Builder;
use crate::error::BuildError;

const URL: &str = "PGSEMAPHORE_URL";
const CLIENT_ID: &str = "PGSEMAPHORE_CLIENT_ID";
const TOKEN: &str = "PGSEMAPHORE_TOKEN";
const TOKEN_FILE: &str = "PGSEMAPHORE_TOKEN_FILE";
const CA: &str = "PGSEMAPHORE_CA";
const CERT: &str = "PGSEMAPHORE_CERT";
const KEY: &str = "PGSEMAPHORE_KEY";

impl Builder {
    /// A builder that begins with what the environment says:
    ///
    /// | variable | sets |
    /// | --- | --- |
    /// | `PGSEMAPHORE_URL` | [`url`](Self::url), several of them with commas between; must be there |
    /// | `PGSEMAPHORE_CLIENT_ID` | [`client_id`](Self::client_id) |
    /// | `PGSEMAPHORE_TOKEN` | [`token`](Self::token) |
    /// | `PGSEMAPHORE_TOKEN_FILE` | [`token_file`](Self::token_file), in place of a token |
    /// | `PGSEMAPHORE_CA` | [`authorities`](Self::authorities), a file |
    /// | `PGSEMAPHORE_CERT`, `PGSEMAPHORE_KEY` | [`certificate`](Self::certificate), two files |
    ///
    /// One that is empty is not there.
    ///
    /// # Errors
    ///
    /// A variable is missing, of two that exclude or need each other, or names a file that can't be read.
    pub fn from_env() -> Result<Self, BuildError> {
        Self::from_variables(|name| std::env::var(name))
    }

    fn from_variables(read: impl Fn(&str) -> Result<String, VarError>) -> Result<Self, BuildError> {
        let variable = |name: &'static str| match read(name) {
            Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
            Err(VarError::NotPresent) => Ok(None),
            Err(VarError::NotUnicode(_)) => Err(wrong(name, "it is not UTF-8")),
        };
        let file = |name| variable(name)?.map(|path| contents(name, path.into())).transpose();
        let urls = variable(URL)?;
        let urls =
            urls.ok_or_else(|| wrong(URL, "set it to the URL of a holder, such as http://127.0.0.1:7432"))?;
        let mut builder = urls.split(',').fold(Self::default(), |builder, url| builder.url(url.trim()));
        if let Some(client_id) = variable(CLIENT_ID)? {
            builder = builder.client_id(client_id);
        }
        builder = match (variable(TOKEN)?, variable(TOKEN_FILE)?) {
            (Some(_), Some(_)) => return Err(wrong(TOKEN, &format!("set it or {TOKEN_FILE}, not both"))),
            (Some(token), None) => builder.token(token),
            (None, Some(path)) => builder.token_file(path),
            (None, None) => builder,
        };
        if let Some(pem) = file(CA)? {
            builder = builder.authorities(pem);
        }
        match (file(CERT)?, file(KEY)?) {
            (Some(pem), Some(key)) => Ok(builder.certificate(pem, key)),
            (None, None) => Ok(builder),
            (Some(_), None) => Err(wrong(KEY, &format!("set it too, or not {CERT}"))),
            (None, Some(_)) => Err(wrong(CERT, &format!("set it too, or not {KEY}"))),
        }
    }
}

fn contents(name: &'static str, path: PathBuf) -> Result<Vec<u8>, BuildError> {
    std::fs::read(&path).map_err(|error| wrong(name, &format!("{}: {error}", path.display())))
}

fn wrong(name: &'static str, why: &str) -> BuildError {
    BuildError::Environment { name, why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(variables: &[(&str, &str)]) -> Result<crate::QueueClient, String> {
        let read = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned()).ok_or(VarError::NotPresent)
        };
        Builder::from_variables(read).and_then(Builder::build).map_err(|error| error.to_string())
    }

    #[test]
    fn a_url_is_enough_and_all_the_rest_is_heeded() {
        let client =
            built(&[(URL, "http://a:1, http://b:2"), (CLIENT_ID, "worker-7"), (TOKEN, "secret")]).unwrap();
        assert_eq!(client.client_id(), "worker-7");
        assert!(built(&[(URL, "http://a"), (CLIENT_ID, "")]).unwrap().client_id().len() > 32);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_name() {
        let https = (URL, "https://a");
        for (variables, expected) in [
            (vec![], "PGSEMAPHORE_URL: set it"),
            (vec![(URL, "http://a,nonsense")], "nonsense"),
            (vec![https, (TOKEN, "a"), (TOKEN_FILE, "/b")], "not both"),
            (vec![https, (CA, "/nonexistent/ca.pem")], "PGSEMAPHORE_CA: /nonexistent/ca.pem"),
            (vec![https, (TOKEN_FILE, "/nonexistent/token")], "/nonexistent/token"),
        ] {
            let error = built(&variables).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_certificate_needs_its_key() {
        let file = std::env::temp_dir().join(format!("queue-client-cert-{:032x}", rand::random::<u128>()));
        std::fs::write(&file, "x").unwrap();
        let path = file.to_str().unwrap();
        let error = built(&[(URL, "https://a"), (CERT, path)]).unwrap_err();
        assert!(error.contains("PGSEMAPHORE_KEY: set it too"), "{error}");
        std::fs::remove_file(file).unwrap();
    }
}
