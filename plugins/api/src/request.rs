//! Questions that operators ask a plugin over the admin endpoint.

/// A question: what comes after `/api/v1/` on the admin endpoint.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// `GET` or `POST`.
    pub method: &'a str,
    /// The path after `/api/v1/`.
    pub path: &'a str,
    /// What comes after `?`, as it came.
    pub query: &'a str,
    /// The body of a POST, bounded by the gateway.
    pub body: &'a [u8],
}

/// An answer in JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The JSON text.
    pub json: String,
}

impl Response {
    /// 200 with this JSON text.
    pub fn ok(json: String) -> Self {
        Self { status: 200, json }
    }

    /// 400 and what would be right.
    pub fn bad_request(what: &str) -> Self {
        Self { status: 400, json: format!("{{\"error\":{}}}", quoted(what)) }
    }
}

/// A text as a JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

impl<'a> Request<'a> {
    /// The value of a parameter in the query, with `%xx` and `+` decoded; none when it is not there.
    pub fn parameter(&self, name: &str) -> Option<String> {
        self.query.split('&').find_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (key == name).then(|| percent_decoded(value))
        })
    }
}

fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let hex = bytes.get(at + 1..at + 3).and_then(|two| std::str::from_utf8(two).ok());
        let decoded = hex.filter(|_| byte == b'%').and_then(|two| u8::from_str_radix(two, 16).ok());
        at += if decoded.is_some() { 3 } else { 1 };
        out.push(decoded.unwrap_or(if byte == b'+' { b' ' } else { byte }));
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query = "a=1&queue=workers%3Asensors%2F%23&odd=100%&plus=a+b";
        let request = Request { method: "GET", path: "queues", query, body: b"" };
        assert_eq!(request.parameter("queue").as_deref(), Some("workers:sensors/#"));
        assert_eq!(request.parameter("odd").as_deref(), Some("100%"));
        assert_eq!(request.parameter("plus").as_deref(), Some("a b"));
        assert_eq!(request.parameter("none"), None);
    }

    #[test]
    fn errors_are_json() {
        assert_eq!(Response::bad_request("say \"x\"\n").json, r#"{"error":"say \"x\"\u000a"}"#);
    }
}
