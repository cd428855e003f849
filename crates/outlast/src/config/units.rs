//! How sizes are written: bytes as a number, or with a binary unit.

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;

/// Reads `"256KiB"`, `"8MiB"`, `"1GiB"`, `"512B"` or a bare number of bytes. `None` for anything else.
pub(crate) fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits_end);
    let scale = match unit.trim() {
        "" | "B" => 1,
        "KiB" => KIB,
        "MiB" => MIB,
        "GiB" => GIB,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(scale)
}

/// Shows a size in the largest unit that divides it.
pub(crate) fn show_bytes(bytes: u64) -> String {
    for (scale, unit) in [(GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")] {
        if bytes >= scale && bytes.is_multiple_of(scale) {
            return format!("{}{unit}", bytes / scale);
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::{parse_bytes, show_bytes};

    #[test]
    fn sizes_are_read_in_every_unit_and_refused_otherwise() {
        for (text, bytes) in
            [("0", 0), ("512B", 512), ("256KiB", 262_144), ("8 MiB", 8_388_608), ("1GiB", 1_073_741_824)]
        {
            assert_eq!(parse_bytes(text), Some(bytes), "{text}");
        }
        for text in ["", "KiB", "-1", "1.5MiB", "1KB", "1 2", "99999999999GiB", "18446744073709551616"] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
    }

    #[test]
    fn a_size_is_shown_in_the_largest_unit_that_divides_it() {
        for (bytes, text) in [(0, "0"), (1000, "1000"), (1024, "1KiB"), (8_388_608, "8MiB"), (1_048_577, "1048577")] {
            assert_eq!(show_bytes(bytes), text);
        }
    }
}
