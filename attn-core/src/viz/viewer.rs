//! The viewer: a page with attention maps.

use std::{collections::HashMap, path::Path};

use serde_json::{Value, json};

use super::{
    Labels, Theme, VizError, colour,
    encode::{self, Codes, base64},
    files, html,
};
use crate::maps::AttentionMap;

pub(super) const STYLE: &str = include_str!("assets/viewer.css");
/// The scripts are wrapped in one function, so that their names are local.
pub(super) const SCRIPT: &str = concat!(
    "(() => {\n\"use strict\";\n",
    include_str!("assets/maps.js"),
    include_str!("assets/matrix.js"),
    include_str!("assets/viewer.js"),
    "})();\n"
);

/// A page that shows attention maps: one HTML file without dependencies, network or server.
///
/// It has four views. The overview is a table of layers and heads with the mean entropy of each: click a cell to see that head.
/// The tokens: point at a query to see which keys it attends to, or at a key to see which queries attend to it. The matrix of all
/// weights, overlaid with the exact zeros of the mask and the blocks of the kernels. A description of the selection in words. All
/// views work with the keyboard.
///
/// ```
/// use attn::{maps::AttentionMap, viz::{Labels, Viewer}};
///
/// let weights = vec![1.0, 0.0, 0.3, 0.7]; // two queries look at two keys
/// let map = AttentionMap::new("attention", [1, 1, 2, 2], weights);
///
/// let mut viewer = Viewer::new("A small one");
/// viewer.add(&map, &Labels::same([["Hello", "world"]]))?;
/// let page = viewer.page();
/// assert!(page.starts_with("<!DOCTYPE html>"));
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("maps.html");
/// viewer.write(path)?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// # Rounding
/// The weights of a page are rounded, each row separately: to 1/65531 of its largest weight if the page has at most 2²⁰ weights
/// (2.8 MB), and to 1/251 if it has more (1.4 bytes for each). The error is half of such a step. A weight of exactly 0 is shown
/// as `0`, and one that is rounded to it as `≈ 0`. Entropies of heads are computed before rounding.
#[doc(alias = "BertViz")]
#[derive(Clone, Debug)]
pub struct Viewer<'a> {
    title: String,
    maps: Vec<(&'a AttentionMap, Labels)>,
}

impl<'a> Viewer<'a> {
    /// A page without maps.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            maps: Vec::new(),
        }
    }

    /// Adds a map.
    ///
    /// # Errors
    /// [`VizError`] if there are labels for more than the map has.
    pub fn add(&mut self, map: &'a AttentionMap, labels: &Labels) -> Result<(), VizError> {
        labels.check(map)?;
        self.maps.push((map, labels.clone()));
        Ok(())
    }

    /// The page.
    pub fn page(&self) -> String {
        html::page(&self.title, &[STYLE], &self.part(), &[SCRIPT])
    }

    /// Writes the page atomically.
    ///
    /// # Errors
    /// [`VizError`] if a system call fails.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), VizError> {
        files::replace(path.as_ref(), self.page().as_bytes())
    }

    pub(super) fn title(&self) -> &str {
        &self.title
    }

    /// The viewer as a part of a page, which has the style and the script.
    pub(super) fn part(&self) -> String {
        let data = html::data(&self.data());
        format!(
            "<section class=\"attn-viewer\">{data}<noscript>The maps are drawn by a script.</noscript></section>\n"
        )
    }

    fn data(&self) -> Value {
        let weights = self.maps.iter().map(|(map, _)| map.weights().len());
        let codes = Codes::of(weights.sum());
        let mut texts = Texts::default();
        let maps: Vec<Value> = self
            .maps
            .iter()
            .map(|(map, labels)| {
                let mut data = encode::map(map, codes);
                let sequences = (0..map.batch()).map(|sequence| {
                    let [queries, keys] = labels.of_sequence(sequence);
                    (texts.index(queries), texts.index(keys))
                });
                let (queries, keys): (Vec<_>, Vec<_>) = sequences.unzip();
                data["queries"] = json!(queries);
                data["keys"] = json!(keys);
                data
            })
            .collect();
        let scale = |theme| base64(&colour::scale(theme).concat());
        json!({
            "light": scale(Theme::Light),
            "dark": scale(Theme::Dark),
            "notFinite": colour::NOT_FINITE,
            "texts": texts.all,
            "maps": maps,
        })
    }
}

/// Lists of labels, each stored once: the layers of a model share theirs.
#[derive(Default)]
struct Texts {
    all: Vec<Vec<String>>,
    places: HashMap<Vec<String>, usize>,
}

impl Texts {
    fn index(&mut self, labels: Vec<String>) -> usize {
        *self.places.entry(labels).or_insert_with_key(|labels| {
            self.all.push(labels.clone());
            self.all.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::html::tests::HOSTILE, *};

    /// The data of a page.
    fn data_of(page: &str) -> Value {
        let start = "<script type=\"application/json\">";
        let rest = page.split_once(start).map_or("", |(_, rest)| rest);
        let json = rest.split_once("</script>").map_or("", |(json, _)| json);
        serde_json::from_str(json).unwrap_or_default()
    }

    fn map(name: &str, shape: [usize; 4]) -> AttentionMap {
        let count = shape.iter().product::<usize>();
        let weights = (0..count).map(|i| (i % 17) as f32 / 17.0).collect();
        AttentionMap::new(name, shape, weights)
    }

    #[test]
    fn a_page_contains_weights_entropies_and_labels() {
        let self_attention = map("self", [2, 3, 5, 5]);
        let cross = map("cross", [2, 1, 5, 4]);
        let queries = [["a", "b"], ["c", "d"]];
        let keys = [["x", "y", "z"], ["u", "v", "w"]];
        let mut viewer = Viewer::new("page");
        viewer.add(&self_attention, &Labels::same(queries)).unwrap();
        viewer.add(&cross, &Labels::cross(queries, keys)).unwrap();
        let data = data_of(&viewer.page());
        for (found, map) in [(0, &self_attention), (1, &cross)] {
            let found = &data["maps"][found];
            assert_eq!(found["name"], map.name());
            assert_eq!(found["shape"], json!(map.shape()));
            let decoded = encode::tests::decode(found);
            assert_eq!(decoded.len(), map.weights().len());
            // Half a step of 1/65531, and the rounding of an f32.
            let close = |(a, b): (&f32, &f32)| (a - b).abs() < 8e-6;
            assert!(decoded.iter().zip(map.weights()).all(close));
            for head in 0..map.heads() {
                assert_eq!(found["entropy"][head], map.mean_entropy(head));
            }
        }
        let texts = |map: usize, side: &str, sequence: usize| {
            let place = data["maps"][map][side][sequence].as_u64();
            data["texts"][place.unwrap() as usize].clone()
        };
        assert_eq!(texts(0, "keys", 1), json!(["c", "d"]));
        assert_eq!(texts(1, "queries", 0), json!(["a", "b"]));
        assert_eq!(texts(1, "keys", 1), json!(["u", "v", "w"]));
        // Each list is stored once.
        assert_eq!(data["texts"].as_array().map(Vec::len), Some(4));
    }

    #[test]
    fn hostile_titles_names_and_labels_are_escaped() {
        let map = map(HOSTILE[0], [1, 1, 7, 7]);
        let mut viewer = Viewer::new(HOSTILE[6]);
        viewer.add(&map, &Labels::same([HOSTILE])).unwrap();
        let page = viewer.page();
        // The policy mentions a script; the page has its own and the data.
        assert_eq!(page.matches("<script").count(), 2);
        assert_eq!(page.matches("</script").count(), 2);
        assert!(!page.contains("<img") && !page.contains("<svg"));
        let data = data_of(&page);
        assert_eq!(data["maps"][0]["name"], HOSTILE[0]);
        assert_eq!(data["texts"][0][0], HOSTILE[0]);
    }

    #[test]
    fn a_page_of_36_heads_over_256_tokens_is_below_four_megabytes() {
        let maps: Vec<_> = (0..6)
            .map(|i| map(&format!("blocks.{i}"), [1, 6, 256, 256]))
            .collect();
        let mut viewer = Viewer::new("");
        for map in &maps {
            viewer.add(map, &Labels::indices()).unwrap();
        }
        let page = viewer.page();
        assert!(page.len() < 4_000_000, "{}", page.len());
        assert_eq!(data_of(&page)["maps"][5]["bits"], 8);
    }

    #[test]
    fn pages_without_maps_and_with_empty_maps_are_valid() {
        assert_eq!(data_of(&Viewer::new("").page())["maps"], json!([]));
        for shape in [[0, 1, 2, 2], [1, 0, 2, 2], [1, 1, 0, 2], [1, 1, 2, 0]] {
            let map = map("", shape);
            let mut viewer = Viewer::new("");
            viewer.add(&map, &Labels::indices()).unwrap();
            assert_eq!(data_of(&viewer.page())["maps"][0]["shape"], json!(shape));
        }
    }
}
