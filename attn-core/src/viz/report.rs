//! A run on one page.

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

/// A page that says what a run was and what came of it: one HTML file that needs nothing else.
///
/// Its sections stand in the order in which they are added. All text is text, whatever is in it; pictures are shown as pictures,
/// so that nothing in them can run.
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
    /// A page without sections.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            body: String::new(),
            views: false,
        }
    }

    /// A table of names and values.
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

    /// Text with its lines and columns as they are: the `summary()` of a model.
    pub fn text(mut self, heading: &str, text: &str) -> Self {
        self.head(heading);
        self.preformatted(text, "text");
        self
    }

    /// Texts that a model wrote, one below the other.
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

    /// A drawing in SVG, and what it says to those who do not see it: a [`LossChart`](super::LossChart), the `graph_svg()` of a model. It
    /// is to be drawn for white paper: on dark pages its lightness is turned around.
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

    /// The attention maps of a viewer; its title is the heading.
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

    /// Writes the page: whole, or not at all.
    ///
    /// # Errors
    /// [`VizError`] if the system refuses.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), VizError> {
        files::replace(path.as_ref(), self.page().as_bytes())
    }

    fn head(&mut self, heading: &str) {
        let _ = writeln!(self.body, "<h2>{}</h2>", html::text(heading));
    }

    fn preformatted(&mut self, text: &str, class: &str) {
        // A first line that is empty would be lost without another before it.
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
    fn sections_stand_in_their_order() {
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
        // Without maps there is no script.
        assert!(!page.contains("<script"));
    }

    #[test]
    fn what_is_written_as_code_stays_text() {
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
        // The data, and the viewer's own.
        assert_eq!(page.matches("<script").count(), 2);
        assert_eq!(page.matches("<img").count(), 1);
        assert!(!page.contains("<svg"));
    }

    #[test]
    fn a_report_takes_the_place_of_the_one_before() -> Result<(), VizError> {
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
