//! The statements, as the page has them.

const PAGE: &str = include_str!("../../../docs/fencing.md");

#[derive(Clone, Debug)]
pub struct Statements {
    pub create_table: String,
    pub set: String,
    pub enter: String,
}

impl Statements {
    /// Reads the three blocks of SQL of the page.
    pub fn of_the_page() -> Statements {
        let mut blocks = PAGE.split("```sql\n").skip(1);
        let mut next = || {
            let block = blocks.next().expect("a block of SQL");
            block.split("```").next().unwrap_or_default().to_owned()
        };
        let statements = Statements { create_table: next(), set: next(), enter: next() };
        assert!(blocks.next().is_none(), "the page has more statements than tests");
        statements
    }

    /// Without the comparison of tokens.
    pub fn without_comparison() -> Statements {
        let mut statements = Statements::of_the_page();
        for statement in [&mut statements.set, &mut statements.enter] {
            let is_kept = |line: &&str| !line.starts_with("WHERE");
            *statement = statement.lines().filter(is_kept).collect::<Vec<_>>().join("\n");
        }
        statements
    }

    /// With a comparison that does not order the writes of one token.
    pub fn comparing_tokens_only() -> Statements {
        let mut statements = Statements::of_the_page();
        for statement in [&mut statements.set, &mut statements.enter] {
            *statement = statement
                .replace("(fenced.token, fenced.sequence)", "fenced.token")
                .replace("(excluded.token, excluded.sequence)", "excluded.token");
        }
        statements
    }
}
