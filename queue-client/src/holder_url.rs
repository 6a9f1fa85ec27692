//! The URL of a holder, as people write it.
//!
//! Authoritative for what is accepted, and for what an error tells of a URL that is not: never a user or a password.

use reqwest::Url;

use crate::error::BuildError;

/// Where the paths of the protocol go on: without a slash, and without the protocol's own `/v1`, at the end.
pub(crate) fn holder(url: &str) -> Result<String, BuildError> {
    let shown = url.rsplit_once('@').map_or(url.to_owned(), |(_, rest)| format!("...@{rest}"));
    let invalid = |why: String| BuildError::InvalidUrl { url: shown.clone(), why };
    if !url.contains("://") {
        return Err(invalid(format!("it has no scheme, write {}", with_scheme(&shown))));
    }
    let parsed = Url::parse(url).map_err(|error| invalid(error.to_string()))?;
    match parsed.scheme() {
        "http" | "https" => {}
        "postgres" | "postgresql" => {
            let why = "it is the URL of a database, give that of a holder, which `pgsemaphore serve` prints";
            return Err(invalid(why.to_owned()));
        }
        _ => return Err(invalid("its scheme must be http or https".to_owned())),
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(invalid("it must have no user and no password, give a token instead".to_owned()));
    }
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return Err(invalid("it must have neither query nor fragment".to_owned()));
    }
    let url = parsed.as_str().trim_end_matches('/');
    Ok(url.strip_suffix("/v1").unwrap_or(url).to_owned())
}

fn with_scheme(host: &str) -> String {
    let port = if host.contains([':', '/']) { "" } else { ":7432" };
    format!("http://{host}{port}, or https:// where the holder has a certificate")
}

#[cfg(test)]
mod tests {
    use super::holder;

    #[test]
    fn a_url_is_taken_with_or_without_the_path_of_the_protocol() {
        for url in ["http://h:7432", "http://h:7432/", "http://h:7432/v1", "http://h:7432/v1/"] {
            assert_eq!(holder(url).unwrap(), "http://h:7432");
        }
        assert_eq!(holder("https://h/budget/v1").unwrap(), "https://h/budget");
        assert_eq!(holder("https://h/v1.5").unwrap(), "https://h/v1.5");
    }

    #[test]
    fn what_is_no_holder_is_told_with_what_to_write() {
        let refused = |url: &str| holder(url).unwrap_err().to_string();
        assert_eq!(
            refused("127.0.0.1:7432"),
            "\"127.0.0.1:7432\" is not the URL of a holder, such as http://127.0.0.1:7432: it has no scheme, write \
             http://127.0.0.1:7432, or https:// where the holder has a certificate"
        );
        assert!(refused("holder:7432").contains("write http://holder:7432,"));
        assert!(refused("holder").contains("write http://holder:7432,"));
        assert!(refused("postgres://u:secret@db/app").contains("the URL of a database"));
        assert!(refused("ftp://holder").contains("scheme must be http or https"));
        assert!(refused("http://").contains("is not the URL of a holder"));
        assert!(refused("http://holder?x").contains("neither query nor fragment"));
        for url in ["http://me:secret@holder", "postgres://me:secret@db/app", "me:secret@holder:7432"] {
            assert!(refused(url).contains("...@") && !refused(url).contains("secret"), "{}", refused(url));
        }
    }
}
