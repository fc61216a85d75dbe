//! The worlds that are searched, and the faults that the rules must find in them.

mod model_cases;
mod seeded_faults;
mod small_worlds;
