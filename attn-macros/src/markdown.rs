//! Tables of generated documentation.

use std::fmt;

/// A table in Markdown, row by row.
pub(crate) struct Table<const COLUMNS: usize>(String);

impl<const COLUMNS: usize> Table<COLUMNS> {
    pub(crate) fn new(head: [&str; COLUMNS]) -> Self {
        let mut table = Table(String::new());
        table.row(head);
        table.row(["---"; COLUMNS]);
        table
    }

    /// A `|` or the end of a line would end a cell.
    pub(crate) fn row(&mut self, cells: [&str; COLUMNS]) {
        self.0.push('|');
        for cell in cells {
            let cell = cell.trim().replace('|', "\\|").replace('\n', " ");
            self.0
                .extend([" ", &cell, if cell.is_empty() { "|" } else { " |" }]);
        }
        self.0.push('\n');
    }
}

impl<const COLUMNS: usize> fmt::Display for Table<COLUMNS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
