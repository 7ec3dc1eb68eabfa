//! Pictures for where SVG is not shown.

use std::sync::Arc;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{self, fontdb};

use crate::error::Error;

/// The fonts of the system, loaded once.
#[derive(Clone, Debug)]
pub struct Fonts(Arc<fontdb::Database>);

impl Fonts {
    /// Looks for them where the system keeps them.
    pub fn of_system() -> Fonts {
        let mut fonts = fontdb::Database::new();
        fonts.load_system_fonts();
        if let Some(family) = ["DejaVu Sans", "Noto Sans", "Liberation Sans", "Arial", "Helvetica"]
            .into_iter()
            .find(|family| has(&fonts, family))
        {
            fonts.set_sans_serif_family(family);
        }
        Fonts(Arc::new(fonts))
    }

    /// Whether there is a font at all.
    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// Whether some font has this letter: what is drawn of it is not what is drawn of a letter that no
    /// font has.
    pub fn have(&self, letter: char) -> bool {
        let draw = |letter: char| {
            let svg = format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"40\" height=\"40\"><text x=\"4\" y=\"30\" \
                 font-size=\"24\" font-family=\"sans-serif\">{letter}</text></svg>"
            );
            png(&svg, self).ok()
        };
        match (draw(letter), draw('\u{10fffd}'), draw(' ')) {
            (Some(drawn), Some(missing), Some(nothing)) => drawn != missing && drawn != nothing,
            _ => false,
        }
    }
}

fn has(fonts: &fontdb::Database, family: &str) -> bool {
    fonts.faces().any(|face| face.families.iter().any(|(name, _)| name == family))
}

/// A picture of an SVG, twice as large so that it is sharp on paper.
///
/// # Errors
/// [`Error::Unavailable`] if the system has no fonts or the picture cannot be made.
pub fn png(svg: &str, fonts: &Fonts) -> Result<Vec<u8>, Error> {
    if !fonts.any() {
        return Err(Error::Unavailable("this system has no fonts to draw charts with".to_owned()));
    }
    let fail = |why: &dyn std::fmt::Display| Error::Unavailable(format!("no picture: {why}"));
    let options = usvg::Options { fontdb: Arc::clone(&fonts.0), ..usvg::Options::default() };
    let tree = usvg::Tree::from_str(svg, &options).map_err(|error| fail(&error))?;
    let size = tree.size().to_int_size().scale_by(2.0).ok_or_else(|| fail(&"it has no size"))?;
    let mut picture =
        Pixmap::new(size.width(), size.height()).ok_or_else(|| fail(&"it is too large"))?;
    resvg::render(&tree, Transform::from_scale(2.0, 2.0), &mut picture.as_mut());
    picture.encode_png().map_err(|error| fail(&error))
}
