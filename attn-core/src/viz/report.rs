//! A report of a training run on one page.

use std::{
    fmt::{Display, Write},
    path::Path,
};

use super::{
    Viewer, VizError,
    encode::base64,
    files, html,
    viewer::{SCRIPT, STYLE},
};

const REPORT_STYLE: &str = include_str!("assets/report.css");

/// A report of a run and its results: one HTML file without dependencies.
///
/// Its sections are in the order of the calls. All text is escaped. Pictures are embedded as images, so that nothing in them is
/// executed.
///
/// ```
/// use attn::viz::{LossChart, Report};
///
/// let losses = LossChart::new("Losses").train([(1, 4.0), (2, 3.5)]).svg()?;
/// let page = Report::new("A run")
///     .table("Configuration", [("steps", "2"), ("seed", "1337")])
///     .picture("Losses", "The loss falls from 4 to 3.5.", &losses)
///     .samples("Samples", ["In the beginning"])
///     .page();
/// assert!(page.contains("In the beginning"));
/// # Ok::<_, attn::viz::VizError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Report {
    title: String,
    body: String,
    views: bool,
}

impl Report {
    /// A report without sections.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            body: String::new(),
            views: false,
        }
    }

    /// Adds a table of names and values.
    pub fn table<N: Display, V: Display>(
        mut self,
        heading: &str,
        rows: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        self.head(heading);
        self.body += "<table class=\"values\">\n";
        for (name, value) in rows {
            let [name, value] = [name.to_string(), value.to_string()].map(|text| html::text(&text));
            let _ = writeln!(
                self.body,
                "<tr><th scope=\"row\">{name}</th><td>{value}</td></tr>"
            );
        }
        self.body += "</table>\n";
        self
    }

    /// Adds preformatted text, such as the `summary()` of a model.
    pub fn text(mut self, heading: &str, text: &str) -> Self {
        self.head(heading);
        self.preformatted(text, "text");
        self
    }

    /// Adds texts that a model generated, one below the other.
    pub fn samples<T: AsRef<str>>(
        mut self,
        heading: &str,
        samples: impl IntoIterator<Item = T>,
    ) -> Self {
        self.head(heading);
        for sample in samples {
            self.preformatted(sample.as_ref(), "sample");
        }
        self
    }

    /// Adds a drawing in SVG with its alternative text: a [`LossChart`](super::LossChart), the `graph_svg()` of a model. It
    /// should be drawn for a white background: dark pages invert its lightness.
    pub fn picture(mut self, heading: &str, description: &str, svg: &str) -> Self {
        self.head(heading);
        let description = html::text(description);
        let svg = base64(svg.as_bytes());
        let _ = writeln!(
            self.body,
            "<div class=\"picture\"><img alt=\"{description}\" src=\"data:image/svg+xml;base64,{svg}\"></div>"
        );
        self
    }

    /// Adds the attention maps of a viewer, under its title.
    pub fn maps(mut self, viewer: &Viewer<'_>) -> Self {
        self.head(viewer.title());
        self.body += &viewer.part();
        self.views = true;
        self
    }

    /// The page.
    pub fn page(&self) -> String {
        let styles = [REPORT_STYLE, STYLE];
        let scripts = [SCRIPT];
        let viewers = usize::from(self.views);
        html::page(
            &self.title,
            &styles[..1 + viewers],
            &self.body,
            &scripts[..viewers],
        )
    }

    /// Writes the page atomically.
    ///
    /// # Errors
    /// [`VizError`] if a system call fails.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), VizError> {
        files::replace(path.as_ref(), self.page().as_bytes())
    }

    fn head(&mut self, heading: &str) {
        let _ = writeln!(self.body, "<h2>{}</h2>", html::text(heading));
    }

    fn preformatted(&mut self, text: &str, class: &str) {
        // HTML drops an empty first line, so there is one more.
        let _ = writeln!(
            self.body,
            "<pre class=\"{class}\">\n{}</pre>",
            html::text(text)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{super::html::tests::HOSTILE, *};
    use crate::{maps::AttentionMap, viz::Labels};

    #[test]
    fn sections_are_in_the_order_of_the_calls() {
        let page = Report::new("run")
            .table("Configuration", [("seed", 7)])
            .text("Parameters", "a  b\n1  2")
            .samples("Samples", ["one", "two"])
            .page();
        let places = [
            "Configuration",
            "seed",
            "Parameters",
            "a  b\n1  2",
            "\none</pre>",
            "\ntwo</pre>",
        ]
        .map(|part| page.find(part));
        assert!(
            places.iter().all(Option::is_some) && places.is_sorted(),
            "{places:?}"
        );
        // A page without maps has no script.
        assert!(!page.contains("<script"));
    }

    #[test]
    fn markup_in_texts_is_escaped() {
        let map = AttentionMap::new(HOSTILE[0], [1, 1, 1, 1], vec![1.0]);
        let mut viewer = Viewer::new(HOSTILE[2]);
        viewer.add(&map, &Labels::indices()).unwrap();
        let page = Report::new(HOSTILE[6])
            .table(HOSTILE[0], [(HOSTILE[1], HOSTILE[2])])
            .text(HOSTILE[3], HOSTILE[6])
            .samples(HOSTILE[2], HOSTILE)
            .picture(HOSTILE[0], HOSTILE[2], "<svg onload=\"alert(1)\"/>")
            .maps(&viewer)
            .page();
        // The data, and the viewer's script.
        assert_eq!(page.matches("<script").count(), 2);
        assert_eq!(page.matches("<img").count(), 1);
        assert!(!page.contains("<svg"));
    }

    #[test]
    fn a_report_replaces_the_previous_file() -> Result<(), VizError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        Report::new("first").write(&path)?;
        Report::new("second").write(&path)?;
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("second") && !text.contains("first"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        Ok(())
    }
}
