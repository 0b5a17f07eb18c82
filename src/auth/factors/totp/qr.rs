//! Draws a text as a QR code.

use std::fmt::Write as _;

use qrcode::{Color, EcLevel, QrCode};

/// The empty border that readers need, in modules.
const BORDER: usize = 4;

/// Returns a text as an inline SVG: dark on light, also on a dark page, because not all readers know inverted codes.
/// Returns `None` if the text is too long.
pub(super) fn svg(text: &str) -> Option<String> {
    let code = QrCode::with_error_correction_level(text, EcLevel::M).ok()?;
    let (width, size) = (code.width(), code.width() + 2 * BORDER);
    let mut path = String::new();
    for (at, color) in code.into_colors().into_iter().enumerate() {
        if color == Color::Dark {
            let (x, y) = (at % width + BORDER, at / width + BORDER);
            // writing to a string can't fail
            let _written = write!(path, "M{x} {y}h1v1h-1z");
        }
    }
    Some(format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size} {size}" shape-rendering="crispEdges" role="img" aria-label="QR code"><path fill="#fff" d="M0 0h{size}v{size}H0z"/><path fill="#000" d="{path}"/></svg>"##
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the drawing with another implementation.
    fn decode_qr(svg: &str) -> String {
        let (_, path) = svg.split_once("fill=\"#000\" d=\"").unwrap();
        let dark: Vec<(usize, usize)> = path
            .split_once('"')
            .unwrap()
            .0
            .split("h1v1h-1z")
            .filter_map(|module| module.strip_prefix('M')?.split_once(' '))
            .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
            .collect();
        let size: usize = svg.split_once("viewBox=\"0 0 ").unwrap().1.split(' ').next().unwrap().parse().unwrap();
        const SCALE: usize = 4;
        let mut image = rqrr::PreparedImage::prepare_from_greyscale(size * SCALE, size * SCALE, |x, y| {
            if dark.contains(&(x / SCALE, y / SCALE)) { 0 } else { 255 }
        });
        let grids = image.detect_grids();
        assert_eq!(grids.len(), 1);
        grids[0].decode().unwrap().1
    }

    #[test]
    fn another_reader_reads_the_same_text() {
        let long = format!("otpauth://totp/{}?secret={}", "a".repeat(300), "B".repeat(52));
        for text in ["a", "otpauth://totp/Example:ada%40example.com?secret=MZXW6YTBOI&issuer=Example", &long] {
            assert_eq!(decode_qr(&svg(text).unwrap()), text);
        }
        assert_eq!(svg(&"x".repeat(5000)), None);
    }

    #[test]
    fn the_drawing_contains_nothing_of_the_text() {
        assert!(!svg("<script>alert(1)</script>").unwrap().contains("script"));
    }
}
