//! The encoding of weights in a page: integers of few bits, in base64.

use serde_json::{Value, json};

use crate::{
    kernel::attention::{Coverage, MaskBlocks},
    maps::AttentionMap,
};

/// A page with at most this many weights has 16 bits for each, others have 8.
pub(super) const FINE: usize = 1 << 20;

/// The encoding of the weights of a row. 0 is exactly zero, 1 to `top` are `low + (code - 1) * step`, and larger codes are NaN
/// and both infinities. `low` is 0 unless there are negative weights, and `top` is the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codes {
    Bits8,
    Bits16,
}

impl Codes {
    /// The encoding for this number of weights.
    pub(super) fn of(weights: usize) -> Self {
        match weights <= FINE {
            true => Self::Bits16,
            false => Self::Bits8,
        }
    }

    pub(super) fn bits(self) -> usize {
        match self {
            Self::Bits8 => 8,
            Self::Bits16 => 16,
        }
    }

    /// The largest code of a finite weight.
    pub(super) fn top(self) -> u16 {
        match self {
            Self::Bits8 => u8::MAX as u16 - 3,
            Self::Bits16 => u16::MAX - 3,
        }
    }
}

/// A row of weights as codes.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) low: Vec<u8>,
    pub(super) step: Vec<u8>,
    pub(super) codes: Vec<u8>,
}

impl Rows {
    pub(super) fn of(weights: &[f32], width: usize, codes: Codes) -> Self {
        let mut rows = Self::default();
        if width > 0 {
            for row in weights.chunks(width) {
                rows.push(row, codes);
            }
        }
        rows
    }

    fn push(&mut self, row: &[f32], codes: Codes) {
        let finite = || row.iter().filter(|w| w.is_finite()).copied();
        let low = finite().fold(0.0, f32::min);
        let high = finite().fold(0.0, f32::max);
        let steps = f64::from(codes.top() - 1);
        // The difference of two floats may overflow.
        let step = ((f64::from(high) - f64::from(low)) / steps) as f32;
        self.low.extend(low.to_le_bytes());
        self.step.extend(step.to_le_bytes());
        for &weight in row {
            let above = (f64::from(weight) - f64::from(low)) / f64::from(step);
            let code = match weight {
                0.0 => 0,
                w if w.is_nan() => codes.top() + 1,
                f32::INFINITY => codes.top() + 2,
                f32::NEG_INFINITY => codes.top() + 3,
                // A nonzero number never has the code 0, however small it is. The cast saturates, and maps NaN to 0.
                _ => (above.round() as u16).saturating_add(1).min(codes.top()),
            };
            match codes {
                Codes::Bits8 => self.codes.push(code as u8),
                Codes::Bits16 => self.codes.extend(code.to_le_bytes()),
            }
        }
    }
}

/// A map for the page, without its labels.
pub(super) fn map(map: &AttentionMap, codes: Codes) -> Value {
    let rows = Rows::of(map.weights(), map.keys(), codes);
    let entropies: Vec<f64> = (0..map.heads()).map(|h| map.mean_entropy(h)).collect();
    json!({
        "name": map.name(),
        "shape": map.shape(),
        "bits": codes.bits(),
        "low": base64(&rows.low),
        "step": base64(&rows.step),
        "codes": base64(&rows.codes),
        // JSON has no NaN, so it becomes null.
        "entropy": entropies,
        "blocks": map.mask_blocks().map(blocks),
    })
}

fn blocks(blocks: &MaskBlocks) -> Value {
    let mut plan = String::new();
    for head in 0..blocks.heads() {
        for row in 0..blocks.rows() {
            plan.extend(
                (0..blocks.columns()).map(|column| match blocks.at(head, row, column) {
                    Coverage::Empty => 'e',
                    Coverage::Partial => 'p',
                    Coverage::Full => 'f',
                }),
            );
        }
    }
    json!({
        "heads": blocks.heads(),
        "rows": blocks.rows(),
        "columns": blocks.columns(),
        "plan": plan,
        "queries": MaskBlocks::QUERIES,
        "keys": MaskBlocks::KEYS,
    })
}

/// RFC 4648.
pub(super) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |i: usize| u32::from(three.get(i).copied().unwrap_or(0));
        let all = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            text.push(match digit <= three.len() {
                true => DIGITS[(all >> (18 - 6 * digit) & 63) as usize] as char,
                false => '=',
            });
        }
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Decodes base64 in an independent way: every digit is looked up, and its bits are appended.
    pub(in crate::viz) fn bytes(text: &str) -> Vec<u8> {
        let value = |c: char| match c {
            'A'..='Z' => c as u32 - 65,
            'a'..='z' => c as u32 - 71,
            '0'..='9' => c as u32 + 4,
            '+' => 62,
            '/' => 63,
            _ => panic!("{c} is no digit"),
        };
        let digits = text.trim_end_matches('=').chars().map(value);
        let bits: Vec<u8> = digits
            .flat_map(|digit| (0..6).rev().map(move |bit| (digit >> bit & 1) as u8))
            .collect();
        let eights = bits.chunks_exact(8);
        eights
            .map(|eight| eight.iter().fold(0, |byte, bit| byte << 1 | bit))
            .collect()
    }

    /// The weights that a page decodes from its data.
    pub(in crate::viz) fn decode(map: &Value) -> Vec<f32> {
        let text = |name: &str| bytes(map[name].as_str().unwrap());
        let floats = |name: &str| -> Vec<f32> {
            let bytes = text(name);
            let fours = bytes.chunks_exact(4);
            fours
                .map(|four| f32::from_le_bytes(four.try_into().unwrap()))
                .collect()
        };
        let low = floats("low");
        let step = floats("step");
        let codes: Vec<u32> = match map["bits"].as_u64().unwrap() {
            8 => text("codes").iter().map(|code| u32::from(*code)).collect(),
            _ => text("codes")
                .chunks_exact(2)
                .map(|two| u32::from(two[0]) | u32::from(two[1]) << 8)
                .collect(),
        };
        let top = (1 << map["bits"].as_u64().unwrap()) - 4;
        let width = map["shape"][3].as_u64().unwrap() as usize;
        let weight = |(at, code): (usize, u32)| match code {
            0 => 0.0,
            code if code == top + 1 => f32::NAN,
            code if code == top + 2 => f32::INFINITY,
            code if code == top + 3 => f32::NEG_INFINITY,
            code => match low[at / width] + (code - 1) as f32 * step[at / width] {
                0.0 => f32::MIN_POSITIVE,
                weight => weight,
            },
        };
        codes.into_iter().enumerate().map(weight).collect()
    }

    #[test]
    fn base64_agrees_with_the_rfc() {
        let pairs = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ];
        for (text, expected) in pairs {
            assert_eq!(base64(text.as_bytes()), expected);
            assert_eq!(bytes(expected), text.as_bytes());
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(bytes(&base64(&all)), all);
    }

    fn decoded(weights: &[f32], codes: Codes) -> Vec<f32> {
        let map = AttentionMap::new("m", [1, 1, 1, weights.len()], weights.to_vec());
        decode(&super::map(&map, codes))
    }

    #[test]
    fn weights_are_decoded_within_half_a_step() {
        let weights: Vec<f32> = (0..100).map(|i| (i as f32).sin().abs() / 7.0).collect();
        let largest = weights.iter().copied().fold(0.0, f32::max);
        for (codes, steps) in [(Codes::Bits8, 251.0), (Codes::Bits16, 65531.0)] {
            let found = decoded(&weights, codes);
            for (found, weight) in found.iter().zip(&weights) {
                // Half a step, and the rounding of an f32.
                let most = largest / steps * 0.5 + 1e-8;
                assert!((found - weight).abs() <= most, "{found} is not {weight}");
            }
        }
    }

    #[test]
    fn zero_is_exact_and_no_other_weight_is_zero() {
        let weights = [1.0, 0.0, 1e-30, f32::MIN_POSITIVE, -0.0, 0.5];
        for codes in [Codes::Bits8, Codes::Bits16] {
            let found = decoded(&weights, codes);
            let zeros: Vec<bool> = found.iter().map(|w| *w == 0.0).collect();
            assert_eq!(zeros, [false, true, false, false, true, false]);
            assert!((found[0] - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn weights_that_are_not_finite_are_preserved() {
        let weights = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.25, -0.75];
        for codes in [Codes::Bits8, Codes::Bits16] {
            let found = decoded(&weights, codes);
            assert!(found[0].is_nan());
            assert_eq!(found[1..3], weights[1..3]);
            // One step of the range from -0.75 to 0.25.
            let most = 1.0 / f32::from(codes.top());
            assert!((found[3] - 0.25).abs() <= most && (found[4] + 0.75).abs() <= most);
        }
        // No finite weight except zero, and floats whose difference overflows.
        assert_eq!(
            decoded(&[0.0, f32::INFINITY], Codes::Bits8),
            [0.0, f32::INFINITY]
        );
        let far = decoded(&[f32::MAX, f32::MIN], Codes::Bits16);
        assert!(far[0] > 3.3e38 && far[1] < -3.3e38);
    }

    #[test]
    fn maps_of_size_0_are_encoded() {
        for shape in [[0, 2, 3, 3], [1, 0, 3, 3], [1, 2, 0, 3], [1, 2, 3, 0]] {
            let found = map(&AttentionMap::new("m", shape, vec![]), Codes::Bits16);
            assert_eq!(decode(&found), [0.0; 0]);
        }
    }
}
