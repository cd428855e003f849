//! The prose of a file: paragraphs of documents, runs of comments, texts of the program. Code is left out.

use crate::tree::File;

/// Text that belongs together, on one line each of the file after another.
pub struct Block {
    pub text: String,
    /// The line on which each part begins, and where in the text.
    lines: Vec<(usize, usize)>,
}

impl Block {
    fn begin(line: usize, text: &str) -> Self {
        Self { text: text.to_owned(), lines: vec![(0, line)] }
    }

    fn add(&mut self, line: usize, text: &str) {
        self.text.push(' ');
        self.lines.push((self.text.len(), line));
        self.text.push_str(text);
    }

    pub fn line_of(&self, at: usize) -> usize {
        let before = self.lines.iter().take_while(|(start, _)| *start <= at);
        before.last().map_or(1, |(_, line)| *line)
    }
}

pub fn blocks(file: &File) -> Vec<Block> {
    let ending = file.path.rsplit('.').next().unwrap_or_default();
    match ending {
        "md" => document(&file.text),
        "rs" => rust(&file.text),
        "yaml" | "sh" | "toml" | "py" => comments(&file.text, "#"),
        "sql" => comments(&file.text, "--"),
        "mjs" | "mts" | "go" => comments(&file.text, "//"),
        _ if file.path == "Makefile" => comments(&file.text, "#"),
        _ => Vec::new(),
    }
}

/// Names of functions, with spaces between their words.
pub fn function_names(file: &File) -> Vec<Block> {
    let mut names = Vec::new();
    for (line, number) in file.text.lines().zip(1..).filter(|_| file.is_rust()) {
        let code = line.trim_start();
        let code = ["pub ", "pub(crate) ", "pub(super) ", "async ", "const "]
            .iter()
            .fold(code, |code, word| code.strip_prefix(word).unwrap_or(code));
        let Some(rest) = code.strip_prefix("fn ") else { continue };
        let name: String = rest.chars().take_while(|sign| sign.is_alphanumeric() || *sign == '_').collect();
        names.push(Block::begin(number, &name.replace('_', " ")));
    }
    names
}

/// Paragraphs, list items, headings and cells of tables, without code.
fn document(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_code = false;
    let mut is_open = false;
    for (line, number) in text.lines().zip(1..) {
        let trimmed = line.trim();
        if trimmed.starts_with("```") {
            is_code = !is_code;
            is_open = false;
            continue;
        }
        if is_code || trimmed.is_empty() {
            is_open = false;
            continue;
        }
        let plain = without_code(trimmed);
        if trimmed.starts_with('|') {
            blocks.extend(plain.split('|').map(|cell| Block::begin(number, cell.trim())));
            is_open = false;
        } else if is_open && !begins_item(trimmed) {
            blocks.last_mut().expect("a block is open").add(number, &plain);
        } else {
            blocks.push(Block::begin(number, &plain));
            is_open = !trimmed.starts_with('#');
        }
    }
    blocks
}

fn begins_item(line: &str) -> bool {
    let number = line.trim_start_matches(|sign: char| sign.is_ascii_digit());
    ["- ", "* ", "#", "> "].iter().any(|sign| line.starts_with(sign))
        || (number.len() < line.len() && number.starts_with(". "))
}

/// A line whose inline code is replaced by a neutral word.
fn without_code(line: &str) -> String {
    let parts = line.split('`').zip(0..);
    parts.map(|(part, index)| if index % 2 == 0 { part } else { "`code`" }).collect()
}

/// Runs of comments that follow a sign.
fn comments(text: &str, sign: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut last = None;
    for (line, number) in text.lines().zip(1..) {
        let Some(at) = line.find(sign).filter(|at| line[..*at].chars().next_back().is_none_or(char::is_whitespace))
        else {
            continue;
        };
        let words = without_code(line[at..].trim_start_matches([sign.chars().next().unwrap_or('#'), ' ']));
        let is_whole = line[..at].trim().is_empty();
        let follows = is_whole && !words.is_empty() && last == Some(number - 1);
        match blocks.last_mut().filter(|_| follows) {
            Some(block) => block.add(number, &words),
            None => blocks.push(Block::begin(number, &words)),
        }
        last = (is_whole && !words.is_empty()).then_some(number);
    }
    blocks
}

/// Comments and texts of Rust code.
fn rust(text: &str) -> Vec<Block> {
    let mut reader = Reader { text, at: 0, line: 1, comments: String::new(), texts: Vec::new() };
    reader.read();
    let mut blocks = comments(&reader.comments, "//");
    blocks.extend(reader.texts);
    blocks
}

/// Walks through Rust code and keeps its comments, on their lines, and its texts of several words.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    comments: String,
    texts: Vec<Block>,
}

impl Reader<'_> {
    fn read(&mut self) {
        while let Some(sign) = self.rest().chars().next() {
            let rest = self.rest();
            if rest.starts_with("//") {
                let end = rest.find('\n').unwrap_or(rest.len());
                self.comments.push_str(&rest[..end].replace("//!", "//").replace("///", "//"));
                self.step(end);
            } else if let Some(hashes) = raw_text(rest) {
                let close = format!("\"{}", "#".repeat(hashes));
                let body = hashes + 2;
                let length = rest[body..].find(&close).unwrap_or(rest.len() - body);
                self.keep(body, length);
                self.step(body + length + close.len());
            } else if sign == '"' {
                let length = text_length(&rest[1..]);
                self.keep(1, length);
                self.step(length + 2);
            } else if sign == '\'' {
                self.step(character_length(rest));
            } else {
                self.step(sign.len_utf8());
            }
        }
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn keep(&mut self, from: usize, length: usize) {
        let text = self.rest()[from..from + length].replace("\\\n", " ").replace("\\n", " ");
        let text = without_placeholders(&text);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if text.contains(' ') {
            self.texts.push(Block::begin(self.line, &without_code(&text)));
        }
    }

    /// Moves on; the comments keep the lines of the file.
    fn step(&mut self, length: usize) {
        let end = (self.at + length).min(self.text.len());
        for sign in self.text[self.at..end].chars() {
            if sign == '\n' {
                self.line += 1;
                self.comments.push('\n');
            }
        }
        self.at = end;
    }
}

/// A text without the names of variables in braces.
fn without_placeholders(text: &str) -> String {
    text.split('{').map(|part| part.split_once('}').map_or(part, |(_, rest)| rest)).collect::<Vec<_>>().join("{}")
}

/// The signs around a raw text that begins here.
fn raw_text(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix('r')?;
    let hashes = body.len() - body.trim_start_matches('#').len();
    body[hashes..].starts_with('"').then_some(hashes)
}

/// Up to the closing quotation mark.
fn text_length(body: &str) -> usize {
    let mut is_escaped = false;
    for (at, sign) in body.char_indices() {
        match sign {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at,
            _ => {}
        }
    }
    body.len()
}

/// A character, or only the mark where a lifetime begins.
fn character_length(rest: &str) -> usize {
    let mut signs = rest.char_indices().skip(1);
    match signs.next() {
        Some((_, '\\')) => rest[3..].find('\'').map_or(1, |at| at + 4),
        Some((at, sign)) if rest[at + sign.len_utf8()..].starts_with('\'') => at + sign.len_utf8() + 1,
        _ => 1,
    }
}
