//! JSON as Python's `json.dumps` writes it.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Serializer, ser::Formatter};

/// The arguments of `json.dumps`.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) indent: Option<usize>,
    pub(super) ensure_ascii: bool,
    pub(super) sort_keys: bool,
    /// Between items, and between a key and its value.
    pub(super) separators: Option<[String; 2]>,
}

pub(super) fn dumps(value: &impl Serialize, options: Options) -> serde_json::Result<String> {
    let [item, key] = options.separators.unwrap_or_else(|| {
        let item = if options.indent.is_some() { "," } else { ", " };
        [item.into(), ": ".into()]
    });
    let style = Style {
        indent: options.indent,
        ensure_ascii: options.ensure_ascii,
        item,
        key,
        depth: 0,
        is_empty: true,
    };
    let mut text = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut text, style);
    if options.sort_keys {
        let mut sorted = serde_json::to_value(value)?;
        sorted.sort_all_objects();
        sorted.serialize(&mut serializer)?;
    } else {
        value.serialize(&mut serializer)?;
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

struct Style {
    indent: Option<usize>,
    ensure_ascii: bool,
    item: String,
    key: String,
    depth: usize,
    /// Whether the innermost list or object has had no item.
    is_empty: bool,
}

impl Style {
    fn begin<W: ?Sized + Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.is_empty = true;
        writer.write_all(bracket)
    }

    fn end<W: ?Sized + Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if !self.is_empty {
            self.new_line(writer)?;
        }
        self.is_empty = false;
        writer.write_all(bracket)
    }

    fn begin_item<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if !first {
            writer.write_all(self.item.as_bytes())?;
        }
        self.is_empty = false;
        self.new_line(writer)
    }

    fn new_line<W: ?Sized + Write>(&self, writer: &mut W) -> io::Result<()> {
        match self.indent {
            Some(indent) => write!(writer, "\n{:1$}", "", indent * self.depth),
            None => Ok(()),
        }
    }
}

impl Formatter for Style {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin(writer, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.begin_item(writer, first)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin(writer, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.begin_item(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(self.key.as_bytes())
    }

    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        if !self.ensure_ascii {
            return writer.write_all(fragment.as_bytes());
        }
        for character in fragment.chars() {
            if character.is_ascii() {
                write!(writer, "{character}")?;
            } else {
                let units = character.encode_utf16(&mut [0; 2]).to_vec();
                units
                    .iter()
                    .try_for_each(|unit| write!(writer, "\\u{unit:04x}"))?;
            }
        }
        Ok(())
    }
}
