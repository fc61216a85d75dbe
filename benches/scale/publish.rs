//! Copies the printed tables into the page, as `scripts/publish` does for other pages.

use std::fs;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/scale.md");

/// Replaces the text between `<!-- figures: SECTION -->` and `<!-- end -->` with that section.
pub fn publish(sections: &[(String, String)]) {
    let page = fs::read_to_string(PAGE).expect("the page is there");
    fs::write(PAGE, replaced(&page, sections)).expect("the page can be written");
}

fn replaced(page: &str, sections: &[(String, String)]) -> String {
    let mut text = String::new();
    let mut skips = false;
    for line in page.lines() {
        skips &= line != "<!-- end -->";
        if !skips {
            text += line;
            text.push('\n');
        }
        let name = line.strip_prefix("<!-- figures: ").and_then(|rest| rest.strip_suffix(" -->"));
        if let Some((_, section)) = name.and_then(|name| sections.iter().find(|it| it.0 == name)) {
            text += &format!("\n{}\n\n", section.trim_end());
            skips = true;
        }
    }
    text
}
