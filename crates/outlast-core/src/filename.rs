//! File names that clients send: shown, and suggested for downloads, but never used to open or store anything. A name
//! is sanitised once, when it is received, for every system on which it may be saved.

use std::fmt::Write;

/// The longest name that common file systems accept.
const BYTES_MAX: usize = 255;
/// A longer ending is no ending that has to survive shortening.
const ENDING_BYTES_MAX: usize = 32;

/// Names that mean a device on Windows, whatever follows after a dot.
const DEVICES: [&str; 7] = ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$", "CLOCK$"];

/// A name without path, control characters and tricks, of 1 to 255 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filename(Box<str>);

impl Filename {
    /// The name without everything harmful. `None` if nothing is left.
    pub fn clean(text: &str) -> Option<Filename> {
        let last = text.rsplit(['/', '\\']).next().unwrap_or_default();
        let mut name = String::new();
        for (at, letter) in last.char_indices() {
            if is_invisible(letter) {
                continue;
            }
            let following = last.get(at + letter.len_utf8()..).unwrap_or_default();
            match letter {
                _ if letter.is_whitespace() => name.push(' '),
                // Somebody may decode it once too often.
                '%' if begins_with_two_digits(following) => name.push('_'),
                _ if is_special(letter) => name.push('_'),
                _ => name.push(letter),
            }
        }
        let name = trimmed(&name);
        let name = if is_device(name) { format!("_{name}") } else { name.to_owned() };
        let name = shortened(&name);
        (!name.is_empty()).then(|| Filename(name.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The value of a `Content-Disposition` header (RFC 6266): always a download, never something to show in the page. Made of
/// visible ASCII and spaces only.
pub fn disposition(filename: Option<&Filename>) -> String {
    let Some(Filename(name)) = filename else {
        return "attachment".to_owned();
    };
    // Old readers take this one; some of them decode percent signs in it.
    let plain: String = name.chars().map(|letter| if is_plain(letter) { letter } else { '_' }).collect();
    let mut value = format!("attachment; filename=\"{plain}\"");
    if plain != **name {
        value.push_str("; filename*=UTF-8''");
        for byte in name.bytes() {
            match byte {
                b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => value.push(char::from(byte)),
                b'!' | b'#' | b'$' | b'&' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~' => {
                    value.push(char::from(byte));
                }
                _ => write!(value, "%{byte:02X}").unwrap_or_default(),
            }
        }
    }
    value
}

fn is_plain(letter: char) -> bool {
    (letter == ' ' || letter.is_ascii_graphic()) && !matches!(letter, '"' | '\\' | '%')
}

/// Control characters, and those that only change how others look or in which direction they run.
fn is_invisible(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}')
        || matches!(letter, '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(letter, '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}')
        || matches!(letter, '\u{fff0}'..='\u{fffd}' | '\u{e000}'..='\u{f8ff}' | '\u{e0000}'..='\u{10ffff}')
        || u32::from(letter) & 0xfffe == 0xfffe
}

/// Characters that some system refuses in a name, and those that look like a slash or a dot or normalise to one.
fn is_special(letter: char) -> bool {
    matches!(letter, '<' | '>' | ':' | '"' | '|' | '?' | '*')
        || matches!(letter, '\u{2044}' | '\u{2215}' | '\u{2216}' | '\u{29f5}' | '\u{29f8}' | '\u{29f9}')
        || matches!(letter, '\u{fe68}' | '\u{ff0f}' | '\u{ff3c}' | '\u{ff1a}' | '\u{ff02}' | '\u{ff05}' | '\u{a789}')
        || matches!(letter, '\u{2024}' | '\u{2025}' | '\u{fe52}' | '\u{ff0e}' | '\u{ff61}')
}

fn begins_with_two_digits(text: &str) -> bool {
    let mut digits = text.chars().take(2);
    digits.next().is_some_and(|digit| digit.is_ascii_hexdigit())
        && digits.next().is_some_and(|digit| digit.is_ascii_hexdigit())
}

/// A name begins with no dot, which would hide it, and ends with neither dot nor space, which Windows drops.
fn trimmed(name: &str) -> &str {
    name.trim_matches(['.', ' '])
}

fn is_device(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default().trim_end().to_uppercase();
    let numbered = stem.strip_prefix("COM").or_else(|| stem.strip_prefix("LPT"));
    let is_number = |rest: &str| {
        let mut letters = rest.chars();
        let first = letters.next().is_some_and(|letter| matches!(letter, '0'..='9' | '¹' | '²' | '³'));
        first && letters.next().is_none()
    };
    DEVICES.contains(&stem.as_str()) || numbered.is_some_and(is_number)
}

/// Cut before its ending, so that the kind of file stays recognisable.
fn shortened(name: &str) -> String {
    if name.len() <= BYTES_MAX {
        return name.to_owned();
    }
    let ending = name.rfind('.').and_then(|at| name.get(at..)).filter(|ending| ending.len() <= ENDING_BYTES_MAX);
    let ending = ending.unwrap_or_default();
    let mut end = BYTES_MAX - ending.len();
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    let stem = name.get(..end).unwrap_or_default();
    trimmed(&format!("{}{ending}", stem.trim_end_matches(['.', ' ']))).to_owned()
}

#[cfg(test)]
mod tests;
