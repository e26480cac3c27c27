#[cfg(feature = "tokenizers")]
mod chat;
#[cfg(feature = "tokenizers")]
mod families;

use super::*;

/// Characters of UTF-8's four lengths.
const TEXT: &str = "Grüße, Welt!\n日本 🦀\u{0}";

fn error<T: std::fmt::Debug>(result: Result<T, TextError>) -> String {
    result.expect_err("it is refused").to_string()
}

fn all() -> Vec<Vocabulary> {
    vec![
        Vocabulary::characters(TEXT).unwrap(),
        Vocabulary::bytes(),
        #[cfg(feature = "tokenizers")]
        Vocabulary::byte_pairs(TEXT, 260).unwrap(),
    ]
}

#[test]
fn encoding_and_decoding_are_inverse() {
    for vocabulary in all() {
        for text in [TEXT, "", "ß", "\n\n 日 日"] {
            let tokens = vocabulary.encode(text).unwrap();
            assert!(tokens.iter().all(|token| *token < vocabulary.len()));
            assert_eq!(vocabulary.decode(&tokens).unwrap(), text);
        }
    }
}

#[test]
fn characters_are_in_the_order_of_their_code_points() {
    let vocabulary = Vocabulary::characters("hello").unwrap();
    assert_eq!(vocabulary.len(), 4);
    assert_eq!(vocabulary.encode("ehlo").unwrap(), [0, 1, 2, 3]);
    assert_eq!(vocabulary.unit(), "character");
}

#[test]
fn bytes_are_numbered_by_value() {
    let tokens = Vocabulary::bytes().encode("aü").unwrap();
    assert_eq!(tokens, [0x61, 0xc3, 0xbc]);
    assert_eq!(Vocabulary::bytes().len(), 256);
}

#[test]
fn unknown_characters_are_named_once_in_a_shortened_text() {
    let vocabulary = Vocabulary::characters("abc").unwrap();
    assert_eq!(
        error(vocabulary.encode("a!b?!")),
        r#""a!b?!" has characters that are not in the vocabulary: ['!', '?']"#
    );
    let long = error(vocabulary.encode(&"é".repeat(100)));
    assert!(
        long.starts_with(&format!("\"{}…\" has", "é".repeat(60))),
        "{long}"
    );
}

#[test]
fn unknown_tokens_are_refused() {
    for vocabulary in all() {
        let len = vocabulary.len();
        let message = error(vocabulary.decode(&[0, len]));
        assert_eq!(
            message,
            format!("there is no token {len}: the vocabulary has {len}, from 0")
        );
        assert!(vocabulary.decode(&[usize::MAX]).is_err());
    }
    let bytes = Vocabulary::bytes();
    let mut decoder = bytes.decoder();
    assert_eq!(decoder.push(0xc3).unwrap(), "");
    assert!(decoder.push(256).is_err());
    assert_eq!(
        decoder.push(0xbc).unwrap(),
        "ü",
        "it is as if it had not come"
    );
}

#[test]
fn characters_and_bytes_have_pairs_and_no_special_tokens() {
    let pair = Vocabulary::bytes().encode_pair("ab", "c").unwrap();
    assert_eq!(pair.tokens, [97, 98, 99]);
    assert_eq!(pair.segments, [0, 0, 1]);
    let vocabulary = Vocabulary::characters("abc").unwrap();
    assert!(!vocabulary.is_special(0));
    assert_eq!(vocabulary.token("b"), Some(1));
    assert_eq!(vocabulary.token("bc"), None);
    assert_eq!(vocabulary.token("d"), None);
    assert_eq!(
        vocabulary.decode_without_special_tokens(&[2, 0]).unwrap(),
        "ca"
    );
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let none = error(Vocabulary::open(folder.path()));
    assert!(
        none.contains("tokenizer.json") && none.contains("No such file"),
        "{none}"
    );
    let path = folder.path().join("letters.json");
    std::fs::write(&path, r#""abc""#).unwrap();
    assert_eq!(
        Vocabulary::open(&path),
        Ok(Vocabulary::characters("cab").unwrap())
    );
    std::fs::write(&path, "[]").unwrap();
    let other = error(Vocabulary::open(&path));
    assert!(
        other.contains("letters.json") && other.contains("neither"),
        "{other}"
    );
}

#[test]
fn an_empty_text_has_no_vocabulary() {
    assert_eq!(Vocabulary::characters(""), Err(TextError::Empty));
}

/// After each token, the text so far is a prefix of the standard library's text of all bytes.
#[test]
fn streamed_bytes_decode_as_in_the_standard_library() {
    let samples: [&[u8]; 8] = [
        "aü日🦀".as_bytes(),
        b"\xff\xfe",
        b"\xe6\x97",
        b"\xe6\x97a\xa5",
        b"\xf0\x9f\xa6\x80\xf0\x9f\xa6",
        b"\xed\xa0\x80",
        b"\xc3\xc3\xbc\xc3",
        b"",
    ];
    let bytes = Vocabulary::bytes();
    for sample in samples {
        let expected = String::from_utf8_lossy(sample);
        let mut decoder = bytes.decoder();
        let mut text = String::new();
        for (at, byte) in sample.iter().enumerate() {
            text += &decoder.push(usize::from(*byte)).unwrap();
            assert!(expected.starts_with(&text), "{sample:?} at {at}: {text}");
            // At most one character is incomplete.
            let complete = String::from_utf8_lossy(&sample[..=at]);
            let complete = complete.trim_end_matches(char::REPLACEMENT_CHARACTER);
            assert!(text.starts_with(complete), "{sample:?} at {at}: {text}");
        }
        assert_eq!(text + &decoder.finish(), expected);
    }
}

#[test]
fn a_vocabulary_is_restored_from_its_file() {
    for vocabulary in all() {
        let json = serde_json::to_string(&vocabulary).unwrap();
        let read: Vocabulary = serde_json::from_str(&json).unwrap();
        assert_eq!(read, vocabulary);
        assert_eq!(read.encode(TEXT), vocabulary.encode(TEXT));
        let pretty = serde_json::to_string_pretty(&vocabulary).unwrap();
        assert_eq!(serde_json::from_str::<Vocabulary>(&pretty).unwrap(), read);
    }
    let json = serde_json::to_string(&Vocabulary::characters("a\nü\"").unwrap()).unwrap();
    assert_eq!(json, r#""\n\"aü""#);
}

#[test]
fn invalid_files_are_refused_with_a_reason() {
    let read = |json: &str| match serde_json::from_str::<Vocabulary>(json) {
        Ok(vocabulary) => panic!("{vocabulary:?}"),
        Err(error) => error.to_string(),
    };
    for (json, reason) in [
        (r#""""#, "at least one character"),
        (r#""ba""#, "in the order"),
        (r#""aab""#, "each once"),
        ("7", "neither a text"),
        (r#"{"type": "words"}"#, "neither a text"),
        (
            r#"{"model": 7}"#,
            if cfg!(feature = "tokenizers") {
                "ModelUntagged"
            } else {
                "feature `tokenizers`"
            },
        ),
    ] {
        let message = read(json);
        assert!(message.contains(reason), "{json}: {message}");
    }
}

#[cfg(feature = "tokenizers")]
mod byte_pairs {
    use super::*;

    const VERSE: &str = "the cat and the hat and the bat";

    #[test]
    fn the_most_frequent_pair_is_the_first_piece() {
        // " t", "th" and "he" occur three times, " the" has two of the first: GPT-2's rule splits before a space.
        let vocabulary = Vocabulary::byte_pairs(VERSE, 257).unwrap();
        assert_eq!(vocabulary.len(), 257);
        let first = vocabulary.bytes_of(256).unwrap();
        let pairs = VERSE.matches(std::str::from_utf8(&first).unwrap()).count();
        assert_eq!(pairs, 3, "{first:?}");
        assert_eq!(vocabulary.unit(), "piece");
    }

    #[test]
    fn pieces_do_not_cross_spaces_and_training_ends() {
        let vocabulary = Vocabulary::byte_pairs(VERSE, 5000).unwrap();
        assert!(vocabulary.len() < 300, "{}", vocabulary.len());
        for token in 256..vocabulary.len() {
            let piece = vocabulary.bytes_of(token).unwrap();
            assert!(!piece[1..].contains(&b' '), "{piece:?}");
        }
        assert_eq!(vocabulary.encode(VERSE).unwrap().len(), 8);
    }

    #[test]
    fn any_text_can_be_encoded() {
        let vocabulary = Vocabulary::byte_pairs("aaaa", 300).unwrap();
        for byte in 0..128_u8 {
            let text = char::from(byte).to_string();
            let tokens = vocabulary.encode(&text).unwrap();
            assert_eq!(vocabulary.decode(&tokens).unwrap(), text);
        }
        let tokens = vocabulary.encode(TEXT).unwrap();
        assert_eq!(vocabulary.decode(&tokens).unwrap(), TEXT);
    }

    #[test]
    fn every_byte_is_a_token() {
        let vocabulary = Vocabulary::byte_pairs("a", 256).unwrap();
        let mut bytes: Vec<_> = (0..256).map(|t| vocabulary.bytes_of(t).unwrap()).collect();
        bytes.sort();
        assert_eq!(bytes, (0..=255).map(|byte| vec![byte]).collect::<Vec<_>>());
    }

    #[test]
    fn tokenizers_of_other_libraries_may_have_added_tokens() {
        let vocabulary = Vocabulary::byte_pairs(VERSE, 257).unwrap();
        let mut json = serde_json::to_value(&vocabulary).unwrap();
        json["added_tokens"] = serde_json::json!([{
            "id": 257, "content": "<end of text>", "special": true, "single_word": false,
            "lstrip": false, "rstrip": false, "normalized": false
        }]);
        let read: Vocabulary = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(read.len(), 258);
        assert_ne!(read, vocabulary);
        assert_eq!(read.bytes_of(257).unwrap(), b"<end of text>");
        assert_eq!(read.encode("a<end of text>").unwrap().last(), Some(&257));

        // Numbers up to 300 that no piece has are tokens without a text.
        let first = vocabulary.bytes_of(256).unwrap();
        let first = String::from_utf8(first).unwrap();
        json["model"]["vocab"][first.replace(' ', "Ġ")] = serde_json::json!(300);
        let gap: Vocabulary = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(gap.len(), 301);
        assert_eq!(gap.decode(&[256, 300, 299]).unwrap(), first);
        assert_eq!(gap.bytes_of(256).unwrap(), b"");
        assert!(gap.decode(&[301]).is_err());

        json["model"]["vocab"]["Ġ"] = serde_json::json!(u32::MAX);
        let far = serde_json::from_value::<Vocabulary>(json).unwrap_err();
        assert_eq!(
            far.to_string(),
            "not a vocabulary: of 258 pieces, one has the number 4294967295: most numbers up to it have no piece"
        );
    }

    #[test]
    fn training_is_deterministic() {
        let text: String = (0..400)
            .map(|i| format!("{} {} ", i * i % 97, i % 13))
            .collect();
        let of = || serde_json::to_string(&Vocabulary::byte_pairs(&text, 400).unwrap()).unwrap();
        assert_eq!(of(), of());
    }

    #[test]
    fn invalid_sizes_and_texts_are_refused() {
        assert_eq!(
            error(Vocabulary::byte_pairs("abc", 255)),
            "byte pairs need a vocabulary of at least 256 tokens, one for each byte, not of 255"
        );
        assert_eq!(Vocabulary::byte_pairs("", 300), Err(TextError::Empty));
    }
}

#[cfg(feature = "tokenizers")]
mod of_hugging_face {
    use super::*;

    /// The format of `BertTokenizerFast`, with fewer words, with padding and truncation.
    fn bert() -> Vocabulary {
        let words = [
            "[PAD]", "[UNK]", "[CLS]", "[SEP]", "hello", "word", "##s", "!", "\u{e9}",
        ];
        let ids = words
            .iter()
            .zip(0..)
            .map(|(word, id)| (word.to_string(), id.into()));
        let special = (0..4).map(|id| {
            serde_json::json!({
                "id": id, "content": words[id], "special": true, "single_word": false,
                "lstrip": false, "rstrip": false, "normalized": false
            })
        });
        serde_json::from_value(serde_json::json!({
            "version": "1.0",
            "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
            "padding": {
                "strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": null,
                "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"
            },
            "added_tokens": special.collect::<Vec<_>>(),
            "normalizer": {
                "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                "strip_accents": null, "lowercase": true
            },
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
            "model": {
                "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100,
                "vocab": ids.collect::<serde_json::Map<_, _>>()
            }
        }))
        .unwrap()
    }

    #[test]
    fn special_tokens_are_added_and_padding_is_ignored() {
        assert_eq!(bert().encode("Hello words!").unwrap(), [2, 4, 5, 6, 7, 3]);
        let alone = bert().encode_without_special_tokens("Hello words!");
        assert_eq!(alone.unwrap(), [4, 5, 6, 7]);
        assert_eq!(bert().encode("nobody").unwrap(), [2, 1, 3]);
        assert_eq!(bert().encode("[SEP]").unwrap(), [2, 3, 3]);
    }

    #[test]
    fn words_are_decoded_with_spaces_also_one_by_one() {
        for (tokens, text) in [
            (&[4, 5, 6, 7][..], "hello words!"),
            (&[2, 4, 5, 6, 7, 3], "[CLS] hello words! [SEP]"),
            (&[], ""),
        ] {
            let vocabulary = bert();
            assert_eq!(vocabulary.decode(tokens).unwrap(), text);
            let mut decoder = vocabulary.decoder();
            let pieces = tokens.iter().map(|token| decoder.push(*token).unwrap());
            let pieces: String = pieces.collect();
            assert_eq!(pieces + &decoder.finish(), text);
        }
        assert_eq!(
            error(bert().decode(&[4, 9])),
            "there is no token 9: the vocabulary has 9, from 0"
        );
        assert!(bert().decoder().push(9).is_err());
        assert_eq!(bert().bytes_of(8).unwrap(), "\u{e9}".as_bytes());
    }

    #[test]
    fn a_tokenizer_is_saved_and_read_again() {
        let json = serde_json::to_string(&bert()).unwrap();
        assert_eq!(serde_json::from_str::<Vocabulary>(&json).unwrap(), bert());
    }
}
