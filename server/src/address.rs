//! The address of a holder: what `--advertise-url` may say, and what other holders believe of the row that it wrote.
//!
//! A row is data of the database: whoever can write it must not send other holders, with their token, anywhere but to an
//! origin of http. So there is no user, no path and no query, and no address that only reaches the caller itself or its
//! link, where clouds keep their metadata. Loopback is allowed, for several holders on one machine. Names are not
//! resolved here. No redirect and no proxy is followed (`http::Peers`), and the token travels by https alone where a
//! certificate authority is given.

use reqwest::Url;
use std::net::IpAddr;

const MAX_BYTES: usize = 2048;

/// Checks the address of a holder.
///
/// # Errors
/// What is wrong with it, as the end of a sentence.
pub(crate) fn check(text: &str) -> Result<(), String> {
    parse(text).map(drop)
}

/// The origin that an address says, in its usual form.
///
/// # Errors
/// What is wrong with it, as the end of a sentence.
pub(crate) fn origin(text: &str) -> Result<String, String> {
    Ok(parse(text)?.as_str().trim_end_matches('/').to_owned())
}

fn parse(text: &str) -> Result<Url, String> {
    const SAY: &str = "must be http://HOST:PORT or https://HOST:PORT";
    if text.len() > MAX_BYTES || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!("must be at most {MAX_BYTES} printable characters of ASCII"));
    }
    let url = Url::parse(text).map_err(|error| format!("{SAY}: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(SAY.to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(format!("{SAY}, without a user"));
    }
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return Err(format!("{SAY}, without path, query and fragment"));
    }
    let address = url.host_str().and_then(|host| host.trim_matches(['[', ']']).parse().ok());
    if address.is_some_and(reaches_nobody_else) {
        return Err("must be an address that other machines reach, or loopback".to_owned());
    }
    Ok(url)
}

fn reaches_nobody_else(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_unspecified() || v4.is_link_local() || v4.is_multicast() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unspecified() || v6.is_unicast_link_local() || v6.is_multicast(),
    }
}

#[cfg(test)]
mod tests {
    use super::{check, origin};

    #[test]
    fn an_address_is_an_origin() {
        for (text, expected) in [
            ("http://127.0.0.1:7432", "http://127.0.0.1:7432"),
            ("https://Holder-1.example/", "https://holder-1.example"),
            ("http://[::1]:7432", "http://[::1]:7432"),
            ("http://10.0.0.7:1", "http://10.0.0.7:1"),
        ] {
            assert_eq!(origin(text).as_deref(), Ok(expected), "{text}");
        }
    }

    /// O-09: a holder calls what the rows of others say.
    #[test]
    fn nothing_else_is() {
        for text in [
            "",
            "holder:7432",
            "ftp://h",
            "http://",
            "http://u@h",
            "http://:p@h",
            "http://u:p@h:1",
            "http://h/path",
            "http://h:1/..//x",
            "http://h?q",
            "http://h#f",
            "http://169.254.169.254",
            "http://0xa9fea9fe/",
            "http://[::ffff:169.254.169.254]:80",
            "http://[fe80::1]:7432",
            "http://0.0.0.0:7432",
            "http://[::]:7432",
            "http://0/",
            "http://255.255.255.255",
            "http://h\u{0}",
        ] {
            assert!(check(text).is_err(), "{text}");
        }
        assert!(check(&format!("http://{}", "h".repeat(3000))).is_err());
    }
}
