//! Arguments of a call for dialects that have them as an object and not as text. Numbers keep their digits,
//! also those that no number of a machine can hold. What a tool wants is not checked.

use serde_json::Value;
use serde_json::value::RawValue;

/// The object that arguments are, without blanks between its parts; an empty one if they cannot be read, as
/// those of a call that was cut off.
pub(crate) fn object(json: &str) -> Box<RawValue> {
    let is_object = |value: Value| text::digits::as_object(&value).is_some();
    let object = match text::digits::read(json).is_ok_and(is_object) {
        true => compact(json),
        false => "{}".to_owned(),
    };
    RawValue::from_string(object).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// JSON without the white space that no string holds: it fits on a line then.
fn compact(json: &str) -> String {
    let (mut in_string, mut escaped) = (false, false);
    let stays = |letter: &char| {
        if in_string {
            in_string = escaped || *letter != '"';
            escaped = !escaped && *letter == '\\';
            return true;
        }
        in_string = *letter == '"';
        !letter.is_ascii_whitespace()
    };
    json.chars().filter(stays).collect()
}

#[cfg(test)]
mod tests {

    #[test]
    fn objects_are_as_they_were_written() {
        // More than any double is.
        let many = "7".repeat(700);
        for (text, object) in [
            (
                "{\"n\": 123456789012345678901234567890,\n \"a b\": [1.50, \"c \\\" d\\\\\"] }",
                "{\"n\":123456789012345678901234567890,\"a b\":[1.50,\"c \\\" d\\\\\"]}",
            ),
            (&format!("{{\"n\": {many}}}"), &format!("{{\"n\":{many}}}")),
            (&many, "{}"),
            (" {} ", "{}"),
            ("", "{}"),
            ("{\"a\": ", "{}"),
            ("[1]", "{}"),
            ("{\"a\": \"\\ud800\"}", "{}"),
        ] {
            assert_eq!(super::object(text).get(), object, "{text}");
        }
    }
}
