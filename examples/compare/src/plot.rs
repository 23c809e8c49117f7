//! The table as a picture: for each row one bar per client, as long as it is fast. Each row has its
//! own scale, for they differ by a factor of a hundred. The rows stand in two columns.

use crate::contender::Contender;
use crate::table::{Table, number};

const COLUMNS: usize = 2;
const COLUMN: usize = 430;
/// Where bars begin in a column, and how long the longest is.
const LEFT: usize = 16;
const LONGEST: f64 = 330.0;
/// From one bar to the next.
const BAR: usize = 18;
/// From the end of the last bar to the next row's title, and the title's own height.
const GAP: usize = 18;
const TITLE: usize = 22;
/// Heights of heading and legend.
const HEAD: usize = 76;

const STYLE: &str = "
  svg { color-scheme: light dark; }
  text { font: 13px system-ui, sans-serif; fill: #1f2328; }
  .heading { font-size: 16px; font-weight: 600; }
  .title { font-weight: 600; }
  .value { font-size: 12px; }
  .back { fill: #ffffff; }
  .bare { fill: #8c959f; }
  .redis-sync { fill: #d4a72c; }
  .redis-async { fill: #c4581b; }
  .fred { fill: #8250df; }
  .reslot { fill: #0969da; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .back { fill: #0d1117; }
    .bare { fill: #6e7681; }
    .redis-sync { fill: #bb8009; }
    .redis-async { fill: #db6d28; }
    .fred { fill: #a371f7; }
    .reslot { fill: #388bfd; }
  }
";

/// The picture, as a text in SVG.
pub(crate) fn draw(table: &Table) -> String {
    let row = TITLE + BAR * table.clients.len() + GAP;
    let rows = table.rows.len().div_ceil(COLUMNS);
    let (width, height) = (COLUMN * COLUMNS, HEAD + row * rows);
    let heading = format!("{}, each row on its own scale", table.title);
    let mut shapes = vec![text(LEFT, 28, "heading", &heading)];
    for (at, client) in table.clients.iter().enumerate() {
        let x = LEFT + at * 120;
        shapes.push(bar(x, 44, 12.0, *client));
        shapes.push(text(x + 18, 55, "value", client.name()));
    }
    for (at, line) in table.rows.iter().enumerate() {
        let (left, top) = (LEFT + at / rows * COLUMN, HEAD + at % rows * row);
        // The footnotes of the table are not here.
        let what = line.what.trim_end_matches([' ', '¹', '²']);
        shapes.push(text(left, top + 14, "title", what));
        let fastest = line.cells.iter().flatten().copied().fold(0.0, f64::max);
        for (at, (client, cell)) in table.clients.iter().zip(&line.cells).enumerate() {
            let y = top + TITLE + at * BAR;
            let length = match cell {
                Some(value) if fastest > 0.0 && !value.is_nan() => value / fastest * LONGEST,
                _ => 0.0,
            };
            shapes.push(bar(left, y, length, *client));
            let label = grouped(&number(*cell, 0));
            let x = left + length as usize + 8;
            shapes.push(text(x, y + 11, "value", &label));
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{title}\">\n\
         <style>{STYLE}</style>\n\
         <rect class=\"back\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>\n{}\n</svg>\n",
        shapes.join("\n"),
        title = escaped(&table.title),
    )
}

fn bar(x: usize, y: usize, length: f64, client: Contender) -> String {
    let (height, class) = (BAR - 4, client.name());
    format!(
        "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{length:.1}\" height=\"{height}\" \
         rx=\"2\"/>"
    )
}

fn text(x: usize, y: usize, class: &str, words: &str) -> String {
    let words = escaped(words);
    format!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{words}</text>")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// A number with commas between its thousands; other texts as they are.
fn grouped(text: &str) -> String {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.to_owned();
    }
    let mut grouped = String::new();
    for (at, digit) in text.chars().enumerate() {
        if at > 0 && (text.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
