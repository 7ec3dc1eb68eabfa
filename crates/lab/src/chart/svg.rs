//! A small writer of SVG: text, lines, marks. Colours of ink and paper are classes, so that one style
//! sheet serves paper, light and dark screens.

use std::fmt::Write;

/// A picture that is being drawn.
#[derive(Debug)]
pub(super) struct Svg {
    width: f64,
    height: f64,
    body: String,
}

/// Where a text is held.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// How a line is drawn.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Stroke {
    Full,
    Thin,
    Dashed,
}

/// Shapes of marks: whoever sees no colours tells series apart by them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mark {
    Circle,
    Square,
    Triangle,
    Diamond,
    Down,
    Cross,
}

impl Mark {
    pub(super) const ALL: [Mark; 6] =
        [Mark::Circle, Mark::Square, Mark::Triangle, Mark::Diamond, Mark::Down, Mark::Cross];
}

/// Style of all pictures.
pub(super) const STYLE: &str = "\
.paper{fill:#ffffff}.ink{fill:#1d2129}.soft{fill:#5b6370}.grid{stroke:#d9dde3;stroke-width:1}\
.axis{stroke:#5b6370;stroke-width:1}text{font-family:system-ui,'Noto Sans','DejaVu Sans','Noto Sans CJK TC',\
'PingFang TC','Microsoft JhengHei','WenQuanYi Zen Hei',sans-serif}";

/// What a dark screen changes of it.
pub(super) const DARK_STYLE: &str = "\
@media screen and (prefers-color-scheme:dark){.paper{fill:#15181d}.ink{fill:#e8eaed}.soft{fill:#a5adba}\
.grid{stroke:#333a44}.axis{stroke:#a5adba}}";

impl Svg {
    pub(super) fn new(width: f64, height: f64) -> Svg {
        let mut svg = Svg { width, height, body: String::new() };
        svg.push(format_args!(
            "<rect class=\"paper\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>"
        ));
        svg
    }

    fn push(&mut self, element: std::fmt::Arguments) {
        // Writing to a string does not fail.
        let _ = self.body.write_fmt(element);
        self.body.push('\n');
    }

    pub(super) fn text(
        &mut self,
        at: [f64; 2],
        size: f64,
        anchor: Anchor,
        class: &str,
        text: &str,
    ) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let [x, y] = at;
        let text = escape(text);
        self.push(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>"
        ));
    }

    pub(super) fn title(&mut self, at: [f64; 2], text: &str) {
        // Widths of the widest common fonts; a long title is smaller, and none is cut off.
        let width: f64 = text.chars().map(|c| if c.is_ascii() { 10.4 } else { 17.0 }).sum();
        let ([x, y], text) = (at, escape(text));
        let size = 17.0 * f64::min(1.0, (self.width - 2.0 * x) / width.max(1.0));
        self.push(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size:.1}\" font-weight=\"600\" class=\"ink\">{text}</text>"
        ));
    }

    pub(super) fn ruled(&mut self, from: [f64; 2], to: [f64; 2], class: &str) {
        let ([a, b], [c, d]) = (from, to);
        self.push(format_args!(
            "<line x1=\"{a:.1}\" y1=\"{b:.1}\" x2=\"{c:.1}\" y2=\"{d:.1}\" class=\"{class}\"/>"
        ));
    }

    pub(super) fn line(&mut self, points: &[[f64; 2]], color: &str, stroke: Stroke) {
        let mut path = String::new();
        for (i, [x, y]) in points.iter().enumerate() {
            let _ = write!(path, "{}{x:.1} {y:.1}", if i == 0 { "M" } else { "L" });
        }
        let style = match stroke {
            Stroke::Full => "stroke-width=\"2.4\"",
            Stroke::Thin => "stroke-width=\"1.3\" stroke-opacity=\"0.75\"",
            Stroke::Dashed => {
                "stroke-width=\"1.6\" stroke-dasharray=\"6 4\" stroke-opacity=\"0.9\""
            }
        };
        self.push(format_args!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-linejoin=\"round\" {style}/>"
        ));
    }

    pub(super) fn bar(&mut self, from: [f64; 2], to: [f64; 2], color: &str, opacity: f64) {
        let (x, y) = (from[0].min(to[0]), from[1].min(to[1]));
        let (w, h) = ((from[0] - to[0]).abs(), (from[1] - to[1]).abs());
        self.push(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" fill=\"{color}\" \
             fill-opacity=\"{opacity}\" stroke=\"{color}\" stroke-width=\"1.2\"/>"
        ));
    }

    /// A mark; hollow ones are drawn in outline.
    pub(super) fn mark(&mut self, mark: Mark, at: [f64; 2], r: f64, color: &str, hollow: bool) {
        let [x, y] = at;
        let shape = match mark {
            Mark::Circle => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r}\""),
            Mark::Square => polygon(at, &[[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]], r),
            Mark::Triangle => polygon(at, &[[0.0, -1.2], [1.1, 0.8], [-1.1, 0.8]], r),
            Mark::Diamond => polygon(at, &[[0.0, -1.3], [1.2, 0.0], [0.0, 1.3], [-1.2, 0.0]], r),
            Mark::Down => polygon(at, &[[0.0, 1.2], [1.1, -0.8], [-1.1, -0.8]], r),
            Mark::Cross => polygon(at, &CROSS, r),
        };
        let fill = if hollow { "none" } else { color };
        self.push(format_args!(
            "{shape} fill=\"{fill}\" stroke=\"{color}\" stroke-width=\"1.4\"/>"
        ));
    }

    /// The label of the vertical axis, from below to above.
    pub(super) fn upright(&mut self, at: [f64; 2], text: &str) {
        let ([x, y], text) = (at, escape(text));
        self.push(format_args!(
            "<text transform=\"translate({x:.1} {y:.1}) rotate(-90)\" font-size=\"13\" \
             text-anchor=\"middle\" class=\"soft\">{text}</text>"
        ));
    }

    /// The whole picture. `style` goes into it, for pictures that stand alone.
    pub(super) fn finish(&self, title: &str, style: &str) -> String {
        let (w, h, body, title) = (self.width, self.height, &self.body, escape(title));
        let style = match style {
            "" => String::new(),
            style => format!("<style>{style}</style>\n"),
        };
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" \
             role=\"img\" aria-label=\"{title}\">\n<title>{title}</title>\n{style}{body}</svg>\n"
        )
    }
}

const CROSS: [[f64; 2]; 12] = [
    [-1.1, -0.4],
    [-0.4, -0.4],
    [-0.4, -1.1],
    [0.4, -1.1],
    [0.4, -0.4],
    [1.1, -0.4],
    [1.1, 0.4],
    [0.4, 0.4],
    [0.4, 1.1],
    [-0.4, 1.1],
    [-0.4, 0.4],
    [-1.1, 0.4],
];

fn polygon([x, y]: [f64; 2], corners: &[[f64; 2]], r: f64) -> String {
    let points: Vec<String> =
        corners.iter().map(|[dx, dy]| format!("{:.1},{:.1}", x + dx * r, y + dy * r)).collect();
    format!("<polygon points=\"{}\"", points.join(" "))
}

/// A text between tags.
pub(crate) fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;")
}
