//! The text of the examples: a file, or the King James Bible.

#![allow(dead_code, reason = "no example uses all of it")]

use anyhow::{Context, Result, anyhow, ensure};
use bible_lib::{Bible, Translation};
use std::{collections::BTreeMap, fs, path::Path};

/// The text of this file, or of the King James Bible.
pub(crate) fn text(file: Option<&Path>) -> Result<String> {
    match file {
        Some(path) => read(path),
        None => king_james(),
    }
}

/// Genesis to Revelation, with one verse per line and an empty line between chapters.
fn king_james() -> Result<String> {
    let mut text = String::new();
    for chapter in books()?.into_iter().flatten() {
        for verse in chapter {
            text += &verse;
            text.push('\n');
        }
        text.push('\n');
    }
    Ok(text)
}

/// The verses of a chapter.
pub(crate) type Chapter = Vec<String>;

/// The 66 books of the King James Bible, Genesis to Revelation.
///
/// The crate returns its verses in hash maps, so they are sorted here. It also cuts a verse at its first colon: the text after it
/// ("..., Let there be light: and there was light.") is missing.
pub(crate) fn books() -> Result<Vec<Vec<Chapter>>> {
    let bible = Bible::new(Translation::KingJames)
        .map_err(|e| anyhow!("cannot read the King James Bible: {e:?}"))?;
    let books = bible.get_sorted_books().into_iter().map(|book| {
        let chapters: BTreeMap<_, _> = bible.verses[&book].iter().collect();
        let chapters = chapters.into_values().map(|chapter| {
            let verses: BTreeMap<_, _> = chapter.iter().collect();
            // [ ] enclose words that the translators added, ‹ › words of Jesus.
            let verses = verses
                .into_values()
                .map(|verse| verse.replace(['[', ']', '‹', '›'], ""));
            verses.collect()
        });
        chapters.collect()
    });
    Ok(books.collect())
}

fn read(path: &Path) -> Result<String> {
    let name = path.display();
    let bytes = fs::read(path).with_context(|| format!("cannot read {name}"))?;
    ensure!(
        !bytes.is_empty(),
        "{name} is empty: there is nothing to learn from"
    );
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        anyhow!(
            "{name} is not UTF-8 text: byte {at} cannot be read; convert it first (iconv -t UTF-8)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_bytes(bytes: &[u8]) -> Result<String> {
        let file = tempfile::NamedTempFile::new()?;
        fs::write(file.path(), bytes)?;
        read(file.path())
    }

    #[test]
    fn the_bible_comes_in_its_order_and_always_the_same() -> Result<()> {
        let text = king_james()?;
        assert!(text.starts_with(
            "In the beginning God created the heaven and the earth.\nAnd the earth was"
        ));
        assert!(
            text.trim_end()
                .ends_with("The grace of our Lord Jesus Christ be with you all. Amen.")
        );
        // Ruth, 1 Kings, Psalms, Matthew, 3 John.
        let openings = [
            "Now it came to pass in the days when the judges ruled",
            "Now king David was old",
            "Blessed is the man that walketh not",
            "The book of the generation of Jesus Christ",
            "The elder unto the wellbeloved Gaius",
        ];
        let places: Option<Vec<usize>> = openings.iter().map(|words| text.find(words)).collect();
        assert!(places.is_some_and(|places| places.is_sorted()));
        assert_eq!(text, king_james()?);
        Ok(())
    }

    #[test]
    fn a_file_is_read_as_it_is() -> Result<()> {
        assert_eq!(read_bytes("Ἐν ἀρχῇ\r\n".as_bytes())?, "Ἐν ἀρχῇ\r\n");
        Ok(())
    }

    #[test]
    fn empty_binary_and_missing_files_are_refused_with_a_reason() {
        let reason = |r: Result<String>| r.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(reason(read_bytes(b"")).contains("is empty"));
        assert!(reason(read_bytes(b"abc\xffdef")).contains("byte 3"));
        assert!(reason(read(Path::new("no such file"))).contains("cannot read no such file"));
        assert!(reason(read(Path::new("."))).contains("cannot read"));
    }
}
