//! The pages of `attn::viz` in a real browser. Without one each test reports this; with `ATTN_BROWSER=required` it fails.

mod driver;

use anyhow::{Context, Result};
use attn::{
    attention,
    dfdx::prelude::*,
    maps::AttentionMap,
    viz::{Head, Labels, LossChart, Report, Scale, SvgOptions, Theme, Viewer, svg},
};
use driver::Browser;

attention! {
    /// Some of its blocks are full, some partial, some empty.
    struct Windowed<heads = 3, d_model = 12, mask = sliding_window(70)>;
}

/// The number of tokens, enough for several blocks in both directions.
const LEN: usize = 150;

/// The attention map of a layer with random weights, for two sequences.
fn attended(name: &str, seed: u64) -> AttentionMap {
    let device = Cpu::seed_from_u64(seed);
    let layer = device.build_module::<Windowed, f32>();
    let x: Tensor<(usize, usize, Const<12>), f32, _> = device.sample_normal_like(&(2, LEN, Const));
    let (_, weights) = layer.forward_with_weights(x * 3.0);
    let map = AttentionMap::new(name, [2, 3, LEN, LEN], weights.as_vec());
    map.with_mask_blocks(Windowed::mask_blocks(LEN, LEN))
}

fn words(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|i| format!("{prefix}{i}")).collect()
}

/// Two layers of self-attention, and one of cross-attention with another number of keys.
struct Fixture {
    layers: [AttentionMap; 3],
}

impl Fixture {
    fn new() -> Self {
        let cross: Vec<f32> = (0..2 * 5 * 4).map(|i| (i % 7) as f32 / 10.0).collect();
        let cross = AttentionMap::new("decoder.cross", [1, 2, 5, 4], cross);
        Self {
            layers: [
                attended("blocks.0.attention", 1),
                attended("blocks.1.attention", 2),
                cross,
            ],
        }
    }

    fn page(&self) -> Result<String> {
        let mut viewer = Viewer::new("Looking inside");
        let [first, second, cross] = &self.layers;
        let tokens = Labels::same([words("w", LEN), words("v", LEN)]);
        viewer.add(first, &tokens)?;
        viewer.add(second, &tokens)?;
        viewer.add(cross, &Labels::cross([words("q", 5)], [words("k", 4)]))?;
        Ok(viewer.page())
    }

    /// A browser with the page.
    fn open(&self) -> Result<Option<Browser>> {
        let Some(browser) = Browser::start()? else {
            return Ok(None);
        };
        browser.open(&self.page()?)?;
        Ok(Some(browser))
    }
}

/// The number in a text of the page.
fn number(text: &str) -> Result<f32> {
    let text = text.trim_start_matches("≈ ");
    text.parse()
        .with_context(|| format!("{text:?} is no number"))
}

/// The page rounds to 1/65531 of the largest weight of a row, and then to four decimals.
const ROUNDING: f32 = 0.5e-4 + 1e-5;

#[test]
fn the_page_shows_its_layers_and_tokens_without_errors() -> Result<()> {
    let fixture = Fixture::new();
    let Some(browser) = fixture.open()? else {
        return Ok(());
    };
    let text = browser.text("return document.body.innerText")?;
    for expected in [
        "Looking inside",
        "blocks.0.attention",
        "blocks.1.attention",
        "decoder.cross",
        "w0",
        "w149",
    ] {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
    let shot = browser.screenshot()?;
    // Background, text and frames have about twenty colours; weights have more.
    assert!(shot.colours.len() > 100, "{} colours", shot.colours.len());
    assert_eq!(browser.errors()?, [""; 0]);
    Ok(())
}

#[test]
fn the_page_makes_no_requests() -> Result<()> {
    let fixture = Fixture::new();
    let Some(browser) = fixture.open()? else {
        return Ok(());
    };
    let entries =
        browser.run("return performance.getEntriesByType('resource').map(entry => entry.name)")?;
    assert_eq!(entries, serde_json::json!([]));
    // Its policy also blocks requests of scripts.
    let script = "return fetch('http://127.0.0.1:9/').then(() => 'fetched', () => 'refused')";
    assert_eq!(browser.text(script)?, "refused");
    let errors = browser.errors()?.concat();
    assert!(errors.contains("Content Security Policy"), "{errors}");
    Ok(())
}

const PIXELS: &str = "return document.querySelector('canvas').toDataURL()";

#[test]
fn heads_have_different_maps() -> Result<()> {
    let fixture = Fixture::new();
    let Some(browser) = fixture.open()? else {
        return Ok(());
    };
    let shot = browser.screenshot()?;
    let pixels = browser.text(PIXELS)?;
    browser.click("[data-layer='1'][data-head='2']")?;
    let state = "const d = document.querySelector('.attn-viewer').dataset; return d.showsLayer + ' ' + d.showsHead";
    assert_eq!(browser.text(state)?, "1 2");
    assert!(browser.text(PIXELS)? != pixels, "the map is the same");
    assert!(browser.screenshot()? != shot, "the screen is the same");
    let pressed =
        "return [...document.querySelectorAll('[aria-pressed=true]')].map(b => b.ariaLabel).join()";
    assert!(
        browser
            .text(pressed)?
            .starts_with("blocks.1.attention, head 2:")
    );
    // The lists show the selection, too, and can change it.
    let chosen = "return [...document.querySelectorAll('select')].map(s => s.value).join()";
    assert_eq!(browser.text(chosen)?, "1,2,0,query");
    browser.click("[name=layer] option[value='0']")?;
    browser.click("[name=head] option[value='0']")?;
    assert!(
        browser.text(PIXELS)? == pixels,
        "the map of before is another"
    );
    browser.click("[name=sequence] option[value='1']")?;
    let first = "return document.querySelector('[data-side=keys] button').textContent";
    assert_eq!(browser.text(first)?, "v0");
    assert!(browser.text(PIXELS)? != pixels);
    assert_eq!(browser.errors()?, [""; 0]);
    Ok(())
}

/// The weights of the tokens of one side, `""` for those without.
fn weights_of(browser: &Browser, side: &str) -> Result<Vec<String>> {
    let script = format!(
        "return [...document.querySelectorAll('[data-side={side}] button')].map(b => b.dataset.weight ?? '')"
    );
    Ok(serde_json::from_value(browser.run(&script)?)?)
}

fn assert_weights(found: &[String], expected: &[f32]) -> Result<()> {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        // Zeros are exact.
        assert_eq!(found == "0", *expected == 0.0);
        let found = number(found)?;
        assert!(
            (found - expected).abs() <= ROUNDING,
            "{found} is not {expected}"
        );
    }
    Ok(())
}

#[test]
fn the_weights_of_a_token_are_shown_under_the_mouse() -> Result<()> {
    let fixture = Fixture::new();
    let Some(browser) = fixture.open()? else {
        return Ok(());
    };
    let map = &fixture.layers[0];
    browser.click("[data-layer='0'][data-head='1']")?;
    browser.hover("[data-side=queries] [data-index='9']", [0, 0])?;
    assert_weights(&weights_of(&browser, "keys")?, map.row(0, 1, 9))?;
    let details = "return document.querySelector('.details').innerText";
    let entropy = format!("entropy {:.2} bits", map.entropy(0, 1, 9));
    let text = browser.text(details)?;
    assert!(
        text.contains("Query 9 “w9”") && text.contains(&entropy),
        "{text}"
    );
    // In the other direction: the queries that attend to a key.
    browser.hover("[data-side=keys] [data-index='4']", [0, 0])?;
    let column: Vec<f32> = (0..LEN).map(|q| map.row(0, 1, q)[4]).collect();
    assert_weights(&weights_of(&browser, "queries")?, &column)?;
    // The mean of the heads.
    browser.click("[data-layer='0'][data-head='-1']")?;
    browser.hover("[data-side=queries] [data-index='9']", [0, 0])?;
    let heads = [0, 1, 2].map(|head| map.row(0, head, 9));
    let mean: Vec<f32> = (0..LEN)
        .map(|k| heads.map(|row| row[k]).iter().sum::<f32>() / 3.0)
        .collect();
    assert_weights(&weights_of(&browser, "keys")?, &mean)?;
    assert_eq!(browser.errors()?, [""; 0]);
    Ok(())
}

#[test]
fn a_click_selects_a_token_and_the_arrows_move_the_selection() -> Result<()> {
    let fixture = Fixture::new();
    let Some(browser) = fixture.open()? else {
        return Ok(());
    };
    let map = &fixture.layers[2];
    browser.click("[data-layer='2'][data-head='1']")?;
    browser.click("[data-side=queries] [data-index='3']")?;
    browser.hover("h1", [0, 0])?;
    assert_weights(&weights_of(&browser, "keys")?, map.row(0, 1, 3))?;
    let right = '\u{e014}';
    let left = '\u{e012}';
    browser.press(&[left])?;
    assert_weights(&weights_of(&browser, "keys")?, map.row(0, 1, 2))?;
    browser.press(&[right, right])?;
    assert_weights(&weights_of(&browser, "keys")?, map.row(0, 1, 4))?;
    // There is none after the last one.
    browser.press(&[right])?;
    assert_weights(&weights_of(&browser, "keys")?, map.row(0, 1, 4))?;
    browser.screenshot()?.keep("pointed")?;
    Ok(())
}

const TIP: &str =
    "const d = document.querySelector('.tip').dataset; return [d.query, d.key, d.weight].join('|')";

#[test]
fn the_matrix_describes_the_cell_under_the_mouse_and_the_arrows() -> Result<()> {
    let fixture = Fixture::new();
    let Some(browser) = fixture.open()? else {
        return Ok(());
    };
    let check = |map: &AttentionMap| -> Result<[usize; 2]> {
        let tip = browser.text(TIP)?;
        let parts: Vec<&str> = tip.split('|').collect();
        let query: usize = parts[0].parse()?;
        let key: usize = parts[1].parse()?;
        assert_weights(&[parts[2].into()], &[map.row(0, 0, query)[key]])?;
        Ok([query, key])
    };
    browser.hover("canvas", [-60, 40])?;
    let [query, key] = check(&fixture.layers[0])?;
    assert!(query > 75 && key < 75, "{query} {key}");
    browser.click("[data-layer='2'][data-head='0']")?;
    browser.run("document.querySelector('canvas').focus()")?;
    let right = '\u{e014}';
    let down = '\u{e015}';
    browser.press(&[down, down, right, right, right, right, right])?;
    // The first key shows the corner, the second moves down; five to the right are one too many.
    assert_eq!(check(&fixture.layers[2])?, [1, 3]);
    let shown = browser.text("return document.querySelector('.tip').textContent")?;
    assert!(shown.starts_with("1 “q1” → 3 “k3”: "), "{shown}");
    assert_eq!(browser.errors()?, [""; 0]);
    Ok(())
}

/// The number of pixels of a colour on the canvas, `r,g,b`.
fn pixels(browser: &Browser, colour: [u8; 3]) -> Result<u64> {
    let [r, g, b] = colour;
    let script = format!(
        "const c = document.querySelector('canvas'), copy = document.createElement('canvas');
         copy.width = c.width;
         copy.height = c.height;
         const context = copy.getContext('2d', {{ willReadFrequently: true }});
         context.drawImage(c, 0, 0);
         const d = context.getImageData(0, 0, c.width, c.height).data;
         let n = 0;
         for (let i = 0; i < d.length; i += 4) n += d[i] === {r} && d[i + 1] === {g} && d[i + 2] === {b} ? 1 : 0;
         return n;"
    );
    browser.run(&script)?.as_u64().context("no count")
}

#[test]
fn the_mask_overlays_the_matrix_on_request() -> Result<()> {
    // The colours of the style, in the light theme.
    const MASKED: [u8; 3] = [0xd9, 0xd4, 0xcc];
    const KINDS: [[u8; 3]; 3] = [[0x0b, 0x7a, 0x43], [0xb0, 0x4a, 0x00], [0x5c, 0x66, 0x72]];
    let fixture = Fixture::new();
    let Some(browser) = fixture.open()? else {
        return Ok(());
    };
    let before = browser.text(PIXELS)?;
    assert_eq!(pixels(&browser, MASKED)?, 0);
    browser.click("[name=zeros]")?;
    let zeros = fixture.layers[0]
        .head(0, 0)
        .iter()
        .filter(|w| **w == 0.0)
        .count();
    let cell = 4; // 680 / 150
    assert_eq!(pixels(&browser, MASKED)?, (zeros * cell * cell) as u64);
    browser.click("[name=blocks]")?;
    for kind in KINDS {
        assert!(pixels(&browser, kind)? > 100, "no block is {kind:?}");
    }
    browser.hover("canvas", [10, 60])?;
    browser.screenshot()?.keep("mask")?;
    browser.hover("h1", [0, 0])?;
    browser.click("[name=zeros]")?;
    browser.click("[name=blocks]")?;
    assert!(browser.text(PIXELS)? == before);
    // A map without blocks does not offer them.
    browser.click("[data-layer='2'][data-head='0']")?;
    let offered = "return String(document.querySelector('[name=blocks]').checkVisibility())";
    assert_eq!(browser.text(offered)?, "false");
    browser.click("[data-layer='1'][data-head='0']")?;
    assert_eq!(browser.text(offered)?, "true");
    assert_eq!(browser.errors()?, [""; 0]);
    Ok(())
}

#[test]
fn the_overview_has_the_mean_entropy_of_each_head() -> Result<()> {
    let fixture = Fixture::new();
    let Some(browser) = fixture.open()? else {
        return Ok(());
    };
    for (layer, map) in fixture.layers.iter().enumerate() {
        for head in 0..map.heads() {
            let cell = format!(
                "return document.querySelector(\"[data-layer='{layer}'][data-head='{head}']\").textContent"
            );
            assert_eq!(
                browser.text(&cell)?,
                format!("{:.2}", map.mean_entropy(head))
            );
        }
    }
    Ok(())
}

#[test]
fn labels_with_code_are_not_executed() -> Result<()> {
    let hostile = [
        "</script><script>window.hacked = 1</script>",
        "<img src=x onerror='window.hacked = 1'>",
        "\"><svg onload=window.hacked=1>",
        "<!--<script>",
        "\u{2028}window.hacked = 1",
        "${window.hacked = 1}",
    ];
    let map = AttentionMap::new(hostile[0], [1, 1, 6, 6], vec![1.0 / 6.0; 36]);
    let mut viewer = Viewer::new(hostile[1]);
    viewer.add(&map, &Labels::same([hostile]))?;
    let Some(browser) = Browser::start()? else {
        return Ok(());
    };
    browser.open(&viewer.page())?;
    browser.hover("[data-side=queries] [data-index='1']", [0, 0])?;
    assert_eq!(browser.text("return String(window.hacked)")?, "undefined");
    assert_eq!(
        browser.text("return String(document.querySelectorAll('img, svg').length)")?,
        "0"
    );
    assert_eq!(browser.text("return document.title")?, hostile[1]);
    let label = "return document.querySelector('[data-side=keys] button').textContent";
    assert_eq!(browser.text(label)?, hostile[0]);
    assert_eq!(browser.errors()?, [""; 0]);
    Ok(())
}

#[test]
fn long_and_empty_sequences_are_drawn() -> Result<()> {
    let Some(browser) = Browser::start()? else {
        return Ok(());
    };
    let weights = (0..512 * 512).map(|i| (i % 512) as f32 / 511.0).collect();
    let maps = [
        AttentionMap::new("long", [1, 1, 512, 512], weights),
        AttentionMap::new("one query", [1, 1, 1, 9], vec![1.0 / 9.0; 9]),
        AttentionMap::new("no keys", [1, 1, 3, 0], vec![]),
        AttentionMap::new("no sequences", [0, 2, 3, 3], vec![]),
        AttentionMap::new("damaged", [1, 1, 1, 3], vec![f32::NAN, f32::INFINITY, 0.5]),
    ];
    let mut viewer = Viewer::new("sizes");
    for map in &maps {
        viewer.add(map, &Labels::indices())?;
    }
    browser.open(&viewer.page())?;
    // One pixel per cell: the last two keys of every query have the last colour.
    assert_eq!(pixels(&browser, [0x24, 0x18, 0x58])?, 2 * 512);
    for layer in ["1", "2", "3", "4"] {
        browser.click(&format!("[data-layer='{layer}'][data-head='0']"))?;
    }
    browser.hover("[data-side=queries] [data-index='0']", [0, 0])?;
    assert_eq!(weights_of(&browser, "keys")?, ["NaN", "∞", "0.5000"]);
    assert_eq!(
        browser.text("return document.querySelector(\"[data-layer='4']\").textContent")?,
        "NaN"
    );
    assert_eq!(browser.errors()?, [""; 0]);
    browser.open(&Viewer::new("nothing").page())?;
    assert!(
        browser
            .text("return document.body.innerText")?
            .contains("no attention maps")
    );
    assert_eq!(browser.errors()?, [""; 0]);
    Ok(())
}

#[test]
fn the_page_has_a_dark_theme() -> Result<()> {
    let fixture = Fixture::new();
    let Some(browser) = fixture.open()? else {
        return Ok(());
    };
    let light = browser.screenshot()?;
    browser.dark()?;
    let dark = browser.screenshot()?;
    assert_eq!(light.corner, [255, 255, 255]);
    assert_eq!(dark.corner, [0x14, 0x17, 0x1c]);
    assert!(dark.colours.len() > 100);
    light.keep("light")?;
    dark.keep("dark")?;
    Ok(())
}

#[test]
fn a_report_shows_its_parts() -> Result<()> {
    let fixture = Fixture::new();
    let mut viewer = Viewer::new("Attention");
    viewer.add(&fixture.layers[2], &Labels::indices())?;
    let losses = (1..=400_u32).map(|step| {
        (
            step.into(),
            4.0 / f64::from(step).sqrt() + f64::from(step * 7 % 13) / 40.0,
        )
    });
    let chart = LossChart::new("Losses of a run <1>")
        .train(losses)
        .validation([(0, 4.2), (200, 0.5), (400, 0.4)])
        .baseline("unigram", 2.9)
        .baseline("bigram", 2.4);
    let report = Report::new("A run")
        .table("Configuration", [("steps", "400"), ("seed", "<7>")])
        .text("Parameters", "layer   parameters\nlinear          12")
        .picture("Losses", "The losses fall.", &chart.svg()?)
        .samples("Samples", ["In the beginning <b>was</b>"])
        .maps(&viewer);
    let Some(browser) = Browser::start()? else {
        return Ok(());
    };
    browser.open(&report.page())?;
    let text = browser.text("return document.body.innerText")?;
    for part in [
        "A run",
        "<7>",
        "linear          12",
        "In the beginning <b>was</b>",
        "decoder.cross",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    // The browser has decoded the chart.
    let width = "const i = document.querySelector('img'); return i.complete ? String(i.naturalWidth) : 'not there'";
    assert_eq!(browser.text(width)?, "920");
    browser.hover("[data-side=queries] [data-index='3']", [0, 0])?;
    assert_weights(
        &weights_of(&browser, "keys")?,
        fixture.layers[2].row(0, 0, 3),
    )?;
    browser.run("window.scrollTo(0, 0)")?;
    browser.screenshot()?.keep("report")?;
    browser.dark()?;
    browser.screenshot()?.keep("report-dark")?;
    assert_eq!(browser.errors()?, [""; 0]);
    Ok(())
}

#[test]
fn heat_maps_are_valid_svg() -> Result<()> {
    let fixture = Fixture::new();
    let labels = Labels::cross(
        [words("query ", 5)],
        [["a", "<&>", "\"c\"", "a long label that is cut"]],
    );
    let small = svg(
        &fixture.layers[2],
        0,
        Head::Mean,
        &labels,
        SvgOptions::default(),
    )?;
    let options = SvgOptions {
        scale: Scale::Head,
        theme: Theme::Dark,
    };
    let large = svg(&fixture.layers[0], 1, 2, &Labels::indices(), options)?;
    let report = Report::new("Heat maps")
        .picture("Small", "five queries", &small)
        .picture("Large", "150 queries", &large);
    let Some(browser) = Browser::start()? else {
        return Ok(());
    };
    browser.open(&report.page())?;
    let sizes =
        "return [...document.querySelectorAll('img')].map(i => i.naturalHeight > 150).join()";
    assert_eq!(browser.text(sizes)?, "true,true");
    let shot = browser.screenshot()?;
    shot.keep("heat-maps")?;
    assert!(shot.colours.len() > 50, "{} colours", shot.colours.len());
    assert_eq!(browser.errors()?, [""; 0]);
    Ok(())
}
