//! T16: hostile file names. Whatever comes in, what goes out is one plain name and a header that cannot be broken out of.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use super::*;

const TRAVERSALS: [&str; 26] = [
    "..",
    "../",
    "../../../../etc/passwd",
    "..\\..\\windows\\system32\\config\\sam",
    "/etc/passwd",
    "//server/share/file",
    "\\\\server\\share\\file",
    "\\\\?\\C:\\file",
    "\\\\.\\PhysicalDrive0",
    "C:\\autoexec.bat",
    "C:file",
    "file:///etc/passwd",
    "~/.ssh/authorized_keys",
    "....//....//etc/passwd",
    "..;/..;/etc/passwd",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "%2E%2E/%2E%2E/etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "..%5c..%5cwindows",
    "%252e%252e%252fetc%252fpasswd",
    "..%c0%af..%c0%afetc",
    "..%u2215..%u2215etc",
    "．．／．．／etc／passwd",
    "‥／etc",
    "..∕..∕etc",
    "..⁄..⁄etc",
];

const DEVICE_NAMES: [&str; 16] = [
    "CON", "con", "PRN", "AUX", "NUL", "nul.txt", "COM1", "com9.log", "COM¹", "LPT1", "lpt³.x", "CONIN$", "CONOUT$",
    "CLOCK$", "aux .txt", "COM0",
];

/// Each is put before, behind and into something harmless.
const INFIXES: [&str; 30] = [
    "\0",
    "\r\n",
    "\n",
    "\r",
    "\t",
    "\u{b}",
    "\u{1b}[31m",
    "\u{7f}",
    "\u{85}",
    "\u{9b}31m",
    "\u{200b}",
    "\u{200e}",
    "\u{202e}",
    "\u{2066}",
    "\u{2028}",
    "\u{2029}",
    "\u{feff}",
    "\u{fffd}",
    "\u{fffe}",
    "\u{e0041}",
    "\u{f0000}",
    "\"",
    "\\\"",
    "\"; filename=\"evil.exe",
    "';alert(1)//",
    "<script>",
    "%00",
    "%0d%0aSet-Cookie:x=y",
    "|rm -rf",
    "*?:",
];

fn corpus() -> BTreeSet<String> {
    let mut names: BTreeSet<String> =
        ["", ".", "...", " ", ". .", "/", "\\", "-rf", "$(id)", "`id`", ".htaccess", "a.", "a "]
            .map(str::to_owned)
            .into();
    for infix in INFIXES {
        names.extend([
            infix.to_owned(),
            format!("{infix}report.pdf"),
            format!("re{infix}port.pdf"),
            format!("report.pdf{infix}"),
        ]);
        names.insert(format!(".{infix}./etc"));
        names.insert(format!(".{infix}."));
    }
    for traversal in TRAVERSALS {
        names.extend([
            traversal.to_owned(),
            format!("{traversal}\0.png"),
            format!("x/{traversal}"),
            format!("{traversal}/."),
        ]);
    }
    for device in DEVICE_NAMES {
        names.extend([device.to_owned(), format!("dir/{device}"), format!("{device}."), format!(" {device}\u{200b}")]);
    }
    for letter in ["a", "ä", "€", "𝔸", ".", "\u{301}", "a.", ". "] {
        for times in [254, 255, 256, 1000, 5000] {
            names.extend([
                letter.repeat(times),
                format!("{}.pdf", letter.repeat(times)),
                format!("x.{}", letter.repeat(times)),
            ]);
        }
    }
    names
}

/// What a reader of the header takes for the name, by the rules of RFC 6266 and RFC 8187.
fn name_in(header: &str) -> Option<String> {
    let rest = header.strip_prefix("attachment; filename=\"")?;
    let (plain, rest) = rest.split_once('"')?;
    if rest.is_empty() {
        return Some(plain.to_owned());
    }
    let mut encoded = rest.strip_prefix("; filename*=UTF-8''")?.bytes();
    let mut bytes = Vec::new();
    while let Some(byte) = encoded.next() {
        match byte {
            b'%' => {
                let digits = [encoded.next()?, encoded.next()?];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
            }
            _ if byte.is_ascii_alphanumeric() || b"!#$&+-.^_`|~".contains(&byte) => bytes.push(byte),
            _ => return None,
        }
    }
    String::from_utf8(bytes).ok()
}

#[test]
fn no_hostile_name_gets_through() {
    let corpus = corpus();
    assert!(corpus.len() >= 300, "{} names", corpus.len());

    for hostile in &corpus {
        let Some(clean) = Filename::clean(hostile) else {
            continue;
        };
        let name = clean.as_str();
        assert!(!name.is_empty() && name.len() <= 255, "{hostile:?}: {} bytes", name.len());
        assert!(!name.contains(['/', '\\', '"', '<', '>', ':', '|', '?', '*']), "{hostile:?}: {name:?}");
        assert!(!name.chars().any(char::is_control), "{hostile:?}: {name:?}");
        assert!(!name.starts_with(['.', ' ']) && !name.ends_with(['.', ' ']), "{hostile:?}: {name:?}");
        assert!(!is_device(name), "{hostile:?}: {name:?}");
        let path = Path::new("/base").join(name);
        let parts: Vec<_> = path.components().collect();
        assert!(parts.len() == 3 && matches!(parts[2], Component::Normal(_)), "{hostile:?}: {path:?}");
        assert_eq!(Filename::clean(name).as_ref(), Some(&clean), "{hostile:?}: cleaning twice is cleaning once");

        let header = disposition(Some(&clean));
        assert!(header.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{hostile:?}: {header:?}");
        assert_eq!(name_in(&header).as_deref(), Some(name), "{hostile:?}: {header:?}");
    }
}

/// The control of the test above: its checks do find what is hostile.
#[test]
fn the_corpus_is_hostile() {
    let is_changed = |name: &&String| Filename::clean(name).is_none_or(|clean| clean.as_str() != name.as_str());

    let corpus = corpus();
    let changed = corpus.iter().filter(is_changed).count();

    assert!(changed >= 300, "{changed} of {} names had to be changed", corpus.len());
    assert_eq!(name_in("attachment; filename=\"a\"; filename=\"evil.exe\""), None);
}

#[test]
fn an_honest_name_stays_as_it_is() {
    for name in [
        "report.pdf",
        "Überblick 2024.xlsx",
        "日本語の報告.txt",
        "archive.tar.gz",
        "a b (1) [final], v2; it's.doc",
        "100%.pdf",
        "résumé – draft.odt",
        "console.log",
        "common.txt",
        "com10.txt",
        "x",
    ] {
        assert_eq!(Filename::clean(name).unwrap().as_str(), name);
    }
}

#[test]
fn what_a_name_becomes_can_be_foretold() {
    for (hostile, expected) in [
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\me\\report.pdf", "report.pdf"),
        (".bashrc", "bashrc"),
        ("re\r\nport\0.pdf", "report.pdf"),
        ("gpj.\u{202e}exe.pdf", "gpj.exe.pdf"),
        ("nul.txt", "_nul.txt"),
        ("a\"b", "a_b"),
        ("..%2fetc%2fpasswd", "_2fetc_2fpasswd"),
        ("．．／etc", "___etc"),
        ("a\u{a0}b\tc", "a bc"),
    ] {
        assert_eq!(Filename::clean(hostile).unwrap().as_str(), expected, "{hostile:?}");
    }
    for nothing in ["", "..", " . ", "/", "a/", "\0\r\n", "\u{202e}"] {
        assert_eq!(Filename::clean(nothing), None, "{nothing:?}");
    }
}

#[test]
fn a_long_name_keeps_its_ending() {
    let clean = Filename::clean(&format!("{}.tar.gz", "ä".repeat(300))).unwrap();

    assert!(clean.as_str().ends_with("ä.gz") || clean.as_str().ends_with(".gz"));
    assert!((250..=255).contains(&clean.as_str().len()));
}

#[test]
fn the_header_names_the_file_twice_where_ascii_does_not_do() {
    for (name, expected) in [
        ("report.pdf", "attachment; filename=\"report.pdf\""),
        ("€ 100%.pdf", "attachment; filename=\"_ 100_.pdf\"; filename*=UTF-8''%E2%82%AC%20100%25.pdf"),
    ] {
        assert_eq!(disposition(Filename::clean(name).as_ref()), expected);
    }
    assert_eq!(disposition(None), "attachment");
}
