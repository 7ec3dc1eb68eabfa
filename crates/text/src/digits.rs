//! JSON whose whole numbers keep all their digits, however many there are: models write such numbers into
//! calls, clients send them back, and a prompt has to say again what the model has said.
//!
//! A [`Value`] holds 64 bits of a number. What has more is an object in it, of one name that nobody uses
//! and the digits. It is no number: nobody here reckons with it. Fractions are what Python has, doubles.

use std::borrow::Cow;

use serde::ser::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

/// The one name in an object that stands for a number.
const NAME: &str = "\u{0}digits";

/// The same JSON in which objects stand for the whole numbers that 64 bits do not hold. What is no JSON
/// stays none.
pub fn kept(json: &str) -> Cow<'_, str> {
    let bytes = json.as_bytes();
    let mut out = String::new();
    let (mut at, mut copied) = (0, 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = end_of_string(bytes, at),
            b'-' | b'0'..=b'9' => {
                let end = end_of_number(bytes, at);
                if let Some(other) = in_place_of(&json[at..end]) {
                    out.push_str(&json[copied..at]);
                    out.push_str(&other);
                    copied = end;
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    match copied {
        0 => Cow::Borrowed(json),
        _ => Cow::Owned(out + &json[copied..]),
    }
}

/// Reads JSON.
///
/// # Errors
/// What is none.
pub fn read(json: &str) -> Result<Value, serde_json::Error> {
    // An error has the place in what was sent.
    serde_json::from_str(&kept(json)).or_else(|_| serde_json::from_str(json))
}

/// The digits, with the sign, of a number that 64 bits do not hold.
pub fn of(value: &Value) -> Option<&str> {
    let map = value.as_object().filter(|map| map.len() == 1)?;
    map.get(NAME)?.as_str().filter(|digits| is_long(digits))
}

/// The object that a value is, if it does not stand for a number.
pub fn as_object(value: &Value) -> Option<&Map<String, Value>> {
    value.as_object().filter(|_| of(value).is_none())
}

/// A number of any length, rounded to a double.
pub fn as_f64(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| of(value)?.parse().ok())
}

/// Writes a value with the digits of its numbers.
pub fn exact(value: &Value) -> impl Serialize + '_ {
    Spelt { value, spell: raw }
}

fn raw(digits: &str) -> Box<RawValue> {
    RawValue::from_string(digits.to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// The same with doubles for numbers that 64 bits do not hold, the largest there is for what is larger.
pub(crate) fn rounded(value: &Value) -> Value {
    if let Some(number) = of(value).and_then(|digits| digits.parse::<f64>().ok()) {
        let number = Number::from_f64(number.clamp(f64::MIN, f64::MAX));
        return number.map_or(Value::Null, Value::Number);
    }
    match value {
        Value::Array(list) => list.iter().map(rounded).collect(),
        Value::Object(map) => {
            map.iter().map(|(name, value)| (name.clone(), rounded(value))).collect()
        }
        plain => plain.clone(),
    }
}

/// A value whose long numbers are written by a function of their digits.
pub(crate) struct Spelt<'a, F> {
    pub(crate) value: &'a Value,
    pub(crate) spell: F,
}

impl<L: Serialize, F: Fn(&str) -> L + Copy> Serialize for Spelt<'_, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let spell = self.spell;
        let inner = |value| Spelt { value, spell };
        match (of(self.value), self.value) {
            (Some(digits), _) => spell(digits).serialize(serializer),
            (None, Value::Array(list)) => serializer.collect_seq(list.iter().map(inner)),
            (None, Value::Object(map)) => {
                serializer.collect_map(map.iter().map(|(name, value)| (name, inner(value))))
            }
            (None, plain) => plain.serialize(serializer),
        }
    }
}

/// What is read in place of a number, if not the number itself.
fn in_place_of(number: &str) -> Option<Cow<'static, str>> {
    if number == "-0" {
        // A double would keep the sign; as a whole number it has none.
        return Some(Cow::Borrowed("0"));
    }
    is_long(number).then(|| Cow::Owned(format!("{{\"\\u0000digits\":\"{number}\"}}")))
}

/// These are the digits of a whole number that 64 bits do not hold.
fn is_long(number: &str) -> bool {
    let digits = number.strip_prefix('-').unwrap_or(number);
    digits.len() > 18
        && !digits.starts_with('0')
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && number.parse::<i64>().is_err()
        && number.parse::<u64>().is_err()
}

/// Where the string ends that begins here.
fn end_of_string(json: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    json.len()
}

/// Where the number ends that begins here.
fn end_of_number(json: &[u8], start: usize) -> usize {
    let is_part = |byte: &u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
    start + json[start..].iter().take_while(|byte| is_part(byte)).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn again(json: &str) -> String {
        serde_json::to_string(&exact(&read(json).unwrap())).unwrap()
    }

    #[test]
    fn whole_numbers_of_any_length_come_back() {
        let many = "7".repeat(5000);
        for number in [
            "0",
            "18446744073709551615",
            "-9223372036854775808",
            "18446744073709551616",
            "-9223372036854775809",
            "123456789012345678901234567890",
            "-123456789012345678901234567890",
            &many,
        ] {
            for around in ["#", "[#]", "{\"a\":#,\"b\":[1,#]}", "{\"a\":\"#\",\"\\\"#\":{\"c\":#}}"]
            {
                let json = around.replace('#', number);
                assert_eq!(again(&json), json);
            }
        }
        // As Python reads them.
        assert_eq!(again("[-0, 1.50, 123456789012345678901.0]"), "[0,1.5,1.2345678901234568e+20]");
    }

    #[test]
    fn what_64_bits_hold_is_a_number_and_what_is_longer_is_told_apart() {
        assert_eq!(read("[18446744073709551615, -1]").unwrap(), json!([u64::MAX, -1]));
        let long = read("18446744073709551616").unwrap();
        assert_eq!((of(&long), as_f64(&long)), (Some("18446744073709551616"), Some(2f64.powi(64))));
        assert_eq!((rounded(&long), as_f64(&json!(3))), (json!(2f64.powi(64)), Some(3.0)));
        assert_eq!(rounded(&read(&"9".repeat(400)).unwrap()), json!(f64::MAX));
        // Written by a client, it is what anybody may say with a number, or nothing.
        for other in [json!({"a": "1"}), json!({NAME: "12"}), json!({NAME: "0x"}), json!({NAME: 1})]
        {
            assert_eq!((of(&other), rounded(&other)), (None, other.clone()));
        }
    }

    #[test]
    fn what_is_no_json_stays_none() {
        let digits = "123456789012345678901234567890";
        for bad in
            ["#a", "0#", "#1#", "{#: 1}", "[#", "\"#", "#-#", "--#", "[# #]", "\"\\", "-", "1e999"]
        {
            let bad = bad.replace('#', digits);
            // Two numbers behind each other are one of these; all others are none.
            let is_json = bad == format!("{digits}1{digits}");
            assert_eq!(read(&bad).is_ok(), is_json, "{bad}");
        }
        assert_eq!(read("[1, x]").unwrap_err().column(), 5);
    }

    proptest! {
        #[test]
        fn nothing_else_is_touched(text in r#"[\[\]{}",:0-9a\\n. eE+-]{0,60}"#) {
            let plain: Result<Value, _> = serde_json::from_str(&text);
            match (plain, read(&text)) {
                // A number that no double holds may be whole.
                (Err(plain), Ok(_)) => prop_assert!(plain.to_string().contains("out of range")),
                (Ok(plain), Ok(kept)) => prop_assert_eq!(rounded(&kept), rounded(&plain)),
                (plain, kept) => prop_assert_eq!(plain.is_ok(), kept.is_ok()),
            }
        }
    }
}
