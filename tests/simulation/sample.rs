//! A seeded random sample of faults in the scripts, of one token each. The share that the checks
//! find says more than faults planted by an author who knows the checks.
//!
//! `make mutation-sample` (`LUA=300`, `SEED=1`) appends a line for each fault to mutation-lua.tsv
//! in `docs/results`, and continues after its last line. The first lines of the file identify the
//! sample and the scripts. If the scripts have changed, the file is started again. `QUICK=1` leaves
//! out suites that take minutes, and `AGAIN=1` tries those faults again that have survived so far.
//! A fault that changes nothing has `equivalent: ` and the reason as its result, written by hand.
//! The sample leaves out the scripts of the mutex and of the semaphore.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use fastrand::Rng;
use sha1_smol::Sha1;

use crate::copies::root;

/// The tokens and their replacements. Longer tokens come first.
const TOKENS: &[(&str, &[&str])] = &[
    ("==", &["~="]),
    ("~=", &["=="]),
    ("<=", &["<"]),
    (">=", &[">"]),
    ("<", &["<=", ">"]),
    (">", &[">=", "<"]),
    (" + ", &[" - "]),
    (" - ", &[" + "]),
    (" * ", &[" + "]),
    (" and ", &[" or "]),
    (" or ", &[" and "]),
    ("not ", &[""]),
    ("true", &["false"]),
    ("false", &["true"]),
];

/// The length to which the text of a fault is cut.
const LONGEST: usize = 70;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Relative to the folder of the sample.
    pub file: PathBuf,
    pub at: usize,
    pub line: usize,
    pub column: usize,
    pub old: String,
    pub new: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { file, line, column, old, new, .. } = self;
        let (old, new) = (in_a_line(old), in_a_line(new));
        write!(f, "{}\t{line}:{column}\t`{old}`\t`{new}`", file.display())
    }
}

/// The beginning of a text, in one line.
fn in_a_line(text: &str) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() > LONGEST {
        line = line.chars().take(LONGEST).chain(" ...".chars()).collect();
    }
    line
}

impl Fault {
    /// Plants the fault in the copy in this folder.
    pub fn plant(&self, folder: &Path) {
        let path = folder.join(&self.file);
        let mut text = fs::read_to_string(&path).unwrap();
        text.replace_range(self.at..self.at + self.old.len(), &self.new);
        fs::write(path, text).unwrap();
    }
}

/// The files from which a sample is drawn.
#[derive(Debug)]
pub struct Sampled {
    pub folder: &'static str,
    pub files: Vec<PathBuf>,
}

impl Sampled {
    fn path(&self, file: &Path) -> PathBuf {
        root().join(self.folder).join(file)
    }

    /// All faults of the files, shuffled by the seed.
    pub fn faults(&self, seed: u64, faults_of: impl Fn(&Path, &str) -> Vec<Fault>) -> Vec<Fault> {
        let faults = self.files.iter().flat_map(|file| {
            let text = fs::read_to_string(self.path(file)).unwrap();
            faults_of(file, &text)
        });
        let mut all: Vec<Fault> = faults.collect();
        Rng::with_seed(seed).shuffle(&mut all);
        all
    }

    /// Changes with each of the files, and with no other file. Tests at the end of a file do not
    /// count.
    fn digest(&self) -> String {
        let mut digest = Sha1::new();
        for file in &self.files {
            digest.update(file.to_string_lossy().as_bytes());
            let text = fs::read_to_string(self.path(file)).unwrap();
            digest.update(without_tests(&text).as_bytes());
        }
        digest.digest().to_string().split_off(33)
    }
}

/// The text of a file up to its module of tests.
fn without_tests(text: &str) -> &str {
    match text.rsplit_once("\n#[cfg(") {
        Some((code, rest)) if rest.contains("test") && rest.contains("\nmod tests {") => code,
        _ => text,
    }
}

/// The read/write lock's scripts.
pub fn scripts() -> Sampled {
    let lua = root().join("lua");
    let mut files = Vec::new();
    for folder in ["", "lib"] {
        let entries = fs::read_dir(lua.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        files.extend(entries.map(|path| path.strip_prefix(&lua).unwrap().to_owned()));
    }
    files.retain(|file| {
        file.extension().is_some_and(|it| it == "lua")
            && *file != Path::new("lib/semaphore_state.lua")
    });
    files.sort();
    Sampled { folder: "lua", files }
}

/// All faults of the read/write lock's scripts, shuffled by the seed.
pub fn sample(seed: u64) -> Vec<Fault> {
    scripts().faults(seed, faults_of)
}

fn faults_of(file: &Path, text: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut start = 0;
    for (number, whole) in text.split_inclusive('\n').enumerate() {
        let code = code_of(whole);
        let mut add = |at: usize, old: &str, new: &str| {
            faults.push(Fault {
                file: file.to_owned(),
                at: start + at,
                line: number + 1,
                column: at + 1,
                old: old.to_owned(),
                new: new.to_owned(),
            });
        };
        for (at, old, new) in tokens(&code) {
            add(at, &old, &new);
        }
        if is_statement(code.trim()) {
            let at = code.len() - code.trim_start().len();
            let whole = &whole[at..at + code.trim().len()];
            add(at, whole, "");
        }
        start += whole.len();
    }
    faults
}

/// A line whose comments and quoted texts are blanked out.
fn code_of(line: &str) -> String {
    let mut code = String::with_capacity(line.len());
    let mut quote = None;
    for (at, byte) in line.bytes().enumerate() {
        if quote.is_none() && line[at..].starts_with("--") {
            break;
        }
        let is_quote = byte == b'\'' || byte == b'"';
        let shown = quote.is_none() && !is_quote && byte.is_ascii();
        code.push(if shown { byte as char } else { '\u{1}' });
        quote = match quote {
            None if is_quote => Some(byte),
            Some(open) if open == byte => None,
            same => same,
        };
    }
    code
}

/// The tokens and the numbers of a line, with their replacements.
fn tokens(code: &str) -> Vec<(usize, String, String)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let rest = &code[at..];
        let is_inside_word = at > 0 && is_word(code.as_bytes()[at - 1]);
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 && !is_inside_word {
            let number: u64 = rest[..digits].parse().unwrap_or(0);
            found.push((at, rest[..digits].to_owned(), (number + 1).to_string()));
            at += digits;
            continue;
        }
        let starts = |(old, _): &&(&str, &[&str])| {
            let is_name = is_word(old.as_bytes()[0]);
            let ends_inside = is_name
                && !old.ends_with(' ')
                && rest.as_bytes().get(old.len()).copied().is_some_and(is_word);
            rest.starts_with(*old) && !(is_name && is_inside_word) && !ends_inside
        };
        match TOKENS.iter().find(starts) {
            Some((old, others)) => {
                found.extend(others.iter().map(|new| (at, (*old).to_owned(), (*new).to_owned())));
                // The space at its end may begin the next token.
                at += old.trim_end().len();
            }
            None => at += 1,
        }
    }
    found
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.'
}

/// Whether a line can be left out: a call, or an assignment to an existing name.
fn is_statement(code: &str) -> bool {
    let names = code.bytes().take_while(|byte| is_word(*byte)).count();
    let (name, rest) = code.split_at(names);
    let keyword =
        ["local", "return", "if", "for", "while", "end", "else", "elseif", "function", "break"];
    let is_whole = code.matches('(').count() == code.matches(')').count()
        && code.matches('{').count() == code.matches('}').count()
        && !code.ends_with(',')
        && !code.ends_with(" and")
        && !code.ends_with(" or")
        && !code.ends_with("..");
    !name.is_empty()
        && !keyword.contains(&name)
        && is_whole
        && (rest.starts_with('(') || rest.starts_with(" = "))
}

/// The results so far, in a file whose head identifies the sample.
#[derive(Debug)]
pub struct Results {
    path: PathBuf,
    head: String,
    /// A line for each tried fault.
    lines: Vec<String>,
}

/// The result of a fault that the compiler rejects.
pub const DOES_NOT_BUILD: &str = "does not build";

const COLUMNS: &str = "number\tfile\tplace\told\tnew\tseconds\tfound by";

impl Results {
    /// Reads the results, if they are of this sample of these files. Otherwise starts again.
    pub fn open(path: &Path, sampled: &Sampled, seed: u64) -> Results {
        let (folder, digest) = (sampled.folder, sampled.digest());
        let head = format!("# a sample of faults, seed {seed}, {folder} {digest}");
        let there = fs::read_to_string(path).unwrap_or_default();
        let is_its = there.lines().next() == Some(head.as_str());
        let lines =
            if is_its { there.lines().skip(2).map(str::to_owned).collect() } else { vec![] };
        Results { path: path.to_owned(), head, lines }
    }

    /// The result of each fault so far.
    pub fn found(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(|line| line.rsplit('\t').next().unwrap_or_default())
    }

    /// Records the result of the fault at this place of the sample. An earlier result is replaced.
    pub fn set(&mut self, at: usize, fault: &Fault, seconds: f64, found: &str) {
        let line = format!("{}\t{fault}\t{seconds:.1}\t{found}", at + 1);
        match self.lines.get_mut(at) {
            Some(before) => *before = line,
            None => self.lines.push(line),
        }
        let text = format!("{}\n{COLUMNS}\n{}\n", self.head, self.lines.join("\n"));
        // An incomplete file would be useless, so a complete one replaces it.
        let new = self.path.with_extension("new");
        fs::create_dir_all(self.path.parent().unwrap()).unwrap();
        fs::write(&new, text).unwrap();
        fs::rename(new, &self.path).unwrap();
    }

    /// The places of the faults that no check has found.
    pub fn survivors(&self) -> Vec<usize> {
        let found = self.found().enumerate();
        found.filter(|(_, found)| found.starts_with(SURVIVED)).map(|(at, _)| at).collect()
    }

    /// The number of tried faults, without those that do not build.
    pub fn tried(&self) -> usize {
        self.found().filter(|found| *found != DOES_NOT_BUILD).count()
    }

    /// The number of those that change nothing, as somebody has noted with the reason.
    fn equivalent(&self) -> usize {
        self.found().filter(|found| found.starts_with(EQUIVALENT)).count()
    }

    /// The place of the next fault.
    pub fn next(&self) -> usize {
        self.lines.len()
    }

    pub fn score(&self) -> String {
        let equivalent = self.equivalent();
        let (tried, survivors) = (self.tried() - equivalent, self.survivors().len());
        let share = 100.0 * (tried - survivors) as f64 / tried.max(1) as f64;
        let found = tried - survivors;
        format!("{found} of {tried} found ({share:.0} %); {equivalent} more change nothing")
    }
}

/// The prefix of the result of a fault that no check has found.
pub const SURVIVED: &str = "SURVIVED";

/// The prefix of the reason why a fault changes nothing that matters, in place of a result. It is
/// written by hand.
const EQUIVALENT: &str = "equivalent";

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let faults = faults_of(Path::new("a.lua"), text);
        faults.iter().map(|fault| format!("{}>{}", fault.old, fault.new)).collect()
    }

    #[test]
    fn faults_are_of_code_alone() {
        assert_eq!(found("-- a == b\n"), [""; 0]);
        assert_eq!(found("f('a == 1')\n"), ["f('a == 1')>"]);
        assert_eq!(found("if a == b then -- < 3\n"), ["==>~="]);
        assert_eq!(found("return x1 >= 10\n"), [">=>>", "10>11"]);
        assert_eq!(found("local notable = not true\n"), ["not >", "true>false"]);
    }

    #[test]
    fn statements_are_left_out() {
        assert_eq!(found("  set('k', v)\n"), ["set('k', v)>"]);
        assert_eq!(found("  t.a = {\n"), [""; 0]);
        assert_eq!(found("  a = b or c\n"), [" or > and ", "a = b or c>"]);
    }

    #[test]
    fn test_modules_are_cut_from_the_source() {
        let code = "#[cfg(test)]\nmod other;\nfn f() {}\n";
        assert_eq!(without_tests(code), code);
        for marks in ["test)]", "test)]\n#[allow(x)]", "all(test, feature = \"embedded\"))]"] {
            let whole = format!("{code}\n#[cfg({marks}\nmod tests {{\n}}\n");
            assert_eq!(without_tests(&whole), code);
        }
    }

    #[test]
    fn score_of_results_excludes_equivalent_mutants() {
        let lines = ["1\tprotocol: a", "2\tSURVIVED", "3\tequivalent: why", "4\tdoes not build"];
        let lines = lines.map(str::to_owned).to_vec();
        let results = Results { path: PathBuf::new(), head: String::new(), lines };
        assert_eq!(results.score(), "1 of 2 found (50 %); 1 more change nothing");
        assert_eq!((results.survivors(), results.tried()), (vec![1], 3));
    }

    #[test]
    fn sampled_script_faults_repeat_and_match_the_scripts() {
        let faults = sample(1);
        assert!(faults.len() > 300, "{}", faults.len());
        assert_eq!(faults, sample(1));
        for fault in faults {
            let text = fs::read_to_string(scripts().path(&fault.file)).unwrap();
            assert!(text[fault.at..].starts_with(&fault.old), "{fault}");
        }
    }
}
