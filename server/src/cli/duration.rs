//! Durations as people write them: `500ms`, `30s`, `10m`, `2h`, `7d`.

use std::time::Duration;

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let millis =
        number.parse::<u64>().ok().zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    millis.map(Duration::from_millis).ok_or_else(|| "say a number and ms, s, m, h or d, like 10m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::parse;
    use std::time::Duration;

    #[test]
    fn a_number_and_a_unit() {
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("600s"), parse("10m"));
        assert_eq!(parse("48h"), parse("2d"));
        assert_eq!(parse("0s"), Ok(Duration::ZERO));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in
            ["", "10", "m", "-1s", "1.5s", "10 m", "10min", "99999999999999999999s", "999999999999999999d"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
