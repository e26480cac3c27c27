//! Tokenizers of the structure that families of models have make the tokens and the texts that the Python package makes: `families.py` has
//! written both to `families.json`.

use serde::Deserialize;

use crate::text::{Decoder, StopText, Vocabulary};

#[derive(Deserialize)]
struct Family {
    name: String,
    tokenizer: serde_json::Value,
    special: Vec<usize>,
    texts: Vec<Case>,
    pairs: Vec<Pair>,
    random: Vec<Random>,
}

#[derive(Deserialize)]
struct Case {
    text: String,
    ids: Vec<usize>,
    /// Without special tokens.
    alone: Vec<usize>,
    decoded: String,
    without_special: String,
    /// The text that the Python package returns with each token.
    streamed: Vec<String>,
}

#[derive(Deserialize)]
struct Pair {
    first: String,
    second: String,
    ids: Vec<usize>,
    segments: Vec<usize>,
}

#[derive(Deserialize)]
struct Random {
    ids: Vec<usize>,
    decoded: String,
}

/// Each family with its vocabulary.
fn each(mut claim: impl FnMut(&Family, &Vocabulary)) {
    let families: Vec<Family> = serde_json::from_str(include_str!("families.json")).unwrap();
    assert_eq!(families.len(), 17);
    for family in families {
        let vocabulary = serde_json::from_value(family.tokenizer.clone());
        let vocabulary = vocabulary.unwrap_or_else(|error| panic!("{}: {error}", family.name));
        claim(&family, &vocabulary);
    }
}

/// The text that comes with each token, and the rest.
fn pieces(mut decoder: Decoder<'_>, tokens: &[usize]) -> Vec<String> {
    let pieces = tokens.iter().map(|token| decoder.push(*token).unwrap());
    let mut pieces: Vec<_> = pieces.collect();
    pieces.push(decoder.finish());
    pieces
}

#[test]
fn texts_have_the_tokens_of_their_family() {
    each(|family, vocabulary| {
        for case in &family.texts {
            let name = format!("{}: {:?}", family.name, case.text);
            assert_eq!(vocabulary.encode(&case.text).unwrap(), case.ids, "{name}");
            let alone = vocabulary.encode_without_special_tokens(&case.text);
            assert_eq!(alone.unwrap(), case.alone, "{name}");
        }
        for pair in &family.pairs {
            let encoded = vocabulary.encode_pair(&pair.first, &pair.second).unwrap();
            let name = format!("{}: {:?}", family.name, pair.first);
            assert_eq!(encoded.tokens, pair.ids, "{name}");
            assert_eq!(encoded.segments, pair.segments, "{name}");
        }
    });
}

#[test]
fn tokens_have_the_text_of_their_family_with_and_without_special_tokens() {
    each(|family, vocabulary| {
        for case in &family.texts {
            let name = format!("{}: {:?}", family.name, case.text);
            assert_eq!(
                vocabulary.decode(&case.ids).unwrap(),
                case.decoded,
                "{name}"
            );
            let text = vocabulary.decode_without_special_tokens(&case.ids).unwrap();
            assert_eq!(text, case.without_special, "{name}");
            let decoder = vocabulary.decoder().without_special_tokens();
            assert_eq!(pieces(decoder, &case.ids).concat(), text, "{name}");
        }
        let special = (0..vocabulary.len()).filter(|token| vocabulary.is_special(*token));
        assert_eq!(
            special.collect::<Vec<_>>(),
            family.special,
            "{}",
            family.name
        );
        for &token in &family.special {
            let text = vocabulary.decode(&[token]).unwrap();
            assert_eq!(
                vocabulary.token(text.trim()),
                Some(token),
                "{}",
                family.name
            );
        }
    });
}

/// No later than in the Python package, which waits for the whole of a token that ends within a character.
#[test]
fn streamed_text_is_the_whole_text_and_comes_as_soon_as_it_is_known() {
    each(|family, vocabulary| {
        for case in &family.texts {
            let name = format!("{}: {:?}", family.name, case.text);
            let pieces = pieces(vocabulary.decoder(), &case.ids);
            assert_eq!(pieces.concat(), case.decoded, "{name}");
            let (mut text, mut theirs) = (String::new(), String::new());
            for (piece, other) in pieces.iter().zip(&case.streamed) {
                text += piece;
                theirs += other;
                assert!(text.starts_with(&theirs), "{name}: {pieces:?}");
                // A token of several characters, of which the last is incomplete, is the only difference.
                let incomplete = text.len() > theirs.len();
                assert!(
                    !incomplete || piece.len() > other.len(),
                    "{name}: {pieces:?}"
                );
            }
        }
    });
}

/// The bytes of an untrained model are in any order. Some decoders read none of the bytes in a row if one does not fit. A stream cannot know
/// that one will follow, so it may have read more.
#[test]
fn any_tokens_can_be_streamed() {
    each(|family, vocabulary| {
        for Random { ids, decoded } in &family.random {
            let name = format!("{}: {ids:?}", family.name);
            assert_eq!(&vocabulary.decode(ids).unwrap(), decoded, "{name}");
            let streamed = pieces(vocabulary.decoder(), ids).concat();
            let mut characters = streamed.chars();
            let read = decoded
                .chars()
                .filter(|c| *c != char::REPLACEMENT_CHARACTER);
            for character in read {
                assert!(characters.any(|c| c == character), "{name}: {streamed:?}");
            }
            if !decoded.contains(char::REPLACEMENT_CHARACTER) {
                assert_eq!(&streamed, decoded, "{name}");
            }
        }
    });
}

/// A character that was returned stays, although the decoder reads it otherwise when a byte follows that does not fit.
#[test]
fn bytes_behind_a_character_do_not_take_it_back() {
    each(|family, vocabulary| {
        let Some(tokens) = ["<0xE2>", "<0x82>", "<0xAC>", "<0xE2>"]
            .map(|byte| vocabulary.token(byte))
            .into_iter()
            .collect::<Option<Vec<_>>>()
        else {
            return;
        };
        let euro = pieces(vocabulary.decoder(), &tokens);
        assert_eq!(euro, ["", "", "€", "", "\u{fffd}"], "{}", family.name);
        let word = vocabulary.token("a").unwrap();
        let behind = pieces(vocabulary.decoder(), &[tokens.as_slice(), &[word]].concat());
        assert_eq!(behind[4], "\u{fffd}a", "{}", family.name);
        // No character has five bytes: what is certainly none does not wait.
        let none = pieces(vocabulary.decoder(), &[tokens[0]; 6]).concat();
        assert_eq!(none, "\u{fffd}".repeat(6), "{}", family.name);
    });
}

#[test]
fn a_stop_text_ends_the_text_of_any_family() {
    each(|family, vocabulary| {
        let text = "the cat and the hat";
        let tokens = vocabulary.encode(text).unwrap();
        let whole = vocabulary.decode(&tokens).unwrap();
        let mut stop = StopText::new("d the");
        let pieces = pieces(vocabulary.decoder(), &tokens);
        let kept: String = pieces.iter().map(|piece| stop.push(piece)).collect();
        let expected = whole.find("d the").map_or(&*whole, |at| &whole[..at]);
        assert_eq!(kept + &stop.finish(), expected, "{}", family.name);
    });
}
