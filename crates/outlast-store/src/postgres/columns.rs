//! Rows on their way to one statement, which takes an array per column.

use std::borrow::Cow;

use tokio_postgres::types::Type;

use super::rows::Cell;
use super::session::{Parameter, Sql};

pub(super) struct Rows<'w> {
    pub(super) sql: &'static Sql,
    columns: Vec<Column<'w>>,
}

/// One array, of the type that the statement says.
enum Column<'w> {
    Bools(Vec<bool>),
    Shorts(Vec<Option<i16>>),
    Ints(Vec<Option<i32>>),
    Longs(Vec<Option<i64>>),
    Texts(Vec<Option<Cow<'w, str>>>),
    Blobs(Vec<Option<Cow<'w, [u8]>>>),
}

impl<'w> Rows<'w> {
    pub(super) fn new(sql: &'static Sql) -> Rows<'w> {
        Rows { sql, columns: sql.types.iter().map(Column::new).collect() }
    }

    pub(super) fn push<const N: usize>(&mut self, row: [Cell<'w>; N]) {
        debug_assert_eq!(N, self.columns.len(), "a cell for each column");
        self.columns.iter_mut().zip(row).for_each(|(column, cell)| column.push(cell));
    }

    pub(super) fn parameters(&self) -> Vec<Parameter<'_>> {
        self.columns.iter().map(Column::parameter).collect()
    }
}

impl<'w> Column<'w> {
    fn new(kind: &Type) -> Column<'w> {
        match kind {
            kind if *kind == Type::BOOL_ARRAY => Column::Bools(Vec::new()),
            kind if *kind == Type::INT2_ARRAY => Column::Shorts(Vec::new()),
            kind if *kind == Type::INT4_ARRAY => Column::Ints(Vec::new()),
            kind if *kind == Type::TEXT_ARRAY => Column::Texts(Vec::new()),
            kind if *kind == Type::BYTEA_ARRAY => Column::Blobs(Vec::new()),
            _ => Column::Longs(Vec::new()),
        }
    }

    fn push(&mut self, cell: Cell<'w>) {
        let number = if let Cell::Number(number) = &cell { Some(*number) } else { None };
        match self {
            Column::Bools(column) => column.push(number == Some(1)),
            Column::Shorts(column) => column.push(number.and_then(|number| number.try_into().ok())),
            Column::Ints(column) => column.push(number.and_then(|number| number.try_into().ok())),
            Column::Longs(column) => column.push(number),
            Column::Texts(column) => column.push(match cell {
                Cell::Text(text) => Some(text.into()),
                Cell::OwnText(text) => Some(text.into()),
                _ => None,
            }),
            Column::Blobs(column) => column.push(match cell {
                Cell::Bytes(bytes) => Some(bytes.into()),
                Cell::OwnBytes(bytes) => Some(bytes.into()),
                _ => None,
            }),
        }
    }

    fn parameter(&self) -> Parameter<'_> {
        match self {
            Column::Bools(column) => column,
            Column::Shorts(column) => column,
            Column::Ints(column) => column,
            Column::Longs(column) => column,
            Column::Texts(column) => column,
            Column::Blobs(column) => column,
        }
    }
}
