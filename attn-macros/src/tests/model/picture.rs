//! The drawing of a model, parsed back from its text.

use roxmltree::{Document, Node as Tag};

use super::{GPT, lower};
use crate::model::emit::{dot::dot, picture::svg};
use crate::model::graph::{Model, Region, Step};

const ENCODER_DECODER: &str = "
    struct Transformer<vocab = 11, d_model = 10, heads = 2, layers = 2, hidden = 7>;

    fn forward(source: ids[batch, s], target: ids[batch, t], lens: lens[batch]) -> [batch, t, vocab] {
        let mut memory = embedding::<vocab, d_model>(source) * { 3.0 } + sinusoidal_position::<d_model>(source);
        repeat layers, name = encoder {
            memory = layer_norm(memory + attention::<heads, mask = padding>(memory, padding = lens));
            memory = layer_norm(memory + feed_forward::<hidden, activation = relu>(memory));
        }
        let mut y = embedding::<tied = embedding>(target) * { 3.0 } + sinusoidal_position::<d_model>(target);
        repeat layers, name = decoder {
            y = layer_norm(y + attention::<heads, mask = causal>(y));
            y = layer_norm(y + attention::<heads, mask = padding, name = cross>(y, context = memory, padding = lens));
            y = layer_norm(y + feed_forward::<hidden, activation = relu>(y));
        }
        linear::<tied = embedding>(y)
    }";

const NESTED: &str = "
    struct Nested<d = 6>;

    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let outside = tanh(x);
        let mut x = x;
        repeat 2, name = outer {
            let start = rms_norm(x);
            repeat 3, name = inner {
                x = x + feed_forward::<7>(layer_norm(x + start)) * outside;
            }
            repeat 2, share = true, name = shared {
                x = x + linear::<d>(start);
            }
        }
        softmax(x)
    }";

const SWAPPED: &str = "
    struct Swapped<d = 6>;

    fn forward(x: [batch, seq, d], y: [batch, seq, d]) -> ([batch, seq, d], [batch, seq, d], [batch, seq, d]) {
        let mut a = tanh(x);
        let mut b = gelu(y);
        let kept = a + a;
        repeat 3 {
            let old = a;
            a = b;
            b = linear::<d>(old);
        }
        repeat 2, name = again {
            a = kept;
            b = b * a;
        }
        (a * 2 - b, a, y)
    }";

const TINY: &str = "struct Tiny<d = 4>; fn forward(x: [batch, d]) -> [batch, d] { linear::<d>(x) }";

const EVERY: [&str; 5] = [GPT, ENCODER_DECODER, NESTED, SWAPPED, TINY];

#[derive(Clone, Copy, PartialEq, Debug)]
struct Rect {
    left: i32,
    top: i32,
    right: i32,
    bottom: i32,
}

impl Rect {
    fn of(tag: Tag<'_, '_>) -> Self {
        let [left, top, width, height] =
            ["x", "y", "width", "height"].map(|name| number(tag, name));
        Rect {
            left,
            top,
            right: left + width,
            bottom: top + height,
        }
    }

    fn is_apart(&self, other: &Rect) -> bool {
        self.right < other.left
            || other.right < self.left
            || self.bottom < other.top
            || other.bottom < self.top
    }

    fn holds(&self, other: &Rect) -> bool {
        self.left < other.left
            && other.right < self.right
            && self.top < other.top
            && other.bottom < self.bottom
    }

    /// Whether a line may begin or end here.
    fn touches(&self, (x, y): (i32, i32)) -> bool {
        let across = (self.left..=self.right).contains(&x) && [self.top, self.bottom].contains(&y);
        let along = (self.top..=self.bottom).contains(&y) && [self.left, self.right].contains(&x);
        across || along
    }
}

/// An edge between boxes, by their numbers from the top.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Line {
    from: usize,
    to: usize,
    is_dashed: bool,
    /// The part beside the column: `x`, and the vertical range.
    lane: Option<(i32, i32, i32)>,
}

struct Drawing {
    names: Vec<String>,
    types: Vec<String>,
    boxes: Vec<Rect>,
    frames: Vec<Rect>,
    titles: Vec<String>,
    lines: Vec<Line>,
}

fn number(tag: Tag<'_, '_>, name: &str) -> i32 {
    let number = tag.attribute(name).expect("a number");
    number.parse().expect("a number")
}

/// Parses `svg`, which must be well-formed XML.
fn read(svg: &str) -> Drawing {
    let document = Document::parse(svg).expect("well-formed XML");
    let group = |class: &str, tag: &'static str| {
        let mut groups = document.descendants();
        let group = groups.find(|group| group.attribute("class") == Some(class));
        let tags = group.expect("a group").children();
        tags.filter(move |child| child.has_tag_name(tag))
    };
    let text = |tag: Tag<'_, '_>| tag.text().expect("a text").to_owned();
    let boxes: Vec<_> = group("attn-boxes", "rect").map(Rect::of).collect();
    let lines = group("attn-edges", "path").map(|path| line(path, &boxes));
    let lines = lines.collect();
    Drawing {
        names: group("attn-boxes", "text").step_by(2).map(text).collect(),
        types: group("attn-boxes", "text")
            .skip(1)
            .step_by(2)
            .map(text)
            .collect(),
        frames: group("attn-repeats", "rect").map(Rect::of).collect(),
        titles: group("attn-repeats", "text").map(text).collect(),
        boxes,
        lines,
    }
}

fn line(path: Tag<'_, '_>, boxes: &[Rect]) -> Line {
    let d = path.attribute("d").expect("a path");
    let numbers = d.split(|char: char| char.is_ascii_alphabetic() || char == ' ');
    let numbers = numbers.filter(|number| !number.is_empty());
    let numbers: Vec<i32> = numbers
        .map(|number| number.parse().expect("a number"))
        .collect();
    let (from, to, lane) = match numbers[..] {
        [x, y, to_y] => ((x, y), (x, to_y), None),
        // To the lane, a corner, along it, a corner, and back.
        [x, y, _, lane, _, _, _, _, _, _, _, to_y, to_x] => {
            ((x, y), (to_x, to_y), Some((lane, y.min(to_y), y.max(to_y))))
        }
        _ => panic!("another path: {d}"),
    };
    let at = |place| {
        boxes
            .iter()
            .position(|rect| rect.touches(place))
            .expect("an end at a box")
    };
    Line {
        from: at(from),
        to: at(to),
        is_dashed: path.has_attribute("stroke-dasharray"),
        lane,
    }
}

fn drawing(source: &str) -> (Model, Drawing) {
    let model = lower(source);
    let drawing = read(&svg(&model));
    (model, drawing)
}

/// The numbers of operations, loop variables and operands.
fn count(region: &Region) -> [usize; 3] {
    let counts = region.steps.iter().map(|step| match step {
        Step::Node(node) => [1, 0, node.operands.len()],
        Step::Repeat(repeat) => {
            let [operations, variables, operands] = count(&repeat.body);
            [operations, variables + repeat.carried.len(), operands]
        }
        Step::Scan(scan) => {
            let [operations, variables, operands] = count(&scan.body);
            let read = scan.states.len() + scan.slices.len();
            [operations, variables + read, operands]
        }
    });
    counts.fold([0; 3], |sum, more| [0, 1, 2].map(|i| sum[i] + more[i]))
}

#[test]
fn a_gpt_is_drawn_from_top_to_bottom() {
    let (_, drawing) = drawing(GPT);
    let names = [
        "tokens",
        "embedding 65 -> 384",
        "learned_position 256 -> 384",
        "+",
        "x_2",
        "layer_norm 384",
        "attention",
        "+",
        "layer_norm_2: layer_norm 384",
        "feed_forward 384 -> 1536 -> 384, GeluTanh",
        "+",
        "layer_norm 384",
        "linear 384 -> 65, without bias",
        "output",
    ];
    assert_eq!(drawing.names, names);
    assert_eq!(drawing.types[0], "ids[batch, seq]");
    assert_eq!(drawing.types[13], "[batch, seq, 65]");
    assert_eq!(drawing.titles, ["blocks: repeat 6"]);
    let mut edges: Vec<_> = drawing
        .lines
        .iter()
        .map(|line| (line.from, line.to))
        .collect();
    edges.sort_unstable();
    let mut expected = vec![(0, 2), (1, 3), (4, 7), (7, 10), (10, 4)];
    expected.extend(
        (0..13)
            .filter(|from| *from != 1)
            .map(|from| (from, from + 1)),
    );
    expected.sort_unstable();
    assert_eq!(edges, expected);
    let dashed = drawing.lines.iter().filter(|line| line.is_dashed);
    let dashed: Vec<_> = dashed.map(|line| (line.from, line.to)).collect();
    assert_eq!(dashed, [(10, 4)]);
}

#[test]
fn operations_are_drawn_once() {
    for source in EVERY {
        let (model, drawing) = drawing(source);
        let [operations, variables, operands] = count(&model.body);
        let inputs = model.inputs.len();
        let results = model.results.len();
        let boxes = inputs + operations + variables + results;
        assert_eq!(
            [
                drawing.boxes.len(),
                drawing.names.len(),
                drawing.types.len()
            ],
            [boxes; 3]
        );
        assert_eq!(
            drawing.lines.len(),
            operands + 2 * variables + results,
            "{source}"
        );
        assert_eq!(drawing.frames.len(), model.modules.len() - 1);
        assert_eq!(drawing.titles.len(), model.modules.len() - 1);
        for id in &model.inputs {
            let name = &model.value(*id).name;
            assert_eq!(
                drawing.names.iter().filter(|other| *other == name).count(),
                1,
                "{name}"
            );
        }
        let outputs = drawing
            .names
            .iter()
            .filter(|name| name.starts_with("output"));
        assert_eq!(outputs.count(), results);
    }
}

#[test]
fn boxes_do_not_overlap() {
    for source in EVERY {
        let drawing = drawing(source).1;
        for (index, rect) in drawing.boxes.iter().enumerate() {
            for other in &drawing.boxes[..index] {
                assert!(other.bottom < rect.top, "{other:?}, {rect:?}");
            }
            for frame in &drawing.frames {
                assert!(
                    frame.holds(rect) || frame.is_apart(rect),
                    "{frame:?}, {rect:?}"
                );
            }
        }
        for (index, frame) in drawing.frames.iter().enumerate() {
            for outer in &drawing.frames[..index] {
                assert!(
                    outer.holds(frame) || outer.is_apart(frame),
                    "{outer:?}, {frame:?}"
                );
            }
        }
    }
}

#[test]
fn edges_run_beside_the_boxes_and_beside_each_other() {
    for source in EVERY {
        let drawing = drawing(source).1;
        let lanes = drawing
            .lines
            .iter()
            .filter_map(|line| Some((line, line.lane?)));
        let lanes: Vec<_> = lanes.collect();
        for (index, (line, (x, top, bottom))) in lanes.iter().enumerate() {
            assert_eq!(*x < 0, line.is_dashed, "{line:?}");
            for rect in &drawing.boxes {
                let passes = rect.top < *bottom && *top < rect.bottom;
                assert!(
                    !passes || *x < rect.left || rect.right < *x,
                    "{line:?} through {rect:?}"
                );
            }
            for (other, (other_x, other_top, other_bottom)) in &lanes[..index] {
                let is_on_it = x == other_x && other_top < bottom && top < other_bottom;
                assert!(
                    !is_on_it || line.from == other.from,
                    "{line:?} on {other:?}"
                );
            }
        }
    }
}

#[test]
fn an_edge_inside_a_loop_stays_there() {
    for source in EVERY {
        let drawing = drawing(source).1;
        for line in &drawing.lines {
            for frame in &drawing.frames {
                let is_inside = [line.from, line.to].map(|end| frame.holds(&drawing.boxes[end]));
                let x = line.lane.map_or(0, |(x, ..)| x);
                let stays = frame.left < x && x < frame.right;
                assert!(is_inside != [true; 2] || stays, "{line:?} leaves {frame:?}");
            }
        }
    }
}

#[test]
fn an_edge_without_lane_goes_to_the_next_box() {
    for source in EVERY {
        for line in drawing(source).1.lines {
            assert!(line.lane.is_some() || line.from + 1 == line.to, "{line:?}");
        }
    }
}

#[test]
fn variables_after_a_loop_come_from_the_end_of_a_round() {
    let (_, drawing) = drawing(SWAPPED);
    let from = |to: &str| {
        let to = drawing.names.iter().position(|name| name == to).expect(to);
        let lines = drawing
            .lines
            .iter()
            .filter(|line| line.to == to && !line.is_dashed);
        let from = lines.map(|line| drawing.names[line.from].as_str());
        from.collect::<Vec<_>>()
    };
    // After `a = b; b = linear(old)`, and after `a = kept`.
    assert_eq!(from("a_3"), ["b_2"]);
    assert_eq!(from("b_4"), ["linear 6 -> 6"]);
    assert_eq!(from("output.1"), ["+"]);
    // An operation has each operand once.
    assert_eq!(from("+"), ["Tanh"]);
}

#[test]
fn an_input_stands_where_a_row_of_operations_begins() {
    let (_, drawing) = drawing(ENCODER_DECODER);
    let at = |name: &str| {
        drawing
            .names
            .iter()
            .position(|other| other == name)
            .expect(name)
    };
    assert_eq!([at("lens"), at("source")], [0, 1]);
    assert!(drawing.boxes[at("target")].top > drawing.frames[0].bottom);
    assert!(drawing.boxes[at("target")].bottom < drawing.frames[1].top);
}

#[test]
fn special_characters_are_escaped() {
    let source = "struct M<d = { A << 1 & B }, n = { \"<&>\".len() }>;
        fn forward(x: [batch, d]) -> [batch, n] { linear::<n>(x * { if C < 1.0 && C > 0.0 { '\\'' as u8 as f64 } else { 1.0 } }) }";
    let model = lower(source);
    assert!(dot(&model).contains(r#"linear A << 1 & B -> \"<&>\".len()\n[batch, \"<&>\".len()]"#));
    let text = svg(&model);
    let drawing = read(&text);
    let linear = drawing.names.iter().find(|name| name.starts_with("linear"));
    assert!(linear.expect("a layer").contains("\"<&>\".len()"), "{text}");
    assert!(
        drawing.types.iter().any(|ty| ty.contains("A << 1 & B")),
        "{text}"
    );
}

/// Markdown treats it as HTML: a line that is only a tag, and no empty lines.
#[test]
fn pictures_are_valid_in_markdown() {
    for source in EVERY {
        let text = svg(&lower(source));
        let (first, rest) = text.split_once('\n').expect("lines");
        assert!(first.starts_with("<svg ") && first.ends_with('>') && !first[1..].contains('<'));
        assert!(rest.lines().all(|line| !line.trim().is_empty()));
        assert!(rest.ends_with("</svg>\n"));
    }
}
