//! Tables and lists of names and values for people. A table that is wider than the terminal cuts its long columns and
//! leaves out the least important ones. Every cell is escaped, so no text from the server can steer the terminal.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::display::{Display, Style, status_style};
use crate::output::escape;

/// Longest text of a cell where the line has no limit. Long enough for ids, times and most error texts.
const CELL_WIDTH_MAX: usize = 80;
/// A column that may be cut keeps at least this many characters.
const CUT_MIN: usize = 8;
/// Columns of this rank and above are left out before any text is cut.
const EXTRA: u8 = 4;
const GAP: &str = "  ";
/// Values keep at least this width beside their names, however narrow the terminal is.
const VALUE_WIDTH_MIN: usize = 20;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    name: &'static str,
    /// 0: always shown. Columns with a higher rank are left out first.
    rank: u8,
    /// The width down to which it may be cut; `None`: never.
    cut: Option<usize>,
    is_right: bool,
    /// Left out where no row has a value.
    is_optional: bool,
}

impl Column {
    /// A column that is never cut: ids, numbers, words.
    pub(crate) const fn fixed(name: &'static str) -> Column {
        Column { name, rank: 0, cut: None, is_right: false, is_optional: false }
    }

    /// A column that is cut where room is short.
    pub(crate) const fn text(name: &'static str) -> Column {
        Column { cut: Some(CUT_MIN), ..Column::fixed(name) }
    }

    /// Numbers, aligned at the right.
    pub(crate) const fn number(name: &'static str) -> Column {
        Column { is_right: true, ..Column::fixed(name) }
    }

    pub(crate) const fn rank(self, rank: u8) -> Column {
        Column { rank, ..self }
    }

    pub(crate) const fn at_least(self, width: usize) -> Column {
        Column { cut: Some(width), ..self }
    }

    pub(crate) const fn optional(self) -> Column {
        Column { is_optional: true, ..self }
    }
}

/// A text and its colour.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) fn styled(text: impl Into<String>, style: Style) -> Cell {
        Cell { text: escape(&text.into()), style }
    }

    /// A status word in its colour.
    pub(crate) fn status(word: impl Into<String>) -> Cell {
        let word = word.into();
        Cell::styled(word.as_str(), status_style(&word))
    }

    fn is_empty(&self) -> bool {
        matches!(self.text.as_str(), "" | "-")
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::styled(text, Style::Plain)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::styled(text, Style::Plain)
    }
}

/// Columns with a header, separated by two spaces.
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(columns: &[Column]) -> Table {
        Table { columns: columns.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(crate) fn render(&self, display: Display) -> String {
        let widths = self.widths(display.width);
        let header: Vec<Cell> =
            self.columns.iter().map(|column| Cell::styled(column.name.to_uppercase(), Style::Heading)).collect();
        let mut text = String::new();
        for row in std::iter::once(&header).chain(&self.rows) {
            text.push_str(&self.line(row, &widths, display));
        }
        text
    }

    fn line(&self, row: &[Cell], widths: &[Option<usize>], display: Display) -> String {
        let mut line = String::new();
        // Spaces are written before the next cell, so that no line ends in them.
        let mut spaces = 0;
        for ((cell, column), width) in row.iter().zip(&self.columns).zip(widths) {
            let Some(width) = *width else { continue };
            let shown = cut(&cell.text, width);
            let rest = width.saturating_sub(shown.width());
            let (before, after) = if column.is_right { (rest, 0) } else { (0, rest) };
            if !shown.is_empty() {
                line.push_str(&" ".repeat(spaces + before));
                line.push_str(&display.paint(&shown, cell.style));
                spaces = 0;
            }
            spaces += after + GAP.len();
        }
        line.push('\n');
        line
    }

    /// The width of each column; `None` for one that is left out.
    fn widths(&self, limit: Option<usize>) -> Vec<Option<usize>> {
        let mut widths: Vec<Option<usize>> = (0..self.columns.len()).map(|at| self.natural(at)).collect();
        let Some(limit) = limit else { return widths };
        loop {
            let excess = total(&widths).saturating_sub(limit);
            if excess == 0 {
                return widths;
            }
            let slack: usize = widths.iter().zip(&self.columns).map(|(width, column)| column.slack(*width)).sum();
            let ranks = self.columns.iter().zip(&widths).enumerate();
            let shown = ranks.filter(|(_, (column, width))| width.is_some() && column.rank > 0);
            let least = shown.max_by_key(|(_, (column, _))| column.rank);
            let least = least.map(|(at, (column, _))| (at, column.rank));
            match least {
                Some((at, rank)) if rank >= EXTRA || slack < excess => {
                    if let Some(width) = widths.get_mut(at) {
                        *width = None;
                    }
                }
                _ => {
                    self.cut_widest(&mut widths, excess.min(slack));
                    return widths;
                }
            }
        }
    }

    /// As wide as its widest cell; `None` for an optional column without a value.
    fn natural(&self, at: usize) -> Option<usize> {
        let column = self.columns.get(at)?;
        let cells = || self.rows.iter().filter_map(|row| row.get(at));
        if column.is_optional && cells().all(Cell::is_empty) {
            return None;
        }
        let widest = cells().map(|cell| cell.text.width()).max().unwrap_or_default();
        Some(widest.min(CELL_WIDTH_MAX).max(column.name.width()))
    }

    /// Takes `excess` columns of text away, from the widest ones first.
    fn cut_widest(&self, widths: &mut [Option<usize>], excess: usize) {
        for _ in 0..excess {
            let cuttable = widths.iter_mut().zip(&self.columns);
            let cuttable = cuttable.filter(|(width, column)| column.slack(**width) > 0);
            if let Some((Some(width), _)) = cuttable.max_by_key(|(width, _)| **width) {
                *width -= 1;
            }
        }
    }
}

impl Column {
    /// How much narrower it may get.
    fn slack(&self, width: Option<usize>) -> usize {
        match (width, self.cut) {
            (Some(width), Some(least)) => width.saturating_sub(least.max(self.name.len())),
            _ => 0,
        }
    }
}

fn total(widths: &[Option<usize>]) -> usize {
    let shown: Vec<usize> = widths.iter().flatten().copied().collect();
    shown.iter().sum::<usize>() + GAP.len() * shown.len().saturating_sub(1)
}

/// Names and values, one pair per line. On a terminal a long value is wrapped below its beginning.
#[derive(Default)]
pub(crate) struct Pairs(Vec<(String, Cell)>);

impl Pairs {
    pub(crate) fn row(&mut self, name: impl Into<String>, value: impl Into<Cell>) {
        self.0.push((escape(&name.into()), value.into()));
    }

    /// The same for a value that may be missing.
    pub(crate) fn row_some(&mut self, name: &str, value: Option<impl Into<Cell>>) {
        if let Some(value) = value {
            self.row(name, value);
        }
    }

    pub(crate) fn render(&self, display: Display) -> String {
        let names = self.0.iter().map(|(name, _)| name.width()).max().unwrap_or_default();
        let indent = names + GAP.len();
        let room = display.width.map(|width| width.saturating_sub(indent).max(VALUE_WIDTH_MIN));
        let mut text = String::new();
        for (name, value) in &self.0 {
            let lines = room.map_or_else(|| vec![value.text.clone()], |room| wrap(&value.text, room));
            for (at, line) in lines.iter().enumerate() {
                let name = if at == 0 { name.as_str() } else { "" };
                let spaces = " ".repeat(indent.saturating_sub(name.width()));
                let name = display.paint(name, Style::Faint);
                text.push_str(&format!("{name}{spaces}{}\n", display.paint(line, value.style)));
            }
        }
        text
    }
}

/// At most `width` columns; what is cut off is marked.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut cut = head(text, width.saturating_sub(1)).to_owned();
    cut.push('…');
    cut
}

/// Lines of at most `width` columns, broken at spaces where there are some.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = text;
    while rest.width() > width {
        let whole = head(rest, width);
        // A word that is longer than the line is broken.
        let end = match whole.rfind(' ') {
            Some(space) if space > 0 && !rest.get(whole.len()..).is_some_and(|rest| rest.starts_with(' ')) => space,
            _ => whole.len().max(rest.chars().next().map_or(1, char::len_utf8)),
        };
        let (line, following) = rest.split_at_checked(end).unwrap_or((rest, ""));
        lines.push(line.trim_end().to_owned());
        rest = following.trim_start();
    }
    lines.push(rest.to_owned());
    lines
}

/// The beginning that fits into `width` columns.
fn head(text: &str, width: usize) -> &str {
    let mut used = 0;
    for (at, character) in text.char_indices() {
        used += character.width().unwrap_or_default();
        if used > width {
            return text.get(..at).unwrap_or(text);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] = [
        Column::fixed("id"),
        Column::text("queue").at_least(5),
        Column::number("depth"),
        Column::text("tags").rank(1).optional(),
    ];

    fn table(rows: &[[&str; 4]]) -> Table {
        let mut table = Table::new(&COLUMNS);
        for row in rows {
            table.row(row.map(Cell::from));
        }
        table
    }

    fn narrow(width: usize) -> Display {
        Display { width: Some(width), has_colour: false }
    }

    #[test]
    fn columns_are_aligned_and_cells_escaped() {
        let table = table(&[["a", "mail", "7", "-"], ["b", "evil\u{1b}[2J\nname", "1200", "x=1"]]);

        assert_eq!(
            table.render(Display::PLAIN),
            "ID  QUEUE                DEPTH  TAGS\n\
             a   mail                     7  -\n\
             b   evil\\u{1b}[2J\\nname   1200  x=1\n"
        );
    }

    #[test]
    fn a_narrow_terminal_cuts_long_columns_and_then_leaves_out_the_least_important() {
        let table = table(&[["0123456789", "a-queue-with-a-long-name", "7", "tenant=a-long-one"]]);

        for (width, shown) in [
            (100, "0123456789  a-queue-with-a-long-name      7  tenant=a-long-one\n"),
            (50, "0123456789  a-queue-with-a…      7  tenant=a-long…\n"),
            (34, "0123456789  a-qu…      7  tenant=…\n"),
            (33, "0123456789  a-queue-with-…      7\n"),
            (10, "0123456789  a-qu…      7\n"),
        ] {
            let text = table.render(narrow(width));
            let line = text.lines().nth(1).unwrap();
            assert_eq!(format!("{line}\n"), shown, "{width}");
        }
    }

    #[test]
    fn an_optional_column_without_values_is_left_out() {
        let text = table(&[["a", "mail", "7", "-"], ["b", "mail", "8", ""]]).render(Display::PLAIN);

        assert_eq!(text.lines().next(), Some("ID  QUEUE  DEPTH"));
    }

    #[test]
    fn wide_characters_count_twice() {
        let text = table(&[["a", "日本語", "7", "-"], ["b", "mail", "8", ""]]).render(narrow(80));

        assert_eq!(text, "ID  QUEUE   DEPTH\na   日本語      7\nb   mail        8\n");
        assert_eq!(cut("日本語", 4), "日…");
    }

    #[test]
    fn colour_does_not_change_the_alignment() {
        let mut table = Table::new(&[Column::fixed("status"), Column::fixed("id")]);
        table.row([Cell::status("failed"), Cell::from("a")]);

        let text = table.render(Display { width: Some(80), has_colour: true });

        assert_eq!(text, "\u{1b}[1mSTATUS\u{1b}[0m  \u{1b}[1mID\u{1b}[0m\n\u{1b}[31mfailed\u{1b}[0m  a\n");
    }

    #[test]
    fn long_values_are_wrapped_on_a_terminal_and_whole_elsewhere() {
        let mut pairs = Pairs::default();
        pairs.row("id", "j1");
        pairs.row("error", "the remote end has closed the connection");

        assert_eq!(pairs.render(Display::PLAIN), "id     j1\nerror  the remote end has closed the connection\n");
        assert_eq!(
            pairs.render(narrow(27)),
            "id     j1\nerror  the remote end has\n       closed the\n       connection\n"
        );
        assert_eq!(wrap(&"x".repeat(45), 20), ["x".repeat(20), "x".repeat(20), "x".repeat(5)]);
    }
}
