//! Readers of single fields that refuse what is out of range, with a message that says the range.

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use std::fmt;

/// Reads an integer from 0 to `MAX`. A fraction, an exponent, a string or null is refused.
pub(crate) fn integer<'de, D: Deserializer<'de>, const MAX: u64>(from: D) -> Result<u64, D::Error> {
    from.deserialize_u64(Integer::<MAX>)
}

/// As [`integer`], for a field that may be absent (null is still refused).
pub(crate) fn some_integer<'de, D: Deserializer<'de>, const MAX: u64>(
    from: D,
) -> Result<Option<u64>, D::Error> {
    integer::<D, MAX>(from).map(Some)
}

/// Reads text of `MIN` to `MAX` bytes without NUL that is neither `.` nor `..`.
pub(crate) fn text<'de, D: Deserializer<'de>, const MIN: usize, const MAX: usize>(
    from: D,
) -> Result<String, D::Error> {
    let text = from.deserialize_string(Text)?;
    check_text(&text, MIN, MAX).map_err(D::Error::custom)?;
    Ok(text)
}

/// As [`text`], where null counts as absent.
pub(crate) fn nullable_text<'de, D: Deserializer<'de>, const MIN: usize, const MAX: usize>(
    from: D,
) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    if let Some(text) = &text {
        check_text(text, MIN, MAX).map_err(D::Error::custom)?;
    }
    Ok(text)
}

/// Reads a list that may be absent (null is still refused).
pub(crate) fn some_list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<Vec<T>>, D::Error> {
    Vec::deserialize(from).map(Some)
}

/// Says why `text` can't be a name of `min` to `max` bytes.
pub fn check_text(text: &str, min: usize, max: usize) -> Result<(), String> {
    match text {
        "." | ".." => Err("must not be \".\" or \"..\"".to_owned()),
        _ if text.contains('\0') => Err("must not contain NUL".to_owned()),
        _ if (min..=max).contains(&text.len()) => Ok(()),
        _ => Err(format!("must be {min} to {max} bytes, not {}", text.len())),
    }
}

struct Integer<const MAX: u64>;

impl<const MAX: u64> Visitor<'_> for Integer<MAX> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "an integer from 0 to {MAX}, without fraction or exponent")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<u64, E> {
        if value <= MAX { Ok(value) } else { Err(E::invalid_value(Unexpected::Unsigned(value), &self)) }
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<u64, E> {
        let positive =
            u64::try_from(value).map_err(|_| E::invalid_value(Unexpected::Signed(value), &self))?;
        self.visit_u64(positive)
    }
}

struct Text;

impl Visitor<'_> for Text {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<String, E> {
        Ok(value.to_owned())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<String, E> {
        Ok(value)
    }
}
