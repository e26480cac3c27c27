//! The graph as a drawing in SVG: one column from the inputs to the results, in the order of the program.
//!
//! [`chart`](mod@chart) is what is drawn, [`layout`] where it stands; here it is written down. TrackedCode and letters have the colour of
//! the text around them, and boxes let the page shine through, so that the drawing suits light pages and dark ones.

mod chart;
mod layout;

use std::fmt::Write;

use crate::model::graph::Model;
use chart::{Chart, Course, Vertex, chart};

pub(crate) use chart::VertexKind;
use layout::{Layout, Rect, Route, layout};

/// The drawing, with its heading, for the documentation of the struct.
pub(super) fn docs(model: &Model) -> String {
    format!("\n\n# Graph\n\n{}", svg(model))
}

/// The drawing. It has no empty lines, since these would end it in Markdown.
pub(crate) fn svg(model: &Model) -> String {
    let chart = chart(model);
    let layout = layout(&chart);
    let mut svg = head(&model.item.name.to_string(), layout.frames[0]);
    push_frames(&chart, &layout, &mut svg);
    push_edges(&chart, &layout, &mut svg);
    push_boxes(&chart, &layout, &mut svg);
    svg.push_str("</svg>\n");
    svg
}

/// The first line is a tag and nothing else: so Markdown knows a block of HTML. Half a pixel aside, lines are sharp.
fn head(name: &str, page: Rect) -> String {
    let Rect { left, top, .. } = page;
    let width = page.width();
    let height = page.height();
    let name = escaped(name);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"{left}.5 {top}.5 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         style=\"max-width:100%;height:auto\" role=\"img\" font-family=\"monospace\">\n\
         <title>The graph of {name}</title>\n\
         <marker id=\"attn-arrow\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\">\
         <path d=\"M0 0L8 4L0 8z\" fill=\"currentColor\"/></marker>\n"
    )
}

/// A frame around every loop, with its title.
fn push_frames(chart: &Chart, layout: &Layout, svg: &mut String) {
    svg.push_str("<g class=\"attn-repeats\" fill=\"none\" stroke=\"currentColor\" stroke-opacity=\".5\" font-size=\"11\">\n");
    for (frame, rect) in chart.frames.iter().zip(&layout.frames).skip(1) {
        push_rect(*rect, 8, "", svg);
        let x = rect.left + layout::INSET;
        let y = rect.top + 17;
        let title = escaped(&frame.title);
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{y}\" fill=\"currentColor\" stroke=\"none\">{title}</text>"
        );
    }
    svg.push_str("</g>\n");
}

fn push_edges(chart: &Chart, layout: &Layout, svg: &mut String) {
    svg.push_str("<g class=\"attn-edges\" fill=\"none\" stroke=\"currentColor\">\n");
    for (edge, route) in chart.edges.iter().zip(&layout.routes) {
        let dashes = match edge.course {
            Course::Back => " stroke-dasharray=\"4 3\"",
            Course::Down | Course::Beside => "",
        };
        let path = path(*route);
        let _ = writeln!(
            svg,
            "<path d=\"{path}\"{dashes} marker-end=\"url(#attn-arrow)\"/>"
        );
    }
    svg.push_str("</g>\n");
}

/// A line, or three with round corners.
fn path(route: Route) -> String {
    let ((x, y), (to_x, to_y)) = (route.from, route.to);
    let Some(lane) = route.lane else {
        return format!("M{x} {y}V{to_y}");
    };
    let side = 6 * lane.signum();
    let down = 6 * (to_y - y).signum();
    format!(
        "M{x} {y}H{}Q{lane} {y} {lane} {}V{}Q{lane} {to_y} {} {to_y}H{to_x}",
        lane - side,
        y + down,
        to_y - down,
        lane - side
    )
}

fn push_boxes(chart: &Chart, layout: &Layout, svg: &mut String) {
    svg.push_str("<g class=\"attn-boxes\" stroke=\"currentColor\" text-anchor=\"middle\">\n");
    for (vertex, rect) in chart.vertices.iter().zip(&layout.boxes) {
        let round = match vertex.kind {
            VertexKind::Value => rect.height() / 2,
            _ => 5,
        };
        push_rect(*rect, round, fill(vertex.kind), svg);
        push_label(vertex, *rect, svg);
    }
    svg.push_str("</g>\n");
}

/// The name, and smaller, the shape.
fn push_label(vertex: &Vertex, rect: Rect, svg: &mut String) {
    let name = escaped(&vertex.name);
    let ty = escaped(&vertex.ty);
    let first = rect.top + 17;
    let second = rect.top + 32;
    let _ = writeln!(
        svg,
        "<text y=\"{first}\" fill=\"currentColor\" stroke=\"none\" font-size=\"13\">{name}</text>\
         <text y=\"{second}\" fill=\"currentColor\" stroke=\"none\" font-size=\"11\" opacity=\".7\">{ty}</text>"
    );
}

fn push_rect(rect: Rect, round: i32, fill: &str, svg: &mut String) {
    let Rect { left, top, .. } = rect;
    let width = rect.width();
    let height = rect.height();
    let _ = writeln!(
        svg,
        "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" rx=\"{round}\"{fill}/>"
    );
}

/// Operations of one kind have one colour.
fn fill(kind: VertexKind) -> &'static str {
    match kind {
        VertexKind::Value => " fill=\"none\"",
        VertexKind::Embedding => " fill=\"#d6619b\" fill-opacity=\".25\"",
        VertexKind::Attention => " fill=\"#e8892b\" fill-opacity=\".25\"",
        VertexKind::Linear => " fill=\"#3f8fd2\" fill-opacity=\".25\"",
        VertexKind::Norm => " fill=\"#8aa62f\" fill-opacity=\".25\"",
        VertexKind::Other => " fill=\"currentColor\" fill-opacity=\".06\"",
    }
}

/// Text between tags. What XML has no place for, and line breaks, are spaces.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            char if char.is_control() => escaped.push(' '),
            char => escaped.push(char),
        }
    }
    escaped
}
