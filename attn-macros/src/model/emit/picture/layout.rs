//! Where everything stands. The boxes are one column, whose middle is `x = 0`; an edge that skips boxes runs in a lane beside it,
//! those back to the start of a loop on the left, all others on the right.

use std::ops::Range;

use super::chart::{Chart, Course, Edge, Frame, Vertex};

/// Between the left of a frame and its title.
pub(super) const INSET: i32 = 10;
const HEIGHT: i32 = 40;
/// Between two boxes.
const GAP: i32 = 22;
/// Above the first box of a frame.
const TITLE: i32 = 34;
const PADDING: i32 = 14;
const LANE: i32 = 16;
/// Between the middle of a box and the edges that leave and reach its side.
const PORT: i32 = 8;
/// Wide enough for a character of 13 pixels.
const CHARACTER: i32 = 8;
/// For one of 11 pixels.
const SMALL_CHARACTER: i32 = 7;

pub(super) struct Layout {
    pub(super) boxes: Vec<Rect>,
    pub(super) frames: Vec<Rect>,
    pub(super) routes: Vec<Route>,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Rect {
    pub(super) left: i32,
    pub(super) top: i32,
    pub(super) right: i32,
    pub(super) bottom: i32,
}

impl Rect {
    pub(super) fn width(&self) -> i32 {
        self.right - self.left
    }

    pub(super) fn height(&self) -> i32 {
        self.bottom - self.top
    }

    fn middle(&self) -> i32 {
        (self.top + self.bottom) / 2
    }

    fn is_beside(&self, rows: &Range<i32>) -> bool {
        self.top < rows.end && rows.start < self.bottom
    }
}

/// Straight down, or to a lane and back.
#[derive(Clone, Copy)]
pub(super) struct Route {
    pub(super) from: (i32, i32),
    pub(super) to: (i32, i32),
    pub(super) lane: Option<i32>,
}

pub(super) fn layout(chart: &Chart) -> Layout {
    let mut layout = stack(chart);
    layout.routes = routes(chart, &layout.boxes);
    // A frame encloses the lanes of its edges; so those inside come first.
    for frame in (0..chart.frames.len()).rev() {
        add_lanes(chart, &mut layout, frame);
    }
    layout
}

/// The boxes one below the other, and the frames around them, whose width is not known yet.
fn stack(chart: &Chart) -> Layout {
    let mut frames = vec![Rect::default(); chart.frames.len()];
    let mut boxes = Vec::new();
    let mut y = PADDING;
    for (index, vertex) in chart.vertices.iter().enumerate() {
        for (_, rect) in loops(chart, &mut frames).filter(|(of, _)| of.vertices.start == index) {
            rect.top = y;
            y += TITLE;
        }
        let right = half_width(vertex);
        boxes.push(Rect {
            left: -right,
            top: y,
            right,
            bottom: y + HEIGHT,
        });
        y += HEIGHT;
        let ended = |(of, _): &(&Frame, &mut Rect)| of.vertices.end == index + 1;
        for (_, rect) in loops(chart, &mut frames).rev().filter(ended) {
            y += PADDING;
            rect.bottom = y;
        }
        y += GAP;
    }
    frames[0].bottom = y - GAP + PADDING;
    Layout {
        boxes,
        frames,
        routes: Vec::new(),
    }
}

/// All frames but that of the whole picture, the outer ones first.
fn loops<'a>(
    chart: &'a Chart,
    rects: &'a mut [Rect],
) -> impl DoubleEndedIterator<Item = (&'a Frame, &'a mut Rect)> {
    chart.frames.iter().zip(rects).skip(1)
}

/// Half of the width of a box.
fn half_width(vertex: &Vertex) -> i32 {
    let name = columns(&vertex.name) * CHARACTER;
    let ty = columns(&vertex.ty) * SMALL_CHARACTER;
    name.max(ty) / 2 + PADDING
}

/// The characters of a font where all are as wide, but those of some languages twice as wide.
fn columns(text: &str) -> i32 {
    let columns = text.chars().map(|char| if char.is_ascii() { 1 } else { 2 });
    columns.sum()
}

/// Where edges begin and end.
fn routes(chart: &Chart, boxes: &[Rect]) -> Vec<Route> {
    let routes = chart.edges.iter().enumerate().map(|(index, edge)| {
        let from = boxes[edge.from];
        let to = boxes[edge.to];
        let leave = from.middle() + PORT;
        let reach = to.middle() - port(chart, index);
        let (from, to) = match edge.course {
            Course::Down => ((0, from.bottom), (0, to.top)),
            Course::Beside => ((from.right, leave), (to.right, reach)),
            Course::Back => ((from.left, leave), (to.left, reach)),
        };
        let lane = None;
        Route { from, to, lane }
    });
    routes.collect()
}

/// How far above the middle of its box an edge ends: those that come from farther away end lower, so that they cross no other.
fn port(chart: &Chart, index: usize) -> i32 {
    let edge = &chart.edges[index];
    let others = chart.edges.iter().enumerate();
    let others = others.filter(|(_, other)| (other.to, other.course) == (edge.to, edge.course));
    let mut all = 0;
    let mut below = 0;
    for (other, Edge { from, .. }) in others {
        all += 1;
        below += i32::from((*from, other) < (edge.from, index));
    }
    3 * PORT * (below + 1) / (all + 1) - PORT / 2
}

/// Finds lanes for the edges whose ends are in this frame, not both in one inside it, and makes the frame as wide as what it holds.
fn add_lanes(chart: &Chart, layout: &mut Layout, frame: usize) {
    let mut taken = inside(chart, layout, frame);
    for lane in lanes(chart, layout, frame) {
        let beside = taken.iter().filter(|rect| rect.is_beside(&lane.rows));
        let is_left = lane.course == Course::Back;
        let reach = beside.map(|rect| if is_left { -rect.left } else { rect.right });
        let x = reach.max().unwrap_or_default() + LANE;
        let (left, right) = if is_left { (-x, 0) } else { (0, x) };
        taken.push(Rect {
            left,
            top: lane.rows.start,
            right,
            bottom: lane.rows.end,
        });
        for edge in lane.edges {
            layout.routes[edge].lane = Some(left + right);
        }
    }
    let title = INSET + columns(&chart.frames[frame].title) * SMALL_CHARACTER;
    let left = taken.iter().map(|rect| rect.left).min();
    let right = taken.iter().map(|rect| rect.right).max();
    let rect = &mut layout.frames[frame];
    rect.left = left.unwrap_or_default().min(-title) - PADDING;
    rect.right = right.unwrap_or_default() + PADDING;
}

/// The boxes and the loops of a frame.
fn inside(chart: &Chart, layout: &Layout, frame: usize) -> Vec<Rect> {
    let boxes = chart.vertices.iter().zip(&layout.boxes);
    let boxes = boxes.filter(|(of, _)| of.frame == frame);
    let loops = chart.frames.iter().zip(&layout.frames).skip(1);
    let loops = loops.filter(|(of, _)| of.parent == frame);
    let boxes = boxes.map(|(_, rect)| *rect);
    boxes.chain(loops.map(|(_, rect)| *rect)).collect()
}

/// Edges from one box that share a line.
struct Lane {
    from: usize,
    course: Course,
    edges: Vec<usize>,
    rows: Range<i32>,
}

/// The lanes of a frame, the short ones first, which stay closest to the boxes.
fn lanes(chart: &Chart, layout: &Layout, frame: usize) -> Vec<Lane> {
    let mut lanes: Vec<Lane> = Vec::new();
    for (index, edge) in chart.edges.iter().enumerate() {
        if edge.course == Course::Down || common(chart, edge) != frame {
            continue;
        }
        let Route { from, to, .. } = layout.routes[index];
        let rows = from.1.min(to.1)..from.1.max(to.1);
        let shared = |lane: &&mut Lane| (lane.from, lane.course) == (edge.from, edge.course);
        match lanes.iter_mut().find(shared) {
            Some(lane) => {
                lane.edges.push(index);
                lane.rows = lane.rows.start.min(rows.start)..lane.rows.end.max(rows.end);
            }
            None => lanes.push(Lane {
                from: edge.from,
                course: edge.course,
                edges: vec![index],
                rows,
            }),
        }
    }
    lanes.sort_by_key(|lane| lane.rows.end - lane.rows.start);
    lanes
}

/// The innermost frame around both ends of an edge.
fn common(chart: &Chart, edge: &Edge) -> usize {
    let frame = |vertex: usize| chart.vertices[vertex].frame;
    let mut a = frame(edge.from);
    let mut b = frame(edge.to);
    while a != b {
        // A frame stands behind the one around it.
        let inner = if a > b { &mut a } else { &mut b };
        *inner = chart.frames[*inner].parent;
    }
    a
}
