//! Measures pages in frames of several widths, as a phone or a desk would show them.

use serde::Deserialize;

use super::browser::{Area, Browser};

/// What the browser made of a page.
#[derive(Debug, Deserialize)]
pub struct Layout {
    /// The width of what can be seen without scrolling, and of all there is.
    pub width: f64,
    pub full_width: f64,
    pub full_height: f64,
    /// Elements that reach beyond the right edge.
    pub beyond: Vec<String>,
    /// Elements that could run or load something.
    pub active: usize,
    /// The text of the page.
    pub text: String,
    /// The plots, with the title of each.
    pub plots: Vec<(String, Area)>,
    /// The least size of any text that is shown, in pixels on the screen.
    pub least_text: f64,
}

/// Each page in a frame of its width. The page itself needs no script; this one around it measures.
pub fn layouts(browser: &Browser, pages: &[(&str, u32)]) -> Vec<Layout> {
    let frames: String = pages
        .iter()
        .map(|(html, width)| {
            let quoted = html.replace('&', "&amp;").replace('"', "&quot;");
            format!("<iframe style=\"border:0;height:900px;width:{width}px\" srcdoc=\"{quoted}\"></iframe>\n")
        })
        .collect();
    let document = browser.document(&format!(
        "<!doctype html><meta charset=\"utf-8\">{frames}<pre id=\"found\"></pre><script>{MEASURE}</script>"
    ));
    let (_, found) = document.split_once("<pre id=\"found\">").expect("the measuring script ran");
    let (found, _) = found.split_once("</pre>").unwrap();
    let json =
        found.replace("&lt;", "<").replace("&gt;", ">").replace("&nbsp;", "\u{a0}").replace("&amp;", "&");
    serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}"))
}

const MEASURE: &str = r#"
window.onload = () => {
  const area = (rect) => ({x: rect.x, y: rect.y, width: rect.width, height: rect.height});
  const found = [...document.querySelectorAll("iframe")].map((frame) => {
    const page = frame.contentDocument, root = page.documentElement;
    const shown = [...page.body.querySelectorAll("*")].filter((e) => e.checkVisibility());
    const name = (e) => e.tagName + "." + e.getAttribute("class") + ": " + e.textContent.slice(0, 40);
    const size = (e) => {
      const svg = e.ownerSVGElement;
      const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
      return parseFloat(frame.contentWindow.getComputedStyle(e).fontSize) * scale;
    };
    const texts = shown.filter((e) => [...e.childNodes].some((n) => n.nodeType == 3 && n.data.trim()));
    return {
      width: root.clientWidth, full_width: root.scrollWidth, full_height: root.scrollHeight,
      beyond: shown.filter((e) => e.getBoundingClientRect().right > root.clientWidth + 1).map(name),
      active: page.querySelectorAll("script, img, iframe, object, embed, link, a").length,
      text: page.body.innerText,
      plots: [...page.querySelectorAll(".plot")].map((figure) =>
        [figure.querySelector("b").textContent, area(figure.querySelector(":scope > svg").getBoundingClientRect())]),
      least_text: Math.min(...texts.map(size)),
    };
  });
  document.getElementById("found").textContent = JSON.stringify(found);
};
"#;
