//! Why a text is not a filter: the place, and a sentence that says what is allowed there.

/// The column counts characters from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {message}")]
pub struct FilterError {
    pub column: usize,
    pub message: String,
}

impl FilterError {
    /// At a byte of the text.
    pub(super) fn at(text: &str, byte: usize, message: impl Into<String>) -> FilterError {
        FilterError { column: column(text, byte), message: message.into() }
    }
}

/// The column of a byte. One inside a character counts as that character.
pub(super) fn column(text: &str, byte: usize) -> usize {
    text.char_indices().take_while(|(at, letter)| at + letter.len_utf8() <= byte).count() + 1
}
