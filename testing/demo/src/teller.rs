//! Plain lines with the time since the start.

use std::sync::Arc;
use std::time::Instant;

#[derive(Clone, Debug)]
pub struct Teller(Arc<Instant>);

impl Teller {
    pub fn new() -> Self {
        Teller(Arc::new(Instant::now()))
    }

    pub fn title(&self, text: &str) {
        println!("\n{text}");
    }

    pub fn say(&self, who: &str, what: &str) {
        println!("{:>8.3} s  {who:<8} {what}", self.0.elapsed().as_secs_f64());
    }
}
