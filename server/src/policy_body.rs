//! A policy as JSON. What it may say is judged by the database's `configure`; here only what JSON leaves open is.

use crate::json::{self, Rules};
use crate::request::{Invalid, decode};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The one field that may have a fraction.
const DECIMAL: &str = "lease_extra_ratio";
/// Longest spelling of it.
const DECIMAL_MAX_BYTES: usize = 32;
const RULES: Rules = Rules { lists_of_objects: &[], integers_only: true, decimal: DECIMAL, no_nul: true };

#[derive(Deserialize)]
struct Ratio {
    lease_extra_ratio: Option<Box<RawValue>>,
}

/// Refuses duplicate members, and numbers and texts that no field can hold.
pub(crate) fn scan(body: &[u8]) -> Result<(), Invalid> {
    json::scan(body, RULES).fault.map_or(Ok(()), Err)
}

/// The body as text that PostgreSQL reads as the same JSON.
pub(crate) fn checked(body: &[u8]) -> Result<&str, Invalid> {
    scan(body)?;
    let Ratio { lease_extra_ratio } = decode(body)?;
    let plain = |ratio: &str| {
        let digits = ratio.trim_start_matches('-');
        !digits.starts_with(|first: char| first.is_ascii_digit())
            || (ratio == digits && !ratio.contains(['e', 'E']) && ratio.len() <= DECIMAL_MAX_BYTES)
    };
    if !lease_extra_ratio.is_none_or(|ratio| plain(ratio.get())) {
        let detail =
            format!("{DECIMAL} must be a number from 0 to 1000 with at most 6 decimals, without exponent");
        return Err(Invalid::field(format!("/{DECIMAL}"), detail));
    }
    std::str::from_utf8(body).map_err(|_| Invalid::Json("the body is not UTF-8".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::checked;
    use crate::request::Invalid;

    fn fault(body: &str) -> String {
        match checked(body.as_bytes()) {
            Err(Invalid::Field { field, .. }) => field,
            other => panic!("{body}: {other:?}"),
        }
    }

    #[test]
    fn what_json_leaves_open_is_refused_with_its_field() {
        for number in ["1.0", "1.5", "1e3", "-0", "1e400", "18446744073709551616"] {
            assert_eq!(fault(&format!(r#"{{"limit":{number}}}"#)), "/limit");
            assert_eq!(fault(&format!(r#"{{"group_limits":{{"a/b":{number}}}}}"#)), "/group_limits/a~1b");
        }
        for number in ["1e0", "-0", "-0.0", "1E-1", "0.1000000000000000000000000000000000", "1e400"] {
            assert_eq!(fault(&format!(r#"{{"lease_extra_ratio":{number}}}"#)), "/lease_extra_ratio");
        }
        assert_eq!(fault(r#"{"limit":1,"limit":1}"#), "/limit");
        assert_eq!(fault(r#"{"limit_function":"a\u0000"}"#), "/limit_function");
        assert_eq!(fault(r#"{"paused_groups":["a","\ud800"]}"#), "/paused_groups/1");
        assert_eq!(fault("[]"), "");
        assert!(matches!(checked(b""), Err(Invalid::Json(_))));
    }

    #[test]
    fn the_rest_is_left_to_the_database() {
        for body in [
            r#"{"limit":5,"lease_extra_ratio":0.5}"#,
            r#"{"lease_extra_ratio":null}"#,
            r#"{"lease_extra_ratio":"x"}"#,
            r#"{"unknown":[]}"#,
            r#"{"limit":-1}"#,
        ] {
            assert_eq!(checked(body.as_bytes()), Ok(body));
        }
    }
}
