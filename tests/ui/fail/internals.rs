//! Items for expansions have no path that users see: each of these names is an error.

use attn::data::{DataElement, Declared, DocumentData, PaddingData, Sizes, Table, values};
use attn::generate::{Cache, Decoder, ModelDecoder, Decode, NewTokens, DecodeState, SequenceState, Capacity, Span, no_session};
use attn::maps::{Attentions, AttentionWeights, Recorder, attention_maps};
use attn::{composed, entry, fit, fused, init, kernel, random, simd, sizes, traced};
use attn::{Host, InitialField, LinearFields};

fn main() {}
