//! The single-place faults in the source of the client, the router and the protocol, from which a
//! seeded sample is drawn: the operators of `cargo mutants`, and numbers that are off by one.
//!
//! `make mutation-sample SOURCE=150` appends a line for each fault to mutation-source.tsv in
//! `docs/results`, and continues after the last line.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Attribute, BinOp, Block, Expr, ImplItemFn, ItemFn, ItemMod, Lit, ReturnType, Stmt, Type,
};

use crate::copies::root;
use crate::sample::{Fault, Sampled};

/// The folders of the sampled source.
const FOLDERS: [&str; 3] = ["client", "protocol", "router"];

/// The files in these folders.
pub fn files() -> Sampled {
    let (src, mut files) = (root().join("src"), Vec::new());
    FOLDERS.iter().for_each(|folder| files_in(&src.join(folder), &mut files));
    files.sort();
    let files = files.iter().map(|file| file.strip_prefix(&src).unwrap().to_owned()).collect();
    Sampled { folder: "src", files }
}

/// All faults, shuffled by the seed.
pub fn sample(seed: u64) -> Vec<Fault> {
    files().faults(seed, faults_of)
}

/// Finds the source in a folder. Tests and telemetry are left out, because they are not behavior.
fn files_in(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap();
        if name == "tests" || name == "telemetry" {
            continue;
        }
        if path.is_dir() {
            files_in(&path, files);
        } else if path.extension().is_some_and(|it| it == "rs") {
            files.push(path);
        }
    }
}

fn faults_of(file: &Path, text: &str) -> Vec<Fault> {
    let mut finder = Finder { file, text, faults: Vec::new() };
    finder.visit_file(&syn::parse_file(text).unwrap());
    finder.faults
}

struct Finder<'a> {
    file: &'a Path,
    text: &'a str,
    faults: Vec<Fault>,
}

impl Finder<'_> {
    fn add(&mut self, place: Range<usize>, new: &str) {
        let old = self.text[place.clone()].to_owned();
        let before = &self.text[..place.start];
        let line = before.matches('\n').count() + 1;
        let column = before.len() - before.rfind('\n').map_or(0, |end| end + 1) + 1;
        let (file, at) = (self.file.to_owned(), place.start);
        self.faults.push(Fault { file, at, line, column, old, new: new.to_owned() });
    }

    fn negate(&mut self, condition: &Expr) {
        // A condition with `let` cannot be negated.
        let place = condition.span().byte_range();
        if !self.text[place.clone()].contains("let ") {
            let negated = format!("!({})", &self.text[place.clone()]);
            self.add(place, &negated);
        }
    }

    fn replace_body(&mut self, block: &Block, output: &ReturnType) {
        let place = block.span().byte_range();
        let old: String = self.text[place.clone()].split_whitespace().collect();
        for value in values(output) {
            let new = format!("{{ {value} }}");
            if old != new.replace(' ', "") {
                self.add(place.clone(), &new);
            }
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if !is_for_tests(&item.attrs) {
            self.replace_body(&item.block, &item.sig.output);
            visit::visit_block(self, &item.block);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if !is_for_tests(&item.attrs) && item.sig.ident != "fmt" {
            self.replace_body(&item.block, &item.sig.output);
            visit::visit_block(self, &item.block);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if let Stmt::Expr(expression, Some(_)) = statement
            && !matches!(expression, Expr::Return(_) | Expr::Break(_) | Expr::Continue(_))
        {
            self.add(statement.span().byte_range(), "");
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_expr(&mut self, expression: &'ast Expr) {
        match expression {
            Expr::If(it) => self.negate(&it.cond),
            Expr::While(it) => self.negate(&it.cond),
            Expr::Unary(it) if matches!(it.op, syn::UnOp::Not(_)) => {
                self.add(it.op.span().byte_range(), "");
            }
            Expr::Binary(it) => {
                let place = it.op.span().byte_range();
                others(&it.op).iter().for_each(|new| self.add(place.clone(), new));
            }
            Expr::Lit(it) => match &it.lit {
                Lit::Int(number) => {
                    let place = it.span().byte_range();
                    let value: u64 = number.base10_parse().unwrap_or(0);
                    let suffix = number.suffix();
                    self.add(place.clone(), &format!("{}{suffix}", value + 1));
                    if value > 0 {
                        self.add(place, &format!("{}{suffix}", value - 1));
                    }
                }
                Lit::Bool(it) => self.add(it.span.byte_range(), &(!it.value).to_string()),
                _ => {}
            },
            _ => {}
        }
        visit::visit_expr(self, expression);
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    let words = |list: &syn::MetaList| list.tokens.to_string();
    let is_test = |list: &syn::MetaList| {
        words(list).split(|it: char| !it.is_alphanumeric()).any(|it| it == "test")
    };
    let mut lists = attributes.iter().filter_map(|it| it.meta.require_list().ok());
    lists.any(|list| list.path.is_ident("cfg") && is_test(list))
}

fn others(operator: &BinOp) -> &'static [&'static str] {
    match operator {
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::Lt(_) => &["<=", ">"],
        BinOp::Le(_) => &["<", ">"],
        BinOp::Gt(_) => &[">=", "<"],
        BinOp::Ge(_) => &[">", "<"],
        BinOp::And(_) => &["||"],
        BinOp::Or(_) => &["&&"],
        BinOp::Add(_) => &["-"],
        BinOp::Sub(_) => &["+"],
        BinOp::Mul(_) => &["+"],
        BinOp::Div(_) => &["*"],
        BinOp::AddAssign(_) => &["-="],
        BinOp::SubAssign(_) => &["+="],
        BinOp::BitOrAssign(_) => &["&="],
        BinOp::BitAndAssign(_) => &["|="],
        _ => &[],
    }
}

/// The values that a function can return without any work.
fn values(output: &ReturnType) -> &'static [&'static str] {
    let ReturnType::Type(_, output) = output else { return &[""] };
    let Type::Path(path) = &**output else { return &[] };
    let Some(last) = path.path.segments.last() else { return &[] };
    match last.ident.to_string().as_str() {
        "bool" => &["true", "false"],
        "Option" => &["None"],
        "Result" => &["Ok(Default::default())"],
        "Self" => &[],
        _ => &["Default::default()"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let faults = faults_of(Path::new("a.rs"), text);
        faults.iter().map(|fault| format!("{}>{}", fault.old, fault.new)).collect()
    }

    #[test]
    fn each_kind_of_fault_is_found_and_tests_have_none() {
        assert_eq!(found("fn f() { g(); }"), ["{ g(); }>{  }", "g();>"]);
        assert_eq!(
            found("fn f() -> bool { a < 2 }"),
            ["{ a < 2 }>{ true }", "{ a < 2 }>{ false }", "<><=", "<>>", "2>3", "2>1"]
        );
        assert_eq!(
            found("fn f() -> &str { if !a && b { c } else { d } }"),
            ["!a && b>!(!a && b)", "&&>||", "!>"]
        );
        assert_eq!(found("fn f() -> &str { if let Some(a) = b { a } else { \"1\" } }"), [""; 0]);
        for cfg in ["test", "all(test, feature = \"embedded\")"] {
            let tests = format!("#[cfg({cfg})] mod tests {{ fn f() {{ g(1); }} }}");
            assert_eq!(found(&tests), [""; 0]);
        }
        assert_eq!(found("fn f() -> Option<u8> { None }"), [""; 0]);
        assert_eq!(found("const A: u32 = 7_000u32;"), ["7_000u32>7001u32", "7_000u32>6999u32"]);
    }

    #[test]
    fn sampled_source_faults_repeat_and_match_the_source() {
        let src = root().join("src");
        let faults = sample(1);
        assert!(faults.len() > 1_000, "{}", faults.len());
        assert_eq!(faults, sample(1));
        for fault in &faults[..50] {
            let text = fs::read_to_string(src.join(&fault.file)).unwrap();
            assert!(text[fault.at..].starts_with(&fault.old), "{fault}");
        }
    }
}
