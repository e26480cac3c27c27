//! HTML pages in one file.

use std::fmt::Write;

use serde_json::Value;

const PAGE_STYLE: &str = include_str!("assets/page.css");

/// The policy forbids all requests. The page may run its inline script and show inline pictures.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; \
                      base-uri 'none'; form-action 'none'";

/// A whole page. `title` is text; the others are HTML, CSS and scripts.
pub(super) fn page(title: &str, styles: &[&str], body: &str, scripts: &[&str]) -> String {
    let title = text(title);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<link rel=\"icon\" href=\"data:,\">\n"
    );
    for style in [PAGE_STYLE].iter().chain(styles) {
        let _ = writeln!(page, "<style>\n{style}</style>");
    }
    let _ = write!(
        page,
        "</head>\n<body>\n<main>\n<h1>{title}</h1>\n{body}</main>\n"
    );
    for script in scripts {
        let _ = writeln!(page, "<script>\n{script}</script>");
    }
    page.push_str("</body>\n</html>\n");
    page
}

/// Escapes text for elements and quoted attributes, in HTML and SVG. Characters that XML forbids are replaced by a symbol.
pub(super) fn text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('�'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Data for a script, in an element that is not executed. It contains no `<`, so it cannot end the element, and no Unicode line
/// separators, which older scripts treat as line ends.
pub(super) fn data(value: &Value) -> String {
    let mut json = String::new();
    for c in value.to_string().chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(json, "\\u{:04x}", c as u32);
            }
            c => json.push(c),
        }
    }
    format!("<script type=\"application/json\">{json}</script>")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    /// Texts that try to escape from their context.
    pub(in crate::viz) const HOSTILE: [&str; 7] = [
        "</script><script>alert(1)</script>",
        "<!--<script>",
        "\"><img src=x onerror=alert(1)>",
        "' onmouseover='alert(1)",
        "\u{2028}alert(1)\u{2029}",
        "]]>&lt;&amp;\\u003c",
        "</title></style><svg onload=alert(1)>",
    ];

    #[test]
    fn escaped_text_has_no_markup() {
        for hostile in HOSTILE {
            let escaped = text(hostile);
            assert!(!escaped.contains(['<', '>', '"', '\'']), "{escaped}");
        }
        assert_eq!(text("a<b & \"c\"\u{1b}\n"), "a&lt;b &amp; &quot;c&quot;�\n");
    }

    #[test]
    fn data_cannot_end_its_element_and_is_preserved() -> Result<(), serde_json::Error> {
        let value = json!(HOSTILE);
        let element = data(&value);
        let inner = element
            .strip_prefix("<script type=\"application/json\">")
            .and_then(|element| element.strip_suffix("</script>"))
            .unwrap_or_default();
        assert!(!inner.contains(['<', '>', '&', '\u{2028}', '\u{2029}']));
        assert_eq!(serde_json::from_str::<Value>(inner)?, value);
        Ok(())
    }

    #[test]
    fn a_page_has_no_external_references() {
        let page = page("<title>", &[], "body", &["script"]);
        assert!(page.contains("<title>&lt;title&gt;</title>"));
        assert!(page.contains("default-src 'none'"));
        assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("//"));
    }
}
